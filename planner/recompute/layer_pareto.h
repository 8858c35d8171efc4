// LayerPoints: every worthwhile policy of one layer whose neighbours are like it: the memory that it takes against the
// time that it exposes. Exact.
//
// A policy has two halves that share only the set of late items, that is, of items recomputed during the backward pass.
// The placement of the late items decides transient memory (BackwardPareto). The other items are early (in forward
// windows or the stall), stored or offloaded. For a set of early items only the least time that windows expose matters;
// dynamic programming from window to window finds it for all sets. And for a set of late items only few ways to treat the
// other items are worthwhile.
//
// The functions are thread-safe, except for the fronts that they are given.
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
  // Bytes of one microbatch; `once`: what is recomputed in forward windows and the stall.
  Bytes stored, once, offloaded;
  // If the neighbours are alike; without what exceeds the layer's share of the stall and of the copy times.
  Bytes transient;
  Nanos exposed;
};

Bytes HeldInFlight(const LayerPoint& point, const RecomputeProblem& problem);

// kGiven: with the problem's microbatches in flight. kOrMore: with this or any larger number; only for problems without
// offloading.
enum class InFlightUse : uint8_t { kGiven, kOrMore };

// The non-dominated points in a stage with equal shares: each layer has an equal share of the stall, the copy times and
// the host's memory. A layer offloads at most its share, items with the least copy time per byte first, as long as there
// is room. The points are unordered, and some may be dominated. Not empty. `problem` must be valid (see ValidateProblem).
std::vector<LayerPoint> LayerPoints(const RecomputeProblem& problem, LayerPlace place, InFlightUse in_flight);
// The same for each of `fronts`, using what they have computed for late items. A front must belong to this problem, or to
// one that differs only in layers, microbatches in flight, stall, forward windows and copies.
std::vector<std::vector<LayerPoint>> PointsOfLayers(const RecomputeProblem& problem, std::span<BackwardPareto* const> fronts,
                                                    InFlightUse in_flight);

}  // namespace lynx

#endif  // LYNX_PLANNER_RECOMPUTE_LAYER_PARETO_H_
