// What to say of a request that nothing fits: how much is lacking where, in the layout that comes closest, and the
// smallest change to the job that fits. Pure.
#ifndef LYNX_PLANNER_INFEASIBLE_H_
#define LYNX_PLANNER_INFEASIBLE_H_

#include <vector>

#include "planner/plan.h"
#include "planner/plan_caches.h"
#include "planner/search.h"

namespace lynx {

// `candidates`, of the request and not empty, are all known not to fit.
Infeasible ExplainInfeasible(const PlanRequest& request, const std::vector<Candidate>& candidates, PlanCaches& caches);

}  // namespace lynx

#endif  // LYNX_PLANNER_INFEASIBLE_H_
