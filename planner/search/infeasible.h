// Explains why nothing fits a request: how much is missing and where, in the layout that comes closest, and the smallest
// change to the job that fits. Pure.
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

// An amount above the limit: what the stage's activations take. If these seem to fit: an amount large enough that an
// arena of the whole step may fit too.
Bytes NeededOf(const Shortfall& shortfall);
// "stage 0 needs 3.1 GiB more with everything recomputed: its activations take 9.1 GiB". Has a different text if the
// activations seem to fit and only arenas for the whole step did not.
std::string LackingText(const Shortfall& shortfall, const std::string& how);

// Whether to look for the smallest change that fits; this makes further plans.
enum class Suggesting : uint8_t { kChange, kNothing };

// `candidates` must be candidates of the request, not empty, and all known not to fit.
Infeasible ExplainInfeasible(const PlanRequest& request, const std::vector<Candidate>& candidates, PlanCaches& caches,
                             Suggesting suggesting = Suggesting::kChange);

}  // namespace lynx

#endif  // LYNX_PLANNER_SEARCH_INFEASIBLE_H_
