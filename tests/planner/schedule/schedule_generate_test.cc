// Tests the generated schedules: their golden texts, and the in-flight counts that the literature gives for each schedule.
#include "planner/schedule/schedule_generate.h"

#include <gtest/gtest.h>

#include "planner/schedule/schedule_memory.h"
#include "tests/golden/golden.h"
#include "tests/planner/schedule/schedules.h"

namespace lynx {
namespace {

TEST(GenerateSchedule, MatchesTheGoldenTexts) {
  ExpectGolden("schedules/schedule_gpipe.txt", ScheduleText(Generated(ScheduleKind::kGpipe, 4, 1, 6)));
  ExpectGolden("schedules/schedule_1f1b.txt", ScheduleText(Generated(ScheduleKind::kOneForwardOneBackward, 4, 1, 8)));
  ExpectGolden("schedules/schedule_interleaved.txt", ScheduleText(Generated(ScheduleKind::kInterleaved, 4, 2, 8)));
  ExpectGolden("schedules/schedule_interleaved_ragged.txt", ScheduleText(Generated(ScheduleKind::kInterleaved, 4, 2, 6)));
  ExpectGolden("schedules/schedule_zero_bubble.txt", ScheduleText(Generated(ScheduleKind::kZeroBubble, 4, 1, 8)));
  ExpectGolden("schedules/schedule_zero_bubble_v.txt", ScheduleText(Generated(ScheduleKind::kZeroBubbleV, 4, 2, 8)));
  ExpectGolden("schedules/schedule_chimera.txt", ScheduleText(Generated(ScheduleKind::kChimera, 4, 2, 8)));
}

TEST(GenerateSchedule, RefusesWhatHasNoSchedule) {
  const auto error = [](ScheduleKind kind, int32_t ranks, int32_t chunks, int32_t microbatches) {
    return std::string(GenerateSchedule(kind, ranks, chunks, microbatches).status().message());
  };
  EXPECT_EQ(error(ScheduleKind::kAuto, 4, 1, 8), "auto is no schedule but the choice of one");
  EXPECT_EQ(error(ScheduleKind::kChimera, 4, 1, 8), "chimera puts 2 chunks on each rank, not 1");
  EXPECT_EQ(error(ScheduleKind::kChimera, 4, 2, 3), "chimera needs an even number of microbatches, half for each pipe, not 3");
  EXPECT_EQ(error(ScheduleKind::kOneForwardOneBackward, -1, 1, 8), "a pipeline has 1 to 4096 ranks, not -1");
}

// Each virtual stage runs its forward slots in ascending order of their microbatches, and likewise its backward slots and its
// weight-gradient slots. So gradients are always summed in the same order.
TEST(GenerateSchedule, RunsMicrobatchesOfAStageInOrder) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    std::mt19937_64 rng(seed);
    const Schedule schedule = RandomSchedule(rng);
    std::map<std::pair<Pass, int32_t>, int32_t> last;
    for (const std::vector<Slot>& slots : schedule.ranks) {
      for (const Slot& slot : slots) {
        const auto [previous, first] = last.insert({{slot.pass, slot.stage}, slot.microbatch});
        ASSERT_TRUE(first || previous->second < slot.microbatch) << "seed " << seed << "\n" << ScheduleText(schedule);
        previous->second = slot.microbatch;
      }
    }
  }
}

template <class Check>
void ForEachSize(int32_t most_ranks, int32_t most_microbatches, const Check& check) {
  for (int32_t p = 1; p <= most_ranks; ++p) {
    for (int32_t m = 1; m <= most_microbatches; ++m) {
      SCOPED_TRACE(::testing::Message() << "p " << p << ", M " << m);
      check(p, m);
    }
  }
}

TEST(InFlight, OfGpipeIsAllMicrobatches) {
  ForEachSize(6, 12, [](int32_t p, int32_t m) {
    for (const InFlightCount& count : CountInFlight(Generated(ScheduleKind::kGpipe, p, 1, m))) {
      EXPECT_EQ(count, (InFlightCount{.activations = m, .weights = 0, .either = m}));
    }
  });
}

