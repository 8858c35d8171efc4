// LayerPoints: every worthwhile policy of one layer whose neighbours are like it: what it takes of memory against what it
// exposes. Items are decided from the last to the first, so that all that reads an item is decided before it; after each
// decision those of the unfinished policies compete that leave the same choices open (docs/formulation.md, "HEU").
//
// One betters another if it takes no more memory, held or transient, and exposes no more time even after paying, as exposed
// time, for all that it uses more of a window. What can make no difference any more is made equal first: the use of a
// window that the undecided items cannot fill, and transient memory of a phase that they cannot make the largest. So
// finished policies are compared by held memory, transient memory and exposed time alone.
//
// Pure functions; thread-safe.
#ifndef LYNX_PLANNER_LAYER_FRONT_H_
#define LYNX_PLANNER_LAYER_FRONT_H_

#include <cstdint>
#include <vector>

#include "planner/recompute_problem.h"

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
// copy times and the host's memory, and offloads at most its share, the items of least copy time per byte first. In no
// order; some that others better may be among them. Not empty. `problem` is valid (see ValidateProblem).
//
// Exact until more than kExactStates unfinished policies remain after a decision; from then on, forward windows and the stall are
// compared by how much of them is used in all.
std::vector<LayerPoint> LayerPoints(const RecomputeProblem& problem, bool top, InFlightUse in_flight);
inline constexpr size_t kExactStates = 4096;

}  // namespace lynx

#endif  // LYNX_PLANNER_LAYER_FRONT_H_
