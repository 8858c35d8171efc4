// The slots of a schedule, prepared for lowering: for each slot of each rank, what crosses the rank's border with it, and
// when the rank may wait for what it has sent. Does not depend on layers, times or bytes. Pure; thread-safe.
//
// When to wait. A rank posts a receive one slot before the slot that needs it. If a sender waited for its transfer before
// that, it could wait for a rank that, through others, waits for the sender. To avoid this, the slots are placed on a
// clock on which F, B and W take one tick and transfers take no time, so that every slot begins after all slots that it
// needs. A wait is placed in a slot that begins no earlier than the end of the slot that posts the receive. Then it only
// waits for what is earlier on that clock, and no cycle can arise, whatever the real times are.
#ifndef LYNX_PLANNER_SCHEDULE_LOWER_SLOTS_H_
#define LYNX_PLANNER_SCHEDULE_LOWER_SLOTS_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/schedule/schedule.h"

namespace lynx {

struct RankSlot {
  Slot slot;
  bool receives = false;  // its input comes from another rank
  bool sends = false;     // its result goes to another rank
  // If it sends: the first later slot of this rank in which the transfer can be waited for. If that is possible only
  // after the last slot: the number of slots.
  int32_t sent_by = 0;
  bool last = false;  // no later slot has this pass and stage

  bool operator==(const RankSlot&) const = default;
};

// The slots of a schedule, one entry per rank.
using PipelineSlots = std::vector<std::vector<RankSlot>>;

// Returns InvalidArgument unless the schedule is valid (ValidateSchedule) and can be lowered. For that, each stage must
// run its microbatches in ascending order in every pass, so that transfers between two stages match in order and
// gradients are summed in one order. A bidirectional pipeline must have an even number of ranks, so that two different
// ranks hold each piece. Takes O(n log n) time in the number of slots.
absl::StatusOr<PipelineSlots> SlotsToLower(const Schedule& schedule);

// The slots of one rank of GPipe or 1F1B. These need no clock: whatever a slot sends can be waited for in the next slot.
// The schedule's own slots are not used and may be missing.
std::vector<RankSlot> SlotsWithoutClock(const Schedule& schedule, int32_t rank);

}  // namespace lynx

#endif  // LYNX_PLANNER_SCHEDULE_LOWER_SLOTS_H_
