#include "worker/rank/peers/idle_limit.h"

#include <gtest/gtest.h>

#include "tests/worker/rank/peers/no_transfers.h"

namespace lynx::worker {
namespace {

Nanos Seconds(int64_t seconds) { return Nanos(seconds * 1'000'000'000); }

constexpr Nanos kProgress{120'000'000'000};

// A communicator that only stores its limit and counts how often the limit was set.
class LimitOnly : public NoTransfers {
 public:
  void SetIdleTimeout(Nanos limit) override {
    this->limit = limit;
    ++sets;
  }
  void SetProgressLimit(Nanos limit) override { progress = limit; }

  Nanos limit = kIdleLimit;
  Nanos progress = kProgress;
  int sets = 0;
};

TEST(IdleLimit, IsLongUntilTheStepsAreKnown) {
  LimitOnly communicator;
  IdleLimit limit(communicator, kProgress);
  for (size_t step = 0; step + 1 < IdleLimit::kStepsKnown; ++step) limit.RecordStep(Nanos(1));
  EXPECT_EQ(limit.now(), kIdleLimit);
  EXPECT_EQ(communicator.sets, 0);
}

TEST(IdleLimit, OfShortStepsIsTenSeconds) {
  LimitOnly communicator;
  IdleLimit limit(communicator, kProgress);
  for (int step = 0; step < 100; ++step) limit.RecordStep(Nanos(5'000'000 + step));
  EXPECT_EQ(communicator.limit, Seconds(10));
  EXPECT_EQ(communicator.sets, 1);  // the limit is set only once, so no thread is woken without need
}

TEST(IdleLimit, OfLongStepsIsThreeOfTheNewestMedian) {
  LimitOnly communicator;
  IdleLimit limit(communicator, kProgress);
  for (const int64_t seconds : {400, 20, 30}) limit.RecordStep(Seconds(seconds));
  EXPECT_EQ(communicator.limit, Seconds(90));
  for (size_t step = 0; step < IdleLimit::kWindow; ++step) limit.RecordStep(Seconds(7));
  EXPECT_EQ(communicator.limit, Seconds(21));
}

TEST(IdleLimit, IsThatOfACheckpointWhileOneIsUnderWay) {
  LimitOnly communicator;
  IdleLimit limit(communicator, kProgress);
  for (int step = 0; step < 3; ++step) limit.RecordStep(Seconds(5));
  {
    const CheckpointPatience patience(limit, kSlowDiskPerSecond * 7);
    EXPECT_EQ(communicator.limit, kIdleLimit + Seconds(7));
  }
  EXPECT_EQ(communicator.limit, Seconds(15));
}

// Within a step the idle limit is short, and a long op must not count as a hang.
TEST(IdleLimit, TheProgressLimitHoldsBeforeTheStepsAreKnownAndInCheckpoints) {
  LimitOnly communicator;
  IdleLimit limit(communicator, kProgress);
  { const CheckpointPatience loads(limit, Bytes(0)); }
  EXPECT_EQ(communicator.progress, kProgress);
  for (int step = 0; step < 2; ++step) limit.RecordStep(Seconds(5));
  EXPECT_EQ(communicator.progress, kProgress);
  limit.RecordStep(Seconds(5));
  EXPECT_EQ(communicator.progress, Nanos(0));
  {
    const CheckpointPatience writes(limit, Bytes(0));
    EXPECT_EQ(communicator.progress, kProgress);
  }
  EXPECT_EQ(communicator.progress, Nanos(0));
}

}  // namespace
}  // namespace lynx::worker
