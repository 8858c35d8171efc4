#include "planner/problem/layout.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "planner/problem/layout_schedule.h"
#include "planner/problem/model_families.h"
#include "planner/problem/stage_context.h"

namespace lynx {

std::string LayoutText(const ParallelLayout& layout) {
  std::string text = absl::StrCat("tp", layout.tp, " pp", layout.pp, " dp", layout.dp);
  if (layout.cp > 1) absl::StrAppend(&text, " cp", layout.cp);
  if (layout.ep > 1) absl::StrAppend(&text, " ep", layout.ep);
  if (layout.virtual_stages > 1) absl::StrAppend(&text, " vp", layout.virtual_stages);
  if (layout.sequence_parallel) text += " sp";
  if (layout.zero != ZeroStage::kNone) absl::StrAppend(&text, " zero-", EnumName(layout.zero));
  if (layout.zero_group != 0) absl::StrAppend(&text, "-of-", layout.zero_group);
  if (layout.schedule != ScheduleKind::kOneForwardOneBackward) {
    absl::StrAppend(&text, " ", EnumName(layout.schedule));
  }
  if (layout.weave != WeaveMode::kOff) absl::StrAppend(&text, " weave-", EnumName(layout.weave));
  if (layout.rank_order != RankOrder::kTpPpDp) absl::StrAppend(&text, " order-", EnumName(layout.rank_order));
  return text;
}

ParallelLayout PinnedLayout(const ParallelSpec& parallel) {
  const auto at_least_one = [](int32_t n) { return std::max(n, 1); };
  ParallelLayout layout{.tp = at_least_one(parallel.tp),
                        .pp = at_least_one(parallel.pp),
                        .dp = at_least_one(parallel.dp),
                        .cp = at_least_one(parallel.cp),
                        .ep = at_least_one(parallel.ep),
                        .virtual_stages = at_least_one(parallel.virtual_stages),
                        .sequence_parallel = parallel.sequence_parallel == Choice::kOn};
  if (parallel.zero != ZeroStage::kAuto) layout.zero = parallel.zero;
  layout.zero_group = parallel.zero_group;
  if (parallel.weave != WeaveMode::kAuto) layout.weave = parallel.weave;
  const bool of_both = layout.pp > 1 && layout.dp > 1;
  if (parallel.rank_order != RankOrder::kAuto && of_both) layout.rank_order = parallel.rank_order;
  if (parallel.schedule != ScheduleKind::kAuto) layout.schedule = parallel.schedule;
  if (layout.schedule == ScheduleKind::kCustom) {
    LYNX_CHECK(SetCustomSchedule(parallel.schedule_text, layout).ok());
  }
  return layout;
}

ParallelSpec SpecOf(const ParallelLayout& layout, const ParallelSpec& job) {
  return {.tp = layout.tp,
          .pp = layout.pp,
          .dp = layout.dp,
          .cp = layout.cp,
          .ep = layout.ep,
          .virtual_stages = layout.virtual_stages,
          .sequence_parallel = layout.sequence_parallel ? Choice::kOn : Choice::kOff,
          .schedule = layout.schedule,
          .schedule_text = CustomScheduleText(layout),
          .zero = layout.zero,
          .zero_group = layout.zero_group,
          .weave = layout.weave,
          .rank_order = layout.rank_order,
          .partition = job.partition,
          .stage_layers = job.stage_layers};
}

absl::Status CheckEngineRuns(const ModelSpec& model, const ParallelLayout& layout) {
  const auto refuse = [](const char* field, const char* value, const char* can) {
    return absl::FailedPreconditionError(absl::StrCat(field, " ", value, " can be planned (lynxctl plan), but the engine ",
                                                      "of this version trains only with ", can));
  };
  if (const PlanOnlyFeatures lacked = LackedFeatures(model); lacked != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("the model can be planned (lynxctl plan), but the engine of this version does not train it, for "
                     "it lacks: ",
                     PlanOnlyText(lacked)));
  }
  if (model.window > 0 && model.seq > model.window) {
    return absl::FailedPreconditionError(
        absl::StrCat("model.seq ", model.seq, " is longer than the attention window, model.window ", model.window,
                     ": the engine of this version attends to all positions before one; train on sequences of at most ",
                     model.window, " tokens"));
  }
  const int32_t turning = model.rotary.dims == 0 ? model.head_size() : model.rotary.dims;
  if (model.family == ModelFamily::kLlama && turning > kMaxRotaryDims) {
    return absl::FailedPreconditionError(absl::StrCat("rotary positions turn ", turning,
                                                      " elements of a head; the engine of this version turns at most ",
                                                      kMaxRotaryDims, " (model.headDim, model.rope.dims)"));
  }
  if (model.qk_norm_whole && layout.tp > 1) return refuse("parallel.tp", "above 1", "1, if model.qkNormWhole is true");
  if (model.qk_norm_whole && model.key_heads() != model.heads) {
    return refuse("model.kvHeads", absl::StrCat(model.key_heads()).c_str(), "as many as heads, if model.qkNormWhole is true");
  }
  if (model.matmul_type != MatmulType::kModel) return refuse("model.matmulType", EnumName(model.matmul_type), "model");
  if (model.gradient_dtype != DataType::kFloat32) {
    return refuse("model.gradientDtype", EnumName(model.gradient_dtype), "float32, in which it sums the gradients of weights");
  }
  if (model.dropout_masks != DropoutMasks::kRegenerated) return refuse("model.dropoutMasks", "stored", "regenerated");
  if (model.moe.any()) {
    if (model.moe.capacity == 0) return refuse("model.moe.capacity", "0 (no limit)", "a limit");
    if (layout.tp > 1 && !layout.sequence_parallel) return refuse("parallel.sequenceParallel", "off", "on, if tp is above 1");
    if (PipelineOf(layout).bidirectional()) {
      return refuse("parallel.schedule", EnumName(layout.schedule), "pipelines of one direction, if the model has experts");
    }
  }
  if (layout.cp > 1) return refuse("parallel.cp", "above 1", "1");
  if (layout.zero > ZeroStage::kOptimizer) return refuse("parallel.zero", EnumName(layout.zero), "none or optimizer");
  if (layout.zero_group != 0) {
    return refuse("parallel.zeroGroup", absl::StrCat(layout.zero_group).c_str(), "0, which shards states over all replicas");
  }
  return absl::OkStatus();
}

}  // namespace lynx
