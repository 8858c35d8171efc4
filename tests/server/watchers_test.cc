#include "server/watchers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lynx {
namespace {

using ::testing::HasSubstr;

class FakeStream : public WatchStream {
 public:
  void Send(const v1::WatchJobResponse&, bool) override { ++sent; }
  void Close(const absl::Status&) override {}
  int sent = 0;
};

TEST(WatchersTest, OneCallerDoesNotTakeAllPlaces) {
  Watchers watchers;
  const JobId a("a"), b("b");
  std::vector<std::shared_ptr<FakeStream>> streams;
  for (size_t i = 0; i < Watchers::kMostOfOne; ++i) {
    streams.push_back(std::make_shared<FakeStream>());
    ASSERT_TRUE(watchers.Add(i % 2 == 0 ? a : b, "alice", streams.back()).ok());
  }
  const absl::Status refused = watchers.Add(a, "alice", std::make_shared<FakeStream>());
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("alice has 100 watchers"));
  EXPECT_TRUE(watchers.Add(a, "bob", std::make_shared<FakeStream>()).ok());
  watchers.Remove(a, streams[0].get());
  EXPECT_TRUE(watchers.Add(b, "alice", std::make_shared<FakeStream>()).ok()) << "a place that was given up";
}

TEST(WatchersTest, AllHaveALimit) {
  Watchers watchers;
  for (size_t i = 0; i < Watchers::kMost; ++i) ASSERT_TRUE(watchers.Add(JobId("a"), "", std::make_shared<FakeStream>()).ok());
  EXPECT_EQ(watchers.Add(JobId("a"), "alice", std::make_shared<FakeStream>()).code(), absl::StatusCode::kResourceExhausted);
}

TEST(WatchersTest, TheEndOfAJobGivesItsPlacesUp) {
  Watchers watchers;
  std::vector<std::shared_ptr<FakeStream>> streams;
  for (size_t i = 0; i < Watchers::kMostOfOne; ++i) {
    streams.push_back(std::make_shared<FakeStream>());
    ASSERT_TRUE(watchers.Add(JobId("a"), "alice", streams.back()).ok());
  }
  watchers.Changed(JobId("a"), /*final=*/true, {}, Nanos(0), [](const JobId&) { return v1::Job(); });
  for (const auto& stream : streams) EXPECT_EQ(stream->sent, 1);
  EXPECT_TRUE(watchers.Add(JobId("b"), "alice", std::make_shared<FakeStream>()).ok());
}

}  // namespace
}  // namespace lynx
