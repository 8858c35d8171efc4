// Comparisons for people: all recomputation policies side by side in one layout, and what stands behind a plan. Each
// figure comes from a plan of its own (MakePlan), made, validated and simulated like any other. Pure; thread-safe.
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

// Told before each part of the work which one it is ("layouts with tp 8, pp 16"), for whoever waits. May be empty.
// Thread-safe, where parts run at once.
using TellPart = std::function<void(const std::string& part)>;

// Runs tasks that do not touch one another, all at once if it likes, and returns when all are done. Empty: one after the
// other. What comes out does not depend on it. A request with an exact solver, which is not thread-safe, does not use it.
using RunTasks = std::function<void(const std::vector<std::function<void()>>& tasks)>;

struct CompareOptions {
  TellPart tell = {};
  RunTasks run = {};
  // Once the programs of rejected plans have so many actions together, which takes thousands of devices, ExplainPlan makes
  // no more of them.
  int64_t rejected_actions = 4'000'000;
};

struct ComparedPolicy {
  RecomputeMode mode = RecomputeMode::kAuto;
  std::optional<Plan> plan;           // the fastest with this policy
  std::optional<Infeasible> lacking;  // set where nothing fits
  std::string error;                  // set where the planner does not know the policy for this request
};

struct ComparedPartition {
  PartitionMethod method = PartitionMethod::kExact;
  std::optional<Plan> plan;
  std::string reason;  // where there is no plan
};

struct PolicyComparison {
  Plan best;                             // under the request's own recompute mode; every row has its layout
  std::optional<Plan> unlimited;         // everything stored, as if memory had no limit
  std::vector<ComparedPolicy> policies;  // in the order of RecomputeMode, without kAuto; kOpt only with a solver
  // All methods under the request's own recompute mode; none where the layout has one stage.
  std::vector<ComparedPartition> partitions;
};

// Plans the request, then each policy in that plan's layout and micro-batch. InvalidArgument as MakePlan.
// FailedPrecondition with the reason and the smallest change that fits where not even the request's own mode fits.
absl::StatusOr<PolicyComparison> ComparePolicies(const PlanRequest& request, const CompareOptions& options = {});

// A request with one thing changed, and what became of it.
struct Alternative {
  std::string change;  // "1 GiB more memory per device", "parallel.tp: 4"
  std::optional<Plan> plan;
  std::string reason;  // where there is no plan
};

struct Explanation {
  Plan plan;
  // The best of every other layout family: each rejected for being slower, or for the constraint that `reason` names.
  std::vector<Alternative> rejected;
  // What one more of something would bring.
  std::vector<Alternative> sensitivities;
};

// As ComparePolicies. `rejected` holds the other tensor- and pipeline-parallel sizes that the request allows, at most
// kMaxRejected, the fastest first and those that do not fit last. What seems not to fit by estimates is planned only
// where fewer others do. Between them stand sizes for which only a bound is given: see CompareOptions. Of a sensitivity
// the request's own plan is shown where it fits the changed request too and is the faster one.
inline constexpr size_t kMaxRejected = 12;
absl::StatusOr<Explanation> ExplainPlan(const PlanRequest& request, const CompareOptions& options = {});

}  // namespace lynx

#endif  // LYNX_PLANNER_SEARCH_COMPARE_H_
