// LayerChoices lists the non-dominated ways to treat one layer of a RecomputeProblem. An item is *late* if it is recomputed
// during the backward pass (b windows, o windows, critical). It is *early* if it is recomputed in forward windows or the stall.
// It is *kept* if it is stored or offloaded. A layer's transient memory and its use of backward windows depend only on its late
// items and their placements. Everything else (held memory, forward windows, stall, copies) depends on the other items. So a
// policy consists of two halves, which share only the set of late items: a BackwardPart and a KeptPart. A layer with n items
// has up to 16^n policies. Instead of these, this file lists a few BackwardParts and a few KeptParts for each set of late
// items; every pair of them is a policy.
//
// Dominance. If part A uses more than part B of a shared window, of the stall or of the copy engines, the difference is added
// to A's exposed time. Part A dominates part B if A then has no more exposed time than B, and takes no more memory of any kind.
// Then A can replace B in any stage without loss. If the neighbours of a layer have the same policy as the layer, fewer
// policies are worthwhile: see layer_pareto.h.
//
// Immutable after construction; thread-safe.
#ifndef LYNX_PLANNER_RECOMPUTE_LAYER_CHOICES_H_
#define LYNX_PLANNER_RECOMPUTE_LAYER_CHOICES_H_

#include <cstdint>
#include <limits>
#include <vector>

#include "planner/recompute/recompute_problem.h"

namespace lynx {

struct BackwardPart {
  LayerPolicy policy{};  // placements of the late items; all other items have kStore
  std::array<Bytes, kMaxPhases> live{}, above{};
  std::array<Nanos, kMaxWindows> above_work{}, own_work{};
  Nanos exposed;  // time on the critical path
  Nanos early;    // see LayerUse
};

struct KeptPart {
  LayerPolicy policy{};  // placements of the early and offloaded items; all other items have kStore
  Bytes held;
  Nanos exposed;  // time of work that does not fit into the forward windows
  Nanos stall;
  Nanos copy_out, copy_in;
  Bytes host;
};

LayerPolicy JoinPolicies(const BackwardPart& late, const KeptPart& kept);
LayerUse JoinUses(const BackwardPart& late, const KeptPart& kept);

// Values of a layer if the layers above and below have the same BackwardPart. AlikeTransient returns the largest transient
// memory over all phases. AlikeExposed returns the time on the critical path and of the recomputation that does not fit into
// the backward windows. For the top layer, AlikeExposed subtracts what `problem.early` hides.
Bytes AlikeTransient(const RecomputeProblem& problem, const BackwardPart& late);
Nanos AlikeExposed(const RecomputeProblem& problem, LayerPlace place, const BackwardPart& late);

// The parts of a layer whose late items are `late_items`.
struct PartsOfSet {
  ItemSet late_items = 0;
  std::vector<BackwardPart> late;
  std::vector<KeptPart> kept;
};

// Returns the non-dominated parts for every set of late items that has parts. The sets are in ascending order. `problem` must
// be valid (see ValidateProblem).
std::vector<PartsOfSet> LayerChoices(const RecomputeProblem& problem, LayerPlace place);

// `inner` are the parts of a layer that has another layer above it. `top` are the parts of the top layer. It is cheaper to
// compute both together than each alone.
struct StageParts {
  std::vector<PartsOfSet> inner, top;
};
StageParts PartsOfStage(const RecomputeProblem& problem);

// Returns the BackwardParts of one set of late items that no other part dominates, whatever the neighbouring layers do. The
// list is empty if the set has no parts. If the search has more than `beam` partial parts, it continues only with those that
// have the least exposed time (AlikeExposed).
std::vector<BackwardPart> LatePartsOf(const RecomputeProblem& problem, LayerPlace place, ItemSet late_items,
                                      size_t beam = std::numeric_limits<size_t>::max());

}  // namespace lynx

#endif  // LYNX_PLANNER_RECOMPUTE_LAYER_CHOICES_H_
