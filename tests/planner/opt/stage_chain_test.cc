#include "planner/opt/stage_chain.h"

#include <gtest/gtest.h>

#include "planner/opt/column_generation.h"
#include "tests/planner/recompute/recompute_problems.h"

namespace lynx {
namespace {

RecomputeProblem ProblemOf(uint32_t seed, RandomNumbers& number) {
  RecomputeProblem problem =
      RandomProblem({.items = 3, .layers = 1 + static_cast<int>(seed % 3), .stall = true, .offload = seed % 3 == 0}, number);
  problem.budget = Bytes(number(0, StoreAllBytes(problem).value));
  return problem;
}

StagePrices RandomPrices(RandomNumbers& number) {
  const auto share = [&](double most) { return most * static_cast<double>(number(0, 100)) / 100; };
  StagePrices prices{.memory = share(3), .stall = share(1), .copy_out = share(0.5), .copy_in = share(0.5)};
  prices.host = share(1);
  return prices;
}

TEST(StageChain, NoPricesLiftTheBoundAboveTheBest) {
  for (uint32_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    RandomNumbers number(seed);
    const RecomputeProblem problem = ProblemOf(seed, number);
    const std::optional<BruteForceSolution> best = BruteForce(problem);
    if (!best) continue;
    const StageChain chain(problem);
    const double least = static_cast<double>(best->value.exposed.value);
    for (int i = 0; i < 20; ++i) {
      const ChainBound bound = chain.Bound(chain.Everything(), RandomPrices(number));
      EXPECT_TRUE(bound.feasible);
      EXPECT_LE(bound.bound, least);
      EXPECT_EQ(bound.chain.size(), static_cast<size_t>(problem.layers));
    }
    EXPECT_LE(BestPrices(chain, chain.Everything(), {}, 1e18).bound, least);
  }
}

TEST(StageChain, BestPricesAreBetterThanOthers) {
  for (uint32_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    RandomNumbers number(seed);
    const RecomputeProblem problem = ProblemOf(seed, number);
    if (!BruteForce(problem)) continue;
    const StageChain chain(problem);
    const PricedBound best = BestPrices(chain, chain.Everything(), {}, 1e18);
    ASSERT_TRUE(best.feasible);
    for (int i = 0; i < 40; ++i) {
      EXPECT_LE(chain.Bound(chain.Everything(), RandomPrices(number)).bound, best.bound + 0.6);
    }
    EXPECT_NEAR(chain.Bound(chain.Everything(), best.prices).bound, best.bound, 1e-6);
  }
}

TEST(StageChain, DropsNothingThatASolutionWithinTheLimitHas) {
  int64_t dropped = 0;
  for (uint32_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    RandomNumbers number(seed);
    const RecomputeProblem problem = ProblemOf(seed, number);
    const std::optional<BruteForceSolution> best = BruteForce(problem);
    if (!best) continue;
    const StageChain chain(problem);
    const double limit = static_cast<double>(best->value.exposed.value);
    const StagePrices prices = BestPrices(chain, chain.Everything(), {}, 1e18).prices;
    ChainScope scope = chain.Everything();
    ASSERT_TRUE(chain.DropBeyond(scope, prices, limit));
    const ChainScope everything = chain.Everything();
    // A node (a BackwardPart of one layer) stays in `scope` exactly if its lower bound is at most `limit`, the exposed time of
    // the optimum. So no node of an optimal solution is dropped.
    for (int32_t l = 0; l < problem.layers; ++l) {
      dropped += static_cast<int64_t>(everything.nodes[l]->size() - scope.nodes[l]->size());
      for (const int32_t index : *everything.nodes[l]) {
        const bool left = std::binary_search(scope.nodes[l]->begin(), scope.nodes[l]->end(), index);
        ChainScope only = everything;
        only.nodes[l] = std::make_shared<const std::vector<int32_t>>(std::vector<int32_t>{index});
        const ChainBound bound = chain.Bound(only, prices);
        EXPECT_EQ(left, bound.feasible && bound.bound <= limit) << l << " " << index;
      }
    }
    EXPECT_FALSE(chain.DropBeyond(scope, prices, -1e9));
  }
  EXPECT_GT(dropped, 300);
}

TEST(StageChain, IntervalsOfTransientMemoryLeaveOutWhatDoesNotFit) {
  RandomNumbers number(5);
  RecomputeProblem problem = RandomProblem({.items = 4, .layers = 3}, number);
  problem.budget = StoreAllBytes(problem);
  const StageChain chain(problem);
  ChainScope scope = chain.Everything();
  const std::vector<Bytes> transients = chain.Transients(scope);
  ASSERT_GT(transients.size(), 3u);
  EXPECT_TRUE(std::is_sorted(transients.begin(), transients.end()));
  EXPECT_EQ(transients.front(), Bytes(0));
  scope.most_transient = transients[1];
  ASSERT_TRUE(chain.DropTooLarge(scope));
  for (int32_t l = 0; l < problem.layers; ++l) {
    for (const int32_t index : *scope.nodes[l]) {
      EXPECT_LE(chain.PairTransient(*chain.node(l, index).late, nullptr), transients[1]);
    }
  }
  EXPECT_LE(chain.Transients(scope).back(), transients[1]);
  scope.most_transient = Bytes(-1);
  EXPECT_FALSE(chain.DropTooLarge(scope));
}

}  // namespace
}  // namespace lynx
