#include "server/loop/watchers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lynx::server {
namespace {

using ::testing::HasSubstr;

class FakeStream : public WatchStream {
 public:
  void Send(const v1::WatchJobResponse&, bool) override { ++sent; }
  void Close(const absl::Status& status) override { closed = status; }
  int sent = 0;
  absl::Status closed;
};

TEST(WatchersTest, OneCallerDoesNotTakeAllPlaces) {
  Watchers watchers;
  const JobId a("a"), b("b");
  std::vector<std::shared_ptr<FakeStream>> streams;
  for (size_t i = 0; i < Watchers::kMaxOfOne; ++i) {
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
  for (size_t i = 0; i < Watchers::kMaxOfOne; ++i) {
    streams.push_back(std::make_shared<FakeStream>());
    ASSERT_TRUE(watchers.Add(JobId("a"), "alice", streams.back()).ok());
  }
  watchers.Changed(JobId("a"), /*final=*/true, {}, Nanos(0), [](const JobId&) { return v1::Job(); });
  for (const auto& stream : streams) EXPECT_EQ(stream->sent, 1);
  EXPECT_TRUE(watchers.Add(JobId("b"), "alice", std::make_shared<FakeStream>()).ok());
}

TEST(WatchersTest, ThoseOfAForgottenJobAreClosed) {
  Watchers watchers;
  const auto stream = std::make_shared<FakeStream>(), other = std::make_shared<FakeStream>();
  ASSERT_TRUE(watchers.Add(JobId("a"), "", stream).ok());
  ASSERT_TRUE(watchers.Add(JobId("b"), "", other).ok());
  const auto encode = [](const JobId&) { return v1::Job(); };
  watchers.Changed(JobId("a"), false, {}, Nanos(1'000'000'000), encode);
  watchers.Changed(JobId("a"), false, {}, Nanos(1'000'000'001), encode);  // this message is held back
  watchers.Close(JobId("a"), absl::NotFoundError("gone"));
  watchers.Close(JobId("none"), absl::NotFoundError("gone"));
  EXPECT_EQ(stream->closed.code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(other->closed.ok());
  watchers.Tick(Nanos(5'000'000'000), [](const JobId& id) -> v1::Job {
    ADD_FAILURE() << id.value;
    return {};
  });
  for (size_t i = 1; i < Watchers::kMost; ++i)
    ASSERT_TRUE(watchers.Add(JobId("c"), "", std::make_shared<FakeStream>()).ok()) << "its place is free";
}

}  // namespace
}  // namespace lynx::server
