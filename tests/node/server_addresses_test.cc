#include "node/server_addresses.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lynx {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Next = ServerAddresses::Next;

ServerAddresses Parsed(const std::string& text) {
  absl::StatusOr<ServerAddresses> parsed = ServerAddresses::Parse(text);
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  return *parsed;
}

TEST(ServerAddressesTest, ReadsOneAndSeveral) {
  EXPECT_THAT(Parsed("head:7470").all(), ElementsAre("head:7470"));
  EXPECT_FALSE(Parsed("head:7470").several());
  const ServerAddresses three = Parsed("a:7470, 10.0.0.2:1 ,[fe80::1]:65535");
  EXPECT_THAT(three.all(), ElementsAre("a:7470", "10.0.0.2:1", "[fe80::1]:65535"));
  EXPECT_TRUE(three.several());
  EXPECT_EQ(three.present(), "a:7470");
  EXPECT_EQ(three.text(), "a:7470,10.0.0.2:1,[fe80::1]:65535");
  EXPECT_THAT(Parsed(three.text()).all(), three.all());
}

TEST(ServerAddressesTest, SaysWhichPartIsWrongAndHow) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "part 1 (\"\") is empty"},
      {"a:1,,b:1", "part 2 (\"\") is empty"},
      {"a:1,", "part 2 (\"\") is empty"},
      {"a:1,b", "part 2 (\"b\") has no port"},
      {"[::1]", "part 1 (\"[::1]\") has no port"},
      {"a:", "has no port from 1 to 65535"},
      {"a:0", "has no port from 1 to 65535"},
      {"a:65536", "has no port from 1 to 65535"},
      {"a:+1", "has no port from 1 to 65535"},
      {"a:http", "has no port from 1 to 65535"},
      {"a:7470/x", "has no port from 1 to 65535"},
      {":7470", "has no host"},
      {"::1:7470", "which stands in brackets: [::1]:7470"},
      {"[]:1", "has a host that is not complete"},
      {"[::1:7470", "has a host that is not complete"},
      {"[::1]x:7470", "has text between the host and the port"},
      {"a b:1", "has a space in its host"},
      {"a:1,b:1,a:1", "part 3 (\"a:1\") is there twice"},
  };
  for (const auto& [text, wrong] : cases) {
    const absl::Status status = ServerAddresses::Parse(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr(wrong));
    EXPECT_THAT(std::string(status.message()), HasSubstr("write HOST:PORT, or several with commas"));
  }
  std::string many = "h:1";
  for (int port = 2; port <= 16; ++port) many += ",h:" + std::to_string(port);
  EXPECT_EQ(Parsed(many).all().size(), 16u);
  EXPECT_THAT(std::string(ServerAddresses::Parse(many + ",h:17").status().message()),
              HasSubstr("part 17 (\"h:17\") is one too many: there may be 16"));
}

TEST(ServerAddressesTest, KnowsItsAddresses) {
  const ServerAddresses three = Parsed("a:1,b:1,c:1");
  EXPECT_TRUE(three.Has("b:1"));
  EXPECT_FALSE(three.Has("b:2"));
  EXPECT_TRUE(three.HasAll(Parsed("c:1,a:1")));
  EXPECT_FALSE(three.HasAll(Parsed("c:1,d:1")));
}

TEST(ServerAddressesTest, OneAddressIsTriedAgainAfterEachWait) {
  ServerAddresses one = Parsed("a:1");
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(one.Failed(i == 1 ? "elsewhere:1" : ""), Next::kAfterWait);
    EXPECT_EQ(one.present(), "a:1");
  }
  EXPECT_EQ(one.Failed("a:1"), Next::kAfterWait) << "it names itself";
  EXPECT_FALSE(one.named());
}

TEST(ServerAddressesTest, GoesRoundAndRoundInOrder) {
  ServerAddresses three = Parsed("a:1,b:1,c:1");
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(three.present(), "a:1");
    EXPECT_EQ(three.Failed(), Next::kAtOnce);
    EXPECT_EQ(three.present(), "b:1");
    EXPECT_EQ(three.Failed(), Next::kAtOnce);
    EXPECT_EQ(three.present(), "c:1");
    EXPECT_EQ(three.Failed(), Next::kAfterWait);
  }
}

