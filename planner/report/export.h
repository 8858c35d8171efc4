// Export writes a plan as flags and files of another framework, as far as that framework can express it, and lists in plain
// words what it cannot express. Names and exclusions of flags differ between a framework's versions, so an export is for one of
// the versions listed here, and its files name the version. docs/export.md says how the exports were checked. Pure;
// thread-safe.
//
// Frameworks recompute on the critical path, in the same way in every layer or in nearly every layer. If the framework does not
// have the plan's policies, the same layout is planned again with the policies that it has, and the fastest plan that fits is
// exported. The list of what cannot be expressed then says this, with the predicted times of both plans.
#ifndef LYNX_PLANNER_REPORT_EXPORT_H_
#define LYNX_PLANNER_REPORT_EXPORT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/enum_names.h"
#include "planner/plan/plan.h"

namespace lynx {

enum class ExportFormat : uint8_t { kMegatron, kDeepSpeed, kTorchtitan };
template <>
inline constexpr auto kEnumNames<ExportFormat> = EnumTable("megatron", "deepspeed", "torchtitan");

// A version of a framework for which exports are written.
struct ExportVersion {
  const char* name;     // as users write it: "0.19"
  const char* checked;  // the tag or commit with which exports were checked: "core_v0.19.0"
};
// The versions of a format, oldest first.
absl::Span<const ExportVersion> ExportVersions(ExportFormat format);

// A format in one of its versions.
struct ExportTarget {
  ExportFormat format = ExportFormat::kMegatron;
  size_t version = 0;  // in ExportVersions(format)

  bool operator==(const ExportTarget&) const = default;
};
ExportTarget NewestTarget(ExportFormat format);
// Returns InvalidArgument, which lists all known versions, if `version` is unknown.
absl::StatusOr<ExportTarget> FindTarget(ExportFormat format, const std::string& version);
// "Megatron Core 0.19 (checked with core_v0.19.0)".
std::string ExportTargetText(const ExportTarget& target);

struct ExportedFile {
  std::string name;  // without folders
  std::string text;
};

struct ExportedPlan {
  std::vector<ExportedFile> files;
  std::vector<std::string> missing;  // what the framework cannot express: one sentence each, without a full stop
};

// Works like MakePlan, but if the request leaves the schedule open, only schedules that the framework has are considered.
absl::StatusOr<PlanResult> MakePlanFor(ExportFormat format, PlanRequest request);

// Returns InvalidArgument if MakePlan returns it for the request with the policies that the framework has.
absl::StatusOr<ExportedPlan> ExportPlan(const ExportTarget& target, const PlanRequest& request, const Plan& plan);

// How the layers of a plan recompute, in the terms of frameworks.
enum class LayerRecompute : uint8_t {
  kNothing,
  kAttentionCore,       // selective (Korthikanti et al. 2022)
  kNormsAndActivation,  // balanced (Yuan et al. 2024)
  kLayer,               // everything except the layer's input, with a repeated collective
  kLayerButCollective,
  kMixed,  // any other policy: per tensor, or in windows
};
struct RecomputeSummary {
  LayerRecompute kind = LayerRecompute::kNothing;  // the kind of the layers that recompute something
  // For kLayer and kLayerButCollective: every stage recomputes this number of its first layers, or all layers if it has fewer.
  // 0: all layers of every stage are recomputed.
  int32_t first_layers = 0;
  int32_t group_layers = 1;  // kLayer: number of layers in a group of which only the first layer's input is stored
  bool windows = false;      // some recomputation is in windows or stalls
  bool offloads = false;     // some tensors are in the host's memory
};
RecomputeSummary SummaryOf(const Plan& plan);

// True if all stages have the same number of layers.
bool HasEvenStages(const Plan& plan);

}  // namespace lynx

#endif  // LYNX_PLANNER_REPORT_EXPORT_H_
