// LayerChoices: every worthwhile way to treat one layer of a RecomputeProblem, factored into two halves. An item is *late*
// if it is recomputed during the backward pass (b windows, o windows, critical), *early* if in forward windows or the
// stall, and *kept* if stored or offloaded. What a layer takes of transient memory and of backward windows follows from
// its late items and their placements alone; everything else (held memory, forward windows, stall, copies) from where
// the others are; and the halves meet only in which items are late. So a layer's 15^n policies are, for each set of
// late items, a few late parts times a few kept parts.
//
// Dominance. One part makes another needless if it takes no more memory of any kind and exposes no more time even after
// paying, as exposed time, for all that it uses more of a shared window, the stall or the copy engines. Such a part can
// take the other's place in any stage without loss. Of layers whose neighbours are like them less is worth while: see
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

struct LatePart {
  LayerPolicy policy{};  // of the late items; kStore elsewhere
  std::array<Bytes, kMaxPhases> live{}, above{};
  std::array<Nanos, kMaxWindows> above_work{}, own_work{};
  Nanos exposed;  // critical
  Nanos early;    // as in LayerUse
};

struct KeptPart {
  LayerPolicy policy{};  // of the early and offloaded items; kStore elsewhere
  Bytes held;
  Nanos exposed;  // beyond the forward windows
  Nanos stall;
  Nanos copy_out, copy_in;
  Bytes host;
};

LayerPolicy JoinPolicies(const LatePart& late, const KeptPart& kept);
LayerUse JoinUses(const LatePart& late, const KeptPart& kept);

// If the layers above and below have the same late part: the largest of all phases; and critical time with what exceeds
// the backward windows.
Bytes AlikeTransient(const RecomputeProblem& problem, const LatePart& late);
Nanos AlikeExposed(const RecomputeProblem& problem, bool top, const LatePart& late);

// The parts whose late items are `late_items`.
struct PartsOfSet {
  ItemSet late_items = 0;
  std::vector<LatePart> late;
  std::vector<KeptPart> kept;
};

// For every set of late items that has parts, in ascending order; those that dominance leaves. `problem` is valid (see
// ValidateProblem).
std::vector<PartsOfSet> LayerChoices(const RecomputeProblem& problem, bool top);

// Of a layer that has another one above it, and of the top layer. Cheaper than each alone.
struct StageParts {
  std::vector<PartsOfSet> inner, top;
};
StageParts PartsOfStage(const RecomputeProblem& problem);

// The late parts of one set of late items that dominance leaves with any neighbours; empty if the set has none. With more
// than `beam` of them along the way only those go on that expose least if the neighbours are alike.
std::vector<LatePart> LatePartsOf(const RecomputeProblem& problem, bool top, ItemSet late_items,
                                  size_t beam = std::numeric_limits<size_t>::max());

}  // namespace lynx

#endif  // LYNX_PLANNER_RECOMPUTE_LAYER_CHOICES_H_
