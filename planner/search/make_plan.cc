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
namespace {

// Returns the plan that the request would have if only Lynx's own engine could run it. nullopt: there is none.
absl::StatusOr<std::optional<Plan>> PlanForEngine(PlanRequest request) {
  request.target = PlanTarget::kLynxEngine;
  if (!CheckSupported(request).ok()) return std::nullopt;
  const absl::StatusOr<std::vector<Candidate>> candidates = SupportedCandidates(request);
  if (!candidates.ok()) return std::nullopt;
  PlanCaches caches(request);
  return PlanAmong(request, *candidates, caches);
}

absl::StatusOr<PlanResult> Make(const PlanRequest& request, Suggesting suggesting) {
  LYNX_RETURN_IF_ERROR(CheckCluster(request.cluster));
  LYNX_RETURN_IF_ERROR(Candidates(request.spec, request.cluster, request.target, request.even_batches).status());
  LYNX_RETURN_IF_ERROR(CheckSupported(request));
  LYNX_ASSIGN_OR_RETURN(const std::vector<Candidate> candidates, SupportedCandidates(request));
  // The search is not exact: in a large space it may miss a plan that it finds in a small space. So the small space is searched
  // first.
  std::optional<Plan> best;
  if (request.target == PlanTarget::kAnyFramework) {
    LYNX_ASSIGN_OR_RETURN(best, PlanForEngine(request));
  }
  PlanAmongOptions options;
  if (best) options.to_beat = best->step;
  PlanCaches caches(request);
  std::optional<Infeasible> lacking_host;
  options.lacking_host = &lacking_host;
  LYNX_ASSIGN_OR_RETURN(std::optional<Plan> plan, PlanAmong(request, candidates, caches, options));
  if (plan && (!best || plan->step < best->step)) best = std::move(plan);
  if (best) return PlanResult(*std::move(best));
  if (lacking_host) return PlanResult(*std::move(lacking_host));
  return PlanResult(ExplainInfeasible(request, candidates, caches, suggesting));
}

}  // namespace

absl::StatusOr<PlanResult> MakePlan(const PlanRequest& request) { return Make(request, Suggesting::kChange); }

absl::StatusOr<PlanResult> MakePlanWithoutAdvice(const PlanRequest& request) { return Make(request, Suggesting::kNothing); }

}  // namespace lynx
