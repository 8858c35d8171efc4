// The exporters of single frameworks. See export.h. Pure; thread-safe.
#ifndef LYNX_PLANNER_REPORT_EXPORT_FILES_H_
#define LYNX_PLANNER_REPORT_EXPORT_FILES_H_

#include <string>

#include "planner/report/export.h"

namespace lynx {

// In the order of ExportVersions().
enum class MegatronVersion : size_t { k0_16, k0_17, k0_18, k0_19 };
enum class DeepSpeedVersion : size_t { k0_16, k0_17, k0_18, k0_19 };
enum class TorchtitanVersion : size_t { k0_2_2, kMain };

// What an exporter writes down. `recompute`: one that the framework has (CanExpress).
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

// What to say of a schedule that the framework has not; `runs`: what it runs instead, "Megatron-LM runs 1F1B".
std::string ScheduleMissing(const ParallelLayout& layout, const std::string& runs);

// What a file is for and of which plan, in one line.
std::string ExportComment(const ExportInput& input);
// The comment at the head of each file: that, and what the file is. `mark` begins each line.
std::string ExportHeader(const std::string& what, const ExportInput& input, const std::string& mark);

}  // namespace lynx

#endif  // LYNX_PLANNER_REPORT_EXPORT_FILES_H_
