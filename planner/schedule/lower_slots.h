// The slots of a schedule, prepared for lowering: for each slot of each rank, whether it receives from or sends to another
// rank, and when the rank may wait until its send has completed. Layers, times and bytes have no influence. Pure; thread-safe.
//
// When to wait. A rank posts a receive one slot before the slot that needs the received data. If a sender waited before this
// receive is posted, the receiver might at that time wait, directly or through other ranks, for the sender: a deadlock. To
// avoid this, the slots get times on a simulated clock. F, B and W take one tick each, transfers take no time, and every slot
// begins after all slots that it needs. The wait for a send is placed in a slot that does not begin before the end of the slot
// that posts the receive. So every wait is for something that is earlier on this clock, and no cycle can arise, whatever the
// real times are.
#ifndef LYNX_PLANNER_SCHEDULE_LOWER_SLOTS_H_
#define LYNX_PLANNER_SCHEDULE_LOWER_SLOTS_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/schedule/schedule.h"

namespace lynx {

struct RankSlot {
  Slot slot;
  bool receives = false;  // the slot's input comes from another rank
  bool sends = false;     // the slot's result goes to another rank
  // Used only if `sends` is true: the index of the first later slot of this rank that may wait for the transfer. If only the
  // end of all slots is late enough: the number of slots.
  int32_t sent_by = 0;
  // This slot posts the receives of the slots [post_begin, post_end) of this rank, as far as these slots receive something.
  // Receives that no slot posts are posted before the first slot.
  int32_t post_begin = 0, post_end = 0;
  bool last = false;  // no later slot has this kind of pass and stage

  bool operator==(const RankSlot&) const = default;
};

// The slots of a schedule. There is one list for each rank.
using PipelineSlots = std::vector<std::vector<RankSlot>>;

// Prepares all slots of a schedule. Returns InvalidArgument if the schedule is not valid (ValidateSchedule) or cannot be
// lowered. It can be lowered if each stage runs its microbatches in ascending order in every pass: then transfers between two
// stages match in order, and gradients are summed in one order. A bidirectional pipeline must also have an even number of
// ranks, so that two different ranks hold each piece. Takes O(n log n) time for n slots.
absl::StatusOr<PipelineSlots> SlotsToLower(const Schedule& schedule);

// The slots of one rank of GPipe or 1F1B. These schedules need no clock, because a rank can always wait for the send of a slot
// in its next slot. The slots in `schedule` are not used and may be missing.
std::vector<RankSlot> SlotsWithoutClock(const Schedule& schedule, int32_t rank);

// Returns the slots of the grouped schedule (GroupedSchedule in planner/schedule/schedule_generate.h). `groups` are the slots
// of a schedule in which each microbatch stands for a group of `group` microbatches. The receives of a group's slots are all
// posted in the last slot of the previous group, and the wait for what a slot sends is in the first slot of a group. So the
// slots of a group can run side by side on each rank: none of them waits for a slot of the same group on another rank.
std::vector<RankSlot> GroupedSlots(const std::vector<RankSlot>& groups, int32_t group, int32_t microbatches);

}  // namespace lynx

#endif  // LYNX_PLANNER_SCHEDULE_LOWER_SLOTS_H_
