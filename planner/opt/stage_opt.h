// OPT finds the policy of a stage that exposes least, with a proof. It solves a MILP over every item of every layer
// (stage_milp.h) with CBC. Bounds that are exact over the chain of layers (stage_chain.h) make the MILP small, and HEU's
// solution is the upper bound to start from.
//
// The proof. Transient memory is divided into intervals, so that the other memory has a fixed budget in each. Each
// interval has a lower bound. A target is set a little above the smallest of these bounds. An interval whose bound is
// within the target is divided further, or its MILP, restricted to what solutions up to the target can contain, decides
// whether there is such a solution. The best solution found is optimal, because nothing below the target was left out. If
// there is none, the bound is now above the target, and the target rises, up to HEU's solution. Among the policies with
// the least exposed time OPT then looks, in the same way, for one with the least device memory.
//
// This folder is the only part of the planner with a time limit, and so with a clock: the result depends on the machine
// only if time runs out. The rest of the planner does not link this folder. Not thread-safe.
#ifndef LYNX_PLANNER_OPT_STAGE_OPT_H_
#define LYNX_PLANNER_OPT_STAGE_OPT_H_

#include <limits>
#include <optional>

#include "absl/status/statusor.h"
#include "planner/recompute/recompute_problem.h"
#include "planner/recompute/stage_solver.h"

namespace lynx {

enum class OptStatus : uint8_t {
  kOptimal,     // no policy exposes less
  kFeasible,    // out of time or columns; the solution is the best one found so far
  kInfeasible,  // no policy fits the budgets
  kStopped,     // out of time or columns, without a solution and without a proof that there is none
};
const char* OptStatusName(OptStatus status);  // "optimal", "feasible", "infeasible", "stopped"

struct OptOptions {
  double seconds = 60;  // approximate time limit
  // The search also gives up, as if out of time, if it needs a larger MILP: a limit of effort that does not depend on a
  // clock.
  int32_t columns = std::numeric_limits<int32_t>::max();
  bool least_memory = true;  // look for the least memory among optimal policies
};

struct OptResult {
  OptStatus status = OptStatus::kStopped;
  std::optional<StageSolution> solution;  // kOptimal, kFeasible
  Nanos bound;                            // no policy that fits exposes less
  bool least_memory = false;              // proven: no policy with the same exposed time takes less device memory
  std::optional<Nanos> start;             // time that HEU's solution exposes
  int32_t milps = 0;                      // number of MILPs that were solved
  int64_t nodes = 0;                      // branch-and-bound nodes of all these MILPs
  int32_t largest_milp = 0;               // columns of the largest of them

  // (exposed - bound) / exposed; 0 if nothing is exposed.
  double gap() const;
};

// Returns InvalidArgument for a problem that ValidateProblem refuses; Internal if EvaluateStage disagrees with a solution
// of the MILP.
absl::StatusOr<OptResult> SolveStage(const RecomputeProblem& problem, const OptOptions& options = {});

// Checks each solution of the MILP. Returns the value of a policy that obeys the rules, fits, and exposes at most
// `most_exposed`; Internal with the error for any other.
absl::StatusOr<StageValue> CheckedValue(const RecomputeProblem& problem, const StagePolicy& policy, Nanos most_exposed);

}  // namespace lynx

#endif  // LYNX_PLANNER_OPT_STAGE_OPT_H_
