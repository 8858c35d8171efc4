#include "planner/search/plan_search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/candidates/supported.h"
#include "planner/report/timeline.h"
#include "planner/search/make_plan.h"
#include "tests/planner/plan/plan_fixtures.h"
#include "tests/planner/search/search_requests.h"

namespace lynx {
namespace {

// Returns the step of the fastest plan, if each candidate with a draft shorter than `step` is planned alone. If the arena of a
// draft is larger than its peak, the plan may take longer than the draft.
Nanos FastestAlone(const PlanRequest& request, const std::vector<Candidate>& candidates, Nanos step) {
  PlanCaches caches(request);
  Nanos fastest = step;
  for (const Candidate& candidate : candidates) {
    if (!LayoutPlanner(request, candidate, caches).Best(step)) continue;
    const std::optional<Plan> plan = PlanSearch(request, {candidate}, caches).Fastest();
    if (plan) fastest = std::min(fastest, plan->step);
  }
  return fastest;
}

void ExpectFindsTheBest(PlanRequest (*make)(std::mt19937_64&), uint64_t seed, int requests) {
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 rng(seed);
  int feasible = 0, same = 0;
  int64_t candidates_of_all = 0, simulated_of_all = 0;
  for (int i = 0; i < requests; ++i) {
    const PlanRequest request = make(rng);
    const auto candidates = SupportedCandidates(request);
    ASSERT_TRUE(candidates.ok()) << candidates.status();
    PlanCaches caches(request);
    PlanSearch search(request, *candidates, caches);
    const std::optional<Plan> plan = search.Fastest();
    const std::optional<Nanos> best = BestOfAll(request, *candidates);
    candidates_of_all += search.counts().candidates;
    simulated_of_all += search.counts().simulated;
    if (!plan) continue;
    ++feasible;
    ASSERT_TRUE(best.has_value());
    same += plan->step <= *best;
    // The step may be a little longer than the best one, because an estimate may be more wrong than the search expects.
    EXPECT_LE(Seconds(plan->step), 1.02 * Seconds(FastestAlone(request, *candidates, plan->step))) << i;
  }
  EXPECT_GE(feasible, requests * 5 / 8);
  EXPECT_GE(same, feasible * 2 / 3);
  EXPECT_LT(simulated_of_all, candidates_of_all / 2);
}

TEST(PlanSearch, FindsWhatPlanningEveryCandidateFinds) { ExpectFindsTheBest(RandomRequest, 11, 16); }

TEST(PlanSearch, FindsWhatPlanningEveryCandidateFindsWhereTensorsGoToTheHost) {
  ExpectFindsTheBest(RandomOffloadRequest, 12, 8);
}

// The stated rates are three times those of the real device, and only some shapes were measured. If the search used the stated
// rates for the other shapes, it would choose one of these shapes. Then the plan would take three times as long as predicted.
TEST(PlanSearch, DoesNotFleeIntoWhatNobodyMeasured) {
  PlanRequest request;
  request.spec.model = {.layers = 8, .hidden = 256, .heads = 8, .ffn = 1024, .seq = 128, .vocab = 1024};
  request.spec.train.global_batch = 64;
  request.spec.resources = {.min_ranks = 8, .max_ranks = 8};
  request.cluster = UniformCluster(2, 4, SmallGpu());
  Normalize(request.spec);
  const HardwareProfile stated = SmallGpu(), truth = ThirdOf(stated);
  HardwareProfile& profile = request.cluster.groups[0].profile;
  for (const int32_t tp : {2, 4}) profile = WithMeasured(profile, truth, request.spec.model, {.tp = tp}, 1);
  const Plan plan = std::get<Plan>(MakePlan(request).value());
  ClusterTopology real = request.cluster;
  real.groups[0].profile = truth;
  const absl::StatusOr<Simulation> simulation = SimulateOn(real, plan);
  ASSERT_TRUE(simulation.ok()) << simulation.status();
  EXPECT_NEAR(Seconds(plan.step), Seconds(simulation->step), 0.02 * Seconds(simulation->step));
  PlanRequest measured = request;
  measured.cluster = real;
  EXPECT_LE(Seconds(simulation->step), 1.03 * Seconds(std::get<Plan>(MakePlan(measured).value()).step));
}

TEST(PlanSearch, RefusesAScheduleThatCutsTheModelIntoMorePartsThanItHasLayers) {
  PlanRequest request;
  request.target = PlanTarget::kAnyFramework;
  request.spec.model = {.layers = 3, .hidden = 128, .heads = 4, .ffn = 512, .seq = 64, .vocab = 256};
  request.spec.train.global_batch = 16;
  request.spec.parallel = {.tp = 2, .pp = 2, .schedule = ScheduleKind::kZeroBubbleV};
  request.spec.resources = {.min_ranks = 4, .max_ranks = 4, .activation_memory_per_rank = kMiB * 64};
  request.cluster = UniformCluster(1, 4, SmallGpu());
  const absl::StatusOr<PlanResult> refused = MakePlan(request);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.status().message(), testing::HasSubstr("zero-bubble-v cuts the model into 2 * parallel.pp = 4 chunks"));
  request.spec.model.layers = 4;
  EXPECT_TRUE(MakePlan(request).ok());
}

TEST(PlanSearch, PlansEveryScheduleAndItsPlansHold) {
  struct Case {
    ScheduleKind schedule;
    int32_t virtual_stages;
  };
  using enum ScheduleKind;
  for (const auto& [schedule, virtual_stages] :
       {Case{kGpipe, 1}, Case{kOneForwardOneBackward, 1}, Case{kInterleaved, 2}, Case{kInterleaved, 3}, Case{kZeroBubble, 1},
        Case{kZeroBubbleV, 1}, Case{kChimera, 1}}) {
    for (const int64_t limit : {0, 6000, 3000}) {
      SCOPED_TRACE(testing::Message() << EnumName(schedule) << " v" << virtual_stages << " limit " << limit);
      PlanRequest request;
      request.target = PlanTarget::kAnyFramework;
      request.spec.model = {.layers = 13, .hidden = 128, .heads = 4, .ffn = 512, .seq = 64, .vocab = 256};
      request.spec.train.global_batch = 16;
      request.spec.train.micro_batch = 1;
      request.spec.parallel = {.tp = 2, .pp = 4, .dp = 1, .virtual_stages = virtual_stages, .schedule = schedule};
      request.spec.resources = {.min_ranks = 8, .max_ranks = 8, .activation_memory_per_rank = kKiB * limit};
      request.cluster = UniformCluster(2, 4, SmallGpu());
      const absl::StatusOr<PlanResult> result = MakePlan(request);
      ASSERT_TRUE(result.ok()) << result.status();
      ASSERT_TRUE(std::holds_alternative<Plan>(*result)) << std::get<Infeasible>(*result).reason;
      const Plan& plan = std::get<Plan>(*result);
      EXPECT_EQ(plan.layout.schedule, schedule);
      EXPECT_EQ(CheckPlan(plan), absl::OkStatus());
      for (const StagePlan& stage : plan.stages) {
        if (limit > 0) EXPECT_LE(stage.arena, kKiB * limit);
        EXPECT_EQ(stage.slices.size(), static_cast<size_t>(PipelineOf(plan.layout).chunks));
      }
    }
  }
}

// Arenas may be larger than the peaks that the search uses. The step may then be a little longer, but the search must still
// find a plan.
TEST(PlanSearch, FindsAPlanWhateverTheLimitFromTheLeastOn) {
  PlanRequest request;
  request.spec.model = {.layers = 12, .hidden = 256, .heads = 8, .ffn = 1024, .seq = 128, .vocab = 512};
  request.spec.model.dtype = DataType::kBfloat16;
  request.spec.train.global_batch = 16;
  request.spec.train.micro_batch = 1;
  request.spec.parallel = {.tp = 2, .pp = 4, .dp = 1};
  request.spec.resources = {.min_ranks = 8, .max_ranks = 8};
  request.cluster = UniformCluster(2, 4, SmallGpu());
  for (const RecomputeMode mode : {RecomputeMode::kAuto, RecomputeMode::kNoOverlap}) {
    request.spec.recompute = mode;
    std::optional<Nanos> last;
    for (int64_t kib = 20'000; kib >= 3'000; kib -= 170) {
      SCOPED_TRACE(testing::Message() << EnumName(mode) << ", " << kib << " KiB");
      request.spec.resources.activation_memory_per_rank = kKiB * kib;
      const absl::StatusOr<PlanResult> result = MakePlan(request);
      ASSERT_TRUE(result.ok()) << result.status();
      ASSERT_TRUE(std::holds_alternative<Plan>(*result)) << std::get<Infeasible>(*result).reason;
      const Nanos step = std::get<Plan>(*result).step;
      // With less memory the step must not be faster. The factor allows for plans that the search may miss.
      if (last) EXPECT_GE(static_cast<double>(step.value), 0.97 * static_cast<double>(last->value));
      last = step;
    }
  }
}

TEST(PlanSearch, TheSameRequestGivesTheSamePlan) {
  std::mt19937_64 rng(3);
  const PlanRequest request = RandomRequest(rng);
  const auto first = MakePlan(request), second = MakePlan(request);
  ASSERT_TRUE(first.ok() && second.ok());
  ASSERT_EQ(first->index(), second->index());
  if (const auto* plan = std::get_if<Plan>(&*first)) EXPECT_EQ(plan->digest, std::get<Plan>(*second).digest);
}

}  // namespace
}  // namespace lynx
