#include "planner/layout.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "planner/layout_schedule.h"

namespace lynx {

bool SharedSchedule::operator==(const SharedSchedule& other) const {
  if (schedule == other.schedule) return true;
  return schedule && other.schedule && *schedule == *other.schedule;
}

std::string LayoutText(const ParallelLayout& layout) {
  std::string text = absl::StrCat("tp", layout.tp, " pp", layout.pp, " dp", layout.dp);
  if (layout.cp > 1) absl::StrAppend(&text, " cp", layout.cp);
  if (layout.virtual_stages > 1) absl::StrAppend(&text, " vp", layout.virtual_stages);
  if (layout.sequence_parallel) text += " sp";
  if (layout.zero != ZeroStage::kNone) absl::StrAppend(&text, " zero-", ZeroStageName(layout.zero));
  if (layout.schedule != ScheduleKind::kOneForwardOneBackward) {
    absl::StrAppend(&text, " ", ScheduleKindName(layout.schedule));
  }
  return text;
}

ParallelLayout PinnedLayout(const ParallelSpec& parallel) {
  const auto at_least_one = [](int32_t n) { return std::max(n, 1); };
  ParallelLayout layout{.tp = at_least_one(parallel.tp), .pp = at_least_one(parallel.pp), .dp = at_least_one(parallel.dp),
                        .cp = at_least_one(parallel.cp), .virtual_stages = at_least_one(parallel.virtual_stages),
                        .sequence_parallel = parallel.sequence_parallel == Choice::kOn};
  if (parallel.zero != ZeroStage::kAuto) layout.zero = parallel.zero;
  if (parallel.schedule != ScheduleKind::kAuto) layout.schedule = parallel.schedule;
  if (layout.schedule == ScheduleKind::kCustom) {
    LYNX_CHECK(SetCustomSchedule(parallel.schedule_text, layout).ok());
  }
  return layout;
}

ParallelSpec SpecOf(const ParallelLayout& layout, PartitionMethod partition) {
  return {.tp = layout.tp,
          .pp = layout.pp,
          .dp = layout.dp,
          .cp = layout.cp,
          .virtual_stages = layout.virtual_stages,
          .sequence_parallel = layout.sequence_parallel ? Choice::kOn : Choice::kOff,
          .schedule = layout.schedule,
          .schedule_text = CustomScheduleText(layout),
          .zero = layout.zero,
          .partition = partition};
}

absl::Status CheckEngineRuns(const ModelSpec& model, const ParallelLayout& layout) {
  const auto refuse = [](const char* field, const char* value, const char* can) {
    return absl::FailedPreconditionError(absl::StrCat(field, " ", value, " can be planned (lynxctl plan), but the engine ",
                                                      "of this version trains only with ", can));
  };
  if (model.dropout_masks != DropoutMasks::kRegenerated) return refuse("model.dropoutMasks", "stored", "regenerated");
  if (layout.cp > 1) return refuse("parallel.cp", "above 1", "1");
  if (layout.zero > ZeroStage::kOptimizer) return refuse("parallel.zero", ZeroStageName(layout.zero), "none or optimizer");
  return absl::OkStatus();
}

}  // namespace lynx
