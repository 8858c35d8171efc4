// The schedule of a parallel layout. It is generated, or it is the custom schedule that the layout holds. Pure; thread-safe.
#ifndef LYNX_PLANNER_PROBLEM_LAYOUT_SCHEDULE_H_
#define LYNX_PLANNER_PROBLEM_LAYOUT_SCHEDULE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "planner/problem/layout.h"
#include "planner/schedule/lower_slots.h"
#include "planner/schedule/schedule.h"

namespace lynx {

// Sets the slots of a layout's custom schedule. The layout's other fields must be set before. Returns InvalidArgument for the
// errors of ReadCustomSchedule, if the schedule's shape differs from the layout's, and if `text` is given although the layout
// has another kind of schedule.
absl::Status SetCustomSchedule(std::string_view text, ParallelLayout& layout);
// Returns "" if the layout's schedule is not custom.
std::string CustomScheduleText(const ParallelLayout& layout);

// Returns the schedule. LYNX_CHECK fails if the layout has no schedule for this number of microbatches (CheckScheduleOf).
Schedule ScheduleOf(const ParallelLayout& layout, int32_t microbatches);

// The slots of the layout's schedule, for all ranks or for one rank. LYNX_CHECK fails if there is no such schedule
// (CheckScheduleOf). With GPipe and 1F1B, SlotsOfRank is cheap: it needs no simulated clock, because the result of a slot can
// always be waited for in the next slot. With other schedules, SlotsOfRank takes as long as SlotsToLower.
PipelineSlots SlotsToLower(const ParallelLayout& layout, int32_t microbatches);
std::vector<RankSlot> SlotsOfRank(const ParallelLayout& layout, int32_t microbatches, int32_t rank);

// True if the schedule has separate slots for weight gradients (W).
bool SplitsWeight(const ParallelLayout& layout);
// True if weight gradients may run after the gradients of a pass have left the rank: they are in slots of their own, or passes
// run side by side.
inline bool DelaysWeights(const ParallelLayout& layout) { return SplitsWeight(layout) || layout.weave != WeaveMode::kOff; }

// Returns InvalidArgument, with the field and what to do, if the layout cannot be woven in its WeaveMode:
// - Sharded gradients or weights cannot be woven in any mode, because they are in memory only for a pass of one layer.
// - kPairs and kQuads cannot weave a custom schedule, because the schedule itself says which passes follow one another.
// - kPairs and kQuads must give the same gradients, bit for bit, as without weaving. In a bidirectional pipeline they do not:
//   groups would send other microbatches through each copy of the model. If one rank has the tied embedding and the head, they
//   would add up the gradient of this weight in another order, unless the rank has the whole model as one stage and no separate
//   slots for weight gradients.
absl::Status CheckWeave(const ModelSpec& model, const ParallelLayout& layout);

// Returns InvalidArgument unless the layout has a schedule for this number of microbatches: one that can be generated
// (CheckScheduleShape), or a custom one of that shape and number.
absl::Status CheckScheduleOf(const ParallelLayout& layout, int32_t microbatches);

}  // namespace lynx

#endif  // LYNX_PLANNER_PROBLEM_LAYOUT_SCHEDULE_H_
