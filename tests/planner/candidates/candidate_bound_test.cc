#include "planner/candidates/candidate_bound.h"

#include <gtest/gtest.h>

#include "planner/candidates/supported.h"
#include "planner/problem/layout_schedule.h"
#include "planner/schedule/schedule_memory.h"
#include "planner/stages/layout_planner.h"
#include "tests/planner/search/search_requests.h"

namespace lynx {
namespace {

constexpr Nanos kForever{std::numeric_limits<int64_t>::max()};

struct Bounded {
  int planned = 0, tight = 0, offloading = 0;
};

// Takes candidates of random requests, with every kind of schedule, and checks that no simulated time is below a bound.
Bounded CheckBounds(PlanRequest (*make)(std::mt19937_64&), uint64_t seed) {
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 rng(seed);
  Bounded counts;
  for (int i = 0; i < 24; ++i) {
    const PlanRequest request = make(rng);
    PlanRequest storing = request;
    storing.spec.recompute_options.forbids_offload = true;
    const auto candidates = SupportedCandidates(request);
    EXPECT_TRUE(candidates.ok()) << candidates.status();
    PlanCaches caches(request);
    for (int k = 0; k < 6; ++k) {
      const Candidate& candidate = (*candidates)[rng() % candidates->size()];
      SCOPED_TRACE(LayoutText(candidate.layout));
      const CandidateBound bound(request, candidate, caches);
      const std::optional<Draft> draft = LayoutPlanner(request, candidate, caches).Best(kForever);
      if (!draft) continue;
      const Nanos step = draft->step;
      ++counts.planned;
      EXPECT_LE(bound.Quick(), step);
      EXPECT_TRUE(bound.MayTake(step));
      const std::optional<Nanos> least = bound.Bound(), of_stored = CandidateBound(storing, candidate, caches).Bound();
      EXPECT_TRUE(least.has_value());
      if (!least) continue;
      EXPECT_GE(*least, bound.Quick());
      EXPECT_LE(*least, step);
      if (of_stored) EXPECT_LE(*least, *of_stored);
      if (!draft->offloading) EXPECT_TRUE(of_stored && *of_stored <= step);
      counts.tight += *least * 2 > step;
      counts.offloading += draft->offloading;
    }
  }
  return counts;
}

// Random requests whose passes run side by side where that is possible.
PlanRequest RandomWovenRequest(std::mt19937_64& rng) {
  while (true) {
    PlanRequest request = RandomRequest(rng);
    request.spec.parallel.weave = static_cast<WeaveMode>(2 + rng() % 3);
    if (SupportedCandidates(request).ok()) return request;
  }
}

TEST(CandidateBound, NoWovenStepIsShorter) {
  const Bounded counts = CheckBounds(RandomWovenRequest, 11);
  EXPECT_GT(counts.planned, 60);
  EXPECT_GT(counts.tight, counts.planned / 2);
}

TEST(CandidateBound, NoSimulatedStepIsShorter) {
  const Bounded counts = CheckBounds(RandomRequest, 7);
  EXPECT_GT(counts.planned, 60);
  EXPECT_GT(counts.tight, counts.planned * 3 / 4);
  EXPECT_EQ(counts.offloading, 0);
}

TEST(CandidateBound, NoSimulatedStepIsShorterIfSomeLayersHaveExperts) {
  const Bounded counts = CheckBounds(RandomExpertsRequest, 13);
  EXPECT_GT(counts.planned, 60);
  EXPECT_GT(counts.tight, counts.planned / 2);
}

TEST(CandidateBound, NoSimulatedStepIsShorterWhereTensorsGoToTheHost) {
  const Bounded counts = CheckBounds(RandomOffloadRequest, 9);
  EXPECT_GT(counts.planned, 40);
  EXPECT_GT(counts.offloading, 5);
}

// Returns a request for 16 layers on eight nodes. A pipeline can have 16 stages of one layer each, so gradients pass through
// many stages.
PlanRequest DeepRequest() {
  PlanRequest request;
  request.target = PlanTarget::kAnyFramework;
  request.spec.model = {.layers = 16, .hidden = 128, .heads = 4, .ffn = 512, .seq = 64, .vocab = 256};
  request.cluster = UniformCluster(8, 4, SmallGpu());
  return request;
}

// With split weight gradients, a rank can still compute weight gradients at the end of the step, after the ranks before it
// have ended theirs.
TEST(CandidateBound, HoldsForDeepZeroBubblePipelines) {
  const PlanRequest request = DeepRequest();
  for (const int32_t pp : {4, 8, 16}) {
    for (const int32_t microbatches : {pp, 2 * pp}) {
      SCOPED_TRACE(testing::Message() << pp << " stages, " << microbatches << " microbatches");
      const Candidate candidate{.layout = {.pp = pp, .schedule = ScheduleKind::kZeroBubble}, .microbatches = microbatches};
      PlanCaches caches(request);
      const CandidateBound bound(request, candidate, caches);
      const std::optional<Draft> draft = LayoutPlanner(request, candidate, caches).Best(kForever);
      ASSERT_TRUE(draft.has_value());
      EXPECT_LE(bound.Quick(), draft->step);
      EXPECT_LE(*bound.Bound(), draft->step);
      EXPECT_GE(bound.Quick().value * 10, draft->step.value * 6);
    }
  }
}

// The bound must count the transfers of states: the reductions of gradients (from ZeRO-2 on with every microbatch) and the
// gathers of weights. Over slow links they take longer than anything else. The bound must be at least 70% of the simulated
// step.
TEST(CandidateBound, KnowsWhatStatesTake) {
  PlanRequest request = DeepRequest();
  request.cluster = UniformCluster(8, 1, SmallGpu());
  for (const ZeroStage zero : {ZeroStage::kNone, ZeroStage::kOptimizer, ZeroStage::kGradients, ZeroStage::kWeights}) {
    for (const int32_t pp : {1, 2}) {
      SCOPED_TRACE(testing::Message() << EnumName(zero) << ", " << pp << " stages");
      const Candidate candidate{.layout = {.pp = pp, .dp = 8 / pp, .zero = zero}, .microbatches = 4};
      PlanCaches caches(request);
      const std::optional<Nanos> bound = CandidateBound(request, candidate, caches).Bound();
      const std::optional<Draft> draft = LayoutPlanner(request, candidate, caches).Best(kForever);
      ASSERT_TRUE(bound && draft);
      EXPECT_LE(*bound, draft->step);
      EXPECT_GE(bound->value * 10, draft->step.value * 7);
    }
  }
}

// The model is small, so its ops take little time. The many nodes are far apart, so the gradient reductions take a thousand
// times as long.
TEST(CandidateBound, ReductionsMayTakeAThousandTimesTheWork) {
  PlanRequest request;
  request.spec.model = {.layers = 8, .hidden = 64, .heads = 8, .ffn = 256, .seq = 32, .vocab = 256};
  request.spec.train.global_batch = 1024;
  HardwareProfile profile = SmallGpu();
  profile.inter_node = {Nanos(1'000'000), 100'000'000};
  request.cluster = UniformCluster(1024, 1, profile);
  const Candidate candidate{.layout = {.pp = 8, .dp = 128}, .micro_batch = 1, .microbatches = 8};
  PlanCaches caches(request);
  const CandidateBound bound(request, candidate, caches);
  const std::optional<Draft> draft = LayoutPlanner(request, candidate, caches).Best(kForever);
  ASSERT_TRUE(draft && bound.Bound());
  EXPECT_LE(*bound.Bound(), draft->step);
  EXPECT_GT(bound.Bound()->value, bound.Quick().value * 1000);
}

// Four groups are in flight on the first rank. When the last pass of a group begins, the passes that run at the same time as it
// may already free what they read.
TEST(CandidateBound, AGroupInFlightHoldsAllItsMicrobatches) {
  PlanRequest request;
  request.spec.model = {.layers = 8, .hidden = 128, .heads = 4, .ffn = 512, .seq = 64, .vocab = 256};
  request.cluster = UniformCluster(1, 4, SmallGpu());
  request.spec.resources.activation_memory_per_rank = kKiB;
  PlanCaches caches(request);
  const auto held = [&](WeaveMode weave, int32_t microbatches) {
    const Candidate candidate{{.pp = 4, .weave = weave}, 1, microbatches};
    return CandidateBound(request, candidate, caches).Lacking() + kKiB;
  };
  const Bytes one = held(WeaveMode::kOff, 16) / 4;
  EXPECT_EQ(held(WeaveMode::kPairs, 16), one * 7);
  EXPECT_EQ(held(WeaveMode::kQuads, 16), one * 13);
  EXPECT_EQ(held(WeaveMode::kQuads, 14), one * 11);  // the last group has two microbatches
}

TEST(CandidateBound, CountsNoMoreInFlightThanTheScheduleHas) {
  using enum ScheduleKind;
  PlanRequest request;
  request.spec.model = {.layers = 48, .hidden = 128, .heads = 4, .ffn = 512, .seq = 64, .vocab = 256};
  request.cluster = UniformCluster(1, 4, SmallGpu());
  request.spec.resources.activation_memory_per_rank = kKiB;
  PlanCaches caches(request);
  int checked = 0;
  for (const ScheduleKind schedule : {kGpipe, kOneForwardOneBackward, kInterleaved, kZeroBubble}) {
    for (const int32_t v : {1, 2, 3, 4}) {
      if ((v > 1) != (schedule == kInterleaved)) continue;
      for (const WeaveMode weave : {WeaveMode::kOff, WeaveMode::kNeighbours, WeaveMode::kPairs, WeaveMode::kQuads}) {
        for (const int32_t pp : {2, 3, 4}) {
          for (int32_t microbatches = 1; microbatches <= 24; ++microbatches) {
            const Candidate candidate{{.pp = pp, .virtual_stages = v, .schedule = schedule, .weave = weave}, 1, microbatches};
            if (!CheckScheduleOf(candidate.layout, microbatches).ok()) continue;
            int32_t most = 0;
            for (const InFlightCount& count : CountInFlight(ScheduleOf(candidate.layout, microbatches))) {
              most = std::max(most, count.activations);
            }
            const Bytes held = CandidateBound(request, candidate, caches).Lacking() + kKiB;
            const Bytes of_pair = caches.Floor(candidate).input() * (48 / pp / v);
            EXPECT_LE(held, of_pair * std::max(1, most + 1 - StrandsOf(weave)))
                << LayoutText(candidate.layout) << " x " << microbatches;
            ++checked;
          }
        }
      }
    }
  }
  EXPECT_GT(checked, 400);
}

TEST(CandidateBound, LessMemoryRaisesItUntilNothingFits) {
  PlanRequest request;
  request.spec.model = {.layers = 8, .hidden = 128, .heads = 4, .ffn = 512, .seq = 64, .vocab = 256};
  request.spec.train.global_batch = 16;
  request.cluster = UniformCluster(1, 4, SmallGpu());
  const Candidate candidate{.layout = {.tp = 2, .pp = 2}, .micro_batch = 1, .microbatches = 16};
  const auto bound = [&](Bytes limit) {
    request.spec.resources.activation_memory_per_rank = limit;
    PlanCaches caches(request);
    return CandidateBound(request, candidate, caches).Bound();
  };
  Nanos last = *bound(Bytes(0));
  bool rose = false;
  for (int64_t kib = 4000; kib >= 400; kib /= 2) {
    const std::optional<Nanos> now = bound(kKiB * kib);
    ASSERT_TRUE(now.has_value()) << kib;
    EXPECT_GE(*now, last) << kib;
    rose = rose || *now > last;
    last = *now;
  }
  EXPECT_TRUE(rose);
  EXPECT_FALSE(bound(kKiB * 10).has_value());
}

}  // namespace
}  // namespace lynx
