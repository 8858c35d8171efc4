// Whole plans whose stages an exact solver solved.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/opt/exact_stage.h"
#include "planner/plan.h"
#include "tests/planner/search_requests.h"

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
