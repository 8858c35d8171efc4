// BackwardPareto finds the best ways to recompute given items of one layer during its backward pass: the Pareto front of
// transient memory against exposed time, if the neighbouring layers do the same. It does not depend on what a layer
// stores, offloads or recomputes before its backward pass. So one object serves all stages of a pipeline: it does not use
// forward windows, stall, copies and microbatches in flight.
//
// The front of a set is computed when it is first asked for, by branch and bound over the placements of its items. If two
// neighbours are alike, a window of one layer's backward pass is also a window of the other's: the work of both in it is
// added up.
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
  LayerPolicy policy{};  // of the late items; kStore elsewhere
  Bytes transient;
  Nanos exposed;  // critical time, plus what exceeds the backward windows
};

class BackwardPareto {
 public:
  // `problem` must be valid (see ValidateProblem).
  BackwardPareto(const RecomputeProblem& problem, LayerPlace place);

  // All non-dominated points with exactly these late items, ordered by transient memory. Empty if an item in the set
  // cannot be late or has no reader. Valid until the next call.
  std::span<const BackwardPoint> Of(ItemSet late);
  // Lower bounds for all points of the set.
  struct Floor {
    Bytes transient;
    Nanos exposed;
  };
  Floor FloorOf(ItemSet late) const;
  // Items that can be late at all.
  ItemSet possible() const { return possible_; }
  LayerPlace place() const { return place_; }

 private:
  // A partial policy. Items are placed from the last to the first, so that all readers of an item are placed before it.
  struct State {
    std::array<Bytes, kMaxPhases> live{};   // of this layer and the one below
    std::array<Nanos, kMaxWindows> room{};  // what is left in the windows
    Nanos exposed;
    Nanos early;  // as in LayerUse
    LayerPolicy policy{};
    // For items that are not placed yet: the last moment that serves their readers, and the last phase in which something
    // reads them, plus one.
    ItemNumbers due, last;
  };
  struct Range {
    int32_t begin = -1, end = -1;  // in points_; -1: not computed yet
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
  // By set of items: their cost, what they read, and what must live in each phase if all of them are late.
  std::vector<Nanos> cost_;
  std::vector<ItemSet> inputs_;
  std::vector<std::array<Bytes, kMaxPhases>> must_live_;
  std::vector<Range> ranges_;
  std::vector<BackwardPoint> points_;
  size_t first_ = 0;  // where the points of the current set begin in points_
};

}  // namespace lynx

#endif  // LYNX_PLANNER_RECOMPUTE_BACKWARD_PARETO_H_
