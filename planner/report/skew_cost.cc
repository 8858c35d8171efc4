#include "planner/report/skew_cost.h"

#include <algorithm>

#include "common/status.h"
#include "planner/report/timeline.h"

namespace lynx {

absl::StatusOr<std::vector<Plan>> PlanAtSkews(const ClusterTopology& cluster, const Plan& plan,
                                              const std::vector<double>& skews) {
  std::vector<Plan> plans;
  if (!plan.model.moe.any() || plan.layout.ep == 1) return plans;
  LYNX_ASSIGN_OR_RETURN(const Simulation own, SimulateOn(cluster, plan));
  const double scale = static_cast<double>(plan.step.value) / static_cast<double>(std::max<int64_t>(1, own.step.value));
  const auto scaled = [&](Nanos time) { return Nanos(static_cast<int64_t>(static_cast<double>(time.value) * scale)); };
  for (const double skew : skews) {
    Plan& at = plans.emplace_back(plan);
    at.model.moe.skew = skew;
    LYNX_ASSIGN_OR_RETURN(const Simulation simulation, SimulateOn(cluster, at));
    at.step = scaled(simulation.step);
    for (size_t stage = 0; stage < at.stages.size(); ++stage) {
      at.stages[stage].program.clear();
      at.stages[stage].recompute_hidden = scaled(simulation.stages[stage].recompute_hidden);
      at.stages[stage].recompute_exposed = scaled(simulation.stages[stage].recompute_exposed);
    }
  }
  return plans;
}

}  // namespace lynx
