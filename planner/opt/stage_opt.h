// OPT: the policy of a stage that exposes least, with a proof. A MILP over every item of every layer (stage_milp.h),
// solved by CBC, made small by bounds that are exact over the chain of layers (stage_chain.h), and warm-started by HEU,
// whose solution bounds it from above.
//
// The proof. Transient memory is cut into intervals, so that the memory of the rest has one budget in each. Each
// interval has a lower bound. A target is set a little above the least of these bounds; intervals within it are cut
// further, or their MILP, with only what solutions up to the target can have, says whether there is such a solution. The
// best one found is optimal, for nothing below the target was left out; if there is none, the bound is now above the
// target, and the target rises, up to HEU's solution. Among policies of least exposed time OPT then looks, in the same
// way, for one of least device memory.
//
// This folder is the one place of the planner with a time limit and so a clock: what OPT proves depends on the machine
// when time runs out, and only then. The rest of the planner does not link it. Not thread-safe.
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
  kFeasible,    // out of time or columns; the solution is the best found so far
  kInfeasible,  // no policy fits the budgets
  kStopped,     // out of time or columns, with no solution and no proof that there is none
};
const char* OptStatusName(OptStatus status);  // "optimal", "feasible", "infeasible", "stopped"

struct OptOptions {
  double seconds = 60;  // at most so long, about
  // It also gives up, as if out of time, where it needs a larger MILP: a limit of effort that no clock measures.
  int32_t columns = std::numeric_limits<int32_t>::max();
  bool least_memory = true;  // look for the least memory among optimal policies
};

struct OptResult {
  OptStatus status = OptStatus::kStopped;
  std::optional<StageSolution> solution;  // kOptimal, kFeasible
  Nanos bound;                            // no policy that fits exposes less
  bool least_memory = false;              // proven: none of the same exposed time takes less device memory
  std::optional<Nanos> start;             // what HEU's solution exposes
  int32_t milps = 0;
  int64_t nodes = 0;         // of their branch and bound
  int32_t largest_milp = 0;  // columns

  // (exposed - bound) / exposed; 0 where nothing is exposed.
  double gap() const;
};

// InvalidArgument for a problem that ValidateProblem refuses. Internal if a solution of the MILP is not what
// EvaluateStage says of its policy.
absl::StatusOr<OptResult> SolveStage(const RecomputeProblem& problem, const OptOptions& options = {});

// The check of each solution of the MILP: the value of a policy that obeys the rules, fits, and exposes at most that;
// Internal, naming what is wrong, for any other.
absl::StatusOr<StageValue> CheckedValue(const RecomputeProblem& problem, const StagePolicy& policy, Nanos most_exposed);

}  // namespace lynx

#endif  // LYNX_PLANNER_OPT_STAGE_OPT_H_
