// The schedule of a parallel layout: generated, or a custom one that the layout carries. Pure; thread-safe.
#ifndef LYNX_PLANNER_PROBLEM_LAYOUT_SCHEDULE_H_
#define LYNX_PLANNER_PROBLEM_LAYOUT_SCHEDULE_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "planner/problem/layout.h"
#include "planner/schedule/schedule.h"

namespace lynx {

// A schedule of one's own, from its text (planner/schedule/schedule.h) of whatever kind: the result's kind is custom, its slots
// are as they stand there. InvalidArgument, with line and word or rank and slot, for what is no text, no schedule
// (ValidateSchedule), or one that no programs are made for (SlotsToLower).
absl::StatusOr<SharedSchedule> ReadCustomSchedule(std::string_view text);

// Gives a layout whose other fields are set the slots of its custom schedule. InvalidArgument, as ReadCustomSchedule, or
// because the schedule has another shape than the layout, or another kind of schedule comes with a text.
absl::Status SetCustomSchedule(std::string_view text, ParallelLayout& layout);
// "" unless the layout's schedule is custom.
std::string CustomScheduleText(const ParallelLayout& layout);

// LYNX_CHECK fails where there is none (CheckScheduleOf).
Schedule ScheduleOf(const ParallelLayout& layout, int32_t microbatches);

// ParallelLayout::virtual_stages of a layout with this schedule: 1 where the placement fixes the chunks.
int32_t VirtualStagesOf(const Schedule& schedule);

// Whether W is a slot of its own.
bool SplitsWeight(const ParallelLayout& layout);

// InvalidArgument unless the layout has a schedule for so many microbatches: one that can be generated
// (CheckScheduleShape), or a custom one of that shape and number.
absl::Status CheckScheduleOf(const ParallelLayout& layout, int32_t microbatches);

}  // namespace lynx

#endif  // LYNX_PLANNER_PROBLEM_LAYOUT_SCHEDULE_H_
