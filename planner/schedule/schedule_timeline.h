// When each slot of a schedule runs, given what each virtual stage takes. Ranks run their slots in order, each slot
// as soon as the rank is free and what it needs has arrived. Transfers between ranks delay the slot that needs them
// and occupy neither rank. This is the inner loop of a search over partitions and policies, coarser than Simulate
// (simulate.h), which runs actions. Pure; thread-safe.
#ifndef LYNX_PLANNER_SCHEDULE_SCHEDULE_TIMELINE_H_
#define LYNX_PLANNER_SCHEDULE_SCHEDULE_TIMELINE_H_

#include <vector>

#include "common/units.h"
#include "planner/schedule/schedule_order.h"

namespace lynx {

// What one microbatch takes on a virtual stage. None is negative.
struct StagePassTimes {
  Nanos forward;
  Nanos backward;  // gradient of the stage's input
  Nanos weight;    // gradients of its weights: the W slot; where weights are not split, part of the B slot
  Nanos transfer;  // to the next stage, and of the gradient back. Not read at the end, or where both are on one rank
};

struct SlotTime {
  Nanos begin;
  Nanos end;
  Nanos stall;  // between the end of the rank's slot before (or time 0) and `begin`
};

struct RankTimeline {
  Nanos busy;                   // sum of the slots' times
  Nanos end;                    // of the last slot. All of it that is not busy is stall
  std::vector<SlotTime> slots;  // in the schedule's order
};

struct Timeline {
  Nanos end;
  std::vector<RankTimeline> ranks;
};

// `costs`: one per virtual stage (the shape's stages()).
Timeline ComputeTimeline(const SlotOrder& order, const std::vector<StagePassTimes>& costs);

// ComputeTimeline(...).end alone, and faster. Memory that calls share, so that only the first allocates; one for each
// thread.
struct TimelineScratch {
  std::vector<Nanos> ends;
};
Nanos StepTime(const SlotOrder& order, const std::vector<StagePassTimes>& costs, TimelineScratch& scratch);

}  // namespace lynx

#endif  // LYNX_PLANNER_SCHEDULE_SCHEDULE_TIMELINE_H_
