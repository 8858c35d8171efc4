#include "planner/search/compare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "planner/candidates/search.h"
#include "planner/search/make_plan.h"
#include "tests/planner/plan/plan_fixtures.h"
#include "tests/planner/search/search_requests.h"

namespace lynx {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Returns a request for four ranks on two nodes in one pinned layout. Memory is too small to store everything.
PlanRequest TightRequest() {
  PlanRequest request;
  request.spec.model = {.layers = 6, .hidden = 128, .heads = 4, .ffn = 512, .seq = 64, .vocab = 256, .dropout = 0.1};
  request.spec.train.global_batch = 16;
  request.spec.train.micro_batch = 1;
  request.spec.resources = {.min_ranks = 4, .max_ranks = 4, .activation_memory_per_rank = kKiB * 1000};
  request.spec.parallel = {.tp = 2, .pp = 2, .dp = 1, .schedule = ScheduleKind::kOneForwardOneBackward};
  request.cluster = UniformCluster(2, 2, StatedCpuProfile());
  return request;
}

TEST(Compare, EveryPolicyHasARowThatFitsOrSaysWhatItLacks) {
  const absl::StatusOr<PolicyComparison> comparison = ComparePolicies(TightRequest());
  ASSERT_TRUE(comparison.ok()) << comparison.status();
  std::map<RecomputeMode, const ComparedPolicy*> rows;
  for (const ComparedPolicy& row : comparison->policies) {
    EXPECT_EQ(row.plan.has_value(), row.error.empty() && !row.lacking) << EnumName(row.mode);
    if (row.plan) {
      EXPECT_EQ(CheckPlan(*row.plan), absl::OkStatus()) << EnumName(row.mode);
      EXPECT_EQ(row.plan->layout, comparison->best.layout);
      for (const StagePlan& stage : row.plan->stages) EXPECT_LE(stage.arena, kKiB * 1000);
    }
    rows[row.mode] = &row;
  }
  ASSERT_TRUE(rows.contains(RecomputeMode::kNone));
  EXPECT_GT(rows[RecomputeMode::kNone]->lacking->needed, kKiB * 1000);
  EXPECT_EQ(rows[RecomputeMode::kNone]->lacking->suggestion, "");
  ASSERT_TRUE(rows[RecomputeMode::kHeu]->plan.has_value());
  ASSERT_TRUE(rows[RecomputeMode::kNoOverlap]->plan.has_value());
  const Nanos heu = rows[RecomputeMode::kHeu]->plan->step;
  EXPECT_LE(heu, rows[RecomputeMode::kNoOverlap]->plan->step);
  EXPECT_LE(rows[RecomputeMode::kNoOverlap]->plan->step, rows[RecomputeMode::kFull]->plan->step);
  EXPECT_LE(rows[RecomputeMode::kBlock]->plan->step, rows[RecomputeMode::kFull]->plan->step);
  EXPECT_LE(comparison->best.step, heu);
  ASSERT_TRUE(comparison->unlimited.has_value());
  EXPECT_LE(comparison->unlimited->step, comparison->best.step);
}

// The requests pin another layout than TightRequest. Most of their stages have too little memory to store everything.
TEST(Compare, NoPartitionIsBetterThanTheExactOne) {
  int differ = 0;
  for (const int64_t kib : {700, 800, 1000, 1300, 4000}) {
    SCOPED_TRACE(kib);
    PlanRequest request = TightRequest();
    request.spec.model.layers = 11;
    request.spec.parallel = {.tp = 1, .pp = 4, .dp = 1};
    request.spec.resources.activation_memory_per_rank = kKiB * kib * 2;
    const absl::StatusOr<PolicyComparison> comparison = ComparePolicies(request);
    ASSERT_TRUE(comparison.ok()) << comparison.status();
    ASSERT_EQ(comparison->partitions.size(), 4u);
    const ComparedPartition& exact = comparison->partitions.front();
    ASSERT_EQ(exact.method, PartitionMethod::kExact);
    ASSERT_TRUE(exact.plan.has_value());
    EXPECT_EQ(exact.plan->step, comparison->best.step);
    for (const ComparedPartition& row : comparison->partitions) {
      EXPECT_NE(row.plan.has_value(), !row.reason.empty());
      if (!row.plan) continue;
      EXPECT_EQ(CheckPlan(*row.plan), absl::OkStatus());
      EXPECT_GE(row.plan->step, exact.plan->step) << EnumName(row.method);
      differ += row.plan->step > exact.plan->step;
    }
    const ComparedPartition& even = comparison->partitions[1];
    ASSERT_EQ(even.method, PartitionMethod::kEven);
    if (!even.plan) continue;
    for (const StagePlan& stage : even.plan->stages) {
      EXPECT_GE(stage.slices[0].layers(), 2);
      EXPECT_LE(stage.slices[0].layers(), 3);
    }
  }
  EXPECT_GT(differ, 0);
}

TEST(Compare, OneStageHasNoPartition) {
  PlanRequest request = TightRequest();
  request.spec.parallel = {.tp = 2, .pp = 1, .dp = 2};
  request.spec.resources.activation_memory_per_rank = Bytes(0);
  EXPECT_TRUE(ComparePolicies(request)->partitions.empty());
}

std::vector<std::string> NamesOf(const std::vector<Alternative>& rows) {
  std::vector<std::string> names;
  for (const Alternative& row : rows) names.push_back(row.change);
  return names;
}

TEST(Compare, ShowsPassesOneAfterAnotherAndSideBySide) {
  const absl::StatusOr<PolicyComparison> comparison = ComparePolicies(TightRequest());
  ASSERT_TRUE(comparison.ok()) << comparison.status();
  ASSERT_THAT(NamesOf(comparison->weaves), ElementsAre("off", "pairs", "quads", "neighbours"));
  int planned = 0;
  for (const Alternative& row : comparison->weaves) {
    EXPECT_NE(row.plan.has_value(), !row.reason.empty()) << row.change;
    if (!row.plan) continue;
    ++planned;
    EXPECT_EQ(EnumName(row.plan->layout.weave), row.change);
    EXPECT_EQ(CheckPlan(*row.plan), absl::OkStatus()) << row.change;
    EXPECT_GE(row.plan->step, comparison->best.step) << row.change;
  }
  EXPECT_GE(planned, 2);
}

TEST(Compare, ThereIsNothingToWeaveWithoutTensorParallelismAndForOtherFrameworks) {
  PlanRequest request = TightRequest();
  request.spec.parallel = {.tp = 1, .pp = 2, .dp = 2};
  request.spec.resources.activation_memory_per_rank = Bytes(0);
  EXPECT_TRUE(ComparePolicies(request)->weaves.empty());
  request = TightRequest();
  request.target = PlanTarget::kAnyFramework;
  const absl::StatusOr<PolicyComparison> comparison = ComparePolicies(request);
  ASSERT_TRUE(comparison.ok()) << comparison.status();
  EXPECT_TRUE(comparison->weaves.empty());
  EXPECT_EQ(comparison->best.layout.weave, WeaveMode::kOff) << "no other framework runs passes side by side";
}

TEST(Compare, WhatCannotFitSaysSo) {
  PlanRequest request = TightRequest();
  request.spec.resources.activation_memory_per_rank = kKiB;
  const absl::Status status = ComparePolicies(request).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("the smallest change that fits"));
}

