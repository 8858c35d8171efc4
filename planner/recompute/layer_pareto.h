// LayerPoints finds the Pareto front of one layer's policies: memory against exposed time, if the neighbouring layers have the
// same policy. The result is exact.
//
// A policy has two halves that share only the set of late items, which are recomputed during the backward pass. The first half
// is the placement of the late items; it decides transient memory (BackwardPareto). The second half is about the other items:
// they are early (recomputed in forward windows or the stall), stored or offloaded. For a set of early items, only the least
// exposed time matters; dynamic programming from window to window finds this time for all sets. For a set of late items, only a
// few ways to treat the other items are worthwhile.
//
// The functions are thread-safe, but their argument `fronts` is not.
#ifndef LYNX_PLANNER_RECOMPUTE_LAYER_PARETO_H_
#define LYNX_PLANNER_RECOMPUTE_LAYER_PARETO_H_

#include <cstdint>
#include <span>
#include <vector>

#include "planner/recompute/backward_pareto.h"
#include "planner/recompute/recompute_problem.h"

namespace lynx {

struct LayerPoint {
  LayerPolicy policy{};
  ItemSet late_items = 0;  // items that are recomputed during the backward pass
  LayerUse use;            // what the layer uses with the microbatches in flight of the problem
  Nanos kept_exposed;      // part of use.exposed that late items do not cause
  // Bytes of one microbatch. `once` is the sum over the items that are recomputed in the forward windows and in the stall: they
  // are held for one microbatch only, and not for each microbatch in flight.
  Bytes stored, once, offloaded;
  // Values if the neighbouring layers have the same policy. `exposed` does not include work that exceeds the layer's share of
  // the stall and of the copy times.
  Bytes transient;
  Nanos exposed;
};

Bytes HeldInFlight(const LayerPoint& point, const RecomputeProblem& problem);

// The numbers of microbatches in flight for which points are found. kGiven: only the problem's number. kOrMore: the problem's
// number and every larger number; this is possible only for problems without offloading.
enum class InFlightUse : uint8_t { kGiven, kOrMore };

// Returns the non-dominated points of a layer that has an equal share of the stage's stall, copy times and host memory. A layer
// offloads at most its share; items with the least copy time per byte come first, as long as there is room. The points have no
// order, and a point may be dominated by another. There is at least one point. `problem` must be valid (see ValidateProblem).
std::vector<LayerPoint> LayerPoints(const RecomputeProblem& problem, LayerPlace place, InFlightUse in_flight);
// Returns the same points as LayerPoints for each of `fronts`. It uses what the fronts have already computed for late items.
// Each front must belong to this problem, or to a problem that differs only in layers, microbatches in flight, stall, forward
// windows and copies.
std::vector<std::vector<LayerPoint>> PointsOfLayers(const RecomputeProblem& problem, std::span<BackwardPareto* const> fronts,
                                                    InFlightUse in_flight);

}  // namespace lynx

#endif  // LYNX_PLANNER_RECOMPUTE_LAYER_PARETO_H_
