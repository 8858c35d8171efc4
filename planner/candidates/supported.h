// The supported part of the search space: candidates that can be lowered to programs. For all other candidates, an error names
// what is not supported. Pure.
#ifndef LYNX_PLANNER_CANDIDATES_SUPPORTED_H_
#define LYNX_PLANNER_CANDIDATES_SUPPORTED_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "planner/candidates/search.h"
#include "planner/plan/plan.h"

namespace lynx {

// Returns InvalidArgument if the spec pins a field to an unsupported value, or asks for RecomputeMode::kOpt in a request
// without an exact solver. The error names the field and says what to do.
absl::Status CheckSupported(const PlanRequest& request);

// The supported candidates of the search space. The list is never empty. Returns the InvalidArgument errors of Candidates and
// CheckSupported.
absl::StatusOr<std::vector<Candidate>> SupportedCandidates(const PlanRequest& request);

// Removes the candidates that are not supported.
void EraseUnsupported(const ModelSpec& model, std::vector<Candidate>& candidates);

}  // namespace lynx

#endif  // LYNX_PLANNER_CANDIDATES_SUPPORTED_H_
