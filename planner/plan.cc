#include "planner/plan.h"

#include <optional>
#include <utility>

#include "common/digest.h"
#include "common/status.h"
#include "planner/infeasible.h"
#include "planner/lowered.h"
#include "planner/plan_caches.h"
#include "planner/plan_search.h"

namespace lynx {

absl::StatusOr<PlanResult> MakePlan(const PlanRequest& request) {
  LYNX_RETURN_IF_ERROR(CheckCluster(request.cluster));
  LYNX_RETURN_IF_ERROR(Candidates(request.spec, request.cluster, request.target).status());
  LYNX_RETURN_IF_ERROR(CheckLowered(request.spec));
  LYNX_ASSIGN_OR_RETURN(const std::vector<Candidate> candidates, LoweredCandidates(request));
  PlanCaches caches(request);
  std::optional<Plan> plan = PlanSearch(request, candidates, caches).Fastest();
  if (!plan) return PlanResult(ExplainInfeasible(request, candidates, caches));
  plan->digest = Sha256Hex(PlanText(*plan));
  return PlanResult(*std::move(plan));
}

}  // namespace lynx
