// What of the search space can be planned whole, that is lowered: the rest is refused by name. Pure.
#ifndef LYNX_PLANNER_CANDIDATES_SUPPORTED_H_
#define LYNX_PLANNER_CANDIDATES_SUPPORTED_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "planner/candidates/search.h"
#include "planner/plan/plan.h"

namespace lynx {

// InvalidArgument naming the field that the spec pins and what to do.
absl::Status CheckSupported(const PlanRequest& request);

// Those of the search space that can be lowered; never empty. InvalidArgument as Candidates, or as above.
absl::StatusOr<std::vector<Candidate>> SupportedCandidates(const PlanRequest& request);

// Leaves those that can be lowered.
void EraseUnsupported(std::vector<Candidate>& candidates);

}  // namespace lynx

#endif  // LYNX_PLANNER_CANDIDATES_SUPPORTED_H_