TEST(Explain, NamesOtherLayoutsAndWhatMoreOfSomethingBrings) {
  PlanRequest request = TightRequest();
  request.spec.parallel = {};
  const absl::StatusOr<Explanation> explanation = ExplainPlan(request);
  ASSERT_TRUE(explanation.ok()) << explanation.status();
  ASSERT_FALSE(explanation->rejected.empty());
  for (const Alternative& other : explanation->rejected) {
    EXPECT_NE(other.plan.has_value(), !other.reason.empty());
    if (other.plan) {
      // This also holds if the planner had to make the arena of a faster draft smaller, and this draft then became the slower
      // plan.
      EXPECT_GE(other.plan->step, explanation->plan.step) << other.change;
    }
  }
  if (explanation->plan.layout.tp > 1) {
    EXPECT_THAT(NamesOf(explanation->weaves), ElementsAre("off", "pairs", "quads", "neighbours"));
  } else {
    EXPECT_TRUE(explanation->weaves.empty());
  }
  ASSERT_GE(explanation->sensitivities.size(), 3u);
  EXPECT_EQ(explanation->sensitivities[0].change, "1 GiB more memory per device");
  ASSERT_TRUE(explanation->sensitivities[0].plan.has_value());
  EXPECT_LE(explanation->sensitivities[0].plan->step, explanation->plan.step);
}

