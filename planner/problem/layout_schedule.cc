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

namespace {

int32_t Groups(const ParallelLayout& layout, int32_t microbatches) {
  const int32_t group = GroupOf(layout.weave);
  return (microbatches + group - 1) / group;
}

// The schedule whose microbatches are the layout's groups of microbatches.
Schedule ScheduleOfGroups(const ParallelLayout& layout, int32_t microbatches) {
  LYNX_CHECK(CheckScheduleOf(layout, microbatches).ok());
  if (layout.schedule == ScheduleKind::kCustom) return *layout.custom.schedule;
  absl::StatusOr<Schedule> schedule =
      GenerateSchedule(layout.schedule, layout.pp, PipelineOf(layout).chunks, Groups(layout, microbatches));
  LYNX_CHECK(schedule.ok());
  return *std::move(schedule);
}

}  // namespace

Schedule ScheduleOf(const ParallelLayout& layout, int32_t microbatches) {
  Schedule schedule = ScheduleOfGroups(layout, microbatches);
  const int32_t group = GroupOf(layout.weave);
  return group == 1 ? schedule : GroupedSchedule(schedule, group, microbatches);
}

PipelineSlots SlotsToLower(const ParallelLayout& layout, int32_t microbatches) {
  absl::StatusOr<PipelineSlots> slots = SlotsToLower(ScheduleOfGroups(layout, microbatches));
  LYNX_CHECK(slots.ok());
  const int32_t group = GroupOf(layout.weave);
  if (group > 1) {
    for (std::vector<RankSlot>& of_rank : *slots) of_rank = GroupedSlots(of_rank, group, microbatches);
  }
  return *std::move(slots);
}

std::vector<RankSlot> SlotsOfRank(const ParallelLayout& layout, int32_t microbatches, int32_t rank) {
  const ScheduleKind kind = layout.schedule;
  if (kind != ScheduleKind::kGpipe && kind != ScheduleKind::kOneForwardOneBackward) {
    return SlotsToLower(layout, microbatches).at(static_cast<size_t>(rank));
  }
  const int32_t groups = Groups(layout, microbatches);
  const Schedule schedule{.kind = kind, .shape = PipelineOf(layout), .microbatches = groups, .ranks = {}};
  LYNX_CHECK(CheckScheduleShape(kind, schedule.shape, groups, false).ok());
  std::vector<RankSlot> slots = SlotsWithoutClock(schedule, rank);
  return GroupOf(layout.weave) == 1 ? slots : GroupedSlots(slots, GroupOf(layout.weave), microbatches);
}

bool SplitsWeight(const ParallelLayout& layout) {
  return layout.custom.schedule ? layout.custom.schedule->splits_weight : InfoOf(layout.schedule).splits_weight;
}

absl::Status CheckWeave(const ModelSpec& model, const ParallelLayout& layout) {
  if (layout.weave == WeaveMode::kOff) return absl::OkStatus();
  const auto refuse = [&](const std::string& with, const std::string& instead) {
    return absl::InvalidArgumentError(
        absl::StrCat("parallel.weave ", EnumName(layout.weave), " with ", with, " is not planned by this version: ", instead));
  };
  if (layout.zero > ZeroStage::kOptimizer) {
    return refuse(absl::StrCat("parallel.zero ", EnumName(layout.zero)), "use zero none or optimizer, or weave off");
  }
  if (GroupOf(layout.weave) == 1) return absl::OkStatus();
  if (layout.schedule == ScheduleKind::kCustom) return refuse("a custom schedule", "use weave neighbours or off");
  if (PipelineOf(layout).bidirectional()) {
    return refuse(absl::StrCat("parallel.schedule ", EnumName(layout.schedule)), "use weave neighbours or off");
  }
  const bool one_rank = layout.pp == 1 || PipelineOf(layout).placement != StagePlacement::kLooping;
  if (model.tied_embeddings && one_rank && (layout.pp > 1 || layout.virtual_stages > 1 || SplitsWeight(layout))) {
    return refuse(absl::StrCat("tied embeddings and parallel.schedule ", EnumName(layout.schedule)),
                  "use weave neighbours or off, or another schedule");
  }
  return absl::OkStatus();
}

absl::Status CheckScheduleOf(const ParallelLayout& layout, int32_t microbatches) {
  const Schedule* custom = layout.custom.schedule.get();
  if ((layout.schedule == ScheduleKind::kCustom) != (custom != nullptr)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a layout has the slots of its schedule if that is custom, and only then; this one is ", LayoutText(layout)));
  }
  if (custom == nullptr) {
    // The check below is for the schedule of the groups. The slots of all microbatches must also be within the limits.
    if (GroupOf(layout.weave) > 1) {
      LYNX_RETURN_IF_ERROR(
          CheckScheduleShape(layout.schedule, PipelineOf(layout), microbatches, InfoOf(layout.schedule).splits_weight));
    }
    return CheckScheduleShape(layout.schedule, PipelineOf(layout), Groups(layout, microbatches),
                              InfoOf(layout.schedule).splits_weight);
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
