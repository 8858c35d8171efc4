// The exact solver of stages as a process of its own, lynx-opt: what comes with it (linear algebra that starts
// threads as soon as it is loaded) stays out of the programs that plan.
#ifndef LYNX_NODE_SOLVER_PROCESS_H_
#define LYNX_NODE_SOLVER_PROCESS_H_

#include <string>

#include "absl/status/statusor.h"
#include "planner/recompute/stage_solver.h"

namespace lynx {

struct SolverProcessOptions {
  std::string binary;   // "" = lynx-opt beside this program
  double seconds = 10;  // for one problem, about; above 0
};

// Starts one process for each problem, gives it the problem and checks its answer (planner/recompute/solver_text.h). It ends
// with this process, and is killed if it takes far longer than it should: then there is an answer without solution or
// proof. Thread-safe; blocks the calling thread, which must live as long as the call. NotFound or PermissionDenied if
// the program is not there, saying where it is looked for and what to do. What the solver returns is an error if the
// process fails or answers nonsense, naming it.
absl::StatusOr<StageSolver> SolverInProcess(SolverProcessOptions options);

}  // namespace lynx

#endif  // LYNX_NODE_SOLVER_PROCESS_H_
