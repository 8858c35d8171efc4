#include "planner/plan.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status.h"
#include "planner/infeasible.h"
#include "planner/lowered.h"
#include "planner/plan_caches.h"
#include "planner/plan_search.h"

namespace lynx {
namespace {

// Of a request that names what goes to the host: so many candidates are planned before it counts as infeasible.
constexpr int kMostSearches = 8;

// The stage that its nodes' memory has no room for, if any: of a policy that the request names.
std::optional<Infeasible> LackingHostMemory(const ClusterTopology& cluster, const Plan& plan) {
  for (int32_t index = 0; index < plan.layout.pp; ++index) {
    const StagePlan& stage = plan.stages[static_cast<size_t>(index)];
    const std::optional<Bytes> share =
        HostShareOfStage(cluster, plan.layout, index, stage.states.total() + stage.arena);
    if (stage.host.value == 0 || !share || stage.host <= *share) continue;
    return Infeasible{
        .stage = index,
        .needed = stage.host,
        .limit = *share,
        .reason = absl::StrCat("stage ", index, " sends ", FormatBytes(stage.host),
                               " to the host's memory, of which a device's share is ", FormatBytes(*share)),
        .suggestion = "a smaller recomputeOptions.offloadShare"};
  }
  return std::nullopt;
}

absl::StatusOr<PlanResult> FastestOrWhyNot(const PlanRequest& request) {
  LYNX_RETURN_IF_ERROR(CheckCluster(request.cluster));
  LYNX_RETURN_IF_ERROR(Candidates(request.spec, request.cluster, request.target).status());
  LYNX_RETURN_IF_ERROR(CheckLowered(request));
  LYNX_ASSIGN_OR_RETURN(std::vector<Candidate> candidates, LoweredCandidates(request));
  PlanCaches caches(request);
  std::optional<Infeasible> first_lacking;
  for (int searches = 0; searches < kMostSearches && !candidates.empty(); ++searches) {
    std::optional<Plan> plan = PlanSearch(request, candidates, caches).Fastest();
    if (!plan) break;
    std::optional<Infeasible> lacking = LackingHostMemory(request.cluster, *plan);
    if (!lacking) return FinishedPlan(*std::move(plan));
    if (!first_lacking) first_lacking = std::move(lacking);
    std::erase(candidates, Candidate{plan->layout, plan->micro_batch, plan->microbatches});
  }
  if (first_lacking) return PlanResult(*std::move(first_lacking));
  return PlanResult(ExplainInfeasible(request, candidates, caches));
}

}  // namespace

const char* ProofStatusName(ProofStatus status) {
  switch (status) {
    case ProofStatus::kOptimal:
      return "optimal";
    case ProofStatus::kTimeLimit:
      return "time limit";
    case ProofStatus::kModel:
      return "model only";
  }
  return "";
}

absl::StatusOr<PlanResult> MakePlan(const PlanRequest& request) {
  if (!request.exact) return FastestOrWhyNot(request);
  // The search goes on without a solver that fails, but its plan would claim what nobody looked at.
  absl::Status failure;
  PlanRequest observed = request;
  observed.exact = [&](const RecomputeProblem& problem) {
    absl::StatusOr<StageAnswer> answer = request.exact(problem);
    failure.Update(answer.status());
    return answer;
  };
  absl::StatusOr<PlanResult> result = FastestOrWhyNot(observed);
  LYNX_RETURN_IF_ERROR(failure);
  return result;
}

}  // namespace lynx
