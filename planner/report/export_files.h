// The exporters of single frameworks. See export.h. Pure; thread-safe.
#ifndef LYNX_PLANNER_REPORT_EXPORT_FILES_H_
#define LYNX_PLANNER_REPORT_EXPORT_FILES_H_

#include <string>

#include "planner/report/export.h"

namespace lynx {

// `recompute`: one that the framework has (CanExpress).
ExportedPlan MegatronFiles(const JobSpec& spec, const Plan& plan, const RecomputeSummary& recompute);
ExportedPlan DeepSpeedFiles(const JobSpec& spec, const Plan& plan, const RecomputeSummary& recompute);
ExportedPlan TorchtitanFiles(const JobSpec& spec, const Plan& plan, const RecomputeSummary& recompute);

bool CanExpress(ExportFormat format, const RecomputeSummary& recompute);

// What to say of a schedule that the framework has not; `runs`: what it runs instead, "Megatron-LM runs 1F1B".
std::string ScheduleMissing(const ParallelLayout& layout, const std::string& runs);

// The comment at the head of each file: what it is, of which plan. `mark` begins each line.
std::string ExportHeader(const std::string& what, const JobSpec& spec, const Plan& plan, const std::string& mark);

}  // namespace lynx

#endif  // LYNX_PLANNER_REPORT_EXPORT_FILES_H_
