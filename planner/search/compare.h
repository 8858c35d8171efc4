// Comparisons for people: all recomputation policies in one layout, and the reasons for a plan. Each figure comes from a plan
// of its own (MakePlan), which is made, validated and simulated like any other plan. Pure; thread-safe.
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

// Called before each part of the work, to show progress, with the name of the part ("layouts with tp 8, pp 16"). May be empty.
// If parts run in parallel, it must be thread-safe.
using TellPart = std::function<void(const std::string& part)>;

// Runs independent tasks, possibly in parallel, and returns when all are done. If it is empty, the tasks run one after another.
// The results are the same with and without it. For a request with an exact solver it is not used, because the solver is not
// thread-safe.
using RunTasks = std::function<void(const std::vector<std::function<void()>>& tasks)>;

struct CompareOptions {
  TellPart tell = {};
  RunTasks run = {};
  // If the programs of rejected plans have this many actions together, or if HEU has solved this many stages for them (see
  // StageOracle::solved), ExplainPlan makes no more of these plans. Only requests for hundreds or thousands of devices reach
  // these numbers.
  int64_t rejected_actions = 4'000'000;
  int64_t rejected_stages = 8'000;
};

struct ComparedPolicy {
  RecomputeMode mode = RecomputeMode::kAuto;
  std::optional<Plan> plan;           // the fastest plan with this policy
  std::optional<Infeasible> lacking;  // set if no plan fits; has no suggestion, which would take longer than all the rest
  std::string error;                  // set if the planner does not support the policy for this request
};

struct ComparedPartition {
  PartitionMethod method = PartitionMethod::kExact;
  std::optional<Plan> plan;
  std::string reason;  // set if there is no plan: the reason for this
};

// A request with one change, and its result.
struct Alternative {
  std::string change;  // text such as "1 GiB more memory per device" or "parallel.tp: 4"
  std::optional<Plan> plan;
  std::string reason;          // set if there is no plan: the reason for this
  std::optional<Nanos> bound;  // lower bound for the step; set if the alternative was not planned
};

struct PolicyComparison {
  Plan best;                             // the plan with the request's own recompute mode; all rows have the layout of this
                                         // plan
  std::optional<Plan> unlimited;         // the plan that stores everything, if there were no memory limit
  std::vector<ComparedPolicy> policies;  // in the order of RecomputeMode, without kAuto; kOpt only with a solver
  // All partition methods, with the request's own recompute mode. Empty if the layout has only one stage.
  std::vector<ComparedPartition> partitions;
  // All values of parallel.weave except auto, with the request's own recompute mode. `change` is the value; the first is "off".
  // The row of the best plan's own value is not slower than the best plan; if this is "off", it is the best plan.
  // Empty if the layout has no tensor parallelism (there is then nothing to weave), or if the plan is for another framework.
  std::vector<Alternative> weaves;
};

// Plans the request, and then each policy in the layout and micro-batch of that plan. Returns InvalidArgument in the same cases
// as MakePlan. If not even the request's own mode fits, returns FailedPrecondition with the reason and the smallest change that
// fits.
absl::StatusOr<PolicyComparison> ComparePolicies(const PlanRequest& request, const CompareOptions& options = {});

struct Explanation {
  Plan plan;
  // Lower bound (CandidateBound) for the step of every plan in the request's space, woven ones too. The best of these plans
  // cannot be faster than `plan` by more than this allows.
  Nanos bound;
  // Other layout families (tensor- and pipeline-parallel sizes), at most kMaxRejected. Each has the best plan that was found
  // for it, or a reason why it has no plan: it does not fit, or it was not planned (see CompareOptions).
  std::vector<Alternative> rejected;
  // Passes side by side or not, in the layout of the plan: as in PolicyComparison::weaves.
  std::vector<Alternative> weaves;
  // The effects of one more unit of each resource.
  std::vector<Alternative> sensitivities;
};

// Returns the same errors as ComparePolicies. `rejected` has at most kMaxRejected entries: other tensor- and pipeline-parallel
// sizes that the request allows. The fastest sizes come first, then sizes that were not planned and have only a lower bound
// (see CompareOptions), then sizes that do not fit. Sizes that by estimates seem not to fit are planned only if there are fewer
// than kMaxRejected other sizes. If the request's own plan also fits a changed request and is faster, the sensitivity shows
// this plan.
inline constexpr size_t kMaxRejected = 12;
absl::StatusOr<Explanation> ExplainPlan(const PlanRequest& request, const CompareOptions& options = {});

// Explains a plan that MakePlan has made of this request, without other layouts and weaves: sets only `bound` and
// `sensitivities`. Takes a small part of the time of ExplainPlan.
Explanation ExplainLimits(const PlanRequest& request, Plan plan, const CompareOptions& options = {});

}  // namespace lynx

#endif  // LYNX_PLANNER_SEARCH_COMPARE_H_