// Korthikanti et al. 2022, and PipeDream-flush: rank r holds min(p - r, M) microbatches.
TEST(InFlight, Of1F1BFallsWithTheRank) {
  ForEachSize(6, 12, [](int32_t p, int32_t m) {
    const std::vector<InFlightCount> counts = CountInFlight(Generated(ScheduleKind::kOneForwardOneBackward, p, 1, m));
    for (int32_t r = 0; r < p; ++r) {
      const int32_t expected = std::min(p - r, m);
      EXPECT_EQ(counts[r], (InFlightCount{.activations = expected, .weights = 0, .either = expected})) << "rank " << r;
    }
  });
}

// Korthikanti et al. 2022: rank r holds the activations of (v-1)p + 2(p-r-1) + 1 forward slots, at most v m, if p divides m;
// otherwise no more than that. In both cases it holds exactly what the formula says.
TEST(InFlight, OfInterleavedHoldsMoreByTheChunks) {
  ForEachSize(6, 20, [](int32_t p, int32_t m) {
    for (int32_t v = 2; v <= 4; ++v) {
      const Schedule schedule = Generated(ScheduleKind::kInterleaved, p, v, m);
      const std::vector<InFlightCount> counts = CountInFlight(schedule);
      for (int32_t r = 0; r < p; ++r) {
        const int32_t most = std::min((v - 1) * p + 2 * (p - r - 1) + 1, v * m);
        if (m % p == 0) {
          EXPECT_EQ(counts[r].activations, most) << "rank " << r;
        } else {
          EXPECT_LE(counts[r].activations, most) << "rank " << r;
        }
        EXPECT_EQ(counts[r].activations, InterleavedInFlight(schedule.shape, r, m)) << "v " << v << ", rank " << r;
      }
    }
  });
}

// Every number of microbatches has an interleaved schedule, also a number below p. The last group then has fewer microbatches
// than p. The reference runs all slots: none is missing or there twice, and no rank waits for ever. OrderSlots validates them.
TEST(GenerateSchedule, InterleavesAnyNumberOfMicrobatches) {
  for (int32_t p = 2; p <= 6; ++p) {
    for (int32_t v = 2; v <= 4; ++v) {
      for (int32_t m = 1; m <= 20; ++m) {
        SCOPED_TRACE(::testing::Message() << "p " << p << ", v " << v << ", M " << m);
        const Schedule schedule = Generated(ScheduleKind::kInterleaved, p, v, m);
        const std::vector<StagePassTimes> times = EqualTimes(schedule.shape, 1, 1, 1);
        const auto ran = RunReference(schedule, times);
        ASSERT_TRUE(ran.has_value());
        EXPECT_EQ(ran->size(), static_cast<size_t>(2 * p * v * m));
        EXPECT_TRUE(ValidateSchedule(schedule).ok());
        // The schedule is at most as slow as 1F1B, whose passes are v times as long.
        const Schedule plain = Generated(ScheduleKind::kOneForwardOneBackward, p, 1, m);
        EXPECT_LE(StepTime(schedule, times), StepTime(plain, EqualTimes(plain.shape, v, v, v)));
      }
    }
  }
}

// Qi et al. 2023: a rank holds as many activations as in 1F1B. Together with what the weight passes still need, every rank
// holds p microbatches. This is what the first rank holds in 1F1B.
TEST(InFlight, OfZeroBubbleIsThatOf1F1B) {
  ForEachSize(6, 14, [](int32_t p, int32_t m) {
    const std::vector<InFlightCount> counts = CountInFlight(Generated(ScheduleKind::kZeroBubble, p, 1, m));
    for (int32_t r = 0; r < p; ++r) {
      EXPECT_EQ(counts[r].activations, std::min(p - r, m)) << "rank " << r;
      EXPECT_EQ(counts[r].either, std::min(p, m)) << "rank " << r;
      EXPECT_LE(counts[r].weights, std::min(p, m)) << "rank " << r;
    }
  });
}

