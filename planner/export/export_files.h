// The exporters, one for each framework. See export.h. Pure; thread-safe.
#ifndef LYNX_PLANNER_EXPORT_EXPORT_FILES_H_
#define LYNX_PLANNER_EXPORT_EXPORT_FILES_H_

#include <string>

#include "planner/export/export.h"

namespace lynx {

// Versions, in the order of ExportVersions().
enum class MegatronVersion : size_t { k0_16, k0_17, k0_18, k0_19 };
enum class DeepSpeedVersion : size_t { k0_16, k0_17, k0_18, k0_19 };
enum class TorchtitanVersion : size_t { k0_2_2, kMain };

// Input of an exporter. The framework must support `recompute` (CanExpress).
struct ExportInput {
  const ExportTarget& target;
  const JobSpec& spec;
  const Plan& plan;
  const RecomputeSummary& recompute;
};
ExportedPlan MegatronFiles(const ExportInput& input);
ExportedPlan DeepSpeedFiles(const ExportInput& input);
ExportedPlan TorchtitanFiles(const ExportInput& input);

bool CanExpress(ExportFormat format, const RecomputeSummary& recompute);

// The text for a schedule that the framework does not have. `runs` says what the framework runs instead, such as "Megatron-LM
// runs 1F1B".
std::string ScheduleMissing(const ParallelLayout& layout, const std::string& runs);
// The text for passes that run side by side, if the framework runs the passes of a rank one after another.
std::string WeaveMissing(const ParallelLayout& layout);
// The text for the order in which ranks are numbered, if the framework has only RankOrder::kTpDpPp and the layout another
// order. Empty: both number the ranks alike.
std::string RankOrderMissing(const ParallelLayout& layout, const char* framework);

// One line with the purpose of a file and its plan.
std::string ExportComment(const ExportInput& input);
// The comment at the top of each file. It has the line of ExportComment, and `what`, which says what the file is. Each line
// begins with `mark`.
std::string ExportHeader(const std::string& what, const ExportInput& input, const std::string& mark);

}  // namespace lynx

#endif  // LYNX_PLANNER_EXPORT_EXPORT_FILES_H_
