#include "planner/recompute/backward_pareto.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "planner/recompute/layer_choices.h"
#include "tests/planner/recompute/recompute_problems.h"

namespace lynx {
namespace {

using Pair = std::pair<Bytes, Nanos>;  // transient memory, exposed time

// Returns the Pareto front, in transient memory and exposed time, of all backward parts that LatePartsOf lists.
std::vector<Pair> FrontOfParts(const RecomputeProblem& problem, LayerPlace place, ItemSet late) {
  std::vector<Pair> all;
  for (const BackwardPart& part : LatePartsOf(problem, place, late)) {
    all.emplace_back(AlikeTransient(problem, part), AlikeExposed(problem, place, part));
  }
  std::sort(all.begin(), all.end());
  std::vector<Pair> front;
  for (const Pair& pair : all) {
    if (front.empty() || pair.second < front.back().second) front.push_back(pair);
  }
  return front;
}

RecomputeProblem ProblemOf(uint32_t seed) {
  RandomNumbers number(seed);
  return RandomProblem({.items = 6, .forward = 1, .backward = 1 + static_cast<int>(seed % 4)}, number);
}

TEST(BackwardPareto, AreTheFrontsOfAllPlacements) {
  for (uint32_t seed = 1; seed <= 150; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    const RecomputeProblem problem = ProblemOf(seed);
    for (const LayerPlace place : {LayerPlace::kInner, LayerPlace::kTop}) {
      BackwardPareto fronts(problem, place);
      for (ItemSet late = 0; late < 64; ++late) {
        std::vector<Pair> found;
        for (const BackwardPoint& point : fronts.Of(late)) found.emplace_back(point.transient, point.exposed);
        EXPECT_EQ(found, FrontOfParts(problem, place, late))
            << "late items " << late << (place == LayerPlace::kTop ? ", top" : "");
      }
    }
  }
}

TEST(BackwardPareto, NoPointIsBelowTheFloorOfItsSet) {
  for (uint32_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    for (const LayerPlace place : {LayerPlace::kInner, LayerPlace::kTop}) {
      BackwardPareto fronts(ProblemOf(seed), place);
      for (ItemSet late = 0; late < 64; ++late) {
        const BackwardPareto::Floor floor = fronts.FloorOf(late);
        for (const BackwardPoint& point : fronts.Of(late)) {
          EXPECT_GE(point.transient, floor.transient);
          EXPECT_GE(point.exposed, floor.exposed);
        }
      }
    }
  }
}

TEST(BackwardPareto, PointsAreWhatTheyClaim) {
  for (uint32_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    const RecomputeProblem problem = ProblemOf(seed);
    BackwardPareto fronts(problem, LayerPlace::kInner);
    for (ItemSet late = 0; late < 64; ++late) {
      for (const BackwardPoint& point : fronts.Of(late)) {
        const absl::StatusOr<LayerUse> use = UseOf(problem, point.policy, LayerPlace::kInner);
        ASSERT_TRUE(use.ok()) << use.status().message();
        Bytes transient;
        Nanos exposed = use->exposed;
        for (int k = 0; k < problem.segments(); ++k) transient = std::max(transient, use->live[k] + use->above[k]);
        for (size_t w = 0; w < problem.backward.size(); ++w) {
          exposed += std::max(Nanos(0), use->own_work[w] + use->above_work[w] - problem.backward[w]);
        }
        EXPECT_EQ(point.transient, transient);
        EXPECT_EQ(point.exposed, exposed);
      }
    }
  }
}

}  // namespace
}  // namespace lynx
