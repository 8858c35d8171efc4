// Makes OPT a StageSolver, for callers of the planner that link a MILP solver and have time for an exact solution.
#ifndef LYNX_PLANNER_OPT_EXACT_STAGE_H_
#define LYNX_PLANNER_OPT_EXACT_STAGE_H_

#include "planner/opt/stage_opt.h"
#include "planner/recompute/stage_solver.h"

namespace lynx {

// Returns a solver that solves each problem within about `options.seconds`. This limit is for one problem, so a plan of p
// stages takes at most about p times as long. The solver returns the errors of SolveStage. Not thread-safe.
StageSolver ExactStageSolver(const OptOptions& options);

}  // namespace lynx

#endif  // LYNX_PLANNER_OPT_EXACT_STAGE_H_
