// Tests batches whose samples cannot be divided evenly among replicas and microbatches (planner/problem/batch_split.h).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/candidates/search.h"
#include "planner/candidates/supported.h"
#include "planner/report/plan_table.h"
#include "planner/search/make_plan.h"
#include "tests/planner/plan/plan_fixtures.h"
#include "tests/planner/search/search_requests.h"

namespace lynx {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

PlanRequest OddRequest(int32_t batch, int32_t ranks) {
  std::mt19937_64 rng(1);
  PlanRequest request = RandomRequest(rng);
  request.cluster = UniformCluster(ranks, 1, StatedCpuProfile());
  request.spec.train.global_batch = batch;
  request.spec.train.micro_batch = 0;
  request.spec.parallel = {};
  request.spec.recompute = RecomputeMode::kAuto;
  request.spec.resources = {.min_ranks = ranks, .max_ranks = ranks};
  request.target = PlanTarget::kLynxEngine;
  return request;
}

Plan PlanOf(const PlanRequest& request) {
  const absl::StatusOr<PlanResult> result = MakePlan(request);
  EXPECT_TRUE(result.ok()) << result.status();
  return std::get<Plan>(*result);
}

TEST(UnevenBatch, ReplicasNeedNotDivideIt) {
  PlanRequest request = OddRequest(32, 7);
  request.spec.parallel.dp = 7;
  request.spec.train.micro_batch = 1;
  const Plan plan = PlanOf(request);
  EXPECT_EQ(plan.microbatches, 5);
  EXPECT_EQ(plan.empty_places, 3);
  EXPECT_EQ(plan.samples(), 32);
  EXPECT_EQ(FiguresOf(plan).tokens, 32 * plan.model.seq);
  EXPECT_THAT(PlanTable(plan), HasSubstr("\n3 of the 35 places of the microbatches are empty: the batch has 32 samples\n"));
  EXPECT_EQ(CheckPlan(plan), absl::OkStatus());
  EXPECT_THAT(PlanText(plan), HasSubstr("\nempty places 3\n"));
}

// A plan without empty places must have the same digest as in earlier releases.
TEST(UnevenBatch, AnEvenPlanDoesNotSpeakOfIt) {
  PlanRequest request = OddRequest(28, 7);
  request.spec.parallel.dp = 7;
  const Plan plan = PlanOf(request);
  EXPECT_EQ(plan.empty_places, 0);
  EXPECT_THAT(PlanText(plan), Not(HasSubstr("empty places")));
  EXPECT_THAT(PlanTable(plan), Not(HasSubstr("empty")));
}

// With seven ranks and a batch of 32, only pipelines without replicas divide the batch evenly. The best of all plans is never
// slower.
TEST(UnevenBatch, IsChosenWhereItIsFaster) {
  PlanRequest request = OddRequest(32, 7);
  request.spec.model.layers = 8;
  request.cluster.groups[0].profile.inter_node = {.latency = Nanos(1000), .bytes_per_second = 100'000'000'000};
  const Plan plan = PlanOf(request);
  request.even_batches = true;
  const Plan even = PlanOf(request);
  EXPECT_EQ(even.empty_places, 0);
  EXPECT_EQ(even.layout.pp, 7);
  EXPECT_LT(plan.step, even.step) << LayoutText(plan.layout);
}

// Plans that are exported must be even, because other frameworks refuse other batches.
TEST(UnevenBatch, EverySpaceHasThemUnlessItMustBeEven) {
  const PlanRequest request = OddRequest(32, 7);
  const auto uneven = [](const std::vector<Candidate>& candidates) {
    return std::any_of(candidates.begin(), candidates.end(),
                       [](const Candidate& c) { return c.layout.dp * c.micro_batch * c.microbatches != 32; });
  };
  for (const PlanTarget target : {PlanTarget::kLynxEngine, PlanTarget::kAnyFramework}) {
    EXPECT_TRUE(uneven(SearchSpace(request.spec, request.cluster, target)));
    EXPECT_FALSE(uneven(SearchSpace(request.spec, request.cluster, target, /*even_batches=*/true)));
  }
}

TEST(UnevenBatch, AnEvenPlanIsRefusedByTheRuleOfTheBatch) {
  PlanRequest request = OddRequest(32, 7);
  request.spec.parallel.dp = 7;
  request.even_batches = true;
  for (const PlanTarget target : {PlanTarget::kLynxEngine, PlanTarget::kAnyFramework}) {
    request.target = target;
    EXPECT_THAT(std::string(MakePlan(request).status().message()),
                HasSubstr("train.globalBatch is 32, which is not a multiple of parallel.dp = 7"));
  }
}

std::vector<int32_t> ReplicasOf(const PlanRequest& request) {
  std::vector<int32_t> replicas;
  for (const Candidate& c : SearchSpace(request.spec, request.cluster, PlanTarget::kLynxEngine)) {
    replicas.push_back(c.layout.dp);
  }
  return replicas;
}

// With 17 to 31 replicas, each replica has two microbatches. A range of ranks tries the least and the greatest of such numbers.
TEST(UnevenBatch, RangesHaveFewCandidates) {
  PlanRequest request = OddRequest(32, 32);
  request.spec.resources.min_ranks = 1;
  request.spec.train.micro_batch = 1;
  request.spec.parallel = {.tp = 1, .pp = 1, .schedule = ScheduleKind::kOneForwardOneBackward, .zero = ZeroStage::kNone};
  EXPECT_EQ(ReplicasOf(request), (std::vector<int32_t>{1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 15, 16, 31, 32}));
  request.spec.resources.min_ranks = 20;
  EXPECT_EQ(ReplicasOf(request), (std::vector<int32_t>{20, 31, 32}));
  request.spec.resources.max_ranks = 30;
  EXPECT_EQ(ReplicasOf(request), (std::vector<int32_t>{20, 30}));
}

// With ZeRO-1, more replicas may not reduce the microbatches of each replica, but each rank holds less.
TEST(UnevenBatch, ARangeFitsIfItsLargestNumberOfRanksFits) {
  PlanRequest request = OddRequest(32, 31);
  request.spec.train.micro_batch = 1;
  request.spec.recompute = RecomputeMode::kFull;
  request.spec.parallel = {.tp = 1, .pp = 1, .zero = ZeroStage::kOptimizer};
  const Plan large = PlanOf(request);
  NodeGroup& group = request.cluster.groups[0];
  group.memory_per_device = large.stages[0].states.total() + large.stages[0].arena;
  request.spec.resources.min_ranks = 16;
  EXPECT_EQ(PlanOf(request).layout.dp, 31);
  request.spec.resources.max_ranks = 16;
  EXPECT_TRUE(std::holds_alternative<Infeasible>(MakePlan(request).value()));
}

TEST(UnevenBatch, CheckPlanFindsAWrongNumber) {
  PlanRequest request = OddRequest(32, 7);
  request.spec.parallel.dp = 7;
  request.spec.train.micro_batch = 1;
  for (const int32_t wrong : {-1, 7, 35, 1 << 30}) {
    Plan plan = PlanOf(request);
    plan.empty_places = wrong;
    EXPECT_EQ(CheckPlan(plan).code(), absl::StatusCode::kFailedPrecondition) << wrong;
  }
}

// A last group with fewer microbatches waits as long as a full group. Such schedules would be many candidates and are rarely
// the fastest. So the job must ask for them.
TEST(Candidates, InterleaveARestOfMicrobatchesOnlyIfTheJobAsks) {
  PlanRequest request;
  request.spec.model = TinyModel(12);
  request.spec.train.global_batch = 10;
  request.spec.train.micro_batch = 1;
  request.spec.resources = {.min_ranks = 4, .max_ranks = 4};
  request.spec.parallel = {.pp = 4};
  request.cluster = UniformCluster(1, 4, StatedCpuProfile());
  const auto interleaved = [&](bool even_batches) {
    const std::vector<Candidate> space = SearchSpace(request.spec, request.cluster, PlanTarget::kLynxEngine, even_batches);
    return std::any_of(space.begin(), space.end(),
                       [](const Candidate& c) { return c.layout.schedule == ScheduleKind::kInterleaved; });
  };
  EXPECT_FALSE(interleaved(false)) << "10 microbatches in groups of 4";
  request.spec.parallel.schedule = ScheduleKind::kInterleaved;
  EXPECT_TRUE(interleaved(false));
  EXPECT_FALSE(interleaved(true)) << "other frameworks run only whole groups";
  request.spec.parallel = {.pp = 4, .virtual_stages = 3};
  EXPECT_TRUE(interleaved(false));
  request.spec.parallel = {.pp = 4};
  request.spec.train.global_batch = 12;
  EXPECT_TRUE(interleaved(false));
}

}  // namespace
}  // namespace lynx
