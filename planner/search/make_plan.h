// MakePlan returns the fastest plan that the planner finds for a request. Pure; thread-safe.
#ifndef LYNX_PLANNER_SEARCH_MAKE_PLAN_H_
#define LYNX_PLANNER_SEARCH_MAKE_PLAN_H_

#include "absl/status/statusor.h"
#include "planner/plan/plan.h"

namespace lynx {

// Returns InvalidArgument with the numbers if no layout can satisfy the request for reasons other than memory: more ranks than
// devices, no divisor fits, or CheckCluster refuses the cluster. Also returns the errors of the request's exact solver and of
// FinishedPlan without changes.
absl::StatusOr<PlanResult> MakePlan(const PlanRequest& request);
// Does the same as MakePlan, but an Infeasible has no suggestion, because finding one takes as long as making many plans.
absl::StatusOr<PlanResult> MakePlanWithoutAdvice(const PlanRequest& request);

}  // namespace lynx

#endif  // LYNX_PLANNER_SEARCH_MAKE_PLAN_H_
