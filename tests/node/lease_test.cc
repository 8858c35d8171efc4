#include "node/lease.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lynx {
namespace {

using testing::HasSubstr;

constexpr Nanos kBegan{1'000'000'000'000};
constexpr Nanos At(double seconds) { return Nanos(kBegan.value + static_cast<int64_t>(seconds * 1e9)); }
constexpr Nanos In(double seconds) { return Nanos(static_cast<int64_t>(seconds * 1e9)); }

// A server that began at -100 s, three witnesses, and a node. The last report of the node that the server answered was at 10 s.
class LeaseTest : public testing::Test {
 protected:
  LeaseTest() : lease_(kBegan) { Answer(1, 10); }
  void Answer(int64_t report, double seconds, double up = 110, std::vector<std::string> witnesses = {"a:1", "b:1", "c:1"}) {
    lease_.Sent(report, At(seconds));
    lease_.Renewed(
        {.report = report, .server_up = In(up), .isolated = In(45), .cut_off = In(6), .witnesses = std::move(witnesses)},
        At(seconds));
  }
  // At the time `now`, the witness says that the server last answered it at the time `renewed`.
  void Say(const std::string& witness, double now, double renewed, double began = -100) {
    lease_.Answered(witness, Witnessed{At(renewed), At(began)}, At(now));
  }
  bool Over(double seconds) { return lease_.Deadline(At(seconds)) <= At(seconds); }

