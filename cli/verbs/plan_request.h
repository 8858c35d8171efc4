// The common input of `plan` and the other offline verbs: the job file, the cluster that the options describe, and the
// profile. One thread.
#ifndef LYNX_CLI_VERBS_PLAN_REQUEST_H_
#define LYNX_CLI_VERBS_PLAN_REQUEST_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/verbs/commands.h"
#include "planner/plan/plan.h"

namespace lynx::cli {

// Reads the input that the options name. Very long programs of the plan may be those of a shorter step; callers that show
// programs set most_program_actions to 0. InvalidArgument and NotFound name the file or the option and say what would be right.
absl::StatusOr<PlanRequest> ReadPlanRequest(const PlanOptions& options);

// If the cluster has several kinds of nodes, puts its nodes into the order with the fastest plan, unless the options keep the
// file's order. Plans the job several times.
void ArrangeNodes(const PlanOptions& options, PlanRequest& request);

// Prints why the job cannot fit and the smallest change that makes it fit. Returns the exit code.
int PrintInfeasible(const Infeasible& infeasible);

}  // namespace lynx::cli

#endif  // LYNX_CLI_VERBS_PLAN_REQUEST_H_
