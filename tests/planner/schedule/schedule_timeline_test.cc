// Compares the timeline with the reference, with lower bounds, and with the bubbles that the literature gives.
#include "planner/schedule/schedule_timeline.h"

#include <gtest/gtest.h>

#include <numeric>

#include "planner/schedule/schedule_memory.h"
#include "tests/planner/schedule/schedules.h"

namespace lynx {
namespace {

TEST(Timeline, OfTwoRanksByHand) {
  const Schedule schedule = Read(
      "1f1b ranks=2 microbatches=2\n"
      "0F0 0F1 0B0 0B1\n"
      "1F0 1B0 1F1 1B1\n");
  const std::vector<StagePassTimes> times = {{Nanos(10), Nanos(12), Nanos(8), Nanos(3)},
                                             {Nanos(5), Nanos(6), Nanos(4), Nanos(1000)}};
  const Timeline timeline = ComputeTimeline(Ordered(schedule), times);
  // 1F0 begins at 10 + 3 and ends at 18. 1B0 ends at 28. 1F1 has arrived at 23 and ends at 33. 1B1 ends at 43. 0B0 begins at 28
  // + 3 and ends at 51.
  EXPECT_EQ(timeline.end, Nanos(71));
  const RankTimeline& first = timeline.ranks[0];
  EXPECT_EQ(first.slots[2].begin, Nanos(31));
  EXPECT_EQ(first.slots[2].stall, Nanos(11));
  EXPECT_EQ(first.slots[2].end, Nanos(51));
  EXPECT_EQ(first.slots[3].stall, Nanos(0));
  EXPECT_EQ(first.busy, Nanos(60));
  EXPECT_EQ(first.end, Nanos(71));
  const RankTimeline& second = timeline.ranks[1];
  EXPECT_EQ(second.slots[0].begin, Nanos(13));
  EXPECT_EQ(second.slots[0].stall, Nanos(13));
  EXPECT_EQ(second.busy, Nanos(30));
  EXPECT_EQ(second.end, Nanos(43));
}

TEST(Timeline, HasNoTransferBetweenStagesOfOneRank) {
  const Schedule schedule = Read(
      "custom ranks=2 chunks=2 microbatches=1 placement=v\n"
      "0F0 3F0 3B0 0B0\n"
      "1F0 2F0 2B0 1B0\n");
  std::vector<StagePassTimes> times = EqualTimes(schedule.shape, 1, 1, 0);
  EXPECT_EQ(StepTime(schedule, times), 8);
  times[1].transfer = Nanos(100);  // stages 1 and 2 are both on rank 1
  EXPECT_EQ(StepTime(schedule, times), 8);
  times[0].transfer = Nanos(100);
  EXPECT_EQ(StepTime(schedule, times), 208);
  times[3].transfer = Nanos(100);  // stage 3 is the last stage
  EXPECT_EQ(StepTime(schedule, times), 208);
}

TEST(Timeline, AgreesWithTheReference) {
  TimelineScratch scratch;
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    std::mt19937_64 rng(seed);
    const Schedule schedule = RandomSchedule(rng);
    const std::vector<StagePassTimes> times = RandomTimes(rng, schedule.shape);
    const auto reference = RunReference(schedule, times);
    ASSERT_TRUE(reference.has_value()) << "seed " << seed;
    const SlotOrder order = Ordered(schedule);
    const Timeline timeline = ComputeTimeline(order, times);
    Nanos end;
    for (size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
      const RankTimeline& ran = timeline.ranks[rank];
      ASSERT_EQ(ran.slots.size(), schedule.ranks[rank].size()) << "seed " << seed;
      Nanos busy, free;
      for (size_t i = 0; i < ran.slots.size(); ++i) {
        const auto [begin, slot_end] = reference->at(KeyOf(schedule.ranks[rank][i]));
        ASSERT_EQ(ran.slots[i].begin, begin) << "seed " << seed << ", rank " << rank << ", slot " << i;
        ASSERT_EQ(ran.slots[i].end, slot_end) << "seed " << seed << ", rank " << rank << ", slot " << i;
        ASSERT_EQ(ran.slots[i].stall, begin - free) << "seed " << seed << ", rank " << rank << ", slot " << i;
        busy += slot_end - begin;
        free = slot_end;
      }
      EXPECT_EQ(ran.busy, busy) << "seed " << seed;
      EXPECT_EQ(ran.end, free) << "seed " << seed;
      end = std::max(end, free);
    }
    EXPECT_EQ(timeline.end, end) << "seed " << seed;
    EXPECT_EQ(StepTime(order, times, scratch), end) << "seed " << seed;
  }
}

// No schedule is faster than its busiest rank. None is faster than one microbatch that goes forward and back through all
// stages.
TEST(ScheduleProperty, TimelineKeepsTheLowerBounds) {
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    std::mt19937_64 rng(seed);
    const Schedule schedule = RandomSchedule(rng);
    const PipelineShape& shape = schedule.shape;
    const std::vector<StagePassTimes> times = RandomTimes(rng, shape);
    const SlotOrder order = Ordered(schedule);
    const Timeline timeline = ComputeTimeline(order, times);
    std::vector<Nanos> work(static_cast<size_t>(shape.ranks));
    std::vector<Nanos> way(static_cast<size_t>(shape.pipes()));
    std::vector<int64_t> microbatches(static_cast<size_t>(shape.pipes()));
    for (const int32_t pipe : order.pipe_of_microbatch) ++microbatches[pipe];
    for (int32_t stage = 0; stage < shape.stages(); ++stage) {
      const StagePassTimes& t = times[stage];
      work[shape.RankOf(stage)] += (t.forward + t.backward + t.weight) * microbatches[shape.PipeOf(stage)];
      way[shape.PipeOf(stage)] += t.forward + t.backward + (schedule.splits_weight ? Nanos(0) : t.weight);
      const int32_t next = shape.Next(stage);
      if (next != kNoStage && shape.RankOf(next) != shape.RankOf(stage)) way[shape.PipeOf(stage)] += t.transfer * 2;
    }
    for (size_t rank = 0; rank < work.size(); ++rank) {
      EXPECT_EQ(timeline.ranks[rank].busy, work[rank]) << "seed " << seed;
      EXPECT_GE(timeline.ranks[rank].end, work[rank]) << "seed " << seed;
    }
    for (const Nanos& there_and_back : way) EXPECT_GE(timeline.end, there_and_back) << "seed " << seed;
  }
}

