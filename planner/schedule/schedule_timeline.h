// Computes when each slot of a schedule runs, given the times of each virtual stage. Ranks run their slots in order. Each slot
// begins as soon as the rank is free and the result that the slot needs has arrived. A transfer between ranks delays the slot
// that needs it, and occupies neither rank. The computation must be fast, because a search over partitions and policies calls
// it very often. It is coarser than Simulate (simulate.h), which simulates single actions. Pure; thread-safe.
#ifndef LYNX_PLANNER_SCHEDULE_SCHEDULE_TIMELINE_H_
#define LYNX_PLANNER_SCHEDULE_SCHEDULE_TIMELINE_H_

#include <vector>

#include "common/units.h"
#include "planner/schedule/schedule_order.h"

namespace lynx {

// Times of one microbatch on a virtual stage; never negative.
struct StagePassTimes {
  Nanos forward;
  Nanos backward;  // gradient of the stage's input
  Nanos weight;    // gradients of the stage's weights: the time of the W slot; if weights are not split, part of the B slot
  Nanos transfer;  // time of the transfer to the next stage, and of the gradient's transfer back. Not used for the last stage,
                   // or if both stages are on one rank
};

struct SlotTime {
  Nanos begin;
  Nanos end;
  Nanos stall;  // time between the end of the rank's previous slot (or time 0) and `begin`
};

struct RankTimeline {
  Nanos busy;                   // sum of the slots' times
  Nanos end;                    // end of the last slot; the rank stalls in all the time before `end` that is not busy
  std::vector<SlotTime> slots;  // in the order of the schedule
};

struct Timeline {
  Nanos end;
  std::vector<RankTimeline> ranks;
};

// `costs` has one entry per virtual stage (stages() of the shape).
Timeline ComputeTimeline(const SlotOrder& order, const std::vector<StagePassTimes>& costs);

// Returns the value of ComputeTimeline(...).end, but faster. Calls use the memory of `scratch` again, so only the first call
// allocates. Each thread needs its own scratch.
struct TimelineScratch {
  std::vector<Nanos> ends;
};
Nanos StepTime(const SlotOrder& order, const std::vector<StagePassTimes>& costs, TimelineScratch& scratch);

}  // namespace lynx

#endif  // LYNX_PLANNER_SCHEDULE_SCHEDULE_TIMELINE_H_
