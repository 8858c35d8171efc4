// Export writes a plan as flags and files of another framework, as far as the framework can express the plan. It lists in plain
// words what the framework cannot express. The names of flags, and which flags exclude each other, differ between versions of a
// framework. So an export is for one of the versions that this file lists, and the exported files name the version.
// docs/export.md says how the exports were checked. Pure; thread-safe.
//
// Frameworks recompute on the critical path, in the same way in every layer or in nearly every layer. If the framework does not
// have the plan's policies, the same layout is planned again with the policies that the framework has, and the fastest plan
// that fits is exported. The list of what cannot be expressed then says so, with the predicted times of both plans.
#ifndef LYNX_PLANNER_EXPORT_EXPORT_H_
#define LYNX_PLANNER_EXPORT_EXPORT_H_

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

// A version of a framework for which Lynx writes exports.
struct ExportVersion {
  const char* name;     // as users write it, such as "0.19"
  const char* checked;  // the tag or commit with which exports were checked, such as "core_v0.19.0"
};
// The versions of a format, oldest first.
absl::Span<const ExportVersion> ExportVersions(ExportFormat format);

// A format in one of its versions.
struct ExportTarget {
  ExportFormat format = ExportFormat::kMegatron;
  size_t version = 0;  // index in ExportVersions(format)

  bool operator==(const ExportTarget&) const = default;
};
ExportTarget NewestTarget(ExportFormat format);
// Returns the target. If `version` is unknown, returns InvalidArgument, which lists all known versions.
absl::StatusOr<ExportTarget> FindTarget(ExportFormat format, const std::string& version);
// Text such as "Megatron Core 0.19 (checked with core_v0.19.0)".
std::string ExportTargetText(const ExportTarget& target);

struct ExportedFile {
  std::string name;  // name of the file, without folders
  std::string text;
};

struct ExportedPlan {
  std::vector<ExportedFile> files;
  std::vector<std::string> missing;  // sentences about what the framework cannot express; without full stops
};

// Works like MakePlan, with one difference: if the request leaves the schedule open, only schedules that the framework has are
// considered.
absl::StatusOr<PlanResult> MakePlanFor(ExportFormat format, PlanRequest request);

// Exports the plan. Returns InvalidArgument if MakePlan does so for the request with the policies that the framework has.
absl::StatusOr<ExportedPlan> ExportPlan(const ExportTarget& target, const PlanRequest& request, const Plan& plan);

// How the layers of a plan recompute, in words that frameworks use.
enum class LayerRecompute : uint8_t {
  kNothing,
  kAttentionCore,       // recomputation mode `selective` (Korthikanti et al. 2022)
  kNormsAndActivation,  // recomputation mode `balanced` (Yuan et al. 2024)
  kLayer,               // everything except the layer's input; a collective is repeated
  kLayerButCollective,
  kModules,  // modules of Megatron Core (RecomputeSummary::modules)
  kMixed,    // any other policy, such as one that decides for each tensor or uses windows
};
struct RecomputeSummary {
  LayerRecompute kind = LayerRecompute::kNothing;  // the kind of the layers that recompute something
  // Used for kLayer and kLayerButCollective: every stage recomputes this number of its first layers, or all layers if it has
  // fewer. 0: all layers of every stage are recomputed.
  int32_t first_layers = 0;
  int32_t group_layers = 1;  // used for kLayer: number of layers in a group of which only the first layer's input is stored
  // Used for kModules. Empty for other kinds.
  std::vector<RecomputeModule> modules;
  bool windows = false;   // true if some recomputation is in windows or stalls
  bool offloads = false;  // true if some tensors are offloaded to the host's memory
};
RecomputeSummary SummaryOf(const Plan& plan);

// True if all stages have the same number of layers.
bool HasEvenStages(const Plan& plan);

}  // namespace lynx

#endif  // LYNX_PLANNER_EXPORT_EXPORT_H_
