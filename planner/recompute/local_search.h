// Local search for better policies near a known one: replaces one layer's policy by another, or changes the treatment of one
// item, as long as that improves the stage. It finds improvements that other solvers miss, because they assume that
// neighbouring layers have the same policy, or because they decide about one kind of memory after the other.
//
// Pure; thread-safe.
#ifndef LYNX_PLANNER_RECOMPUTE_LOCAL_SEARCH_H_
#define LYNX_PLANNER_RECOMPUTE_LOCAL_SEARCH_H_

#include <vector>

#include "planner/recompute/recompute_problem.h"

namespace lynx {

// Returns a policy that fits, and whose exposed time plus slowdown by copies is no more than that of `policy`. `policy` must be
// valid for the problem and fit. `others`: policies that may be worthwhile for some layer; they are skipped for layers in which
// they are not possible. While a copy runs, an op takes `copy_slowdown_permille` thousandths of its normal time (HostLink).
StagePolicy Improved(const RecomputeProblem& problem, StagePolicy policy, const std::vector<LayerPolicy>& others,
                     int32_t copy_slowdown_permille);

}  // namespace lynx

#endif  // LYNX_PLANNER_RECOMPUTE_LOCAL_SEARCH_H_
