// A schedule that a person wrote, from its text. Pure; thread-safe.
#ifndef LYNX_PLANNER_SCHEDULE_CUSTOM_SCHEDULE_H_
#define LYNX_PLANNER_SCHEDULE_CUSTOM_SCHEDULE_H_

#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"
#include "planner/schedule/schedule.h"

namespace lynx {

// A schedule of one's own, from its text (schedule.h) of whatever kind: the result's kind is custom, its slots
// are as they stand there. InvalidArgument, with line and word or rank and slot, for what is no text, no schedule
// (ValidateSchedule), or one that no programs are made for (SlotsToLower).
absl::StatusOr<SharedSchedule> ReadCustomSchedule(std::string_view text);

// The virtual stages that a layout with this schedule states (ParallelLayout::virtual_stages): 1 where the placement
// fixes the chunks.
int32_t VirtualStagesOf(const Schedule& schedule);

}  // namespace lynx

#endif  // LYNX_PLANNER_SCHEDULE_CUSTOM_SCHEDULE_H_
