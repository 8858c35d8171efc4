// Comparisons for people: all recomputation policies side by side in one layout, and the reasons for a plan. Each figure
// comes from a separate plan (MakePlan), which is made, validated and simulated like any other. Pure; thread-safe.
#ifndef LYNX_PLANNER_SEARCH_COMPARE_H_
#define LYNX_PLANNER_SEARCH_COMPARE_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/plan/plan.h"

namespace lynx {

// Called before each part of the work with its name ("layouts with tp 8, pp 16"), to show progress. May be empty. Must be
// thread-safe if parts run in parallel.
using TellPart = std::function<void(const std::string& part)>;

// Runs independent tasks, possibly in parallel, and returns when all are done. Empty: the tasks run one after another. The
// results do not depend on this function. It is not used for a request with an exact solver, which is not thread-safe.
using RunTasks = std::function<void(const std::vector<std::function<void()>>& tasks)>;

struct CompareOptions {
  TellPart tell = {};
  RunTasks run = {};
  // Once the programs of rejected plans have this many actions in all, ExplainPlan makes no more of these plans. Only requests
  // for thousands of devices reach this number.
  int64_t rejected_actions = 4'000'000;
};

struct ComparedPolicy {
  RecomputeMode mode = RecomputeMode::kAuto;
  std::optional<Plan> plan;           // the fastest plan with this policy
  std::optional<Infeasible> lacking;  // set if nothing fits
  std::string error;                  // set if the planner does not support the policy for this request
};

struct ComparedPartition {
  PartitionMethod method = PartitionMethod::kExact;
  std::optional<Plan> plan;
  std::string reason;  // set if there is no plan
};

struct PolicyComparison {
  Plan best;                             // plan under the request's own recompute mode; all rows have the layout of this plan
  std::optional<Plan> unlimited;         // everything stored, without a memory limit
  std::vector<ComparedPolicy> policies;  // in the order of RecomputeMode, without kAuto; kOpt only with a solver
  // All partition methods, under the request's own recompute mode; empty if the layout has only one stage.
  std::vector<ComparedPartition> partitions;
};

// Plans the request, then each policy in that plan's layout and micro-batch. Returns InvalidArgument in the same cases as
// MakePlan. Returns FailedPrecondition, with the reason and the smallest change that fits, if not even the request's own mode
// fits.
absl::StatusOr<PolicyComparison> ComparePolicies(const PlanRequest& request, const CompareOptions& options = {});

// A request with one change, and its result.
struct Alternative {
  std::string change;  // "1 GiB more memory per device", "parallel.tp: 4"
  std::optional<Plan> plan;
  std::string reason;          // set if there is no plan
  std::optional<Nanos> bound;  // set if it was not planned: lower bound for the step
};

struct Explanation {
  Plan plan;
  // The best plan of every other layout family, and why it was rejected: it is slower, or violates the constraint in
  // `reason`.
  std::vector<Alternative> rejected;
  // The effect of one more unit of some resource.
  std::vector<Alternative> sensitivities;
};

// Returns the same errors as ComparePolicies. `rejected` has at most kMaxRejected of the other tensor- and pipeline-parallel
// sizes that the request allows. The fastest sizes come first, then sizes that were not planned and have only a lower bound
// (see CompareOptions), then sizes that do not fit. Sizes that seem not to fit by estimates are planned only if there are fewer
// than kMaxRejected other sizes. A sensitivity shows the request's own plan if that plan fits the changed request too and is
// faster.
inline constexpr size_t kMaxRejected = 12;
absl::StatusOr<Explanation> ExplainPlan(const PlanRequest& request, const CompareOptions& options = {});

}  // namespace lynx

#endif  // LYNX_PLANNER_SEARCH_COMPARE_H_
