// The time of a step whose transfers between ranks take time on links. It follows the rules of the lowered programs
// (lower_slots.h, planner/lower/lower.cc), but for whole slots, so it takes a small part of the time of Simulate (simulate.h):
//
// - A transfer begins when the slot that sends has ended and the receiver has posted the receive, which it does during the slot
//   before the one that needs the result.
// - Transfers from one rank to another run one after another.
// - A rank waits for what it sent in a later slot (RankSlot::sent_by).
//
// Pure; thread-safe.
#ifndef LYNX_PLANNER_SCHEDULE_TRANSFER_TIMELINE_H_
#define LYNX_PLANNER_SCHEDULE_TRANSFER_TIMELINE_H_

#include <cstdint>
#include <vector>

#include "common/units.h"
#include "planner/schedule/lower_slots.h"
#include "planner/schedule/schedule_order.h"

namespace lynx {

// The slots of all ranks in one sequence. A slot comes after the slots that it needs, after the slot that sends what it waits
// for, and after the slot that posts the receive of that transfer. Positions count from 1; 0: there is no such slot.
struct TransferOrder {
  struct OfSlot {
    int32_t rank = 0;
    int32_t pass_and_stage = 0;  // pass * stages() + stage
    int32_t needs = 0;           // position of the slot of a neighbour stage that this slot needs
    int32_t posts = 0;           // position of the slot, on another rank, whose result this slot posts a receive for
    int32_t awaited_by = 0;      // position of the slot, on the same rank, that waits until this slot's result is sent
    bool sends = false;          // the result goes to another rank
  };
  PipelineShape shape;
  bool splits_weight = false;
  std::vector<OfSlot> slots;
  std::vector<int32_t> posted_first;  // positions of slots for whose results a receive is posted before the first slot
};

// `order` and `slots` must be those of the same valid schedule.
TransferOrder OrderTransfers(const SlotOrder& order, const PipelineSlots& slots);

// Times of the passes of a virtual stage; never negative.
struct TransferPassTimes {
  Nanos forward;
  Nanos backward;    // gradient of the stage's input
  Nanos weight;      // gradients of the stage's weights: the time of the W slot; if weights are not split, part of the B slot
  Nanos transfer;    // time for which the transfer of a pass's result occupies the link to the next stage, and back
  Nanos early;       // time for which transfers of parts of the result occupy the link before `transfer`; they may run during
                     // the pass
  Nanos after_post;  // a backward slot posts a receive this long before its end
};

struct TransferScratch {
  std::vector<Nanos> ends, arrivals, posts, begin_floors, end_floors;
};
// Returns the end of the last slot. `costs` has one entry per virtual stage. Calls use the memory of `scratch` again. Each
// thread needs its own scratch.
Nanos StepTime(const TransferOrder& order, const std::vector<TransferPassTimes>& costs, TransferScratch& scratch);

}  // namespace lynx

#endif  // LYNX_PLANNER_SCHEDULE_TRANSFER_TIMELINE_H_
