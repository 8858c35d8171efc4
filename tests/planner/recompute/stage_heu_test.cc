#include "planner/recompute/stage_heu.h"

#include <limits>
#include <set>
#include <tuple>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/recompute/stage_problem.h"
#include "tests/planner/plan/plan_fixtures.h"
#include "tests/planner/recompute/recompute_problems.h"

namespace lynx {
namespace {

using ::testing::SizeIs;

// A triple of held memory, transient memory and exposed time.
using Triple = std::tuple<int64_t, int64_t, int64_t>;

Triple TripleOf(const ParetoPoint& p) { return {p.held.value, p.transient.value, p.exposed.value}; }

// Returns the held memory, the transient memory and the exposed time of a layer with `use`, if its neighbours have the same
// `use`.
Triple AlikeValue(const RecomputeProblem& problem, const LayerUse& use, LayerPlace place) {
  int64_t transient = 0;
  int64_t exposed = use.exposed.value - (place == LayerPlace::kTop ? std::min(use.early, problem.early).value : 0);
  for (int k = 0; k < problem.segments(); ++k) transient = std::max(transient, (use.live[k] + use.above[k]).value);
  for (size_t w = 0; w < problem.backward.size(); ++w) {
    exposed += std::max<int64_t>(0, (use.own_work[w] + use.above_work[w] - problem.backward[w]).value);
  }
  exposed += std::max<int64_t>(0, use.stall.value - problem.stall.value / problem.layers);
  return {use.held.value, transient, exposed};
}

std::set<Triple> BruteForceFront(const RecomputeProblem& problem, LayerPlace place) {
  std::set<Triple> all, front;
  ForEachPolicy(problem, place, [&](const LayerPolicy&, const LayerUse& use) { all.insert(AlikeValue(problem, use, place)); });
  for (const auto& a : all) {
    const bool bettered = std::any_of(all.begin(), all.end(), [&](const Triple& b) {
      return b != a && std::get<0>(b) <= std::get<0>(a) && std::get<1>(b) <= std::get<1>(a) && std::get<2>(b) <= std::get<2>(a);
    });
    if (!bettered) front.insert(a);
  }
  return front;
}

TEST(StageHeu, FrontEqualsBruteForceOnOneLayer) {
  for (uint32_t seed = 1; seed <= 120; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    RandomNumbers number(seed);
    const RecomputeProblem problem =
        RandomProblem({.items = 5, .forward = 2, .backward = 2, .layers = 3, .stall = seed % 2 == 0}, number);
    for (const LayerPlace place : {LayerPlace::kInner, LayerPlace::kTop}) {
      std::set<Triple> front;
      for (const ParetoPoint& point : LayerPareto(problem, place)) {
        EXPECT_TRUE(front.insert(TripleOf(point)).second) << "twice in the front";
        const absl::StatusOr<LayerUse> use = UseOf(problem, point.policy, place);
        ASSERT_TRUE(use.ok()) << use.status().message();
        EXPECT_EQ(*use, point.use) << PolicyText(problem, point.policy);
        EXPECT_EQ(AlikeValue(problem, *use, place), TripleOf(point)) << PolicyText(problem, point.policy);
      }
      EXPECT_EQ(front, BruteForceFront(problem, place));
    }
  }
}

TEST(StageHeu, SolutionsFitAreWhatTheyClaimAndNeverBeatTheBest) {
  int solved = 0, best_found = 0;
  for (uint32_t seed = 1; seed <= 150; ++seed) {
    RandomNumbers number(seed);
    RecomputeProblem problem = RandomProblem({.items = 3,
                                              .forward = 2,
                                              .backward = 2,
                                              .layers = 1 + static_cast<int>(seed % 3),
                                              .stall = seed % 2 == 0,
                                              .offload = seed % 5 == 0},
                                             number);
    const StageHeu heu(problem);
    const Bytes least = heu.LeastBytes(problem.layers);
    for (const Bytes budget : {least - Bytes(1), least, least + (StoreAllBytes(problem) - least) / 3}) {
      SCOPED_TRACE(absl::StrCat("seed ", seed, ", budget ", budget.value));
      problem.budget = budget;
      const std::optional<StageSolution> solution = heu.Best(problem.layers, budget);
      const std::optional<BruteForceSolution> best = BruteForce(problem);
      ASSERT_TRUE(solution.has_value() || budget < least);
      if (!solution) continue;
      ASSERT_TRUE(best.has_value());
      const absl::StatusOr<StageValue> value = EvaluateStage(problem, solution->policy);
      ASSERT_TRUE(value.ok()) << value.status().message();
      EXPECT_EQ(*value, solution->value);
      EXPECT_TRUE(Fits(problem, *value));
      EXPECT_FALSE(Better(*value, best->value));
      ++solved;
      best_found += value->exposed == best->value.exposed ? 1 : 0;
    }
  }
  EXPECT_GT(solved, 300);
  EXPECT_GT(best_found * 100, solved * 85);
}

TEST(StageHeu, NothingIsExposedWhereEverythingFits) {
  for (uint32_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    RandomNumbers number(seed);
    const RecomputeProblem problem = RandomProblem({.items = 5, .layers = 4}, number);
    const StageHeu heu(problem);
    const std::optional<StageSolution> solution = heu.Best(4, StoreAllBytes(problem));
    ASSERT_TRUE(solution.has_value());
    EXPECT_THAT(solution->policy.layers, SizeIs(4));
    EXPECT_EQ(solution->value.exposed, Nanos(0));
  }
}

// With many layers, a mix of policies uses the memory that one policy for all would leave free. With few layers, the top
// layer's own policy would already use it. With budgets in the upper half of the range nothing is exposed, so a mix is no
// better there.
TEST(StageHeu, UnlikeLayersUseMemoryThatOnePolicyWouldLeave) {
  constexpr int32_t kLayers = 12;
  const ModelSpec model = TinyModel(kLayers);
  const ParallelLayout layout{.tp = 2};
  const CostModel costs(RoundProfile(model, Nanos(400)), model, layout, 1, 2);
  const RecomputeProblem problem = MakeStageProblem(costs, ShapeOf(model, layout, 1), {.layers = kLayers, .in_flight = 3});
  const StageHeu heu(problem);
  const std::vector<ParetoPoint> inner = LayerPareto(problem, LayerPlace::kInner), top = LayerPareto(problem, LayerPlace::kTop);
  const Bytes least = heu.LeastBytes(kLayers), most = StoreAllBytes(problem);
  int better = 0;
  for (int step = 0; step <= 40; ++step) {
    const Bytes budget = least + (most - least) / 40 * step;
    const std::optional<StageSolution> solution = heu.Best(kLayers, budget);
    ASSERT_TRUE(solution.has_value()) << step;
    EXPECT_LE(solution->value.bytes(), budget);
    Nanos alike{std::numeric_limits<int64_t>::max()};  // one policy for all layers except the top layer
    for (const ParetoPoint& i : inner) {
      for (const ParetoPoint& t : top) {
        std::vector<LayerUse> uses(kLayers, i.use);
        uses.back() = t.use;
        const StageValue value = Combine(problem, uses);
        if (value.bytes() <= budget) alike = std::min(alike, value.exposed);
      }
    }
    EXPECT_LE(solution->value.exposed, alike) << step;
    better += solution->value.exposed < alike ? 1 : 0;
  }
  EXPECT_GT(better, 15);
}

TEST(StageHeu, TheEstimateIsNearTheValue) {
  const ModelSpec model = TinyModel(4);
  const ParallelLayout layout{.tp = 2};
  const CostModel costs(RoundProfile(model), model, layout, 1, 2);
  const RecomputeProblem problem = MakeStageProblem(costs, ShapeOf(model, layout, 1), {.layers = 6, .in_flight = 3});
  const StageHeu heu(problem);
  const Bytes least = heu.LeastBytes(6), most = StoreAllBytes(problem);
  EXPECT_EQ(heu.Estimate(6, Bytes(0)).bytes(), least);
  for (int step = 1; step <= 10; ++step) {
    const Bytes budget = least + (most - least) / 10 * step;
    const StageValue estimate = heu.Estimate(6, budget);
    const StageValue value = heu.Best(6, budget)->value;
    EXPECT_LE(estimate.bytes(), budget);
    EXPECT_NEAR(static_cast<double>(estimate.exposed.value), static_cast<double>(value.exposed.value), 400) << step;
  }
}

TEST(StageHeu, TellsWhetherAnEstimateTakesTheBudget) {
  for (uint32_t seed = 1; seed <= 40; ++seed) {
    RandomNumbers number(seed);
    const RecomputeProblem problem = RandomProblem({.items = 5, .forward = 2, .backward = 2, .layers = 4}, number);
    const StageHeu heu(problem);
    for (const int32_t layers : {1, 2, 4, 9}) {
      for (Bytes budget; budget <= Bytes(400); budget += Bytes(7)) {
        // If no mix fits, the estimate is the value of the policy with the least memory.
        const StageValue estimate = heu.Estimate(layers, budget);
        if (heu.Estimates(layers, budget)) {
          EXPECT_LE(estimate.bytes(), budget) << "seed " << seed << ", " << layers << " layers";
        } else {
          EXPECT_EQ(estimate, heu.Estimate(layers, Bytes(-1))) << "seed " << seed << ", " << layers << " layers";
        }
      }
    }
  }
}

TEST(StageHeu, ForAnyStageIsTheSameAsFromItsOwnProblem) {
  for (uint32_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    RandomNumbers number(seed);
    RecomputeProblem problem =
        RandomProblem({.items = 6, .forward = 2, .backward = 2, .layers = 4, .stall = seed % 2 == 0}, number);
    problem.in_flight = 3;
    const StageHeu donor(problem);
    for (const int32_t in_flight : {2, 3, 7, 64}) {
      problem.in_flight = in_flight;
      if (problem.stall.value > 0) problem.stall = Nanos(1 + number(0, 400));
      const StageHeu own(problem), shared = donor.ForStage(4, in_flight, problem.stall);
      EXPECT_EQ(shared.LeastBytes(4), own.LeastBytes(4));
      const StagePolicy stored{std::vector<LayerPolicy>(4)};
      const Bytes least = own.LeastBytes(4), most = EvaluateStage(problem, stored)->bytes();
      for (int i = 0; i <= 4; ++i) {
        const Bytes budget = least + (most - least) / 4 * i;
        const std::optional<StageSolution> a = shared.Best(4, budget), b = own.Best(4, budget);
        ASSERT_EQ(a.has_value(), b.has_value());
        if (a) EXPECT_EQ(a->value.exposed, b->value.exposed);
      }
    }
  }
}

TEST(StageHeu, SameProblemSamePolicy) {
  RandomNumbers number(7);
  const RecomputeProblem problem = RandomProblem({.items = 6, .layers = 5, .stall = true, .offload = true}, number);
  const StageHeu a(problem), b(problem);
  const Bytes budget = a.LeastBytes(5) + (StoreAllBytes(problem) - a.LeastBytes(5)) / 2;
  EXPECT_EQ(a.Best(5, budget)->policy, b.Best(5, budget)->policy);
}

}  // namespace
}  // namespace lynx
