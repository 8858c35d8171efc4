// What `plan` and the other offline verbs start from: the job file, the cluster that the options describe, the
// profile. One thread.
#ifndef LYNX_CLI_VERBS_PLAN_REQUEST_H_
#define LYNX_CLI_VERBS_PLAN_REQUEST_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/verbs/commands.h"
#include "planner/plan/plan.h"

namespace lynx {

// InvalidArgument or NotFound names the file or the option and what would be right.
absl::StatusOr<PlanRequest> ReadPlanRequest(const PlanOptions& options);

// Prints why the job cannot fit and the smallest change that makes it fit; the exit code for it.
int PrintInfeasible(const Infeasible& infeasible);

}  // namespace lynx

#endif  // LYNX_CLI_VERBS_PLAN_REQUEST_H_
