// The schedule of a parallel layout: generated, or a custom one that the layout carries. Pure; thread-safe.
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

// Gives a layout whose other fields are set the slots of its custom schedule. InvalidArgument, as ReadCustomSchedule, or
// because the schedule has another shape than the layout, or another kind of schedule comes with a text.
absl::Status SetCustomSchedule(std::string_view text, ParallelLayout& layout);
// "" unless the layout's schedule is custom.
std::string CustomScheduleText(const ParallelLayout& layout);

// LYNX_CHECK fails where there is none (CheckScheduleOf).
Schedule ScheduleOf(const ParallelLayout& layout, int32_t microbatches);

// The slots of the schedule that a layout names, or of one rank of it. LYNX_CHECK fails where there is no such schedule
// (CheckScheduleOf). One rank takes as long as all, but with GPipe and 1F1B, which need no clock: whatever a slot sends
// can be waited for in the next one.
PipelineSlots SlotsToLower(const ParallelLayout& layout, int32_t microbatches);
std::vector<RankSlot> SlotsOfRank(const ParallelLayout& layout, int32_t microbatches, int32_t rank);

// Whether W is a slot of its own.
bool SplitsWeight(const ParallelLayout& layout);

// InvalidArgument unless the layout has a schedule for so many microbatches: one that can be generated
// (CheckScheduleShape), or a custom one of that shape and number.
absl::Status CheckScheduleOf(const ParallelLayout& layout, int32_t microbatches);

}  // namespace lynx

#endif  // LYNX_PLANNER_PROBLEM_LAYOUT_SCHEDULE_H_
