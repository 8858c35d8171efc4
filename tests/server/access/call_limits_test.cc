#include "server/access/call_limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "google/rpc/retry.pb.h"
#include "server/wire/grpc_status.h"
#include "server/wire/retry_later.h"

namespace lynx::server {
namespace {

using ::testing::HasSubstr;

constexpr Nanos kSecond{1'000'000'000};

CallLimits Limits() {
  return CallLimits({.reads = {.per_second = 10, .burst = 3}, .changes = {.per_second = 2, .burst = 1}, .shed_above = 5});
}

TEST(TokenBucketTest, GivesItsBurstAndThenItsRate) {
  TokenBucket bucket({.per_second = 2, .burst = 3}, Nanos(0));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(bucket.Take(Nanos(0)), Nanos(0));
  const Nanos wait = bucket.Take(Nanos(0));
  EXPECT_GE(wait, Nanos(kSecond.value / 2));
  EXPECT_LE(wait, Nanos(kSecond.value / 2 + 1000));
  EXPECT_GT(bucket.Take(wait - Nanos(1000)), Nanos(0));
  EXPECT_EQ(bucket.Take(wait), Nanos(0)) << "the time that it names is enough";
  EXPECT_FALSE(bucket.Full(wait));
  EXPECT_TRUE(bucket.Full(wait + Nanos(2 * kSecond.value)));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(bucket.Take(Nanos(1000 * kSecond.value)), Nanos(0));
  EXPECT_GT(bucket.Take(Nanos(1000 * kSecond.value)), Nanos(0)) << "it saves up no more than its burst";
}

TEST(CallLimitsTest, OneCallerDoesNotUseUpAnothersShare) {
  CallLimits limits = Limits();
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(limits.Take(Cost::kRead, CallerKey::kName, "alice", Nanos(0)).ok());
  const absl::Status refused = limits.Take(Cost::kRead, CallerKey::kName, "alice", Nanos(0));
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("alice asks for more than 10 reads a second"));
  EXPECT_TRUE(limits.Take(Cost::kRead, CallerKey::kName, "bob", Nanos(0)).ok());
  EXPECT_TRUE(limits.Take(Cost::kChange, CallerKey::kName, "alice", Nanos(0)).ok()) << "changes have a rate of their own";
  EXPECT_TRUE(limits.Take(Cost::kNothing, CallerKey::kName, "alice", Nanos(0)).ok());
  EXPECT_TRUE(limits.Take(Cost::kRead, CallerKey::kName, "alice", *RetryDelayOf(refused)).ok());
}

TEST(CallLimitsTest, ARateOfZeroIsNone) {
  CallLimits limits(CallLimitOptions{});
  for (int i = 0; i < 10'000; ++i) ASSERT_TRUE(limits.Take(Cost::kRead, CallerKey::kName, "alice", Nanos(0)).ok());
}

TEST(CallLimitsTest, ManyCallersTakeNoMoreMemoryThanTheirNumberIsBounded) {
  CallLimits limits = Limits();
  int refused = 0;
  for (size_t i = 0; i < CallLimits::kMaxCallers + 100; ++i) {
    refused += limits.Take(Cost::kRead, CallerKey::kName, absl::StrCat("caller", i), Nanos(0)).ok() ? 0 : 1;
  }
  EXPECT_EQ(refused, 97) << "those beyond share one burst of three";
  EXPECT_TRUE(limits.Take(Cost::kRead, CallerKey::kName, "one more", Nanos(10 * kSecond.value)).ok())
      << "who has been quiet is forgotten";
}

TEST(CallLimitsTest, StrangersFromManyAddressesTakeNothingFromKnownCallers) {
  CallLimits limits = Limits();
  for (size_t i = 0; i < CallLimits::kMaxCallers + 100; ++i) {
    (void)limits.Take(Cost::kChange, CallerKey::kAddress, absl::StrCat("10.0.0.", i), Nanos(0));
  }
  EXPECT_FALSE(limits.Take(Cost::kChange, CallerKey::kAddress, "10.1.0.1", Nanos(0)).ok());
  EXPECT_TRUE(limits.Take(Cost::kChange, CallerKey::kName, "alice", Nanos(0)).ok());
  EXPECT_TRUE(limits.Take(Cost::kChange, CallerKey::kName, "10.0.0.1", Nanos(0)).ok()) << "a name that looks like an address";
}

TEST(CallLimitsTest, PeopleWaitWhereTheLoopIsBehind) {
  const CallLimits limits = Limits();
  EXPECT_TRUE(limits.CheckQueue(5).ok());
  const absl::Status shed = limits.CheckQueue(6);
  EXPECT_EQ(shed.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(RetryDelayOf(shed).has_value());
}

// The status carries a google.rpc.RetryInfo, which clients in any language can read.
TEST(RetryLaterTest, TravelsAsRetryInfo) {
  const grpc::Status status = ToGrpc(RetryLater("later", Nanos(1'500'000'000)));
  EXPECT_EQ(status.error_code(), grpc::RESOURCE_EXHAUSTED);
  google::rpc::Status details;
  ASSERT_TRUE(details.ParseFromString(status.error_details()));
  EXPECT_EQ(details.code(), grpc::RESOURCE_EXHAUSTED);
  ASSERT_EQ(details.details_size(), 1);
  EXPECT_EQ(details.details(0).type_url(), "type.googleapis.com/google.rpc.RetryInfo");
  google::rpc::RetryInfo info;
  ASSERT_TRUE(details.details(0).UnpackTo(&info));
  EXPECT_EQ(info.retry_delay().seconds(), 1);
  EXPECT_EQ(info.retry_delay().nanos(), 500'000'000);
  EXPECT_TRUE(ToGrpc(absl::ResourceExhaustedError("no time")).error_details().empty());
}

}  // namespace
}  // namespace lynx::server
