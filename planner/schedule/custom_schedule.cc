#include "planner/schedule/custom_schedule.h"

#include <memory>
#include <utility>

#include "common/status.h"
#include "planner/schedule/lower_slots.h"

namespace lynx {

absl::StatusOr<SharedSchedule> ReadCustomSchedule(std::string_view text) {
  LYNX_ASSIGN_OR_RETURN(Schedule schedule, ParseSchedule(text));
  schedule.kind = ScheduleKind::kCustom;
  LYNX_RETURN_IF_ERROR(SlotsToLower(schedule).status());
  return SharedSchedule{std::make_shared<const Schedule>(std::move(schedule))};
}

int32_t VirtualStagesOf(const Schedule& schedule) {
  return schedule.shape.placement == StagePlacement::kLooping ? schedule.shape.chunks : 1;
}

}  // namespace lynx
