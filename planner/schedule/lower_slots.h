// The slots of a schedule, ready to be lowered: for each slot of each rank what crosses the rank's border with it, and
// when the rank may wait for what it has sent. Knows nothing of layers, times or bytes. Pure; thread-safe.
//
// When to wait. A receive is posted one slot of its rank before the slot that needs it. A sender that waited for its
// transfer before that could wait for a rank that, through others, waits for the sender. Laid out on a clock on which
// F, B and W take one tick and transfers none, every slot begins after all that it needs; so a wait that stands in a slot
// which begins no earlier than the slot that posts the receive ends waits only for what lies before it on that clock, and
// no circle can arise, whatever the real times.
#ifndef LYNX_PLANNER_SCHEDULE_LOWER_SLOTS_H_
#define LYNX_PLANNER_SCHEDULE_LOWER_SLOTS_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/schedule/schedule.h"

namespace lynx {

struct RankSlot {
  Slot slot;
  bool receives = false;  // what it works on comes from another rank
  bool sends = false;     // its result goes to another rank
  // Where it sends: the first slot of this rank, after this one, in which the transfer can be waited for; the number of
  // slots where that is only after the last.
  int32_t sent_by = 0;
  bool last = false;  // no later slot is of this pass and stage

  bool operator==(const RankSlot&) const = default;
};

// Of a schedule: one entry for each rank.
using PipelineSlots = std::vector<std::vector<RankSlot>>;

// InvalidArgument unless the schedule is valid (ValidateSchedule) and one that programs are made for: each stage runs its
// microbatches in ascending order in every pass, so that transfers between two stages meet in order and gradients are
// summed in one order; and a bidirectional pipeline has an even number of ranks, so that the two ranks that hold a piece
// are not one. Takes time in O(n log n) of the slots.
absl::StatusOr<PipelineSlots> SlotsToLower(const Schedule& schedule);

// The slots of one rank of GPipe or 1F1B, which need no clock: whatever a slot sends can be waited for in the next one.
// The schedule's own slots are not read, and may be missing.
std::vector<RankSlot> SlotsWithoutClock(const Schedule& schedule, int32_t rank);

}  // namespace lynx

#endif  // LYNX_PLANNER_SCHEDULE_LOWER_SLOTS_H_
