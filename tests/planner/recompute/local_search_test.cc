#include "planner/recompute/local_search.h"

#include <gtest/gtest.h>

#include "planner/recompute/stage_heu.h"
#include "planner/recompute/stage_problem.h"
#include "tests/planner/recompute/random_stages.h"

namespace lynx {
namespace {

Nanos Slowed(const RecomputeProblem& problem, const StagePolicy& policy, int32_t slowdown_permille) {
  Nanos copies;
  for (size_t l = 0; l < policy.layers.size(); ++l) {
    const LayerUse use = *UseOf(problem, policy.layers[l], PlaceOf(l, policy.layers.size()));
    copies += use.copy_out + use.copy_in;
  }
  return copies * (slowdown_permille - 1000) / slowdown_permille;
}

TEST(StageImprove, IsNeverWorseAndFits) {
  int better = 0;
  for (uint32_t seed = 1; seed <= 80; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    RandomNumbers number(seed);
    const RecomputeProblem problem = RandomOffloadStage(number, 8);
    const auto slowdown = static_cast<int32_t>(number(1000, 1100));
    const StagePolicy known = StageHeu(WithoutOffloading(problem)).Best(problem.layers, problem.budget)->policy;
    const StagePolicy improved = Improved(problem, known, {}, slowdown);
    const absl::StatusOr<StageValue> value = EvaluateStage(problem, improved);
    ASSERT_TRUE(value.ok()) << value.status();
    EXPECT_TRUE(Fits(problem, *value));
    const Nanos before = EvaluateStage(problem, known)->exposed;
    const Nanos after = value->exposed + Slowed(problem, improved, slowdown);
    EXPECT_LE(after, before);
    better += after < before;
    EXPECT_EQ(improved, Improved(problem, known, {}, slowdown));
  }
  EXPECT_GT(better, 5);
}

// There are two layers of two items each, and two microbatches in flight. At first all items are recomputed.
TEST(StageImprove, ChangesItemsAndTakesOverWholeLayers) {
  RecomputeProblem problem{.layers = 2, .in_flight = 2, .budget = Bytes(40)};
  for (int64_t cost : {5, 6}) {
    problem.items.push_back({.bytes = Bytes(10), .cost = Nanos(cost), .read_by = 1});
  }
  const LayerPolicy recomputed{Placement::kCritical, Placement::kCritical};
  const StagePolicy known{{recomputed, recomputed}};
  const auto exposed = [&](const std::vector<LayerPolicy>& others) {
    return EvaluateStage(problem, Improved(problem, known, others, 1000))->exposed;
  };
  // The budget of 40 bytes has room for the two items that a layer recomputes at a time (20), and for one stored item of both
  // microbatches (20). So only the most expensive item of one layer is stored.
  EXPECT_EQ(exposed({}), Nanos(5 + 6 + 5));
  // With 60 bytes, both items of one layer can be stored. The search is given a policy that does so.
  problem.budget = Bytes(60);
  EXPECT_EQ(exposed({LayerPolicy{}}), Nanos(5 + 6));
}

// There is room for only one of the two items, so a better policy differs in both items.
TEST(StageImprove, TakesOverWhatNoSingleChangeReaches) {
  RecomputeProblem problem{.layers = 1, .in_flight = 2, .budget = Bytes(29)};
  problem.items.push_back({.bytes = Bytes(10), .cost = Nanos(5), .read_by = 1});
  problem.items.push_back({.bytes = Bytes(9), .cost = Nanos(6), .read_by = 1});
  const StagePolicy known{{LayerPolicy{Placement::kStore, Placement::kCritical}}};
  ASSERT_TRUE(Fits(problem, *EvaluateStage(problem, known)));
  EXPECT_EQ(EvaluateStage(problem, Improved(problem, known, {}, 1000))->exposed, Nanos(6));
  const LayerPolicy other{Placement::kCritical, Placement::kStore};
  EXPECT_EQ(EvaluateStage(problem, Improved(problem, known, {other}, 1000))->exposed, Nanos(5));
}

}  // namespace
}  // namespace lynx
