// Tests whole plans whose stages an exact solver solved.
#include "planner/plan/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/opt/exact_stage.h"
#include "planner/recompute/stage_heu.h"
#include "planner/report/plan_table.h"
#include "planner/search/compare.h"
#include "planner/search/make_plan.h"
#include "tests/planner/search/search_requests.h"

namespace lynx {
namespace {

using ::testing::HasSubstr;

PlanRequest Request(int64_t kib) {
  PlanRequest request;
  request.spec.model = {.layers = 6, .hidden = 128, .heads = 4, .ffn = 512, .seq = 64, .vocab = 256};
  request.spec.train.global_batch = 16;
  request.spec.train.micro_batch = 1;
  request.spec.parallel = {.tp = 2, .pp = 2, .dp = 1};
  request.spec.resources = {.min_ranks = 4, .max_ranks = 4, .activation_memory_per_rank = kKiB * kib};
  request.cluster = UniformCluster(1, 4, SmallGpu());
  return request;
}

Plan PlanOf(const PlanRequest& request) {
  const absl::StatusOr<PlanResult> result = MakePlan(request);
  EXPECT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(result.ok() && std::holds_alternative<Plan>(*result));
  return std::get<Plan>(*result);
}

TEST(OptPlan, IsNeverSlowerThanHeuAndHolds) {
  for (const int64_t kib : {600, 700, 900, 4000}) {
    SCOPED_TRACE(kib);
    PlanRequest request = Request(kib);
    // Without weaving, everything fits into 4000 KiB, so nothing is left to solve. A woven plan would recompute.
    if (kib == 4000) request.spec.parallel.weave = WeaveMode::kOff;
    request.spec.recompute = RecomputeMode::kHeu;
    const Plan heu = PlanOf(request);
    request.spec.recompute = RecomputeMode::kOpt;
    int solved = 0;
    const StageSolver solver = ExactStageSolver({.seconds = 20});
    request.exact = [&](const RecomputeProblem& problem) {
      ++solved;
      return solver(problem);
    };
    const Plan opt = PlanOf(request);
    EXPECT_LE(opt.step, heu.step);
    EXPECT_EQ(CheckPlan(opt), absl::OkStatus());
    for (const StagePlan& stage : opt.stages) EXPECT_LE(stage.arena, kKiB * kib);
    if (kib == 4000) {
      EXPECT_EQ(opt.mode, RecomputeMode::kNone) << "everything fits";
      EXPECT_EQ(solved, 0);
    } else {
      EXPECT_EQ(opt.mode, RecomputeMode::kOpt);
    }
    if (kib == 600) EXPECT_GT(solved, 0);
  }
}

TEST(OptPlan, SaysWhatIsProvenOfEachStage) {
  PlanRequest request = Request(600);
  request.spec.recompute = RecomputeMode::kOpt;
  request.exact = ExactStageSolver({.seconds = 20});
  const Plan opt = PlanOf(request);
  const std::string table = PlanTable(opt);
  EXPECT_THAT(table, HasSubstr("exposed"));
  for (const StagePlan& stage : opt.stages) {
    ASSERT_TRUE(stage.proof.has_value());
    EXPECT_LE(stage.proof->bound, stage.proof->exposed);
    EXPECT_EQ(stage.proof->status == ProofStatus::kOptimal, stage.proof->bound == stage.proof->exposed);
    EXPECT_NE(stage.proof->status, ProofStatus::kTimeLimit);
    EXPECT_THAT(table, HasSubstr(ProofStatusName(stage.proof->status)));
  }
  EXPECT_THAT(PlanText(opt), HasSubstr("proof "));
}

// This test changes the solver's answers. For the first stage, an answer has 1 ns less exposed time than the optimum really
// has. For the last stage, an answer claims that the policy of least memory has no exposed time. The simulation shows that the
// answer for the last stage is wrong. The planner keeps the answer for the first stage.
TEST(OptPlan, TakesOverStageByStage) {
  PlanRequest request = Request(600);
  request.spec.recompute = RecomputeMode::kOpt;
  const StageSolver solver = ExactStageSolver({.seconds = 20});
  Nanos first;
  request.exact = [&](const RecomputeProblem& problem) -> absl::StatusOr<StageAnswer> {
    absl::StatusOr<StageAnswer> answer = solver(problem);
    if (!answer.ok() || !answer->solution) return answer;
    Nanos& exposed = answer->solution->value.exposed;
    if (problem.in_flight > 1) {
      first = exposed = answer->bound = exposed - Nanos(1);
      return answer;
    }
    const StageHeu heu(problem);
    answer->solution->policy = heu.Best(problem.layers, heu.LeastBytes(problem.layers))->policy;
    exposed = answer->bound = Nanos(0);
    return answer;
  };
  const Plan opt = PlanOf(request);
  ASSERT_EQ(opt.stages.size(), 2u);
  ASSERT_TRUE(opt.stages[0].proof && opt.stages[1].proof);
  EXPECT_EQ(opt.stages[0].proof->exposed, first);
  EXPECT_EQ(opt.stages[1].proof->bound, Nanos(0));
  EXPECT_GT(opt.stages[1].proof->exposed, Nanos(0));
  request.spec.recompute = RecomputeMode::kHeu;
  EXPECT_LE(opt.step, PlanOf(request).step);
}

TEST(OptPlan, WithoutTimeTheGapIsWhatIsNotProven) {
  PlanRequest request = Request(600);
  request.spec.recompute = RecomputeMode::kOpt;
  request.exact = [](const RecomputeProblem&) { return absl::StatusOr<StageAnswer>(StageAnswer{}); };
  const Plan opt = PlanOf(request);
  EXPECT_EQ(opt.mode, RecomputeMode::kOpt);
  for (const StagePlan& stage : opt.stages) {
    ASSERT_TRUE(stage.proof.has_value());
    EXPECT_EQ(stage.proof->bound, Nanos(0));
    EXPECT_EQ(stage.proof->status, stage.proof->exposed.value == 0 ? ProofStatus::kOptimal : ProofStatus::kTimeLimit);
  }
  EXPECT_THAT(PlanTable(opt), HasSubstr("100.0%  time limit"));
}

TEST(OptPlan, ASolverThatFailsIsTheResult) {
  PlanRequest request = Request(600);
  request.spec.recompute = RecomputeMode::kOpt;
  request.exact = [](const RecomputeProblem&) { return absl::StatusOr<StageAnswer>(absl::InternalError("it broke")); };
  EXPECT_EQ(MakePlan(request).status(), absl::InternalError("it broke"));
}

TEST(OptPlan, IsComparedWhereASolverIsGiven) {
  PlanRequest request = Request(600);
  const absl::StatusOr<PolicyComparison> without = ComparePolicies(request);
  ASSERT_TRUE(without.ok());
  EXPECT_EQ(without->policies.back().mode, RecomputeMode::kHeu);
  request.exact = ExactStageSolver({.seconds = 20});
  const absl::StatusOr<PolicyComparison> with = ComparePolicies(request);
  ASSERT_TRUE(with.ok());
  ASSERT_EQ(with->policies.back().mode, RecomputeMode::kOpt);
  ASSERT_TRUE(with->policies.back().plan.has_value());
  EXPECT_LE(with->policies.back().plan->step, without->policies.back().plan->step);
}

TEST(OptPlan, WithoutASolverTheModeIsRefused) {
  PlanRequest request = Request(600);
  request.spec.recompute = RecomputeMode::kOpt;
  EXPECT_THAT(std::string(MakePlan(request).status().message()), HasSubstr("recompute opt"));
}

TEST(OptPlan, ASolverThatFindsNothingLeavesHeusPlan) {
  PlanRequest request = Request(600);
  request.spec.recompute = RecomputeMode::kHeu;
  const Plan heu = PlanOf(request);
  request.spec.recompute = RecomputeMode::kOpt;
  request.exact = [](const RecomputeProblem&) { return absl::StatusOr<StageAnswer>(StageAnswer{}); };
  const Plan opt = PlanOf(request);
  EXPECT_EQ(opt.step, heu.step);
}

}  // namespace
}  // namespace lynx
