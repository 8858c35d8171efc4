// Shows what another framework needs and takes for a run (planner/frameworks): for `lynxctl plan --framework` and `lynxctl
// audit`. Pure; thread-safe.
#ifndef LYNX_PLANNER_REPORT_FRAMEWORK_TABLE_H_
#define LYNX_PLANNER_REPORT_FRAMEWORK_TABLE_H_

#include <string>

#include "planner/cost/hardware_profile.h"
#include "planner/frameworks/framework_plan.h"
#include "planner/report/table.h"

namespace lynx {

// The bytes of each pipeline rank, by what they are. Neighbouring ranks with equal bytes share a row.
Table FrameworkMemoryTable(const FrameworkPlan& plan);
// The parts of the step, and the share of each. Recomputation is a part of the pipeline's time, and is indented.
Table FrameworkTimeTable(const FrameworkPlan& plan);

// Tokens that all devices process in a second, and each of them.
double TokensPerSecond(const FrameworkPlan& plan);
// The model's FLOPs of one device in a second, with the full square of attention's scores (FlopCount::kModel), as Megatron-LM
// reports.
double FlopsPerSecondOfDevice(const FrameworkPlan& plan);

// Layout, the predicted step and both tables, with a newline at the end.
std::string FrameworkPlanText(const FrameworkPlan& plan, const HardwareProfile& profile);
// The same as one JSON object: times in nanoseconds, sizes in bytes.
std::string FrameworkPlanJson(const FrameworkPlan& plan, const HardwareProfile& profile);

}  // namespace lynx

#endif  // LYNX_PLANNER_REPORT_FRAMEWORK_TABLE_H_
