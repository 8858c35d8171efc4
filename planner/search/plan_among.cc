#include "planner/search/plan_among.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace lynx {
namespace {

// A request that states itself what goes to the host counts as infeasible after this many candidates that lack host
// memory.
constexpr int kMaxSearches = 8;

// The first stage that offloads more than its nodes' memory can hold. Only a policy that the request names can do this.
std::optional<Infeasible> LackingHostMemory(const ClusterTopology& cluster, const Plan& plan) {
  for (int32_t index = 0; index < plan.layout.pp; ++index) {
    const StagePlan& stage = plan.stages[static_cast<size_t>(index)];
    const std::optional<Bytes> share = HostShareOfStage(cluster, plan.layout, index, stage.states.total() + stage.arena);
    if (stage.host.value == 0 || !share || stage.host <= *share) continue;
    return Infeasible{.stage = index,
                      .needed = stage.host,
                      .limit = *share,
                      .reason = absl::StrCat("stage ", index, " sends ", FormatBytes(stage.host),
                                             " to the host's memory, of which a device's share is ", FormatBytes(*share)),
                      .suggestion = "a smaller recomputeOptions.offloadShare"};
  }
  return std::nullopt;
}

absl::StatusOr<std::optional<Plan>> FastestWithHostMemory(const PlanRequest& request, std::vector<Candidate> candidates,
                                                          PlanCaches& caches, const PlanAmongOptions& options) {
  for (int searches = 0; searches < kMaxSearches && !candidates.empty(); ++searches) {
    PlanSearch search(request, candidates, caches, options.effort);
    std::optional<Plan> plan = options.to_beat ? search.FastestBelow(*options.to_beat) : search.Fastest();
    if (!plan) break;
    std::optional<Infeasible> lacking = LackingHostMemory(request.cluster, *plan);
    if (!lacking) {
      LYNX_ASSIGN_OR_RETURN(plan, FinishedPlan(*std::move(plan)));
      return plan;
    }
    if (options.lacking_host != nullptr && !*options.lacking_host) *options.lacking_host = std::move(lacking);
    std::erase(candidates, Candidate{plan->layout, plan->micro_batch, plan->microbatches});
  }
  return std::nullopt;
}

}  // namespace

absl::StatusOr<std::optional<Plan>> PlanAmong(const PlanRequest& request, std::vector<Candidate> candidates, PlanCaches& caches,
                                              const PlanAmongOptions& options) {
  if (!request.exact) return FastestWithHostMemory(request, std::move(candidates), caches, options);
  // The search continues without a solver that fails, but its plan would claim proofs that were never attempted.
  absl::Status failure;
  PlanRequest observed = request;
  observed.exact = [&](const RecomputeProblem& problem) {
    absl::StatusOr<StageAnswer> answer = request.exact(problem);
    failure.Update(answer.status());
    return answer;
  };
  absl::StatusOr<std::optional<Plan>> plan = FastestWithHostMemory(observed, std::move(candidates), caches, options);
  LYNX_RETURN_IF_ERROR(failure);
  return plan;
}

}  // namespace lynx
