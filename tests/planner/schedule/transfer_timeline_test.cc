// Checks the timeline with transfers by hand, and against the timeline in which transfers occupy no link.
#include "planner/schedule/transfer_timeline.h"

#include <gtest/gtest.h>

#include "planner/schedule/schedule_timeline.h"
#include "tests/planner/schedule/schedules.h"

namespace lynx {
namespace {

TransferOrder Order(const Schedule& schedule) {
  absl::StatusOr<PipelineSlots> slots = SlotsToLower(schedule);
  EXPECT_TRUE(slots.ok()) << slots.status();
  return OrderTransfers(Ordered(schedule), *slots);
}

int64_t Time(const Schedule& schedule, const std::vector<TransferPassTimes>& times) {
  TransferScratch scratch;
  return StepTime(Order(schedule), times, scratch).value;
}

// A receive is posted at the begin of the slot before, so one transfer can run at the same time as one slot, and no more.
TEST(TransferTimeline, BeginsATransferWhenBothRanksHaveStartedIt) {
  const Schedule schedule = Read(
      "gpipe ranks=2 microbatches=3\n"
      "0F0 0F1 0F2 0B0 0B1 0B2\n"
      "1F0 1F1 1F2 1B0 1B1 1B2\n");
  std::vector<TransferPassTimes> times(2, {.forward = Nanos(10), .backward = Nanos(20)});
  times[1].forward = Nanos(50);
  times[0].transfer = Nanos(30);
  // The first receive is posted at 0, and 0F0 ends at 10, so 1F0 runs from 40 to 90. It posts the receive of 1F1 at 40: the
  // transfer runs until 70. 1F1 runs from 90 to 140, and 1F2, whose input has come at 120, until 190. 1B0 to 1B2 end at 210,
  // 230 and 250. Backward slots post their receives at the end here. 0F2 posts the receive of 0B0, and 0B0 runs from 240 to
  // 260. The gradient of 1B1 begins its way then, at 260, so 0B1 runs from 290 to 310. 0B2 runs from 340 to 360.
  EXPECT_EQ(Time(schedule, times), 360);
  times[0].after_post = Nanos(20);  // at the begin: the gradient of 1B1 begins its way at 240, that of 1B2 at 270
  EXPECT_EQ(Time(schedule, times), 320);
}

TEST(TransferTimeline, MakesARankWaitForWhatItHasSent) {
  const Schedule schedule = Read(
      "1f1b ranks=2 microbatches=2\n"
      "0F0 0F1 0B0 0B1\n"
      "1F0 1B0 1F1 1B1\n");
  std::vector<TransferPassTimes> times(2, {.forward = Nanos(10), .backward = Nanos(10)});
  times[0].transfer = Nanos(100);
  times[0].after_post = times[1].after_post = Nanos(10);
  // 1F0 runs from 110 to 120, and 1B0 until 130; 1B0 posts the receive of 1F1 at 120, so 1F1 begins at 220. The gradient of 1B0
  // is under way from 130 to 230. 0B0 begins at 230. 1F1 ends at 230, because it waits for the gradient that it has sent. 1B1
  // runs until 240. 0B0 has posted the receive of 0B1 at 230, so 0B1 runs from 340 to 350.
  EXPECT_EQ(Time(schedule, times), 350);
}

std::vector<TransferPassTimes> WithLinks(const std::vector<StagePassTimes>& times) {
  std::vector<TransferPassTimes> result;
  for (const StagePassTimes& of : times) {
    const Nanos pass = of.weight + of.backward;
    result.push_back(
        {.forward = of.forward, .backward = of.backward, .weight = of.weight, .transfer = of.transfer, .after_post = pass});
  }
  return result;
}

TEST(TransferTimeline, IsNeverShorterThanWithoutLinks) {
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    std::mt19937_64 rng(seed);
    const Schedule schedule = RandomSchedule(rng);
    if (!SlotsToLower(schedule).ok()) continue;
    const std::vector<StagePassTimes> times = RandomTimes(rng, schedule.shape);
    EXPECT_GE(Time(schedule, WithLinks(times)), StepTime(schedule, times)) << "seed " << seed;
    const std::vector<StagePassTimes> equal = EqualTimes(schedule.shape, 7, 7, 7);
    if (schedule.splits_weight) EXPECT_EQ(Time(schedule, WithLinks(equal)), StepTime(schedule, equal)) << "seed " << seed;
  }
}

// A link carries one transfer at a time, so a step takes at least the sum of the transfers of any link.
TEST(TransferTimeline, IsNeverShorterThanTheTransfersOfALink) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    std::mt19937_64 rng(seed);
    const Schedule schedule = RandomSchedule(rng);
    const PipelineShape& shape = schedule.shape;
    if (shape.ranks == 1 || shape.placement != StagePlacement::kLooping) continue;
    std::vector<StagePassTimes> times = RandomTimes(rng, shape);
    for (StagePassTimes& of : times) of.transfer = Nanos(500);
    EXPECT_GE(Time(schedule, WithLinks(times)), 500 * schedule.microbatches * shape.chunks) << "seed " << seed;
  }
}

}  // namespace
}  // namespace lynx
