// Local search for better policies near a known one: replaces one layer's policy by another, or changes the treatment of
// one item, as long as that improves the stage. It finds what solvers miss that assume alike layers or treat one kind of
// memory after another.
//
// Pure; thread-safe.
#ifndef LYNX_PLANNER_RECOMPUTE_LOCAL_SEARCH_H_
#define LYNX_PLANNER_RECOMPUTE_LOCAL_SEARCH_H_

#include <vector>

#include "planner/recompute/recompute_problem.h"

namespace lynx {

// Returns a policy that exposes and slows no more than `policy`, and that fits too. `policy` must be valid for the
// problem and fit it. `others`: policies that may be worthwhile in some layer; a layer where one is not possible skips
// it. An op takes `copy_slowdown_permille` thousandths of its time beside a copy (HostLink).
StagePolicy Improved(const RecomputeProblem& problem, StagePolicy policy, const std::vector<LayerPolicy>& others,
                     int32_t copy_slowdown_permille);

}  // namespace lynx

#endif  // LYNX_PLANNER_RECOMPUTE_LOCAL_SEARCH_H_
