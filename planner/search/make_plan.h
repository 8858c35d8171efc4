// MakePlan: the fastest plan that the planner finds for a request. Pure; thread-safe.
#ifndef LYNX_PLANNER_SEARCH_MAKE_PLAN_H_
#define LYNX_PLANNER_SEARCH_MAKE_PLAN_H_

#include "absl/status/statusor.h"
#include "planner/plan/plan.h"

namespace lynx {

// InvalidArgument for a request that no layout can satisfy for reasons other than memory (more ranks than devices, no
// divisor fits, a cluster that CheckCluster refuses), naming the numbers. An error of `exact` is the result, and so is
// FinishedPlan's.
absl::StatusOr<PlanResult> MakePlan(const PlanRequest& request);

}  // namespace lynx

#endif  // LYNX_PLANNER_SEARCH_MAKE_PLAN_H_
