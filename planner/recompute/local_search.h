// Better policies next to a known one: one layer's policy is exchanged for another, or changed in the treatment of
// one item, as long as that makes the stage better. What solvers that look at alike layers, or at one kind of memory
// after another, leave undone.
//
// Pure; thread-safe.
#ifndef LYNX_PLANNER_RECOMPUTE_LOCAL_SEARCH_H_
#define LYNX_PLANNER_RECOMPUTE_LOCAL_SEARCH_H_

#include <vector>

#include "planner/recompute/recompute_problem.h"

namespace lynx {

// A policy that exposes and slows no more than `policy`, which is valid for the problem and fits it; fits too.
// `others`: policies of layers that may be worth while in some layer; those that are not possible in one are left out
// there. An op takes `copy_slowdown_permille` thousandths of its time beside a copy (HostLink).
StagePolicy Improved(const RecomputeProblem& problem, StagePolicy policy, const std::vector<LayerPolicy>& others,
                     int32_t copy_slowdown_permille);

}  // namespace lynx

#endif  // LYNX_PLANNER_RECOMPUTE_LOCAL_SEARCH_H_
