// When each slot of a schedule runs, given the times of each virtual stage. Ranks run their slots in order; each slot begins as
// soon as the rank is free and the result that the slot needs has arrived. Transfers between ranks delay the slot that needs
// them and occupy neither rank. It must be fast, because a search over partitions and policies calls it very often. It is
// coarser than Simulate (simulate.h), which simulates single actions. Pure; thread-safe.
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
  Nanos weight;    // gradients of its weights: the W slot; part of the B slot if weights are not split
  Nanos transfer;  // to the next stage, and back for the gradient. Not used at the last stage, or if both stages are on
                   // one rank
};

struct SlotTime {
  Nanos begin;
  Nanos end;
  Nanos stall;  // between the end of the rank's previous slot (or time 0) and `begin`
};

struct RankTimeline {
  Nanos busy;                   // sum of the slots' times
  Nanos end;                    // end of the last slot; the time that is not busy is stall
  std::vector<SlotTime> slots;  // in the schedule's order
};

struct Timeline {
  Nanos end;
  std::vector<RankTimeline> ranks;
};

// `costs`: one entry per virtual stage (the shape's stages()).
Timeline ComputeTimeline(const SlotOrder& order, const std::vector<StagePassTimes>& costs);

// Returns the same as ComputeTimeline(...).end, but faster. Calls share the memory of `scratch`, so that only the first call
// allocates. Each thread needs its own scratch.
struct TimelineScratch {
  std::vector<Nanos> ends;
};
Nanos StepTime(const SlotOrder& order, const std::vector<StagePassTimes>& costs, TimelineScratch& scratch);

}  // namespace lynx

#endif  // LYNX_PLANNER_SCHEDULE_SCHEDULE_TIMELINE_H_