TEST(ServerAddressesTest, FollowsTheLeaderThatAStandbyNames) {
  ServerAddresses three = Parsed("a:1,b:1,c:1");
  EXPECT_EQ(three.Failed("c:1"), Next::kAtOnce);
  EXPECT_EQ(three.present(), "c:1");
  EXPECT_TRUE(three.named());
  three.Answered();
  // The new leader has an address that comes earlier in the list.
  EXPECT_EQ(three.Failed("b:1"), Next::kAtOnce);
  EXPECT_EQ(three.present(), "b:1");
  EXPECT_TRUE(three.named());
  // This leader fails too, and no server names another one.
  EXPECT_EQ(three.Failed(), Next::kAtOnce);
  EXPECT_EQ(three.present(), "a:1") << "the only one that has not failed in this round";
  EXPECT_FALSE(three.named());
}

TEST(ServerAddressesTest, ALeaderThatIsNotAmongTheAddressesIsNotCalled) {
  ServerAddresses two = Parsed("a:1,b:1");
  EXPECT_EQ(two.Failed("elsewhere:1"), Next::kAtOnce);
  EXPECT_EQ(two.present(), "b:1");
  EXPECT_EQ(two.Failed("elsewhere:1"), Next::kAfterWait);
  EXPECT_EQ(two.present(), "a:1");
}

// For some seconds, standbys name the old leader, which has failed. Each round tries every address, and none twice.
TEST(ServerAddressesTest, ADeadLeaderIsTriedOnceARound) {
  ServerAddresses three = Parsed("a:1,b:1,c:1");
  for (int round = 0; round < 5; ++round) {
    std::vector<std::string> tried;
    Next next = Next::kAtOnce;
    while (next == Next::kAtOnce) {
      tried.push_back(three.present());
      next = three.Failed(three.present() == "a:1" ? "" : "a:1");
    }
    EXPECT_THAT(tried, ::testing::UnorderedElementsAre("a:1", "b:1", "c:1")) << "round " << round;
  }
}

// While the lease changes hands, each of two standbys may name the other. The round must still end.
TEST(ServerAddressesTest, StandbysThatNameEachOtherEndTheRound) {
  ServerAddresses two = Parsed("a:1,b:1");
  EXPECT_EQ(two.Failed("b:1"), Next::kAtOnce);
  EXPECT_EQ(two.Failed("a:1"), Next::kAfterWait);
  EXPECT_EQ(two.present(), "a:1");
  EXPECT_TRUE(two.named()) << "it is named after it has failed, so the next round begins with it";
}

TEST(ServerAddressesTest, BeginsWithOneOfThem) {
  ServerAddresses servers = ServerAddresses::Parse("a:1,b:2,c:3").value();
  servers.BeginWith("b:2");
  EXPECT_EQ(servers.present(), "b:2");
  EXPECT_FALSE(servers.named()) << "nobody named it now";
  servers.BeginWith("d:4");
  servers.BeginWith("");
  EXPECT_EQ(servers.present(), "b:2");
  EXPECT_EQ(servers.Failed(), ServerAddresses::Next::kAtOnce);
  EXPECT_EQ(servers.present(), "c:3");
  EXPECT_EQ(servers.Failed(), ServerAddresses::Next::kAtOnce);
  EXPECT_EQ(servers.present(), "a:1") << "all are tried";
  EXPECT_EQ(servers.Failed(), ServerAddresses::Next::kAfterWait);
}

TEST(ServerAddressesTest, AnAnswerBeginsANewRound) {
  ServerAddresses two = Parsed("a:1,b:1");
  EXPECT_EQ(two.Failed(), Next::kAtOnce);
  two.Answered();
  EXPECT_EQ(two.present(), "b:1");
  EXPECT_EQ(two.Failed(), Next::kAtOnce) << "a:1 has not failed since the answer";
  EXPECT_EQ(two.present(), "a:1");
  EXPECT_EQ(two.Failed(), Next::kAfterWait);
}

TEST(ServerAddressesTest, SaysWhoLeads) {
  const ServerAddresses two = Parsed("a:1,b:1");
  EXPECT_EQ(StandbyText(two, ""), "stands by, and no server leads at present");
  EXPECT_EQ(StandbyText(two, "b:1"), "stands by; the server at b:1 leads");
  EXPECT_EQ(StandbyText(two, "c:1"),
            "stands by; the server at c:1 leads, which is not among the addresses given (a:1,b:1): add it");
}

}  // namespace
}  // namespace lynx
