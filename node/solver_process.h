// Runs the exact solver of stages as a separate process, lynx-opt. So the libraries that the solver needs (linear algebra that
// starts threads when it is loaded) stay out of the programs that plan.
#ifndef LYNX_NODE_SOLVER_PROCESS_H_
#define LYNX_NODE_SOLVER_PROCESS_H_

#include <string>

#include "absl/status/statusor.h"
#include "planner/recompute/stage_solver.h"

namespace lynx {

struct SolverProcessOptions {
  std::string binary;   // empty: lynx-opt in the directory of this program
  double seconds = 10;  // approximate time for one problem; above 0
};

// Returns a solver that starts one process for each problem, sends it the problem and checks its answer
// (planner/recompute/solver_text.h). The solver's process ends when this process ends. It is killed if it takes far too long;
// then the answer has neither solution nor proof. Thread-safe; blocks the calling thread, which must live as long as the call.
// NotFound or PermissionDenied: the program is missing; the error says where it was expected and what to do. The solver returns
// an error with the process's name if the process fails or gives an invalid answer.
absl::StatusOr<StageSolver> SolverInProcess(SolverProcessOptions options);

}  // namespace lynx

#endif  // LYNX_NODE_SOLVER_PROCESS_H_
