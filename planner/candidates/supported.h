// The supported part of the search space: candidates that can be lowered into programs. Other candidates are refused by
// name. Pure.
#ifndef LYNX_PLANNER_CANDIDATES_SUPPORTED_H_
#define LYNX_PLANNER_CANDIDATES_SUPPORTED_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "planner/candidates/search.h"
#include "planner/plan/plan.h"

namespace lynx {

// Returns InvalidArgument with the unsupported field that the spec pins, and what to do.
absl::Status CheckSupported(const PlanRequest& request);

// The supported candidates of the search space; never empty. Returns InvalidArgument as Candidates or CheckSupported do.
absl::StatusOr<std::vector<Candidate>> SupportedCandidates(const PlanRequest& request);

// Removes the candidates that are not supported.
void EraseUnsupported(const ModelSpec& model, std::vector<Candidate>& candidates);

}  // namespace lynx

#endif  // LYNX_PLANNER_CANDIDATES_SUPPORTED_H_
