#include "planner/search/faster_model.h"

#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "planner/search/make_plan.h"

namespace lynx {
namespace {

constexpr int64_t kTensorCores = 4;          // tensor cores are at least this many times as fast as float32
constexpr int64_t kLeastGainPermille = 100;  // a smaller gain may be an error of the prediction

// How many times as fast the slowest devices compute bfloat16, if the model is in float32 and the devices have tensor cores for
// bfloat16; else 0.
double TimesAsFast(const ModelSpec& model, const ClusterTopology& cluster) {
  const HardwareProfile profile = SlowestProfile(cluster);
  if (profile.bfloat16_flops_per_second < kTensorCores * profile.flops_per_second) return 0;
  if (model.dtype == DataType::kBfloat16) return 0;
  return static_cast<double>(profile.bfloat16_flops_per_second) / static_cast<double>(profile.flops_per_second);
}

}  // namespace

std::string SlowTypeText(const ModelSpec& model, const ClusterTopology& cluster) {
  const double times = TimesAsFast(model, cluster);
  if (times == 0) return "";
  return absl::StrFormat(
      "computes float32, although the devices compute bfloat16 %.1f times as fast: set model.dtype: bfloat16%s", times,
      model.attention == AttentionKernel::kUnfused ? " and model.attention: fused" : "");
}

std::optional<FasterModel> FindFasterModel(const PlanRequest& request, const Plan& plan) {
  if (TimesAsFast(request.spec.model, request.cluster) == 0) return std::nullopt;
  PlanRequest faster = request;
  faster.spec.model.dtype = DataType::kBfloat16;
  std::vector<std::string> changes = {"model.dtype: bfloat16"};
  if (faster.spec.model.attention == AttentionKernel::kUnfused) {
    faster.spec.model.attention = AttentionKernel::kFused;
    changes.push_back("model.attention: fused");
  }
  if (!ValidateJobSpec(faster.spec).ok()) return std::nullopt;
  // Only the time of the step is needed. So the heuristic is enough, and shortened programs are enough.
  if (faster.spec.recompute == RecomputeMode::kOpt) faster.spec.recompute = RecomputeMode::kHeu;
  faster.exact = nullptr;
  faster.most_program_actions = 1;
  const absl::StatusOr<PlanResult> result = MakePlan(faster);
  const Plan* found = result.ok() ? std::get_if<Plan>(&*result) : nullptr;
  if (found == nullptr || found->step.value > plan.step.value / 1000 * (1000 - kLeastGainPermille)) return std::nullopt;
  return FasterModel{absl::StrJoin(changes, ", "), found->step};
}

std::string FasterModelText(const std::optional<FasterModel>& faster, const Plan& plan) {
  if (!faster) return "";
  const double times = static_cast<double>(plan.step.value) / static_cast<double>(faster->step.value);
  return absl::StrCat("note: with ", faster->changes, " a step would take ", FormatDuration(faster->step), ", ",
                      absl::StrFormat("%.1f", times), " times as fast\n");
}

}  // namespace lynx
