// What a solver of one stage's RecomputeProblem answers. HEU (stage_heu.h) is the planner's own. Another one comes in from
// outside as a StageSolver: the planner links no MILP solver (opt/exact_stage.h makes one that does).
#ifndef LYNX_PLANNER_RECOMPUTE_STAGE_SOLVER_H_
#define LYNX_PLANNER_RECOMPUTE_STAGE_SOLVER_H_

#include <cstdint>
#include <functional>
#include <optional>

#include "absl/status/statusor.h"
#include "planner/recompute/recompute_problem.h"

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

// What is proven of the recomputation of one rank, its virtual stages together; times are of one microbatch, by the
// model of recompute_problem.h. kModel: the solver proved less than the plan's policies expose, but what it found
// takes more memory than the model says, or makes the simulated step no shorter.
enum class ProofStatus : uint8_t { kOptimal, kTimeLimit, kModel };
const char* ProofStatusName(ProofStatus status);  // "optimal", "time limit", "model only"

struct StageProof {
  ProofStatus status = ProofStatus::kTimeLimit;
  Nanos exposed;  // by the plan's policies
  Nanos bound;    // no policies that take as much memory expose less; at most `exposed`

  bool operator==(const StageProof&) const = default;
};

// InvalidArgument for a problem that ValidateProblem refuses.
using StageSolver = std::function<absl::StatusOr<StageAnswer>(const RecomputeProblem&)>;

}  // namespace lynx

#endif  // LYNX_PLANNER_RECOMPUTE_STAGE_SOLVER_H_
