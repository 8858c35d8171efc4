// PlanAmong returns the fastest plan among some candidates of a request. MakePlan calls it with all candidates. Other callers
// use it for parts of a search space or for variants of a request; these calls can share one PlanCaches. Pure; not thread-safe.
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
  // If set, PlanAmong returns a plan only if its step promises to be shorter than this, and uses only candidates that seem to
  // fit. nullopt: returns any plan that fits.
  std::optional<Nanos> to_beat = {};
  SearchEffort effort = SearchEffort::kWhole;
  // If set together with `to_beat`, limits the search as PlanSearch::LimitSolvedStages does, and is reduced by the stages that
  // were solved. 0 or less afterwards: the search may have ended too early to find the fastest plan, or any. May be null.
  int64_t* solved_stages_left = nullptr;
  // An output. If there is no plan because the fastest plan lacks host memory, it is set to the missing memory. May be null.
  std::optional<Infeasible>* lacking_host = nullptr;
};

// The returned plan has its digest. nullopt: no candidate fits into the memory of devices or hosts. The errors of the request's
// solver and of FinishedPlan are returned without changes. The caches may come from another request, which may differ from this
// one only in its memory, its limits and its field `spec.parallel`. Model, profiles and nodes must be the same.
absl::StatusOr<std::optional<Plan>> PlanAmong(const PlanRequest& request, std::vector<Candidate> candidates, PlanCaches& caches,
                                              const PlanAmongOptions& options = {});

}  // namespace lynx

#endif  // LYNX_PLANNER_SEARCH_PLAN_AMONG_H_
