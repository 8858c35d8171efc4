// The answer of a solver for one stage's RecomputeProblem. HEU (stage_heu.h) is the planner's own solver. The planner links no
// MILP solver; so another solver can be passed to it as a StageSolver (opt/exact_stage.h makes one that uses a MILP solver).
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
  // A policy that fits the budgets. nullopt: no policy fits if `proven` is true; otherwise no policy was found in time.
  std::optional<StageSolution> solution;
  bool proven = false;  // proven: no policy that fits has less exposed time than `solution`, or no policy fits
  Nanos bound;          // lower bound: no policy that fits has less exposed time than this
};

// What is proven about the recomputation of one rank, over all its virtual stages. Times are per microbatch, by the model of
// recompute_problem.h. kModel: the solver found policies with less exposed time than those of the plan. They are not used,
// because they take more memory than the model says, or because the simulated step does not become shorter.
enum class ProofStatus : uint8_t { kOptimal, kTimeLimit, kModel };
const char* ProofStatusName(ProofStatus status);  // "optimal", "time limit", "model only"

struct StageProof {
  ProofStatus status = ProofStatus::kTimeLimit;
  Nanos exposed;  // exposed time of the plan's policies
  Nanos bound;    // lower bound for all policies with at most as much memory; at most `exposed`

  bool operator==(const StageProof&) const = default;
};

// Solves a problem. Returns InvalidArgument for a problem that ValidateProblem refuses.
using StageSolver = std::function<absl::StatusOr<StageAnswer>(const RecomputeProblem&)>;

}  // namespace lynx

#endif  // LYNX_PLANNER_RECOMPUTE_STAGE_SOLVER_H_
