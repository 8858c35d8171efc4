// LayerPoints: every worthwhile policy of one layer whose neighbours are like it: what it takes of memory against what it
// exposes. Exact.
//
// A policy has two halves that meet only in which items are late, that is, recomputed during the backward pass. How these
// are placed decides transient memory (BackwardPareto). The others are early (in forward windows or the stall), stored or
// offloaded: of a set of early items only the least time matters that windows expose, found for all sets by dynamic
// programming from window to window; and beside a set of late items few ways are worth while to treat the others.
//
// Functions that are thread-safe, but for the fronts they are given.
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
  ItemSet late_items = 0;         // recomputed during the backward pass
  LayerUse use;                   // with the problem's microbatches in flight
  Nanos kept_exposed;             // part of use.exposed: not by late items
  Bytes stored, once, offloaded;  // of one microbatch; `once`: what forward windows and the stall make
  // If the neighbours are alike; but for what exceeds the layer's share of the stall and of the copy times.
  Bytes transient;
  Nanos exposed;
};

Bytes HeldInFlight(const LayerPoint& point, const RecomputeProblem& problem);

// kGiven: with the problem's microbatches in flight. kOrMore: with so many or any larger number of them; for problems without
// offloading.
enum class InFlightUse : uint8_t { kGiven, kOrMore };

// Points of which no other one is better in a stage with the problem's shares: a layer has an equal share of the stall, the
// copy times and the host's memory, and offloads at most its share, the items of least copy time per byte first as far as
// there is room. In no order; some that others better may be among them. Not empty. `problem` is valid (see ValidateProblem).
std::vector<LayerPoint> LayerPoints(const RecomputeProblem& problem, bool top, InFlightUse in_flight);
// The same for each of `fronts`, with what is known of late items: they are of the problem or of one that differs in
// layers, microbatches in flight, stall, forward windows and copies alone.
std::vector<std::vector<LayerPoint>> PointsOfLayers(const RecomputeProblem& problem, std::span<BackwardPareto* const> fronts,
                                                    InFlightUse in_flight);

}  // namespace lynx

#endif  // LYNX_PLANNER_RECOMPUTE_LAYER_PARETO_H_
