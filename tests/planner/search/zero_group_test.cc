// Tests plans whose states are sharded over groups of the replicas (parallel.zeroGroup).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "planner/candidates/candidate_bound.h"
#include "planner/candidates/supported.h"
#include "planner/program/memory_model.h"
#include "planner/search/make_plan.h"
#include "planner/stages/layout_planner.h"
#include "tests/planner/search/search_requests.h"

namespace lynx {
namespace {

using enum ZeroStage;
using ::testing::HasSubstr;

// Returns a request for sixteen devices on four nodes. Links between nodes are slow.
PlanRequest Request(const ParallelSpec& parallel) {
  PlanRequest request;
  request.target = PlanTarget::kAnyFramework;
  request.spec.name = "job";
  request.spec.data.path = "corpus";
  request.spec.model = {.layers = 4, .hidden = 128, .heads = 4, .ffn = 512, .seq = 64, .vocab = 256};
  request.spec.train.steps = 1;
  request.spec.train.global_batch = 32;
  request.spec.train.micro_batch = 1;
  request.spec.parallel = parallel;
  request.spec.resources = {.min_ranks = 16, .max_ranks = 16};
  request.cluster = UniformCluster(4, 4, SmallGpu());
  Normalize(request.spec);
  EXPECT_EQ(ValidateJobSpec(request.spec), absl::OkStatus());
  return request;
}

Plan Planned(const PlanRequest& request) {
  const absl::StatusOr<PlanResult> result = MakePlan(request);
  EXPECT_TRUE(result.ok() && std::holds_alternative<Plan>(*result)) << result.status();
  return result.ok() && std::holds_alternative<Plan>(*result) ? std::get<Plan>(*result) : Plan();
}

TEST(ZeroGroup, PlansHoldAndAreNotTrained) {
  for (const ZeroStage zero : {kOptimizer, kGradients, kWeights}) {
    for (const int32_t pp : {1, 2}) {
      SCOPED_TRACE(testing::Message() << EnumName(zero) << ", " << pp << " stages");
      const Plan plan = Planned(Request({.tp = 1, .pp = pp, .dp = 16 / pp, .zero = zero, .zero_group = 4}));
      EXPECT_EQ(CheckPlan(plan), absl::OkStatus());
      EXPECT_EQ(plan.layout.zero_group, 4);
      EXPECT_THAT(LayoutText(plan.layout), HasSubstr(absl::StrCat("zero-", EnumName(zero), "-of-4")));
    }
  }
  const ModelSpec model = Request({}).spec.model;
  EXPECT_THAT(
      std::string(CheckEngineRuns(model, {.dp = 16, .zero = kOptimizer, .zero_group = 4}).message()),
      HasSubstr("parallel.zeroGroup 4 can be planned (lynxctl plan), but the engine of this version trains only with 0"));
}

// A group of 4 of 16 replicas shards like 4 replicas: a quarter of each state that is sharded, whatever dp is.
TEST(ZeroGroup, MemoryIsThatOfAsManyReplicas) {
  const ModelSpec model = Request({}).spec.model;
  for (const ZeroStage zero : {kOptimizer, kGradients, kWeights}) {
    const auto states = [&](const ParallelLayout& layout) {
      return StatesOf(PipelineContexts(model, layout, 1, 4, {model.layers}).front()).total();
    };
    const Bytes group = states({.dp = 16, .zero = zero, .zero_group = 4});
    EXPECT_EQ(group, states({.dp = 4, .zero = zero}));
    EXPECT_GT(group, states({.dp = 16, .zero = zero}));
    EXPECT_LT(group, states({.dp = 16}));
  }
}

// With ZeRO-3, weights are gathered for every pass. Over slow links this takes less time if each group is inside a node.
TEST(ZeroGroup, GroupsOfANodeGatherFaster) {
  const ParallelSpec all{.tp = 1, .pp = 1, .dp = 16, .zero = kWeights};
  ParallelSpec group = all, two_nodes = all;
  group.zero_group = 4, two_nodes.zero_group = 8;
  EXPECT_LT(Planned(Request(group)).step, Planned(Request(all)).step);
  EXPECT_LT(Planned(Request(group)).step, Planned(Request(two_nodes)).step);
}

TEST(ZeroGroup, SearchTakesReplicasInWholeGroups) {
  const PlanRequest request = Request({.zero_group = 8});
  const auto candidates = SupportedCandidates(request);
  ASSERT_TRUE(candidates.ok()) << candidates.status();
  bool whole = false, groups = false;
  for (const Candidate& candidate : *candidates) {
    const ParallelLayout& layout = candidate.layout;
    EXPECT_EQ(layout.dp % 8, 0) << LayoutText(layout);
    EXPECT_NE(layout.zero, kNone) << LayoutText(layout);
    EXPECT_EQ(layout.zero_group, layout.dp == 8 ? 0 : 8) << LayoutText(layout);
    (layout.dp == 8 ? whole : groups) = true;
  }
  EXPECT_TRUE(whole && groups);
}

TEST(ZeroGroup, NoSimulatedStepIsShorterThanTheBound) {
  const PlanRequest request = Request({.tp = 1, .zero_group = 4});
  const auto candidates = SupportedCandidates(request);
  ASSERT_TRUE(candidates.ok()) << candidates.status();
  PlanCaches caches(request);
  int grouped = 0;
  for (size_t i = 0; i < candidates->size(); i += 3) {
    const Candidate& candidate = (*candidates)[i];
    SCOPED_TRACE(LayoutText(candidate.layout));
    grouped += candidate.layout.zero_group > 0;
    const std::optional<Draft> draft =
        LayoutPlanner(request, candidate, caches).Best(Nanos(std::numeric_limits<int64_t>::max()));
    if (!draft) continue;
    const std::optional<Nanos> bound = CandidateBound(request, candidate, caches).Bound();
    ASSERT_TRUE(bound.has_value());
    EXPECT_LE(*bound, draft->step);
  }
  EXPECT_GT(grouped, 3);
}

TEST(ZeroGroup, ErrorsNameTheFieldAndTheReplicas) {
  PlanRequest request = Request({.tp = 4, .pp = 2, .cp = 1, .zero_group = 4});
  EXPECT_THAT(std::string(MakePlan(request).status().message()),
              HasSubstr("parallel.zeroGroup is 4, and parallel.dp must be a multiple of it, but resources.ranks is 16 and "
                        "parallel.tp * parallel.pp"));
  request = Request({.zero_group = 5});
  EXPECT_THAT(std::string(MakePlan(request).status().message()), HasSubstr("the job fixes parallel.zeroGroup 5"));
}

}  // namespace
}  // namespace lynx
