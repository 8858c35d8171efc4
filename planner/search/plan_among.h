// The fastest plan among some candidates of a request: what MakePlan does with all of them, for callers that plan
// parts of a search space, or variants of a request, and share what these have in common. Pure; not thread-safe.
#ifndef LYNX_PLANNER_SEARCH_PLAN_AMONG_H_
#define LYNX_PLANNER_SEARCH_PLAN_AMONG_H_

#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/candidates/plan_caches.h"
#include "planner/candidates/search.h"
#include "planner/plan/plan.h"
#include "planner/search/plan_search.h"

namespace lynx {

struct PlanAmongOptions {
  // Only a plan that promises to take less, of candidates that seem to fit; nullopt: whatever fits.
  std::optional<Nanos> to_beat = {};
  SearchEffort effort = SearchEffort::kWhole;
  // Unless null: what the fastest lacks of the host's memory, where that is why there is no plan.
  std::optional<Infeasible>* lacking_host = nullptr;
};

// With its digest. nullopt: none fits into the devices' memory, or into the host's. An error of the request's solver
// is the result, and so is FinishedPlan's. The caches are of this request, or of one that differs in memory, limits and
// parallel alone: same model, profiles and nodes.
absl::StatusOr<std::optional<Plan>> PlanAmong(const PlanRequest& request, std::vector<Candidate> candidates, PlanCaches& caches,
                                              const PlanAmongOptions& options = {});

}  // namespace lynx

#endif  // LYNX_PLANNER_SEARCH_PLAN_AMONG_H_
