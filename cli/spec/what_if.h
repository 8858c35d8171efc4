// The question of whatif: a request with another number of nodes. Pure; thread-safe.
#ifndef LYNX_CLI_SPEC_WHAT_IF_H_
#define LYNX_CLI_SPEC_WHAT_IF_H_

#include <string>

#include "absl/status/status.h"
#include "planner/plan/plan.h"

namespace lynx::cli {

// Gives the last group of the changed request's cluster this many nodes: "4", "+2" for two more, "" for as many as it has. If
// the job of `base` may use every device of its cluster, and the changes leave this limit as it was, the changed job may use
// every device of its cluster too. InvalidArgument: `nodes` is no such text.
absl::Status ChangeNodes(const PlanRequest& base, const std::string& nodes, PlanRequest& changed);

}  // namespace lynx::cli

#endif  // LYNX_CLI_SPEC_WHAT_IF_H_