// If passes run one after another, the plan itself is that row, so this question is not asked again. In the layout of a woven
// plan every question is asked, and no answer is slower than the plan that is known.
TEST(Explain, ThePlanAnswersForItsOwnWeave) {
  for (const WeaveMode weave : {WeaveMode::kOff, WeaveMode::kPairs}) {
    PlanRequest request = TightRequest();
    request.spec.parallel.weave = weave;
    std::multiset<std::string> told;
    const absl::StatusOr<Explanation> explanation =
        ExplainPlan(request, {.tell = [&](const std::string& part) { told.insert(part); }});
    ASSERT_TRUE(explanation.ok()) << explanation.status();
    ASSERT_EQ(explanation->plan.layout.weave, weave);
    ASSERT_EQ(explanation->weaves.size(), 4u);
    for (const Alternative& row : explanation->weaves) {
      const bool own = row.change == EnumName(weave);
      EXPECT_EQ(told.count("weave " + row.change), own && weave == WeaveMode::kOff ? 0u : 1u) << row.change;
      if (own) EXPECT_LE(row.plan->step, explanation->plan.step);
      if (own && weave == WeaveMode::kOff) EXPECT_EQ(row.plan->digest, explanation->plan.digest);
    }
  }
}

// A request that pins what the plan chose, without weaving, rarely has another plan, and then one that takes about as long.
TEST(Explain, ThePlanIsWhatItsPinnedLayoutGives) {
  int plans = 0, same = 0;
  for (uint64_t seed = 1; seed <= 16; ++seed) {
    std::mt19937_64 rng(seed);
    PlanRequest request = RandomRequest(rng);
    request.target = PlanTarget::kLynxEngine;
    request.spec.parallel.weave = WeaveMode::kOff;
    const absl::StatusOr<PlanResult> made = MakePlan(request);
    const Plan* plan = made.ok() ? std::get_if<Plan>(&*made) : nullptr;
    if (plan == nullptr) continue;
    PlanRequest pinned = request;
    pinned.spec.parallel = SpecOf(plan->layout, request.spec.parallel);
    pinned.spec.train.micro_batch = plan->micro_batch;
    pinned.spec.resources.min_ranks = pinned.spec.resources.max_ranks = plan->layout.ranks();
    const absl::StatusOr<PlanResult> again = MakePlan(pinned);
    ASSERT_TRUE(again.ok() && std::holds_alternative<Plan>(*again)) << "seed " << seed;
    ++plans;
    same += std::get<Plan>(*again).digest == plan->digest;
    EXPECT_NEAR(Seconds(std::get<Plan>(*again).step), Seconds(plan->step), 0.02 * Seconds(plan->step)) << "seed " << seed;
  }
  EXPECT_GE(plans, 10);
  EXPECT_GE(same, plans * 3 / 4);
}

// Returns the rows of an explanation in a form that tests can compare.
std::vector<std::string> RowsOf(const Explanation& explanation) {
  std::vector<std::string> rows{explanation.plan.digest};
  for (const std::vector<Alternative>* part : {&explanation.rejected, &explanation.weaves, &explanation.sensitivities}) {
    for (const Alternative& row : *part) rows.push_back(row.change + " " + (row.plan ? row.plan->digest : row.reason));
  }
  return rows;
}

// No plan of the space is faster than its bound, and the bound is not far from the plan.
TEST(Explain, BoundsHowMuchFasterAPlanCouldBe) {
  int plans = 0;
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    std::mt19937_64 rng(seed);
    const PlanRequest request = RandomRequest(rng);
    const absl::StatusOr<Explanation> explanation = ExplainPlan(request);
    if (!explanation.ok()) continue;
    ++plans;
    EXPECT_LE(explanation->bound, explanation->plan.step) << "seed " << seed;
    EXPECT_GT(explanation->bound * 3, explanation->plan.step) << "seed " << seed;
    for (const std::vector<Alternative>* others : {&explanation->rejected, &explanation->weaves}) {
      for (const Alternative& other : *others) {
        if (other.plan) EXPECT_LE(explanation->bound, other.plan->step) << "seed " << seed << ": " << other.change;
      }
    }
  }
  EXPECT_GE(plans, 6);
}

