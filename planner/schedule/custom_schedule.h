// Reads a schedule that a person wrote as text. Pure; thread-safe.
#ifndef LYNX_PLANNER_SCHEDULE_CUSTOM_SCHEDULE_H_
#define LYNX_PLANNER_SCHEDULE_CUSTOM_SCHEDULE_H_

#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"
#include "planner/schedule/schedule.h"

namespace lynx {

// Parses the text of a schedule (format: schedule.h). The text may state any kind. The result has the kind kCustom and exactly
// the slots of the text. Returns InvalidArgument if the text cannot be parsed, if it is not a valid schedule
// (ValidateSchedule), or if it cannot be lowered (SlotsToLower). The error names line and word, or rank and slot.
absl::StatusOr<SharedSchedule> ReadCustomSchedule(std::string_view text);

// Returns the value of ParallelLayout::virtual_stages for a layout with this schedule. This is 1 if the placement fixes the
// number of chunks.
int32_t VirtualStagesOf(const Schedule& schedule);

}  // namespace lynx

#endif  // LYNX_PLANNER_SCHEDULE_CUSTOM_SCHEDULE_H_
