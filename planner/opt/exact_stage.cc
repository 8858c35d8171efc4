#include "planner/opt/exact_stage.h"

namespace lynx {

StageSolver ExactStageSolver(const OptOptions& options) {
  return [options](const RecomputeProblem& problem) -> absl::StatusOr<StageAnswer> {
    const absl::StatusOr<OptResult> result = SolveStage(problem, options);
    if (!result.ok()) return result.status();
    return StageAnswer{.solution = result->solution,
                       .proven = result->status == OptStatus::kOptimal || result->status == OptStatus::kInfeasible,
                       .bound = result->bound};
  };
}

}  // namespace lynx