TEST(Explain, LimitsAreThoseOfTheWholeExplanation) {
  const PlanRequest request = TightRequest();
  const absl::StatusOr<Explanation> whole = ExplainPlan(request);
  ASSERT_TRUE(whole.ok()) << whole.status();
  const Explanation limits = ExplainLimits(request, whole->plan);
  EXPECT_EQ(limits.bound, whole->bound);
  EXPECT_TRUE(limits.rejected.empty());
  ASSERT_EQ(limits.sensitivities.size(), whole->sensitivities.size());
  for (size_t i = 0; i < limits.sensitivities.size(); ++i) {
    EXPECT_EQ(limits.sensitivities[i].change, whole->sensitivities[i].change);
    EXPECT_EQ(limits.sensitivities[i].plan->digest, whole->sensitivities[i].plan->digest);
  }
}

TEST(Explain, PartsMayRunInAnyOrderAndAtOnce) {
  PlanRequest request = TightRequest();
  request.spec.parallel = {};
  const absl::StatusOr<Explanation> one_by_one = ExplainPlan(request);
  ASSERT_TRUE(one_by_one.ok()) << one_by_one.status();
  const absl::StatusOr<Explanation> backwards =
      ExplainPlan(request, {.run = [](const std::vector<std::function<void()>>& tasks) {
                    for (size_t i = tasks.size(); i-- > 0;) tasks[i]();
                  }});
  const absl::StatusOr<Explanation> at_once = ExplainPlan(request, {.run = [](const std::vector<std::function<void()>>& tasks) {
                                                            std::vector<std::jthread> threads;
                                                            for (const std::function<void()>& task : tasks)
                                                              threads.emplace_back(task);
                                                          }});
  ASSERT_TRUE(backwards.ok() && at_once.ok());
  EXPECT_EQ(RowsOf(*backwards), RowsOf(*one_by_one));
  EXPECT_EQ(RowsOf(*at_once), RowsOf(*one_by_one));
}

// The planner must not call an exact solver from two threads at the same time. So it does not run the parts of a comparison in
// parallel.
TEST(Compare, PartsWithAnExactSolverRunOneByOne) {
  PlanRequest request = TightRequest();
  request.exact = [](const RecomputeProblem&) { return absl::StatusOr<StageAnswer>(absl::InternalError("unused")); };
  bool ran = false;
  EXPECT_TRUE(ComparePolicies(request, {.run = [&](const auto&) { ran = true; }}).ok());
  EXPECT_FALSE(ran);
}

// With `options`, one of the other layouts has a plan, and the others have bounds.
void ExpectBoundsOfOtherLayouts(const CompareOptions& options) {
  PlanRequest request = TightRequest();
  request.spec.parallel = {};
  const absl::StatusOr<Explanation> whole = ExplainPlan(request);
  const absl::StatusOr<Explanation> short_one = ExplainPlan(request, options);
  ASSERT_TRUE(whole.ok() && short_one.ok());
  EXPECT_EQ(std::ranges::count_if(short_one->rejected, [](const Alternative& row) { return row.plan.has_value(); }), 1);
  EXPECT_EQ(short_one->rejected.size(), whole->rejected.size());
  std::map<std::string, Nanos> steps;
  for (const Alternative& row : whole->rejected) {
    if (row.plan) steps[row.change] = row.plan->step;
  }
  int compared = 0;
  Nanos last;
  for (const Alternative& row : short_one->rejected) {
    if (!row.bound) continue;
    EXPECT_TRUE(row.reason.starts_with("not planned: every plan takes at least about ")) << row.reason;
    EXPECT_GE(*row.bound, last) << row.change;
    last = *row.bound;
    const auto planned = steps.find(row.change);
    if (planned == steps.end()) continue;
    EXPECT_LE(*row.bound, planned->second) << row.change;
    ++compared;
  }
  EXPECT_GE(compared, 2);
}

TEST(Explain, LargeProgramsLeaveBoundsOfOtherLayouts) { ExpectBoundsOfOtherLayouts({.rejected_actions = 1}); }

TEST(Explain, ManySolvedStagesLeaveBoundsOfOtherLayouts) { ExpectBoundsOfOtherLayouts({.rejected_stages = 1}); }

TEST(Explain, RejectedLayoutsSayWhatTheyLackAndNoMore) {
  PlanRequest request = TightRequest();
  request.spec.parallel = {};
  request.spec.resources.activation_memory_per_rank = kKiB * 700;
  const absl::StatusOr<Explanation> explanation = ExplainPlan(request);
  ASSERT_TRUE(explanation.ok()) << explanation.status();
  int lacking = 0;
  for (const Alternative& row : explanation->rejected) {
    if (row.plan) continue;
    EXPECT_THAT(row.reason, HasSubstr(" more"));
    EXPECT_THAT(row.reason, ::testing::Not(HasSubstr("the smallest change that fits")));
    ++lacking;
  }
  EXPECT_GT(lacking, 0);
}

