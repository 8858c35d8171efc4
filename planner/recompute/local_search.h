// Local search improves a known policy. It replaces one layer's policy by another, or changes the treatment of one item, as
// long as this improves the stage. It finds improvements that other solvers miss, because they assume that neighbouring layers
// have the same policy, or decide about one kind of memory after the other.
//
// Pure; thread-safe.
#ifndef LYNX_PLANNER_RECOMPUTE_LOCAL_SEARCH_H_
#define LYNX_PLANNER_RECOMPUTE_LOCAL_SEARCH_H_

#include <vector>

#include "planner/recompute/recompute_problem.h"

namespace lynx {

// Returns a policy that fits the budgets, and whose exposed time plus slowdown by copies is at most that of `policy`. `policy`
// must be valid for the problem and fit. `others` are policies that may be worthwhile for some layer; they are skipped for
// layers in which they are not possible. While a copy runs, an op takes `copy_slowdown_permille` thousandths of its normal time
// (HostLink).
StagePolicy Improved(const RecomputeProblem& problem, StagePolicy policy, const std::vector<LayerPolicy>& others,
                     int32_t copy_slowdown_permille);

}  // namespace lynx

#endif  // LYNX_PLANNER_RECOMPUTE_LOCAL_SEARCH_H_
