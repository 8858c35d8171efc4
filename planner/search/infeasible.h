// Explains why no plan fits a request. The explanation has the missing memory and its stage, in the layout that comes closest,
// and the smallest change to the job that fits. Pure.
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

// Returns how much memory the stage needs for activations: always more than the limit. If the activations alone seem to fit,
// but the arena of the whole step does not, returns a little more than the limit, which is probably enough for that arena.
Bytes NeededOf(const Shortfall& shortfall);
// Text such as "stage 0 needs 3.1 GiB more with everything recomputed: its activations take 9.1 GiB". The text is different if
// the activations seem to fit and only the arena of the whole step does not fit.
std::string LackingText(const Shortfall& shortfall, const std::string& how);

// Whether to look for the smallest change that fits. To find this change, further plans are made.
enum class Suggesting : uint8_t { kChange, kNothing };

// Explains why none of `candidates` fits. They must be candidates of the request; there must be at least one; and it must be
// known that none of them fits.
Infeasible ExplainInfeasible(const PlanRequest& request, const std::vector<Candidate>& candidates, PlanCaches& caches,
                             Suggesting suggesting = Suggesting::kChange);

}  // namespace lynx

#endif  // LYNX_PLANNER_SEARCH_INFEASIBLE_H_
