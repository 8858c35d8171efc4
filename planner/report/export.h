// Export: a plan as flags and files of another framework, as far as that framework can express it, and a plain list of what
// it cannot. Names and exclusions of flags differ between a framework's versions: an export is for one of those that are
// listed here, and its files say for which. docs/export.md says how they were checked. Pure; thread-safe.
//
// Frameworks recompute on the critical path, alike in every layer or nearly so. Where the plan's policies are none that the
// framework has, the same layout is planned again with those that it has, and the fastest that fits is exported; the list
// says so, with both predictions.
#ifndef LYNX_PLANNER_REPORT_EXPORT_H_
#define LYNX_PLANNER_REPORT_EXPORT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "planner/plan/plan.h"

namespace lynx {

enum class ExportFormat : uint8_t { kMegatron, kDeepSpeed, kTorchtitan };
const char* ExportFormatName(ExportFormat format);  // "megatron", "deepspeed", "torchtitan"
bool ParseExportFormat(const std::string& name, ExportFormat& format);

// A version of a framework that exports are written for.
struct ExportVersion {
  const char* name;     // "0.19"; as users give it
  const char* checked;  // the tag or commit that exports were checked with, "core_v0.19.0"
};
// Those of a format, oldest first.
absl::Span<const ExportVersion> ExportVersions(ExportFormat format);

// A format in one of its versions.
struct ExportTarget {
  ExportFormat format = ExportFormat::kMegatron;
  size_t version = 0;  // in ExportVersions(format)

  bool operator==(const ExportTarget&) const = default;
};
ExportTarget NewestTarget(ExportFormat format);
// InvalidArgument, with all known versions, if `version` is not one of them.
absl::StatusOr<ExportTarget> FindTarget(ExportFormat format, const std::string& version);
// "Megatron Core 0.19 (checked with core_v0.19.0)".
std::string ExportTargetText(const ExportTarget& target);

struct ExportedFile {
  std::string name;  // without folders
  std::string text;
};

struct ExportedPlan {
  std::vector<ExportedFile> files;
  std::vector<std::string> missing;  // what the framework cannot express: a sentence each, without a full stop
};

// As MakePlan, but a schedule that is left open is chosen among those that the framework has.
absl::StatusOr<PlanResult> MakePlanFor(ExportFormat format, PlanRequest request);

// InvalidArgument as MakePlan, for the request that pins what the framework has.
absl::StatusOr<ExportedPlan> ExportPlan(const ExportTarget& target, const PlanRequest& request, const Plan& plan);

// How the layers of a plan recompute, in words that frameworks have.
enum class LayerRecompute : uint8_t {
  kNothing,
  kAttentionCore,       // selective (Korthikanti et al. 2022)
  kNormsAndActivation,  // balanced (Yuan et al. 2024)
  kLayer,               // all but the layer's input, repeating its collective
  kLayerButCollective,
  kMixed,  // anything else: per tensor, or in windows
};
struct RecomputeSummary {
  LayerRecompute kind = LayerRecompute::kNothing;  // of the layers that recompute
  // kLayer and kLayerButCollective: the first so many layers of every stage, all of a stage that has fewer.
  // 0: all layers of every stage.
  int32_t first_layers = 0;
  int32_t group_layers = 1;  // kLayer: layers of which only the first one's input is kept
  bool windows = false;      // some of it in windows or stalls
  bool offloads = false;     // some tensors wait in the host's memory
};
RecomputeSummary SummaryOf(const Plan& plan);

// Stages that have not as many layers as the others.
bool HasEvenStages(const Plan& plan);

}  // namespace lynx

#endif  // LYNX_PLANNER_REPORT_EXPORT_H_
