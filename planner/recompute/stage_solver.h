// The answer of a solver for one stage's RecomputeProblem. HEU (stage_heu.h) is the planner's own solver. Another one can
// be passed in as a StageSolver, because the planner links no MILP solver (opt/exact_stage.h makes one that does).
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
  // Fits the budgets. nullopt: no policy fits if `proven`, else none was found in time.
  std::optional<StageSolution> solution;
  bool proven = false;  // it is proven that no policy that fits exposes less, or that no policy fits
  Nanos bound;          // no policy that fits exposes less than this
};

// What is proven about the recomputation of one rank, over all its virtual stages; times are per microbatch, by the model
// of recompute_problem.h. kModel: the solver proved less exposed time than the plan's policies have, but its solution
// takes more memory than the model says, or does not make the simulated step shorter.
enum class ProofStatus : uint8_t { kOptimal, kTimeLimit, kModel };
const char* ProofStatusName(ProofStatus status);  // "optimal", "time limit", "model only"

struct StageProof {
  ProofStatus status = ProofStatus::kTimeLimit;
  Nanos exposed;  // of the plan's policies
  Nanos bound;    // no policies that take as much memory expose less; at most `exposed`

  bool operator==(const StageProof&) const = default;
};

// Returns InvalidArgument for a problem that ValidateProblem refuses.
using StageSolver = std::function<absl::StatusOr<StageAnswer>(const RecomputeProblem&)>;

}  // namespace lynx

#endif  // LYNX_PLANNER_RECOMPUTE_STAGE_SOLVER_H_