// Qi et al. 2023: every rank holds p microbatches of its layers, which are 2p chunks.
TEST(InFlight, OfZeroBubbleVIsThatOf1F1BOnEveryRank) {
  ForEachSize(6, 16, [](int32_t p, int32_t m) {
    const std::vector<InFlightCount> counts = CountInFlight(Generated(ScheduleKind::kZeroBubbleV, p, 2, m));
    for (int32_t r = 0; r < p; ++r) {
      EXPECT_LE(counts[r].either, 2 * std::min(p, m)) << "rank " << r;
      if (m >= 2 * p - 1) {
        EXPECT_EQ(counts[r].either, 2 * p) << "rank " << r;
      }
    }
  });
}

// Li and Hoefler 2021, table 2: a rank holds between p/2 + 1 and p microbatches. The outer ranks hold the fewest.
TEST(InFlight, OfChimeraIsNearlyTheSameOnAllRanks) {
  for (int32_t p = 2; p <= 8; p += 2) {
    for (int32_t m = p; m <= 4 * p; m += p) {
      const std::vector<InFlightCount> counts = CountInFlight(Generated(ScheduleKind::kChimera, p, 2, m));
      for (int32_t r = 0; r < p; ++r) {
        EXPECT_EQ(counts[r].activations, p / 2 + 1 + std::min(r, p - 1 - r)) << "p " << p << ", M " << m << ", rank " << r;
      }
    }
  }
}

TEST(InFlight, CountsWhatWHolds) {
  const Schedule schedule = Read(
      "custom ranks=1 microbatches=3 weight=split\n"
      "0F0 0F1 0B0 0F2 0B1 0W0 0B2 0W1 0W2\n");
  EXPECT_EQ(CountInFlight(schedule), (std::vector<InFlightCount>{{.activations = 2, .weights = 2, .either = 3}}));
}

TEST(PeakHeldBytes, AddsUpTheStagesOfARank) {
  const Schedule schedule = Read(
      "custom ranks=1 chunks=2 microbatches=2 weight=split\n"
      "0F0 1F0 1B0 0F1 0B0 1W0 0W0 1F1 1B1 1W1 0B1 0W1\n");
  const auto peak = [&](int64_t a0, int64_t w0, int64_t a1, int64_t w1) {
    return PeakHeldBytes(schedule, {{Bytes(a0), Bytes(w0)}, {Bytes(a1), Bytes(w1)}});
  };
  EXPECT_EQ(peak(10, 0, 0, 0), std::vector<Bytes>{Bytes(20)});     // the peak is at 0F1
  EXPECT_EQ(peak(0, 0, 10, 0), std::vector<Bytes>{Bytes(10)});     // at 1F0
  EXPECT_EQ(peak(10, 1, 100, 5), std::vector<Bytes>{Bytes(110)});  // at 1F0: a0 + a1
  EXPECT_EQ(peak(10, 20, 1, 5), std::vector<Bytes>{Bytes(35)});    // at 0B0: w0 + w1, and a0 of the second microbatch
}

TEST(PeakHeldBytes, IsTheCountTimesTheBytesWhereStagesAreAlike) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    std::mt19937_64 rng(seed);
    const Schedule schedule = RandomSchedule(rng);
    const std::vector<InFlightCount> counts = CountInFlight(schedule);
    const size_t stages = static_cast<size_t>(schedule.shape.stages());
    const auto peak = [&](int64_t activations, int64_t weights) {
      return PeakHeldBytes(schedule, std::vector<StageHeldBytes>(stages, {Bytes(activations), Bytes(weights)}));
    };
    const std::vector<Bytes> activations = peak(7, 0), weights = peak(0, 7), either = peak(7, 7);
    for (size_t rank = 0; rank < counts.size(); ++rank) {
      EXPECT_EQ(activations[rank], Bytes(7) * counts[rank].activations) << "seed " << seed;
      EXPECT_EQ(weights[rank], Bytes(7) * counts[rank].weights) << "seed " << seed;
      EXPECT_EQ(either[rank], Bytes(7) * counts[rank].either) << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace lynx
