#include "planner/problem/layout_schedule.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status.h"
#include "planner/problem/stage_context.h"
#include "planner/schedule/custom_schedule.h"
#include "planner/schedule/schedule_generate.h"

namespace lynx {

absl::Status SetCustomSchedule(std::string_view text, ParallelLayout& layout) {
  layout.custom = {};
  if (layout.schedule != ScheduleKind::kCustom) {
    if (text.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("a text comes with the schedule ", EnumName(layout.schedule), "; only a custom one has it"));
  }
  LYNX_ASSIGN_OR_RETURN(layout.custom, ReadCustomSchedule(text));
  return CheckScheduleOf(layout, layout.custom.schedule->microbatches);
}

std::string CustomScheduleText(const ParallelLayout& layout) {
  return layout.custom.schedule ? ScheduleText(*layout.custom.schedule) : "";
}

Schedule ScheduleOf(const ParallelLayout& layout, int32_t microbatches) {
  LYNX_CHECK(CheckScheduleOf(layout, microbatches).ok());
  if (layout.schedule == ScheduleKind::kCustom) return *layout.custom.schedule;
  absl::StatusOr<Schedule> schedule = GenerateSchedule(layout.schedule, layout.pp, PipelineOf(layout).chunks, microbatches);
  LYNX_CHECK(schedule.ok());
  return *std::move(schedule);
}

PipelineSlots SlotsToLower(const ParallelLayout& layout, int32_t microbatches) {
  absl::StatusOr<PipelineSlots> slots = SlotsToLower(ScheduleOf(layout, microbatches));
  LYNX_CHECK(slots.ok());
  return *std::move(slots);
}

std::vector<RankSlot> SlotsOfRank(const ParallelLayout& layout, int32_t microbatches, int32_t rank) {
  const ScheduleKind kind = layout.schedule;
  if (kind != ScheduleKind::kGpipe && kind != ScheduleKind::kOneForwardOneBackward) {
    return SlotsToLower(layout, microbatches).at(static_cast<size_t>(rank));
  }
  const Schedule schedule{.kind = kind, .shape = PipelineOf(layout), .microbatches = microbatches, .ranks = {}};
  LYNX_CHECK(CheckScheduleShape(kind, schedule.shape, microbatches, false).ok());
  return SlotsWithoutClock(schedule, rank);
}

bool SplitsWeight(const ParallelLayout& layout) {
  return layout.custom.schedule ? layout.custom.schedule->splits_weight : InfoOf(layout.schedule).splits_weight;
}

absl::Status CheckScheduleOf(const ParallelLayout& layout, int32_t microbatches) {
  const Schedule* custom = layout.custom.schedule.get();
  if ((layout.schedule == ScheduleKind::kCustom) != (custom != nullptr)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a layout has the slots of its schedule if that is custom, and only then; this one is ", LayoutText(layout)));
  }
  if (custom == nullptr) {
    return CheckScheduleShape(layout.schedule, PipelineOf(layout), microbatches, InfoOf(layout.schedule).splits_weight);
  }
  const int32_t chunks = VirtualStagesOf(*custom);
  if (custom->shape.ranks == layout.pp && chunks == layout.virtual_stages && custom->microbatches == microbatches) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("the custom schedule is one of ", custom->shape.ranks, " ranks, ", chunks,
                                                 " virtual stages and ", custom->microbatches, " microbatches; the layout has ",
                                                 layout.pp, ", ", layout.virtual_stages, " and ", microbatches));
}

}  // namespace lynx
