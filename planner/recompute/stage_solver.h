// The answer of a solver for one stage's RecomputeProblem. HEU (stage_heu.h) is the planner's own solver. The planner links no
// MILP solver, but another solver can be passed to it as a StageSolver. opt/exact_stage.h makes one that uses a MILP solver.
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
  StageValue value;  // computed by EvaluateStage
};

struct StageAnswer {
  // A policy that fits the budgets. nullopt: if `proven` is true, no policy fits; otherwise no policy was found in time.
  std::optional<StageSolution> solution;
  bool proven = false;  // true: it is proven that no policy that fits has less exposed time than `solution`, or that no policy
                        // fits
  Nanos bound;          // lower bound: every policy that fits has at least this exposed time
};

// What is proven about the recomputation of one rank, over all its virtual stages. Times are per microbatch, by the model of
// recompute_problem.h. kOptimal: no policy has less exposed time. kTimeLimit: the time ended before this was proven. kModel:
// the solver found policies with less exposed time than those of the plan, but they are not used: they take more memory than
// the model says, or the simulated step does not become shorter.
enum class ProofStatus : uint8_t { kOptimal, kTimeLimit, kModel };
const char* ProofStatusName(ProofStatus status);  // "optimal", "time limit", "model only"

struct StageProof {
  ProofStatus status = ProofStatus::kTimeLimit;
  Nanos exposed;  // exposed time of the plan's policies
  Nanos bound;    // lower bound for all policies that take at most as much memory; at most `exposed`

  bool operator==(const StageProof&) const = default;
};

// Solves a problem. Returns InvalidArgument if ValidateProblem refuses the problem.
using StageSolver = std::function<absl::StatusOr<StageAnswer>(const RecomputeProblem&)>;

}  // namespace lynx

#endif  // LYNX_PLANNER_RECOMPUTE_STAGE_SOLVER_H_
