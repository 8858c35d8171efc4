#include "planner/candidates/rough_step.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "planner/candidates/candidate_bound.h"
#include "planner/problem/layout_schedule.h"
#include "planner/schedule/transfer_timeline.h"
#include "planner/stages/layout_planner.h"
#include "tests/planner/search/search_requests.h"

namespace lynx {
namespace {

PlanRequest Request(int32_t layers) {
  PlanRequest request;
  request.spec.model = {.layers = layers, .hidden = 128, .heads = 4, .ffn = 512, .seq = 64, .vocab = 256};
  request.cluster = UniformCluster(4, 8, SmallGpu());
  Normalize(request.spec);
  return request;
}

// Returns the step of the schedule's timeline, in which all virtual stages take the same time and transfers take no time.
Nanos StepOfTimeline(const PlanRequest& request, const Candidate& candidate, PlanCaches& caches) {
  const LayerLowerBound& floor = caches.Floor(candidate);
  const int32_t group = GroupOf(candidate.layout.weave), groups = (candidate.microbatches + group - 1) / group;
  const Nanos model = CandidateBound(request, candidate, caches).RoughModelTime();
  const Nanos stage = model * candidate.microbatches / groups / PipelineOf(candidate.layout).stages();
  TransferPassTimes times{.forward = stage * floor.delay_permille(true) / 1000};
  times.backward = stage - times.forward;
  if (SplitsWeight(candidate.layout)) {
    times.backward = stage * floor.delay_permille(false) / 1000 - times.forward;
    times.weight = stage - times.forward - times.backward;
  }
  ParallelLayout layout = candidate.layout;
  if (group > 1) layout.weave = WeaveMode::kOff;
  const std::vector<TransferPassTimes> passes(static_cast<size_t>(PipelineOf(layout).stages()), times);
  TransferScratch scratch;
  return StepTime(caches.TransfersOf(layout, groups), passes, scratch);
}

TEST(RoughStep, IsTheStepOfAPipelineWithEqualStages) {
  using enum ScheduleKind;
  const PlanRequest request = Request(24);
  PlanCaches caches(request);
  for (const ScheduleKind schedule : {kGpipe, kOneForwardOneBackward, kInterleaved, kZeroBubble}) {
    for (const int32_t virtual_stages : {1, 2, 3}) {
      if ((virtual_stages > 1) != (schedule == kInterleaved)) continue;
      for (const WeaveMode weave : {WeaveMode::kOff, WeaveMode::kPairs, WeaveMode::kQuads}) {
        for (const int32_t pp : {2, 4}) {
          for (const int32_t microbatches : {4, 8, 12, 24, 32}) {
            const Candidate candidate{
                {.tp = 2, .pp = pp, .virtual_stages = virtual_stages, .schedule = schedule, .weave = weave}, 1, microbatches};
            if (!CheckScheduleOf(candidate.layout, microbatches).ok()) continue;
            SCOPED_TRACE(testing::Message() << LayoutText(candidate.layout) << " x " << microbatches);
            const double rough = Seconds(CandidateBound(request, candidate, caches).Rough());
            const double step = Seconds(StepOfTimeline(request, candidate, caches));
            EXPECT_LE(rough, 1.001 * step);
            // If the last group is not full, the ranks wait for each other a little longer than the formula says.
            const int32_t groups = (microbatches + GroupOf(weave) - 1) / GroupOf(weave);
            const bool rest = schedule == kInterleaved && groups % pp != 0;
            if (schedule != kZeroBubble) EXPECT_GE(rough, (rest ? 0.88 : 0.93) * step);
          }
        }
      }
    }
  }
}

// Most guesses are longer than this formula, because stages differ, recompute, and wait for transfers.
TEST(RoughStep, GuessesAreRarelyShorter) {
  std::mt19937_64 rng(5);
  int guesses = 0, shorter = 0;
  for (int i = 0; i < 6; ++i) {
    const PlanRequest request = RandomRequest(rng);
    PlanCaches caches(request);
    std::vector<Candidate> candidates = SearchSpace(request.spec, request.cluster, PlanTarget::kLynxEngine);
    for (const Candidate& pairs : WovenCandidates(candidates, WeaveMode::kPairs)) candidates.push_back(pairs);
    for (const Candidate& candidate : candidates) {
      const StepGuess guess = LayoutPlanner(request, candidate, caches).Guess();
      if (!guess.fits) continue;
      ++guesses;
      const Nanos rough = std::max(CandidateBound(request, candidate, caches).Rough(), RoughStep(request, candidate, caches));
      if (guess.step < rough / 100 * 98) ++shorter;
    }
  }
  EXPECT_GT(guesses, 500);
  EXPECT_LT(shorter, guesses / 100);
}

// Ranks that cannot store everything recompute, or have fewer layers. Candidates that fit on no device come last.
TEST(RoughStep, GrowsAsMemoryBecomesScarce) {
  for (const WeaveMode weave : {WeaveMode::kOff, WeaveMode::kPairs}) {
    PlanRequest request = Request(24);
    const Candidate candidate{{.tp = 2, .pp = 4, .weave = weave}, 2, 16};
    const auto rough = [&](Bytes limit) {
      request.spec.resources.activation_memory_per_rank = limit;
      PlanCaches caches(request);
      return RoughStep(request, candidate, caches);
    };
    const Nanos everything = rough(Bytes(int64_t{1} << 40));
    EXPECT_EQ(rough(Bytes(0)), everything);
    Nanos before = everything;
    int longer = 0;
    for (int64_t limit = int64_t{1} << 26; limit >= int64_t{1} << 20; limit = limit * 3 / 4) {
      const Nanos step = rough(Bytes(limit));
      EXPECT_GE(step, before) << limit;
      longer += step > before ? 1 : 0;
      before = step;
    }
    EXPECT_GT(longer, 3);
    EXPECT_GT(rough(Bytes(1'000)), everything * 1'000'000);
  }
}

// Compares two orders of the ranks for the same layers. In one of them, the ranks of an expert group are on different nodes.
TEST(RoughStep, KnowsTheLinksOfTheGroups) {
  PlanRequest request = Request(8);
  request.spec.model.family = ModelFamily::kLlama;
  request.spec.model.moe = {.experts = 8, .top_k = 2};
  PlanCaches caches(request);
  Candidate near{{.pp = 4, .dp = 8, .ep = 8, .rank_order = RankOrder::kTpDpPp}, 4, 8};
  Candidate far = near;
  far.layout.rank_order = RankOrder::kTpPpDp;
  EXPECT_EQ(CandidateBound(request, near, caches).Rough(), CandidateBound(request, far, caches).Rough());
  EXPECT_GT(RoughStep(request, far, caches), RoughStep(request, near, caches));
}

TEST(RoughStep, KnowsNoFormulaForPipelinesThatTurnBack) {
  const PlanRequest request = Request(8);
  PlanCaches caches(request);
  const Candidate candidate{{.pp = 4, .schedule = ScheduleKind::kZeroBubbleV}, 1, 8};
  EXPECT_EQ(CandidateBound(request, candidate, caches).Rough(), Nanos(0));
}

}  // namespace
}  // namespace lynx
