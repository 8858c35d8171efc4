// OPT as a StageSolver, for callers of the planner that may link a MILP solver and have time.
#ifndef LYNX_PLANNER_OPT_EXACT_STAGE_H_
#define LYNX_PLANNER_OPT_EXACT_STAGE_H_

#include "planner/opt/stage_opt.h"
#include "planner/recompute/stage_solver.h"

namespace lynx {

// Solves each problem within about `options.seconds`: one problem, so a plan of p stages takes p times as long at most.
// Errors as SolveStage's. Not thread-safe.
StageSolver ExactStageSolver(const OptOptions& options);

}  // namespace lynx

#endif  // LYNX_PLANNER_OPT_EXACT_STAGE_H_
