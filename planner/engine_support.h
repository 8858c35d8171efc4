// What Lynx's own engine can run of what can be planned, beside layouts (CheckEngineRuns of planner/layout.h). Pure.
#ifndef LYNX_PLANNER_ENGINE_SUPPORT_H_
#define LYNX_PLANNER_ENGINE_SUPPORT_H_

#include "absl/status/status.h"
#include "planner/action.h"
#include "planner/job_spec.h"

namespace lynx {

// FailedPrecondition naming the job file's field, or the action: the engine copies nothing to the host.
absl::Status CheckEngineRuns(const RecomputeOptions& options);
absl::Status CheckEngineRuns(const Program& program);

}  // namespace lynx

#endif  // LYNX_PLANNER_ENGINE_SUPPORT_H_
