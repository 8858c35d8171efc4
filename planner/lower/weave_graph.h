// The order that weaving must keep (planner/lower/weave.h): which actions of a rank's program must stay before which other
// actions. Pure.
//
// A *slot* is the pass of one microbatch over one virtual stage. The program is cut into slots at the first action of each
// pass. Recomputation belongs to the slot in which it is: to a forward slot if it uses that forward's windows, otherwise to the
// backward for which it recomputes.
//
// What must keep its order:
//   - accesses to one buffer, unless both only read it (planner/program/memory_model.h);
//   - the steps of a slot (forward and backward segments, their collectives, waits, sends);
//   - one segment of two microbatches: no microbatch overtakes another, and gradients are added up in the same order. Head and
//     embedding on one rank with tied weights add to the same gradients, so all that add to these keep their order. The same
//     holds for the experts of a layer whose rows may go through rounds: weight and backward segments add to their gradients;
//   - the transfers of one direction between two virtual stages, and of copies in one direction;
//   - transfers between pipeline ranks: a start that comes before a wait stays before this wait, except within one pass of a
//     group of microbatches. So ranks cannot wait for each other in a cycle. (Within one group they cannot either, because the
//     slots of a group need only slots of earlier groups.)
#ifndef LYNX_PLANNER_LOWER_WEAVE_GRAPH_H_
#define LYNX_PLANNER_LOWER_WEAVE_GRAPH_H_

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "planner/problem/stage_context.h"
#include "planner/program/action.h"

namespace lynx {

// How weaving treats an action.
enum class WeaveRole : uint8_t {
  kStep,     // one of its slot's steps, which run one after another
  kFiller,   // recomputation, or weight gradients in a backward slot: runs at any time after its inputs and before its readers
  kMark,     // takes no time and blocks nothing: posts a receive, or starts a reduction of gradients or a collective of
             // recomputation, as early as possible
  kArrival,  // the wait for a collective that a mark started: comes as soon as the collective is done
};

class WeaveGraph {
 public:
  WeaveGraph(const Program& program, const StageContext& context);

  // Index of the first action of the step's end (the waits for reduced gradients, the norm, the optimizer). Weaving does not
  // change the step's end.
  int32_t size() const { return size_; }
  int32_t slots() const { return static_cast<int32_t>(steps_.size()); }
  // The first action of the slot; size() if there is no such slot. Slots are consecutive parts of the program.
  int32_t FirstOf(int32_t slot) const {
    return static_cast<int32_t>(std::lower_bound(slot_of_.begin(), slot_of_.end(), slot) - slot_of_.begin());
  }
  WeaveRole RoleOf(int32_t action) const { return roles_[static_cast<size_t>(action)]; }
  int32_t SlotOf(int32_t action) const { return slot_of_[static_cast<size_t>(action)]; }
  const std::vector<int32_t>& StepsOf(int32_t slot) const { return steps_[static_cast<size_t>(slot)]; }
  // The pass of the slot: forward, backward or weight. nullopt for a slot without steps of a pass.
  std::optional<StepPart> PartOf(int32_t slot) const { return parts_[static_cast<size_t>(slot)]; }
  // True if the action can run as soon as its slot begins, because no step of the slot has to come before it. Never true for
  // arrivals.
  bool BeginsSlot(int32_t action) const { return begins_slot_[static_cast<size_t>(action)]; }
  // The start of the transfer that a wait is for; -1 for other actions.
  int32_t StartOf(int32_t wait) const { return start_of_[static_cast<size_t>(wait)]; }
  std::span<const int32_t> Before(int32_t action) const { return EdgesOf(before_, before_first_, action); }
  std::span<const int32_t> After(int32_t action) const { return EdgesOf(after_, after_first_, action); }

 private:
  static std::span<const int32_t> EdgesOf(const std::vector<int32_t>& edges, const std::vector<int32_t>& first,
                                          int32_t action) {
    const auto at = static_cast<size_t>(action);
    return std::span(edges).subspan(static_cast<size_t>(first[at]), static_cast<size_t>(first[at + 1] - first[at]));
  }
  void FindSlots(const Program& program, bool splits_weight);
  void AddStepOrder(const Program& program);
  void AddPassOrder(const Program& program, const StageContext& context);
  void AddExpertOrder(const Program& program, const StageContext& context);
  void AddAccessOrder(const Program& program, const StageContext& context);
  void AddTransferOrder(const Program& program, int32_t group);
  void AddEdge(int32_t before, int32_t after) { edges_.emplace_back(before, after); }
  void SortEdges();

  int32_t size_ = 0;
  std::vector<int32_t> slot_of_, start_of_;
  std::vector<WeaveRole> roles_;
  std::vector<bool> begins_slot_;
  std::vector<std::vector<int32_t>> steps_;
  std::vector<std::optional<StepPart>> parts_;
  std::vector<std::pair<int32_t, int32_t>> edges_;  // (before, after); used only to build the graph
  std::vector<int32_t> before_, before_first_, after_, after_first_;
};

}  // namespace lynx

#endif  // LYNX_PLANNER_LOWER_WEAVE_GRAPH_H_
