// BackwardPareto finds the best ways to recompute given items of one layer during its backward pass. These items are called
// *late*. The result is the Pareto front of transient memory against exposed time. It assumes that the neighbouring layers
// recompute the same items at the same moments. The front does not depend on what a layer stores, offloads or recomputes before
// its backward pass, and not on forward windows, stall, copies and microbatches in flight. So one object serves all stages of a
// pipeline.
//
// The first call of Of() for a set of late items computes the front of this set: it searches the placements of the items by
// branch and bound. Later calls return the same front.
//
// Two neighbouring layers can use the same window: it is an own window of the upper layer, and for the lower layer it is a
// window of the layer above. Work of both layers in the same window is added up: the neighbours are assumed to have the same
// placements.
//
// Not thread-safe.
#ifndef LYNX_PLANNER_RECOMPUTE_BACKWARD_PARETO_H_
#define LYNX_PLANNER_RECOMPUTE_BACKWARD_PARETO_H_

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "planner/recompute/item_numbers.h"
#include "planner/recompute/recompute_problem.h"

namespace lynx {

struct BackwardPoint {
  LayerPolicy policy{};  // placements of the late items; all other items have kStore
  Bytes transient;
  // Recomputation on the critical path, plus the work that does not fit into the backward windows. For the top layer, minus
  // the part that is hidden because it is early (RecomputeProblem::early).
  Nanos exposed;
};

class BackwardPareto {
 public:
  // `problem` must be valid (see ValidateProblem).
  BackwardPareto(const RecomputeProblem& problem, LayerPlace place);

  // Returns all non-dominated points in which exactly the items of `late` are late, in the order of transient memory. The span
  // is empty if an item of the set cannot be late or nothing reads it. The span is valid until the next call.
  std::span<const BackwardPoint> Of(ItemSet late);
  // Lower bounds for all points of one set of late items.
  struct Floor {
    Bytes transient;
    Nanos exposed;
  };
  Floor FloorOf(ItemSet late) const;
  // Items that can be late.
  ItemSet possible() const { return possible_; }
  LayerPlace place() const { return place_; }

 private:
  // A policy in which some items are placed. Items are placed from the last to the first, so all readers of an item are placed
  // before the item.
  struct State {
    std::array<Bytes, kMaxPhases> live{};   // for each phase, memory of this layer and the layer below
    std::array<Nanos, kMaxWindows> room{};  // for each window, the time that is left
    Nanos exposed;
    Nanos early;  // see LayerUse
    LayerPolicy policy{};
    // Used for items that are not placed yet. `due`: the last moment that is early enough for all readers of the item. `last`:
    // one more than the number of the last phase in which something reads the item.
    ItemNumbers due, last;
  };
  struct Range {
    int32_t begin = -1, end = -1;  // indices in points_; -1: the points are not computed yet
  };

  void FindBounds(int i, PlacementSet placements);
  void Extend(const State& state, ItemSet rest);
  void Make(int i, const State& state, ItemSet rest, Placement placement, int moment);
  Floor FloorOf(const State& state, ItemSet rest) const;
  bool Bettered(const Floor& floor) const;
  void Finish(const State& state);

  const RecomputeProblem problem_;
  const LayerPlace place_;
  const int windows_;
  ItemSet possible_ = 0, read_ = 0;
  ItemSet hideable_ = 0;  // items that a window may hide
  std::array<PlacementSet, kMaxItems> placements_{};
  State root_;
  // Tables whose index is a set of items: the cost of the items, the items that they read, and the memory that must be live in
  // each phase if all items of the set are late.
  std::vector<Nanos> cost_;
  std::vector<ItemSet> inputs_;
  std::vector<std::array<Bytes, kMaxPhases>> must_live_;
  std::vector<Range> ranges_;
  std::vector<BackwardPoint> points_;
  size_t first_ = 0;  // while Of computes the points of a set: where they begin in points_
};

}  // namespace lynx

#endif  // LYNX_PLANNER_RECOMPUTE_BACKWARD_PARETO_H_
