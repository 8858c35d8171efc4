#include "planner/recompute/stage_offload.h"

#include <gtest/gtest.h>

#include "planner/recompute/stage_problem.h"
#include "tests/planner/plan/plan_fixtures.h"
#include "tests/planner/recompute/random_stages.h"

namespace lynx {
namespace {

TEST(StageOffload, IsNeverWorseThanHeuAloneAndKeepsTheBudgets) {
  int better = 0, fits_only_so = 0;
  for (uint32_t seed = 1; seed <= 150; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    RandomNumbers number(seed);
    RecomputeProblem problem = RandomOffloadStage(number, 8);
    const StageHeu heu(WithoutOffloading(problem));
    const auto slowdown = static_cast<int32_t>(number(1000, 1100));
    if (seed % 3 == 0) {
      const Bytes least = LeastBytesWithOffloading(heu, problem);
      EXPECT_LE(least, heu.LeastBytes(problem.layers));
      problem.budget = least + (heu.LeastBytes(problem.layers) - least) / 2;
    }
    const std::optional<StageSolution> stored = heu.Best(problem.layers, problem.budget);
    const StageHeu offloading(problem);
    const std::optional<OffloadSolution> with = BestWithOffloading(heu, offloading, problem, slowdown);
    ASSERT_TRUE(with.has_value());
    if (const auto of_fronts = offloading.Best(problem.layers, problem.budget)) {
      const Nanos slowed = SlowedByCopies(problem, of_fronts->policy, slowdown);
      EXPECT_LE(with->value.exposed + with->slowed, of_fronts->value.exposed + slowed);
    }
    const absl::StatusOr<StageValue> value = EvaluateStage(problem, with->policy);
    ASSERT_TRUE(value.ok()) << value.status();
    EXPECT_EQ(*value, with->value);
    EXPECT_TRUE(Fits(problem, with->value));
    EXPECT_EQ(with->slowed, SlowedByCopies(problem, with->policy, slowdown));
    if (!stored) {
      ++fits_only_so;
      continue;
    }
    EXPECT_LE(with->value.exposed + with->slowed, stored->value.exposed);
    better += with->value.exposed + with->slowed < stored->value.exposed;
  }
  EXPECT_GT(better, 20);
  EXPECT_GT(fits_only_so, 5);
}

TEST(StageOffload, FromTheLeastMemoryOnThereIsASolution) {
  for (uint32_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    RandomNumbers number(seed);
    RecomputeProblem problem = RandomOffloadStage(number, 6);
    const StageHeu heu(WithoutOffloading(problem));
    const Bytes least = LeastBytesWithOffloading(heu, problem);
    for (const Bytes budget : {least, least + least / 10, StoreAllBytes(problem)}) {
      problem.budget = budget;
      EXPECT_TRUE(BestWithOffloading(heu, StageHeu(problem), problem, 1000).has_value()) << budget.value - least.value;
    }
  }
}

TEST(StageOffload, NothingLeavesWhereCopiesAreSlowOrNotOffered) {
  RandomNumbers number(3);
  RecomputeProblem problem = RandomOffloadStage(number, 6);
  const StageHeu heu(WithoutOffloading(problem));
  problem.budget = heu.LeastBytes(problem.layers) + (StoreAllBytes(problem) - heu.LeastBytes(problem.layers)) / 3;
  const Nanos alone = heu.Best(problem.layers, problem.budget)->value.exposed;
  ASSERT_GT(alone, Nanos(0));
  RecomputeProblem slow = problem;
  for (RecomputeItem& item : slow.items) item.copy_out = item.copy_in = Nanos(1'000'000'000);
  for (const RecomputeProblem& p : {slow, WithoutOffloading(problem)}) {
    const std::optional<OffloadSolution> solution = BestWithOffloading(heu, StageHeu(p), p, 1050);
    ASSERT_TRUE(solution.has_value());
    EXPECT_EQ(solution->value.host, Bytes(0));
    EXPECT_EQ(solution->value.exposed, alone);
    EXPECT_EQ(EstimateWithOffloading(heu, p, p.budget, 1050).exposed, heu.Estimate(p.layers, p.budget).exposed);
  }
}

TEST(StageOffload, TheEstimateIsNoWorseThanWithout) {
  int lower = 0;
  for (uint32_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    RandomNumbers number(seed);
    const RecomputeProblem problem = RandomOffloadStage(number, 6);
    const StageHeu heu(WithoutOffloading(problem));
    const StageValue stored = heu.Estimate(problem.layers, problem.budget);
    const StageValue with = EstimateWithOffloading(heu, problem, problem.budget, 1050);
    EXPECT_LE(with.exposed, stored.exposed);
    EXPECT_LE(with.bytes(), std::max(problem.budget, stored.bytes()));
    lower += with.exposed < stored.exposed;
  }
  EXPECT_GT(lower, 10);
}

}  // namespace
}  // namespace lynx
