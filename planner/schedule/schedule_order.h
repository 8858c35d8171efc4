// SlotOrder puts the slots of all ranks of a valid schedule into one sequence, in which each slot comes after every slot that
// it needs. The sequence does not depend on costs, so it is computed once and then used for every set of costs
// (schedule_timeline.h). The computation also validates the schedule, independently of the generators.
//
// A schedule is valid if two conditions hold. First, every microbatch runs forward, backward and, if weights are split, W
// exactly once on each stage of one pipe. Each slot is on the rank of its stage, and F comes before B and B before W. Second,
// ranks that run their slots in order never wait for each other in a cycle. F of a stage needs F of the previous stage; B needs
// B of the next stage. Pure values; thread-safe.
#ifndef LYNX_PLANNER_SCHEDULE_SCHEDULE_ORDER_H_
#define LYNX_PLANNER_SCHEDULE_SCHEDULE_ORDER_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "planner/schedule/schedule.h"

namespace lynx {

struct OrderedSlot {
  int32_t rank = 0;
  int32_t pass_and_stage = 0;  // pass * stages() + stage
  int32_t needs = 0;           // position in the sequence, from 1, of the slot of a neighbour stage that this slot needs; 0: it
                               // needs no slot
};

struct SlotOrder {
  PipelineShape shape;
  int32_t microbatches = 0;
  bool splits_weight = false;
  std::vector<OrderedSlot> slots;           // the slots of one rank are in the order of the schedule
  std::vector<int32_t> pipe_of_microbatch;  // for each microbatch 0; in a bidirectional pipeline 0 or 1
};

// Computes the order. Returns InvalidArgument if the schedule is not valid. The error names the rank and the slot (counted from
// 1, as words on the rank's line), or the ranks that wait for each other and the slots at which they wait. Takes time linear in
// the number of slots.
absl::StatusOr<SlotOrder> OrderSlots(const Schedule& schedule);

absl::Status ValidateSchedule(const Schedule& schedule);

}  // namespace lynx

#endif  // LYNX_PLANNER_SCHEDULE_SCHEDULE_ORDER_H_
