#include "planner/report/timeline.h"

#include <gtest/gtest.h>

#include "planner/search/make_plan.h"

namespace lynx {
namespace {

PlanRequest Request(double skew) {
  PlanRequest request;
  ModelSpec& model = request.spec.model;
  model = {.layers = 2, .hidden = 256, .heads = 8, .ffn = 512, .seq = 128, .vocab = 512, .dropout = 0};
  model.family = ModelFamily::kLlama;
  model.moe = {.experts = 8, .top_k = 2, .capacity = 4, .skew = skew};
  request.spec.name = "experts";
  request.spec.data.path = "/data";
  request.spec.train.steps = 1;
  request.spec.train.global_batch = 16;
  request.spec.resources = {.min_ranks = 4, .max_ranks = 4};
  request.spec.parallel = {.tp = 1, .pp = 1, .dp = 4, .ep = 4};
  request.spec.recompute = RecomputeMode::kFull;
  request.cluster = UniformCluster(1, 4, StatedCpuProfile());
  Normalize(request.spec);
  return request;
}

Plan Planned(const PlanRequest& request) {
  absl::StatusOr<PlanResult> result = MakePlan(request);
  EXPECT_TRUE(result.ok()) << result.status();
  return std::get<Plan>(*std::move(result));
}

std::vector<Plan> AtSkews(const PlanRequest& request, const Plan& plan, const std::vector<double>& skews) {
  absl::StatusOr<std::vector<Plan>> plans = PlanAtSkews(request.cluster, plan, skews);
  EXPECT_TRUE(plans.ok()) << plans.status();
  return *std::move(plans);
}

TEST(SkewCost, IsThatOfTheSamePlan) {
  const PlanRequest request = Request(1.5);
  const Plan plan = Planned(request);
  const std::vector<Plan> plans = AtSkews(request, plan, {1, 1.5, 2});
  ASSERT_EQ(plans.size(), 3u);
  EXPECT_LT(plans[0].step, plan.step);
  EXPECT_EQ(plans[1].step, plan.step) << "that for which it was made";
  EXPECT_GT(plans[2].step, plan.step);
  EXPECT_EQ(plans[1].stages[0].recompute_exposed, plan.stages[0].recompute_exposed);
  EXPECT_LT(plans[0].stages[0].recompute_exposed, plan.stages[0].recompute_exposed);
  EXPECT_EQ(plans[2].stages[0].arena, plan.stages[0].arena) << "the capacity bounds the rows";
  EXPECT_TRUE(plans[0].stages[0].program.empty());
}

// A plan may have the program of a shorter step.
TEST(SkewCost, IsScaledToTheWholeStep) {
  const PlanRequest request = Request(1);
  Plan plan = Planned(request);
  const std::vector<Plan> whole = AtSkews(request, plan, {1, 2});
  plan.step = plan.step * 10;
  const std::vector<Plan> scaled = AtSkews(request, plan, {1, 2});
  EXPECT_EQ(scaled[0].step, plan.step);
  EXPECT_NEAR(static_cast<double>(scaled[1].step.value), static_cast<double>(10 * whole[1].step.value), 10);
}

TEST(SkewCost, IsNothingWhereTheLoadIsAlwaysEven) {
  PlanRequest request = Request(1);
  request.spec.parallel.ep = 1;
  EXPECT_TRUE(AtSkews(request, Planned(request), {1, 2}).empty());
  request.spec.model.moe = {};
  EXPECT_TRUE(AtSkews(request, Planned(request), {1, 2}).empty());
}

}  // namespace
}  // namespace lynx
