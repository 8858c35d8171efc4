#include "worker/rank/idle_limit.h"

#include <gtest/gtest.h>

namespace lynx {
namespace {

Nanos Seconds(int64_t seconds) { return Nanos(seconds * 1'000'000'000); }

// Knows only its limit and how often it was set.
class LimitOnly : public Communicator {
 public:
  absl::StatusOr<TransferTicket> StartAllReduce(const Route&, Elements, int64_t) override { return None(); }
  absl::StatusOr<TransferTicket> StartAllGather(const Route&, Elements, int64_t) override { return None(); }
  absl::StatusOr<TransferTicket> StartReduceScatter(const Route&, Elements, int64_t) override { return None(); }
  absl::StatusOr<TransferTicket> StartSend(const Route&, ConstElements, int64_t) override { return None(); }
  absl::StatusOr<TransferTicket> StartRecv(const Route&, Elements, int64_t) override { return None(); }
  absl::StatusOr<TransferTimes> Wait(TransferTicket) override { return None(); }
  absl::Status Barrier() override { return None(); }
  void Abort(const absl::Status&) override {}
  absl::Status Failure() const override { return absl::OkStatus(); }
  void SetIdleTimeout(Nanos limit) override {
    this->limit = limit;
    ++sets;
  }
  int64_t BytesSent() const override { return 0; }
  Nanos ThreadCpuTime() const override { return Nanos(0); }

  Nanos limit = kIdleLimit;
  int sets = 0;

 private:
  static absl::Status None() { return absl::UnimplementedError("none"); }
};

TEST(IdleLimit, IsLongUntilTheStepsAreKnown) {
  LimitOnly communicator;
  IdleLimit limit(communicator);
  for (size_t step = 0; step + 1 < IdleLimit::kStepsKnown; ++step) limit.Took(Nanos(1));
  EXPECT_EQ(limit.now(), kIdleLimit);
  EXPECT_EQ(communicator.sets, 0);
}

TEST(IdleLimit, OfShortStepsIsTenSeconds) {
  LimitOnly communicator;
  IdleLimit limit(communicator);
  for (int step = 0; step < 100; ++step) limit.Took(Nanos(5'000'000 + step));
  EXPECT_EQ(communicator.limit, Seconds(10));
  EXPECT_EQ(communicator.sets, 1);  // nobody is woken for nothing
}

TEST(IdleLimit, OfLongStepsIsThreeOfTheNewestMedian) {
  LimitOnly communicator;
  IdleLimit limit(communicator);
  for (const int64_t seconds : {400, 20, 30}) limit.Took(Seconds(seconds));
  EXPECT_EQ(communicator.limit, Seconds(90));
  for (size_t step = 0; step < IdleLimit::kWindow; ++step) limit.Took(Seconds(7));
  EXPECT_EQ(communicator.limit, Seconds(21));
}

TEST(IdleLimit, IsThatOfACheckpointWhileOneIsUnderWay) {
  LimitOnly communicator;
  IdleLimit limit(communicator);
  for (int step = 0; step < 3; ++step) limit.Took(Seconds(5));
  {
    const CheckpointPatience patience(limit, kSlowDiskPerSecond * 7);
    EXPECT_EQ(communicator.limit, kIdleLimit + Seconds(7));
  }
  EXPECT_EQ(communicator.limit, Seconds(15));
}

}  // namespace
}  // namespace lynx
