// LayerChoices: every worthwhile way to treat one layer of a RecomputeProblem, factored into two halves. An item is
// *late* if it is recomputed during the backward pass (b windows, o windows, critical), *early* if it is recomputed in
// forward windows or the stall, and *kept* if it is stored or offloaded. A layer's transient memory and use of backward
// windows depend only on its late items and their placements. Everything else (held memory, forward windows, stall,
// copies) depends on the other items. The two halves share only the set of late items. So a layer's 15^n policies are,
// for each set of late items, a few late parts times a few kept parts.
//
// Dominance. A part dominates another if it takes no more memory of any kind and exposes no more time, even after paying,
// as exposed time, for everything that it uses more of a shared window, the stall or the copy engines. It can replace the
// other part in any stage without loss. For layers whose neighbours are alike, fewer parts are worthwhile: see
// layer_pareto.h.
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
  LayerPolicy policy{};  // of the late items; kStore elsewhere
  std::array<Bytes, kMaxPhases> live{}, above{};
  std::array<Nanos, kMaxWindows> above_work{}, own_work{};
  Nanos exposed;  // critical
  Nanos early;    // as in LayerUse
};

struct KeptPart {
  LayerPolicy policy{};  // of the early and offloaded items; kStore elsewhere
  Bytes held;
  Nanos exposed;  // what exceeds the forward windows
  Nanos stall;
  Nanos copy_out, copy_in;
  Bytes host;
};

LayerPolicy JoinPolicies(const BackwardPart& late, const KeptPart& kept);
LayerUse JoinUses(const BackwardPart& late, const KeptPart& kept);

// Both assume that the layers above and below have the same late part. AlikeTransient: the largest transient memory of
// all phases. AlikeExposed: critical time plus what exceeds the backward windows.
Bytes AlikeTransient(const RecomputeProblem& problem, const BackwardPart& late);
Nanos AlikeExposed(const RecomputeProblem& problem, LayerPlace place, const BackwardPart& late);

// The parts whose late items are `late_items`.
struct PartsOfSet {
  ItemSet late_items = 0;
  std::vector<BackwardPart> late;
  std::vector<KeptPart> kept;
};

// The non-dominated parts for every set of late items that has parts, in ascending order of the sets. `problem` must be
// valid (see ValidateProblem).
std::vector<PartsOfSet> LayerChoices(const RecomputeProblem& problem, LayerPlace place);

// `inner`: of a layer that has another layer above it. `top`: of the top layer. Computing both together is cheaper than
// each alone.
struct StageParts {
  std::vector<PartsOfSet> inner, top;
};
StageParts PartsOfStage(const RecomputeProblem& problem);

// The late parts of one set of late items that are not dominated, with any neighbours; empty if the set has no parts. If
// there are more than `beam` partial parts, only those that expose least with alike neighbours are continued.
std::vector<BackwardPart> LatePartsOf(const RecomputeProblem& problem, LayerPlace place, ItemSet late_items,
                                      size_t beam = std::numeric_limits<size_t>::max());

}  // namespace lynx

#endif  // LYNX_PLANNER_RECOMPUTE_LAYER_CHOICES_H_
