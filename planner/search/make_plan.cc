#include "planner/search/make_plan.h"

#include <optional>
#include <utility>
#include <vector>

#include "common/status.h"
#include "planner/candidates/plan_caches.h"
#include "planner/candidates/supported.h"
#include "planner/search/infeasible.h"
#include "planner/search/plan_among.h"

namespace lynx {

absl::StatusOr<PlanResult> MakePlan(const PlanRequest& request) {
  LYNX_RETURN_IF_ERROR(CheckCluster(request.cluster));
  LYNX_RETURN_IF_ERROR(Candidates(request.spec, request.cluster, request.target).status());
  LYNX_RETURN_IF_ERROR(CheckSupported(request));
  LYNX_ASSIGN_OR_RETURN(const std::vector<Candidate> candidates, SupportedCandidates(request));
  PlanCaches caches(request);
  std::optional<Infeasible> lacking_host;
  LYNX_ASSIGN_OR_RETURN(std::optional<Plan> plan, PlanAmong(request, candidates, caches, {.lacking_host = &lacking_host}));
  if (plan) return PlanResult(*std::move(plan));
  if (lacking_host) return PlanResult(*std::move(lacking_host));
  return PlanResult(ExplainInfeasible(request, candidates, caches));
}

}  // namespace lynx
