// What a solver of one stage's RecomputeProblem answers. HEU (stage_heu.h) is the planner's own. Another one comes in from
// outside as a StageSolver: the planner links no MILP solver (opt/exact_stage.h makes one that does).
#ifndef LYNX_PLANNER_STAGE_SOLVER_H_
#define LYNX_PLANNER_STAGE_SOLVER_H_

#include <functional>
#include <optional>

#include "absl/status/statusor.h"
#include "planner/recompute_problem.h"

namespace lynx {

struct StageSolution {
  StagePolicy policy;
  StageValue value;  // EvaluateStage's
};

struct StageAnswer {
  // Fits the budgets. None: no policy does, if proven; else none was found in time.
  std::optional<StageSolution> solution;
  bool proven = false;  // that no policy that fits exposes less, or that none fits
  Nanos bound;          // no policy that fits exposes less
};

// InvalidArgument for a problem that ValidateProblem refuses.
using StageSolver = std::function<absl::StatusOr<StageAnswer>(const RecomputeProblem&)>;

}  // namespace lynx

#endif  // LYNX_PLANNER_STAGE_SOLVER_H_
