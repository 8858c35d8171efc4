// LayerPoints finds the Pareto front of one layer's policies, that is, memory against exposed time, if the neighbouring layers
// have the same policy. The result is exact.
//
// A policy has two halves that share only the set of late items, that is, of items recomputed during the backward pass. The
// placement of the late items decides transient memory (BackwardPareto). The other items are early (in forward windows or the
// stall), stored or offloaded. For a set of early items only the least exposed time matters; dynamic programming from window to
// window finds it for all sets. For a set of late items only a few ways to treat the other items are worthwhile.
//
// The functions are thread-safe, but the `fronts` that they are given are not.
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
  ItemSet late_items = 0;  // recomputed during the backward pass
  LayerUse use;            // use with the problem's microbatches in flight
  Nanos kept_exposed;      // part of use.exposed that late items do not cause
  // Bytes of one microbatch. `once`: bytes of the items that are recomputed in the forward windows and in the stall. They are
  // held for one microbatch only, and not for each microbatch in flight.
  Bytes stored, once, offloaded;
  // Values if the neighbouring layers have the same policy. `exposed` does not include what exceeds the layer's share of the
  // stall and of the copy times.
  Bytes transient;
  Nanos exposed;
};

Bytes HeldInFlight(const LayerPoint& point, const RecomputeProblem& problem);

// The number of microbatches in flight for which points are found. kGiven: the problem's number. kOrMore: the problem's number
// and every larger number; only for problems without offloading.
enum class InFlightUse : uint8_t { kGiven, kOrMore };

// Returns the non-dominated points of a layer that has an equal share of the stage's stall, copy times and host memory. A layer
// offloads at most its share, items with the least copy time per byte first, as long as there is room. The points are
// unordered, and some may be dominated. Not empty. `problem` must be valid (see ValidateProblem).
std::vector<LayerPoint> LayerPoints(const RecomputeProblem& problem, LayerPlace place, InFlightUse in_flight);
// Returns the same points as LayerPoints for each of `fronts`, and uses what the fronts have already computed for late items. A
// front must belong to this problem, or to one that differs only in layers, microbatches in flight, stall, forward windows and
// copies.
std::vector<std::vector<LayerPoint>> PointsOfLayers(const RecomputeProblem& problem, std::span<BackwardPareto* const> fronts,
                                                    InFlightUse in_flight);

}  // namespace lynx

#endif  // LYNX_PLANNER_RECOMPUTE_LAYER_PARETO_H_
