// OPT finds the policy of a stage with the least exposed time, and proves that no policy is better. It solves a MILP over every
// item of every layer (stage_milp.h) with CBC. Bounds that are exact over the chain of layers (stage_chain.h) make the MILP
// small. The search starts with HEU's solution as the upper bound.
//
// The proof. Transient memory is divided into intervals, so the other memory has a fixed budget in each interval. Each interval
// has a lower bound. A target is set a little above the smallest of these bounds. An interval whose bound is within the target
// is divided further, or its MILP decides whether it has a solution within the target. This MILP contains only what such a
// solution can contain. If solutions are found, the best of them is optimal, because no solution below the target was left out.
// If no solution is found, the bound is now above the target, and the target is raised, at most up to the exposed time of HEU's
// solution. After that, OPT looks in the same way among the policies with the least exposed time for one with the least device
// memory.
//
// Only this folder of the planner has a time limit, and so only this folder uses a clock. As long as the time limit is not
// reached, the result does not depend on the machine. The rest of the planner does not link this folder. Not thread-safe.
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
  kFeasible,    // time or columns ran out; the solution is the best one found so far
  kInfeasible,  // no policy fits the budgets
  kStopped,     // time or columns ran out; there is no solution, and no proof that none exists
};
const char* OptStatusName(OptStatus status);  // "optimal", "feasible", "infeasible", "stopped"

struct OptOptions {
  double seconds = 60;  // approximate time limit
  // The maximum number of columns of a MILP. If the search needs a larger MILP, it gives up as if the time had run out. This
  // limits the effort without a clock.
  int32_t columns = std::numeric_limits<int32_t>::max();
  bool least_memory = true;  // whether to look for the least memory among the optimal policies
};

struct OptResult {
  OptStatus status = OptStatus::kStopped;
  std::optional<StageSolution> solution;  // set with kOptimal and kFeasible
  Nanos bound;                            // every policy that fits has at least this exposed time
  bool least_memory = false;              // true: it is proven that no policy with the same exposed time takes less device
                                          // memory
  std::optional<Nanos> start;             // exposed time of HEU's solution
  int32_t milps = 0;                      // number of MILPs that were solved
  int64_t nodes = 0;                      // branch-and-bound nodes of all these MILPs
  int32_t largest_milp = 0;               // number of columns of the largest of these MILPs

  // (exposed - bound) / exposed; 0 if nothing is exposed.
  double gap() const;
};

// Returns InvalidArgument if ValidateProblem refuses the problem. Returns Internal if EvaluateStage does not confirm a solution
// of the MILP.
absl::StatusOr<OptResult> SolveStage(const RecomputeProblem& problem, const OptOptions& options = {});

// Checks a solution of the MILP. The policy must obey the rules, fit, and have at most `most_exposed` exposed time: then
// returns its value. Otherwise returns Internal with the error.
absl::StatusOr<StageValue> CheckedValue(const RecomputeProblem& problem, const StagePolicy& policy, Nanos most_exposed);

}  // namespace lynx

#endif  // LYNX_PLANNER_OPT_STAGE_OPT_H_
