#include "planner/recompute/layer_pareto.h"

#include <algorithm>
#include <set>
#include <tuple>

#include <gtest/gtest.h>

#include "planner/recompute/layer_choices.h"
#include "tests/planner/recompute/recompute_problems.h"

namespace lynx {
namespace {

// A triple of held memory, transient memory and exposed time.
using Triple = std::tuple<Bytes, Bytes, Nanos>;

bool IsBettered(const Triple& by, const Triple& point) {
  return std::get<0>(by) <= std::get<0>(point) && std::get<1>(by) <= std::get<1>(point) &&
         std::get<2>(by) <= std::get<2>(point);
}

std::set<Triple> FrontOf(const std::set<Triple>& all) {
  std::set<Triple> front;
  for (const Triple& point : all) {
    const bool bettered =
        std::any_of(all.begin(), all.end(), [&](const Triple& by) { return by != point && IsBettered(by, point); });
    if (!bettered) front.insert(point);
  }
  return front;
}

// Returns the held memory, the transient memory and the exposed time of `point`, without offloading. The exposed time includes
// the recomputation in the stall that exceeds the layer's share of the stall.
Triple TripleOf(const RecomputeProblem& problem, const LayerPoint& point) {
  const Nanos stall = std::max(Nanos(0), point.use.stall - problem.stall / problem.layers);
  return {HeldInFlight(point, problem), point.transient, point.exposed + stall};
}

std::set<Triple> FrontOfPoints(const RecomputeProblem& problem, const std::vector<LayerPoint>& points) {
  std::set<Triple> all;
  for (const LayerPoint& point : points) all.insert(TripleOf(problem, point));
  return FrontOf(all);
}

// Returns the Pareto front of all the ways to treat a layer that LayerChoices lists.
std::set<Triple> FrontOfParts(const RecomputeProblem& problem, LayerPlace place) {
  std::set<Triple> all;
  for (const PartsOfSet& parts : LayerChoices(problem, place)) {
    for (const BackwardPart& late : parts.late) {
      const Bytes transient = AlikeTransient(problem, late);
      const Nanos exposed = AlikeExposed(problem, place, late);
      for (const KeptPart& kept : parts.kept) {
        const Nanos stall = std::max(Nanos(0), kept.stall - problem.stall / problem.layers);
        all.insert({kept.held, transient, exposed + kept.exposed + stall});
      }
    }
  }
  return FrontOf(all);
}

RecomputeProblem ProblemOf(uint32_t seed, int items) {
  RandomNumbers number(seed);
  return RandomProblem({.items = items,
                        .forward = 1 + static_cast<int>(seed % 4),
                        .backward = 1 + static_cast<int>(seed / 4 % 4),
                        .layers = 2,
                        .stall = seed % 3 == 0},
                       number);
}

TEST(LayerPareto, HoldsTheFrontOfAllPartsThatAreWorthWhile) {
  for (uint32_t seed = 1; seed <= 96; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    const RecomputeProblem problem = ProblemOf(seed, 6);
    for (const LayerPlace place : {LayerPlace::kInner, LayerPlace::kTop}) {
      EXPECT_EQ(FrontOfPoints(problem, LayerPoints(problem, place, InFlightUse::kGiven)), FrontOfParts(problem, place));
    }
  }
}

TEST(LayerPareto, PointsForMoreInFlightHoldTheFrontOfEachNumber) {
  for (uint32_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    RecomputeProblem problem = ProblemOf(seed, 6);
    problem.in_flight = 2;
    for (const LayerPlace place : {LayerPlace::kInner, LayerPlace::kTop}) {
      const std::vector<LayerPoint> points = LayerPoints(problem, place, InFlightUse::kOrMore);
      for (const int32_t in_flight : {2, 3, 5, 64}) {
        RecomputeProblem more = problem;
        more.in_flight = in_flight;
        EXPECT_EQ(FrontOfPoints(more, points), FrontOfPoints(more, LayerPoints(more, place, InFlightUse::kGiven)));
      }
    }
  }
}

// The layer has twelve items and the largest number of windows.
TEST(LayerPareto, PointsOfALargeLayerAreWhatTheyClaim) {
  RandomNumbers number(11);
  RecomputeProblem problem = RandomProblem({.items = kMaxItems, .layers = 3, .stall = true}, number);
  problem.in_flight = 2;
  problem.stall = Nanos(20);
  problem.forward = {Nanos(7), Nanos(9), Nanos(4), Nanos(8)};
  problem.backward.assign(problem.backward.size(), Nanos(6));
  const std::vector<LayerPoint> points = LayerPoints(problem, LayerPlace::kInner, InFlightUse::kGiven);
  EXPECT_GT(points.size(), 10u);
  for (const LayerPoint& point : points) {
    const absl::StatusOr<LayerUse> use = UseOf(problem, point.policy, LayerPlace::kInner);
    ASSERT_TRUE(use.ok()) << use.status().message();
    EXPECT_EQ(*use, point.use);
    EXPECT_EQ(point.use.held, HeldInFlight(point, problem));
  }
  // At least one point must have no exposed time.
  const auto exposes_nothing = [](const LayerPoint& point) { return point.exposed == Nanos(0); };
  EXPECT_TRUE(std::any_of(points.begin(), points.end(), exposes_nothing));
}

// The item with the least copy time per byte is too large for the host. The other item must still be offloaded.
TEST(LayerPareto, OffloadsWhatTheHostHasRoomFor) {
  RecomputeProblem problem{.layers = 1, .in_flight = 4, .resident = 1, .copy_out = Nanos(100), .copy_in = Nanos(100)};
  problem.host_budget = Bytes(40);
  for (const int64_t bytes : {30, 10}) {
    problem.items.push_back(
        {.bytes = Bytes(bytes), .cost = Nanos(100), .read_by = 1, .copy_out = Nanos(3), .copy_in = Nanos(3)});
  }
  const std::vector<LayerPoint> points = LayerPoints(problem, LayerPlace::kTop, InFlightUse::kGiven);
  const LayerPolicy wanted{Placement::kStore, Placement::kOffload};
  EXPECT_TRUE(std::any_of(points.begin(), points.end(), [&](const LayerPoint& point) { return point.policy == wanted; }));
}

}  // namespace
}  // namespace lynx
