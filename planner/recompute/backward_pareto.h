// BackwardPareto: the best ways to recompute given items of one layer during its backward pass, if the neighbouring
// layers do alike: transient memory against exposed time. What a layer stores, offloads or makes before its backward
// pass does not matter for it, so one object serves all stages of a pipeline: forward windows, stall, copies and
// microbatches in flight are not read.
//
// A set's front is found when it is first asked for, by branch and bound over the placements of its items. Of a pair
// of neighbours that are alike, a window of the one's backward pass is a window of the other's: what both do in it
// counts together.
//
// Not thread-safe.
#ifndef LYNX_PLANNER_RECOMPUTE_BACKWARD_PARETO_H_
#define LYNX_PLANNER_RECOMPUTE_BACKWARD_PARETO_H_

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "planner/recompute/recompute_problem.h"

namespace lynx {

struct LatePoint {
  LayerPolicy policy{};  // of the late items; kStore elsewhere
  Bytes transient;
  Nanos exposed;  // critical, and beyond the backward windows
};

class BackwardPareto {
 public:
  // Of the top layer or of one below it. `problem` is valid (see ValidateProblem).
  BackwardPareto(const RecomputeProblem& problem, bool top);

  // All points that no other betters with exactly these late items, in the order of transient memory; empty if
  // something in the set cannot be late, or is read by nothing. Valid until the next call.
  std::span<const LatePoint> Of(ItemSet late);
  // No point of the set takes less than either.
  struct Floor {
    Bytes transient;
    Nanos exposed;
  };
  Floor FloorOf(ItemSet late) const;
  // Items that can be late at all.
  ItemSet possible() const { return possible_; }
  bool top() const { return top_; }

 private:
  // One small number for each item, packed.
  class ItemNumbers {
   public:
    int Get(int i) const { return static_cast<int>(bits_ >> (4 * i) & 15); }
    void Set(int i, int value) { bits_ = (bits_ & ~(uint64_t{15} << (4 * i))) | uint64_t(value) << (4 * i); }

   private:
    uint64_t bits_ = 0;
  };
  // A policy in the making: items are placed from the last to the first, so that all that reads an item is placed
  // before it.
  struct State {
    std::array<Bytes, kMaxPhases> live{};   // of this layer and of the one below
    std::array<Nanos, kMaxWindows> room{};  // that windows have left
    Nanos exposed;
    Nanos early;  // as in LayerUse
    LayerPolicy policy{};
    // Of items that are not yet placed: the last moment that serves what reads them, and the last phase in which
    // something reads them, plus one.
    ItemNumbers due, last;
  };
  struct Range {
    int32_t begin = -1, end = -1;  // of points_; -1: not yet found
  };

  void FindBounds(int i, PlacementSet placements);
  void Extend(const State& state, ItemSet rest);
  void Make(int i, const State& state, ItemSet rest, Placement placement, int moment);
  Floor FloorOf(const State& state, ItemSet rest) const;
  bool Bettered(const Floor& floor) const;
  void Finish(const State& state);

  const RecomputeProblem problem_;
  const bool top_;
  const int windows_;
  ItemSet possible_ = 0, read_ = 0;
  ItemSet hideable_ = 0;  // that some window may hide
  std::array<PlacementSet, kMaxItems> placements_{};
  State root_;
  // By set of items: what they cost and read, and what must live in each phase if all of them are late.
  std::vector<Nanos> cost_;
  std::vector<ItemSet> inputs_;
  std::vector<std::array<Bytes, kMaxPhases>> must_live_;
  std::vector<Range> ranges_;
  std::vector<LatePoint> points_;
  size_t first_ = 0;  // in points_: of the set being searched
};

}  // namespace lynx

#endif  // LYNX_PLANNER_RECOMPUTE_BACKWARD_PARETO_H_