// Some layouts cannot be among the layouts that ExplainPlan shows, so the planner does not plan them. The result must be the
// same as if all layouts were planned.
class ExplainLayouts : public ::testing::TestWithParam<WeaveMode> {};

TEST_P(ExplainLayouts, ShowsWhatPlanningEveryOtherLayoutShows) {
  const WeaveMode weave = GetParam();
  PlanRequest request = TightRequest();
  request.spec.model.layers = 12;
  request.spec.parallel = {.weave = weave};
  request.spec.resources = {.min_ranks = 1, .max_ranks = 16, .activation_memory_per_rank = kMiB * 2};
  request.cluster = UniformCluster(4, 4, StatedCpuProfile());
  std::set<std::string> told;
  const absl::StatusOr<Explanation> explanation =
      ExplainPlan(request, {.tell = [&](const std::string& part) { told.insert(part); }});
  ASSERT_TRUE(explanation.ok()) << explanation.status();

  std::vector<std::pair<Nanos, std::string>> others;
  std::set<std::pair<int32_t, int32_t>> seen{{explanation->plan.layout.tp, explanation->plan.layout.pp}};
  for (const Candidate& candidate : SearchSpace(request.spec, request.cluster, request.target)) {
    PlanRequest pinned = request;
    pinned.spec.parallel.tp = candidate.layout.tp;
    pinned.spec.parallel.pp = candidate.layout.pp;
    if (!seen.emplace(candidate.layout.tp, candidate.layout.pp).second) continue;
    const absl::StatusOr<PlanResult> result = MakePlan(pinned);
    ASSERT_TRUE(result.ok()) << result.status();
    if (const Plan* plan = std::get_if<Plan>(&*result)) others.emplace_back(plan->step, plan->digest);
  }
  ASSERT_GT(others.size(), kMaxRejected);
  std::stable_sort(others.begin(), others.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  others.resize(kMaxRejected);
  std::vector<std::pair<Nanos, std::string>> shown;
  for (const Alternative& other : explanation->rejected) {
    ASSERT_TRUE(other.plan.has_value()) << other.reason;
    shown.emplace_back(other.plan->step, other.plan->digest);
  }
  EXPECT_EQ(shown, others);
  const auto planned =
      std::count_if(told.begin(), told.end(), [](const std::string& part) { return part.starts_with("layouts with "); });
  EXPECT_GE(planned, static_cast<int64_t>(kMaxRejected));
  if (weave == WeaveMode::kOff) EXPECT_LT(planned, static_cast<int64_t>(seen.size()) - 1) << "some need no plan";
  EXPECT_TRUE(told.contains("the plan"));
  EXPECT_TRUE(told.contains("one more node"));
}

INSTANTIATE_TEST_SUITE_P(AllWeaves, ExplainLayouts, ::testing::Values(WeaveMode::kOff, WeaveMode::kAuto),
                         [](const auto& info) { return EnumName(info.param); });

TEST(Compare, ForbiddenPoliciesAreNotChosen) {
  PlanRequest request = TightRequest();
  request.spec.recompute_options.forbidden = {RecomputeMode::kHeu};
  const absl::StatusOr<PlanResult> result = MakePlan(request);
  ASSERT_TRUE(result.ok());
  ASSERT_TRUE(std::holds_alternative<Plan>(*result));
  const Plan& plan = std::get<Plan>(*result);
  EXPECT_NE(plan.mode, RecomputeMode::kAuto);
  for (const StagePlan& stage : plan.stages) {
    for (const LayerPolicy& layer : stage.slices.at(0).policy.layers) {
      for (Placement p : layer) EXPECT_TRUE(p == Placement::kStore || p == Placement::kCritical);
    }
  }
}

TEST(Compare, BlockRecomputesAsFewLayersAsFit) {
  PlanRequest request = TightRequest();
  request.spec.recompute = RecomputeMode::kBlock;
  const absl::StatusOr<PlanResult> result = MakePlan(request);
  ASSERT_TRUE(result.ok() && std::holds_alternative<Plan>(*result));
  const Plan& plan = std::get<Plan>(*result);
  int32_t most = 0;
  for (const StagePlan& stage : plan.stages) {
    int32_t recomputed = 0;
    for (const LayerPolicy& layer : stage.slices.at(0).policy.layers) recomputed += layer[0] == Placement::kCritical ? 1 : 0;
    most = std::max(most, recomputed);
  }
  ASSERT_GT(most, 0);
  request.spec.recompute_options.layers = most - 1;
  if (most == 1) return;
  const absl::StatusOr<PlanResult> fewer = MakePlan(request);
  ASSERT_TRUE(fewer.ok());
  EXPECT_TRUE(std::holds_alternative<Infeasible>(*fewer)) << "one layer fewer would have fitted";
}

// The modes and degrees that occur among the candidates.
struct Modes {
  std::set<ScheduleKind> schedules;
  std::set<ZeroStage> zeros;
  std::set<int32_t> contexts, chunks;
  std::set<bool> sharded;

  explicit Modes(const std::vector<Candidate>& candidates) {
    for (const Candidate& c : candidates) {
      EXPECT_EQ(c.layout.ranks(), 16);
      EXPECT_EQ(int64_t{c.micro_batch} * c.microbatches * c.layout.dp, 64);
      EXPECT_LE(c.layout.pp * c.layout.virtual_stages, 6);
      EXPECT_EQ(c.layout.virtual_stages > 1, c.layout.schedule == ScheduleKind::kInterleaved);
      schedules.insert(c.layout.schedule);
      zeros.insert(c.layout.zero);
      contexts.insert(c.layout.cp);
      chunks.insert(c.layout.virtual_stages);
      sharded.insert(c.layout.sequence_parallel);
    }
  }
};

// If a field is open, the candidates must have every value that the engine runs, or every known value.
TEST(Candidates, SpanEveryDegreeAndMode) {
  using enum ScheduleKind;
  PlanRequest request = TightRequest();
  request.spec.parallel = {.tp = 2, .pp = 2};
  request.cluster = UniformCluster(4, 4, StatedCpuProfile());
  request.spec.resources.min_ranks = request.spec.resources.max_ranks = 16;
  request.spec.train.global_batch = 64;
  const auto engine = Candidates(request.spec, request.cluster, PlanTarget::kLynxEngine);
  ASSERT_TRUE(engine.ok());
  for (const Candidate& c : *engine) EXPECT_EQ(CheckEngineRuns(request.spec.model, c.layout), absl::OkStatus());
  const auto any = Candidates(request.spec, request.cluster, PlanTarget::kAnyFramework);
  ASSERT_TRUE(any.ok());
  for (const Modes& modes : {Modes(*engine), Modes(*any)}) {
    EXPECT_EQ(modes.schedules, (std::set{kOneForwardOneBackward, kInterleaved, kZeroBubble}));
    EXPECT_EQ(modes.chunks, (std::set{1, 2, 3}));
    EXPECT_EQ(modes.sharded.size(), 2u);
  }
  EXPECT_EQ(Modes(*engine).contexts, std::set{1});
  EXPECT_EQ(Modes(*any).contexts, (std::set{1, 2, 4}));
  EXPECT_EQ(Modes(*engine).zeros, (std::set{ZeroStage::kNone, ZeroStage::kOptimizer}));
  EXPECT_EQ(Modes(*any).zeros.size(), 4u);
}

TEST(Candidates, HaveOneTensorRankIfTheEngineNormsAllQueries) {
  PlanRequest request = TightRequest();
  request.spec.model.family = ModelFamily::kLlama;
  request.spec.model.dropout = 0;
  request.spec.model.qk_norm = request.spec.model.qk_norm_whole = true;
  request.spec.parallel = {};
  const auto degrees = [&](PlanTarget target) {
    const auto candidates = Candidates(request.spec, request.cluster, target);
    EXPECT_TRUE(candidates.ok()) << candidates.status();
    std::set<int32_t> tp;
    if (candidates.ok())
      std::for_each(candidates->begin(), candidates->end(), [&](const Candidate& c) { tp.insert(c.layout.tp); });
    return tp;
  };
  EXPECT_EQ(degrees(PlanTarget::kLynxEngine), std::set{1});
  EXPECT_GT(degrees(PlanTarget::kAnyFramework).size(), 1u);
  for (const LayerShape& shape : WantedShapes(request.spec, request.cluster)) EXPECT_EQ(shape.tp, 1);
}

TEST(Compare, WhatIsNotPlannedYetIsAnError) {
  PlanRequest request = TightRequest();
  request.spec.recompute_options.offload_permille = 100;
  EXPECT_THAT(std::string(MakePlan(request).status().message()), HasSubstr("offloadShare"));
}

}  // namespace
}  // namespace lynx
