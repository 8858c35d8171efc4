// What an uneven load of experts costs: the step of one plan at several skews (MoeSpec::skew). Pure; thread-safe.
#ifndef LYNX_PLANNER_REPORT_SKEW_COST_H_
#define LYNX_PLANNER_REPORT_SKEW_COST_H_

#include <vector>

#include "absl/status/statusor.h"
#include "planner/cost/cluster_topology.h"
#include "planner/plan/plan.h"

namespace lynx {

// Returns the plan once for each of `skews`, without programs: the actions are those of `plan`, and the step and the times of
// recomputation are those that it has if the fullest rank of an expert group has `skew` times the even share of rows. If the
// programs of `plan` are those of a shorter step (PlanRequest::most_program_actions), the times are those of the shorter step
// times plan.step / its length. Empty if all experts of a layer are on each rank, where the load is always even, or if the
// model has no experts. Returns FailedPrecondition in the same cases as Simulate (planner/cost/simulate.h).
absl::StatusOr<std::vector<Plan>> PlanAtSkews(const ClusterTopology& cluster, const Plan& plan,
                                              const std::vector<double>& skews);

}  // namespace lynx

#endif  // LYNX_PLANNER_REPORT_SKEW_COST_H_
