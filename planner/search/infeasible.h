// What to say of a request that nothing fits: how much is lacking where, in the layout that comes closest, and the
// smallest change to the job that fits. Pure.
#ifndef LYNX_PLANNER_SEARCH_INFEASIBLE_H_
#define LYNX_PLANNER_SEARCH_INFEASIBLE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "planner/candidates/plan_caches.h"
#include "planner/candidates/search.h"
#include "planner/plan/plan.h"
#include "planner/stages/layout_planner.h"

namespace lynx {

// More than the limit: what the stage's activations take, or, where these seem to fit, so much that an arena of the
// whole step may fit too.
Bytes NeededOf(const Shortfall& shortfall);
// "stage 0 needs 3.1 GiB more with everything recomputed: its activations take 9.1 GiB". Where the activations seem
// to fit, and only arenas laid out for the whole step did not: says that.
std::string LackingText(const Shortfall& shortfall, const std::string& how);

// Whether to look for the smallest change that fits, which takes plans of its own.
enum class Suggesting : uint8_t { kChange, kNothing };

// `candidates`, of the request and not empty, are all known not to fit.
Infeasible ExplainInfeasible(const PlanRequest& request, const std::vector<Candidate>& candidates, PlanCaches& caches,
                             Suggesting suggesting = Suggesting::kChange);

}  // namespace lynx

#endif  // LYNX_PLANNER_SEARCH_INFEASIBLE_H_
