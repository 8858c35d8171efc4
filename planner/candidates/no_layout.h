// Why the search space of a request is empty: the rule that leaves nothing, in the words and numbers of the job file,
// and what to write instead. Memory plays no part in it. Pure; thread-safe.
#ifndef LYNX_PLANNER_CANDIDATES_NO_LAYOUT_H_
#define LYNX_PLANNER_CANDIDATES_NO_LAYOUT_H_

#include "absl/status/status.h"
#include "planner/cost/cluster_topology.h"
#include "planner/plan/plan.h"
#include "planner/problem/job_spec.h"

namespace lynx {

// InvalidArgument. SearchSpace of the arguments is empty, the spec is valid, and the cluster has as many devices as
// the job asks for at least.
absl::Status ExplainNoLayout(const JobSpec& spec, const ClusterTopology& cluster, PlanTarget target);

}  // namespace lynx

#endif  // LYNX_PLANNER_CANDIDATES_NO_LAYOUT_H_