TEST(ScheduleProperty, SlowerPassesNeverEndSooner) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    std::mt19937_64 rng(seed);
    const Schedule schedule = RandomSchedule(rng);
    std::vector<StagePassTimes> times = RandomTimes(rng, schedule.shape);
    const int64_t before = StepTime(schedule, times);
    StagePassTimes& slower = times[rng() % times.size()];
    Nanos* const fields[] = {&slower.forward, &slower.backward, &slower.weight, &slower.transfer};
    *fields[rng() % 4] += Nanos(20);
    EXPECT_GE(StepTime(schedule, times), before) << "seed " << seed;
  }
}

// The times of the passes in the formulas: forward pass, input gradient, weight gradient.
struct Passes {
  int64_t f, b, w;
  int64_t all() const { return f + b + w; }
};
constexpr Passes kPasses[] = {{1, 1, 1}, {2, 2, 2}, {3, 3, 2}, {5, 4, 3}, {4, 7, 4}};

template <class Check>
void ForEachSize(const Check& check) {
  for (const Passes& t : kPasses) {
    for (int32_t p = 1; p <= 7; ++p) {
      for (int32_t m = 1; m <= 3 * p + 2; ++m) {
        SCOPED_TRACE(::testing::Message() << "F " << t.f << " B " << t.b << " W " << t.w << ", p " << p << ", M " << m);
        check(t, p, m);
        if (::testing::Test::HasFailure()) return;
      }
    }
  }
}

int64_t Step(ScheduleKind kind, int32_t p, int32_t v, int32_t m, const Passes& t) {
  const Schedule schedule = Generated(kind, p, v, m);
  return StepTime(schedule, EqualTimes(schedule.shape, t.f, t.b, t.w));
}

// Huang et al. 2019, Narayanan et al. 2021: the bubble is as long as p - 1 microbatches, which is (p-1)/(M+p-1) of the step.
TEST(Bubble, OfGpipeAnd1F1BIsThatOfAllRanksButOne) {
  ForEachSize([](const Passes& t, int32_t p, int32_t m) {
    EXPECT_EQ(Step(ScheduleKind::kGpipe, p, 1, m, t), (m + p - 1) * t.all());
    EXPECT_EQ(Step(ScheduleKind::kOneForwardOneBackward, p, 1, m, t), (m + p - 1) * t.all());
  });
}

