// SlotOrder: the slots of all ranks of a valid schedule in one sequence in which each stands after everything that it
// needs. It depends on no cost, so it is made once and then walked for every set of costs (schedule_timeline.h).
// Making it is also the validation, and knows nothing of the generators.
//
// A schedule is valid when every microbatch runs forward, backward and, where weights are split, W exactly once on
// each stage of one pipe, each slot on its stage's rank, F before B before W; and when ranks that run their slots in
// order never wait for each other in a circle. F of a stage needs F of the stage before it, B needs B of the stage
// after it. Pure values; thread-safe.
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
  int32_t needs = 0;           // place in the sequence, from 1, of the neighbour stage's slot that it needs; 0: none
};

struct SlotOrder {
  PipelineShape shape;
  int32_t microbatches = 0;
  bool splits_weight = false;
  std::vector<OrderedSlot> slots;           // those of one rank stand in the order of the schedule
  std::vector<int32_t> pipe_of_microbatch;  // 0; in a bidirectional pipeline 0 or 1
};

// InvalidArgument that names the rank and the slot (counted from 1, as words on the rank's line), or the ranks that
// wait for each other and the slots at which they do. Takes time linear in the slots.
absl::StatusOr<SlotOrder> OrderSlots(const Schedule& schedule);

absl::Status ValidateSchedule(const Schedule& schedule);

}  // namespace lynx

#endif  // LYNX_PLANNER_SCHEDULE_SCHEDULE_ORDER_H_
