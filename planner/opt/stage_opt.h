// OPT finds the policy of a stage with the least exposed time, and proves that there is no better policy. It solves a MILP over
// every item of every layer (stage_milp.h) with CBC. Bounds that are exact over the chain of layers (stage_chain.h) make the
// MILP small, and HEU's solution is the upper bound to start from.
//
// The proof. Transient memory is divided into intervals, so that the other memory has a fixed budget in each. Each interval has
// a lower bound. A target is set a little above the smallest of these bounds. An interval whose bound is within the target is
// divided further, or its MILP decides whether it has a solution within the target; this MILP contains only what such a
// solution can contain. If solutions are found, the best of them is optimal, because no solution below the target was left out.
// If no solution is found, the bound is now above the target, and the target is raised, at most up to the exposed time of HEU's
// solution. Among the policies with the least exposed time OPT then looks, in the same way, for one with the least device
// memory.
//
// This folder is the only part of the planner with a time limit, and so the only part that uses a clock. The result depends on
// the machine only if time runs out. The rest of the planner does not link this folder. Not thread-safe.
#ifndef LYNX_PLANNER_OPT_STAGE_OPT_H_
#define LYNX_PLANNER_OPT_STAGE_OPT_H_

#include <limits>
#include <optional>

#include "absl/status/statusor.h"
#include "planner/recompute/recompute_problem.h"
#include "planner/recompute/stage_solver.h"

namespace lynx {

enum class OptStatus : uint8_t {
  kOptimal,     // no policy has less exposed time
  kFeasible,    // out of time or columns; the solution is the best one found so far
  kInfeasible,  // no policy fits the budgets
  kStopped,     // out of time or columns, without a solution and without a proof that there is none
};
const char* OptStatusName(OptStatus status);  // "optimal", "feasible", "infeasible", "stopped"

struct OptOptions {
  double seconds = 60;  // approximate time limit
  // The maximum size of a MILP. If the search needs a larger MILP, it gives up as if it were out of time. This limits the
  // effort without a clock.
  int32_t columns = std::numeric_limits<int32_t>::max();
  bool least_memory = true;  // look for the least memory among optimal policies
};

struct OptResult {
  OptStatus status = OptStatus::kStopped;
  std::optional<StageSolution> solution;  // kOptimal, kFeasible
  Nanos bound;                            // no policy that fits has less exposed time
  bool least_memory = false;              // proven: no policy with the same exposed time takes less device memory
  std::optional<Nanos> start;             // exposed time of HEU's solution
  int32_t milps = 0;                      // number of MILPs that were solved
  int64_t nodes = 0;                      // branch-and-bound nodes of all these MILPs
  int32_t largest_milp = 0;               // columns of the largest of them

  // (exposed - bound) / exposed; 0 if nothing is exposed.
  double gap() const;
};

// Returns InvalidArgument for a problem that ValidateProblem refuses; Internal if EvaluateStage disagrees with a solution
// of the MILP.
absl::StatusOr<OptResult> SolveStage(const RecomputeProblem& problem, const OptOptions& options = {});

// Checks a solution of the MILP. Returns the value of a policy that obeys the rules, fits, and has at most `most_exposed`
// exposed time. Returns Internal, with the error, for any other policy.
absl::StatusOr<StageValue> CheckedValue(const RecomputeProblem& problem, const StagePolicy& policy, Nanos most_exposed);

}  // namespace lynx

#endif  // LYNX_PLANNER_OPT_STAGE_OPT_H_