// Narayanan et al. 2021: the bubble is 1/v of that of 1F1B. The times here are those of a chunk, which are 1/v of the times of
// a rank.
TEST(Bubble, OfInterleavedIsSmallerByTheChunks) {
  ForEachSize([](const Passes& t, int32_t p, int32_t m) {
    for (int32_t v = 2; v <= 4; ++v) {
      const int64_t step = Step(ScheduleKind::kInterleaved, p, v, m, t);
      if (m % p == 0) {
        EXPECT_EQ(step, (int64_t{m} * v + p - 1) * t.all());
      } else {
        EXPECT_LE(step, Step(ScheduleKind::kInterleaved, p, v, (m + p - 1) / p * p, t));
        EXPECT_GE(step, (int64_t{m} * v + p - 1) * t.all());
      }
    }
  });
}

// Qi et al. 2023, table 2: ZB-H1 has a bubble of (p-1)(F+B-W), where 1F1B has (p-1)(F+B+W). This holds if there are at least as
// many microbatches as ranks, and if W <= F. If W > F, the first W delays a forward pass for which the next rank waits.
TEST(Bubble, OfZeroBubbleIsSmallerByTwoW) {
  ForEachSize([](const Passes& t, int32_t p, int32_t m) {
    const int64_t step = Step(ScheduleKind::kZeroBubble, p, 1, m, t);
    if (m >= p) {
      EXPECT_EQ(step, m * t.all() + (p - 1) * (t.f + t.b - t.w));
    } else if (t.f == t.b && t.b == t.w) {
      EXPECT_EQ(step, (2 * p - 1 + 2 * m) * t.f);
    }
  });
}

TEST(ScheduleProperty, ZeroBubbleIsNeverSlowerNorLargerThan1F1B) {
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    std::mt19937_64 rng(seed);
    const auto at_most = [&](int32_t n) { return static_cast<int32_t>(rng() % static_cast<uint64_t>(n)) + 1; };
    const int32_t p = at_most(12), m = at_most(40);
    const Passes t{at_most(9), at_most(9), at_most(9)};
    SCOPED_TRACE(::testing::Message() << "seed " << seed << ", p " << p << ", M " << m << ", F " << t.f << " B " << t.b << " W "
                                      << t.w);
    EXPECT_LE(Step(ScheduleKind::kZeroBubble, p, 1, m, t), Step(ScheduleKind::kOneForwardOneBackward, p, 1, m, t));
    const auto zero_bubble = CountInFlight(Generated(ScheduleKind::kZeroBubble, p, 1, m));
    const auto plain = CountInFlight(Generated(ScheduleKind::kOneForwardOneBackward, p, 1, m));
    for (int32_t r = 0; r < p; ++r) {
      EXPECT_LE(zero_bubble[r].activations, plain[r].activations);
      EXPECT_LE(zero_bubble[r].either, plain[0].activations);
    }
  }
}

// Qi et al. 2023: if F = B = W, no rank stalls between its first slot and its last slot. The last rank begins p - 1 slots after
// the first rank.
TEST(Bubble, OfZeroBubbleVIsZeroWhereAllPassesAreAlike) {
  for (int32_t p = 1; p <= 7; ++p) {
    for (int32_t m = 2 * p - 1; m <= 4 * p; ++m) {
      SCOPED_TRACE(::testing::Message() << "p " << p << ", M " << m);
      const Schedule schedule = Generated(ScheduleKind::kZeroBubbleV, p, 2, m);
      const Timeline timeline = ComputeTimeline(Ordered(schedule), EqualTimes(schedule.shape, 1, 1, 1));
      EXPECT_EQ(timeline.end, Nanos(6 * m + p - 1));
      for (const RankTimeline& rank : timeline.ranks) EXPECT_EQ(rank.end - rank.slots.front().begin, rank.busy);
    }
  }
}

// Li and Hoefler 2021: if forward and backward passes take the same time, the bubble has p - 2 slots, for any number of units
// (a unit is p microbatches). If a backward pass takes as long as two forward passes, one unit has a bubble of 2(p-2) forward
// passes. This is (p-2)/(3M/2 + p-2) of the step. Each further unit adds p - 2 forward passes, which the paper calls the bubble
// between units.
TEST(Bubble, OfChimeraIsAboutHalfOf1F1Bs) {
  for (int32_t p = 2; p <= 10; p += 2) {
    for (int32_t m = p; m <= 4 * p; m += p) {
      SCOPED_TRACE(::testing::Message() << "p " << p << ", M " << m);
      EXPECT_EQ(Step(ScheduleKind::kChimera, p, 2, m, {2, 1, 1}), 2 * (2 * m + p - 2));
      EXPECT_EQ(Step(ScheduleKind::kChimera, p, 2, m, {1, 1, 1}), 3 * m + 2 * (p - 2) + (m / p - 1) * (p - 2));
    }
  }
}

}  // namespace
}  // namespace lynx