  Lease lease_;
};

TEST_F(LeaseTest, LastsForeverBeforeAServerHasSaidOtherwise) {
  EXPECT_EQ(Lease(kBegan).Deadline(At(1e6)), Lease::kForever);
  EXPECT_FALSE(Lease(kBegan).AsksWitnesses(At(1e6)));
}

TEST_F(LeaseTest, CountsFromWhenTheAnsweredReportWasSent) {
  lease_.Sent(2, At(12));
  lease_.Sent(3, At(14));
  lease_.Renewed({.report = 2, .server_up = In(120), .isolated = In(45), .cut_off = In(6), .witnesses = {"a:1"}}, At(20));
  EXPECT_EQ(lease_.Own()->renewed_at, At(12));
  EXPECT_EQ(lease_.Own()->server_began, At(-100));
  EXPECT_EQ(lease_.Deadline(At(14)), At(57));
}

TEST_F(LeaseTest, AnAnswerToAReportThatThisProcessNeverSentIsNone) {
  lease_.Renewed({.report = 99, .server_up = In(500), .isolated = In(45), .cut_off = In(6), .witnesses = {"a:1"}}, At(30));
  EXPECT_EQ(lease_.Own()->renewed_at, At(10));
}

TEST_F(LeaseTest, AsksWitnessesWhenNoAnswersCome) {
  EXPECT_FALSE(lease_.AsksWitnesses(At(12.9)));
  EXPECT_TRUE(lease_.AsksWitnesses(At(13)));
}

TEST_F(LeaseTest, EndsWhenTheServerAnswersAWitness) {
  for (double now = 13; now < 18; ++now) {
    Say("a:1", now, now - 0.5);
    EXPECT_FALSE(Over(now)) << now;
  }
  Say("a:1", 18, 17.5);
  EXPECT_TRUE(Over(18));
  EXPECT_THAT(lease_.Reason(), HasSubstr("cut off from the server, which answers others"));
  Answer(2, 19);  // the server answers again
  EXPECT_FALSE(Over(20));
}

// The server answered the witnesses at 11.9 s, soon after it answered this node (10 s). Since then it has answered no node.
TEST_F(LeaseTest, GoesOnWhileTheServerIsOnlySlow) {
  for (double now = 13; now < 300; ++now) {
    for (const char* witness : {"a:1", "b:1"}) Say(witness, now, 11.9);
    EXPECT_FALSE(Over(now)) << now;
  }
}

TEST_F(LeaseTest, GoesOnWhileMostWitnessesHearOfNoServer) {
  for (double now = 13; now < 1000; ++now) {
    Say("a:1", now, 10.5);
    lease_.Answered("c:1", std::nullopt, At(now));
    EXPECT_FALSE(Over(now)) << now;
  }
}

TEST_F(LeaseTest, EndsWhenTooFewWitnessesAnswer) {
  for (double now = 13; now < 55; ++now) {
    Say("a:1", now, 10.5);
    EXPECT_FALSE(Over(now)) << now;
  }
  EXPECT_TRUE(Over(55));
  EXPECT_THAT(lease_.Reason(), HasSubstr("neither of the server nor of most other nodes"));
}

TEST_F(LeaseTest, WhatWitnessesSaidLongAgoDoesNotCount) {
  for (const char* witness : {"a:1", "b:1"}) Say(witness, 20, 10.5);
  EXPECT_EQ(lease_.Deadline(At(20)), At(65));
  EXPECT_EQ(lease_.Deadline(At(24)), At(65));  // not At(69)
  EXPECT_TRUE(Over(65));
}

TEST_F(LeaseTest, OnceOverOnlyTheServerBringsItBack) {
  EXPECT_TRUE(Over(60));
  for (const char* witness : {"a:1", "b:1", "c:1"}) Say(witness, 61, 10.5);
  EXPECT_TRUE(Over(61));
  Answer(2, 62);
  EXPECT_FALSE(Over(62));
}

// The server restarts at 40 s, and the witnesses reach the new server before this node does. The node must not end its ranks at
// once: it counts the time from the start of the new server and kNewServerGrace (10 s), and not from the last answer that the
// node got.
TEST_F(LeaseTest, GivesItselfTimeToFindAServerThatHasBegunAnew) {
  for (double now = 13; now < 40; ++now) {
    for (const char* witness : {"a:1", "b:1"}) Say(witness, now, 10.5);
    EXPECT_FALSE(Over(now)) << now;
  }
  for (double now = 40; now < 58; ++now) {
    Say("a:1", now, now - 0.5, 40);
    EXPECT_FALSE(Over(now)) << now;
  }
  Say("a:1", 58, 57.5, 40);
  EXPECT_TRUE(Over(58));
}

// The server that leads is lost just after its last answer (10 s). Another one leads 4 s later, and the witnesses find it at
// once. This node finds it 15 s after the loss.
TEST_F(LeaseTest, ANodeThatFindsTheNextLeaderWithin15SecondsTrainsOn) {
  for (double now = 13; now < 25; ++now) {
    if (now >= 14.5) {
      for (const char* witness : {"a:1", "b:1", "c:1"}) Say(witness, now, now - 0.2, 14);
    }
    EXPECT_FALSE(Over(now)) << now;
  }
  Answer(2, 25, 11);
  EXPECT_FALSE(Over(25));
  EXPECT_EQ(lease_.Deadline(At(25)), At(70)) << "renewed by the new leader";
}

TEST_F(LeaseTest, WithoutWitnessesThereIsNobodyToGiveWorkTo) {
  Answer(2, 12, 112, {});
  EXPECT_FALSE(lease_.AsksWitnesses(At(500)));
  EXPECT_FALSE(Over(500));
}

TEST_F(LeaseTest, AServerWithoutLeasesEndsNothing) {
  lease_.Sent(2, At(12));
  lease_.Renewed({.report = 2, .server_up = In(110), .witnesses = {"a:1"}}, At(12));
  EXPECT_FALSE(Over(1e6));
}

TEST_F(LeaseTest, StrangersAreNotHeard) {
  for (double now = 13; now < 30; ++now) {
    Say("z:1", now, now);
    EXPECT_FALSE(Over(now));
  }
}

TEST_F(LeaseTest, KeepsItsWitnessesWhileANewServerDoesNotKnowThem) {
  const auto renew = [&](int64_t report, std::vector<std::string> witnesses, bool more) {
    lease_.Sent(report, At(12));
    lease_.Renewed({.report = report,
                    .server_up = In(1),
                    .isolated = In(45),
                    .cut_off = In(6),
                    .witnesses = std::move(witnesses),
                    .more_witnesses = more},
                   At(12));
    return lease_.terms().witnesses;
  };
  EXPECT_EQ(renew(2, {}, true), (std::vector<std::string>{"a:1", "b:1", "c:1"}));
  EXPECT_EQ(renew(3, {"d:1", "b:1"}, true), (std::vector<std::string>{"d:1", "b:1", "a:1", "c:1"}));
  EXPECT_EQ(renew(4, {"d:1"}, false), (std::vector<std::string>{"d:1"}));
}

TEST_F(LeaseTest, ARestartedDaemonGoesOnWithWhatItsRanksWereTold) {
  Lease next(At(30), lease_.Deadline(At(29)), lease_.terms());
  EXPECT_TRUE(next.AsksWitnesses(At(30)));
  EXPECT_EQ(next.Deadline(At(31)), At(55));
  // The daemon started at 30 s. Soon after that, an answer of the server to a witness does not mean that this node is cut off.
  next.Answered("a:1", Witnessed{At(30.5), At(-100)}, At(31));
  EXPECT_EQ(next.Deadline(At(31)), At(55));
  next.Answered("a:1", Witnessed{At(36), At(-100)}, At(36.5));
  EXPECT_EQ(next.Deadline(At(36.5)), At(55));
  next.Answered("a:1", Witnessed{At(38), At(-100)}, At(38.6));
  EXPECT_EQ(next.Deadline(At(38.6)), At(38.6));
}

TEST(LeaseTerms, AreTextAndBack) {
  const LeaseTerms terms{.isolated = In(45), .cut_off = In(6), .witnesses = {"10.0.0.1:4000", "[fe80::1]:4001"}};
  EXPECT_EQ(LeaseTermsText(terms), "45000000000 6000000000 10.0.0.1:4000 [fe80::1]:4001\n");
  EXPECT_EQ(ParseLeaseTerms(LeaseTermsText(terms)).value(), terms);
  EXPECT_EQ(ParseLeaseTerms(LeaseTermsText({})).value(), LeaseTerms());
}

TEST(LeaseTerms, AnythingElseIsRefused) {
  for (const char* text : {"", "45", "x 6", "45 y a:1", "-1 6", "45 -6"}) {
    EXPECT_EQ(ParseLeaseTerms(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

}  // namespace
}  // namespace lynx
