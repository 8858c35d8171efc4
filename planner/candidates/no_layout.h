// Explains why a request allows no layout: names the rule that excludes every layout, in the words and numbers of the job file,
// and says what to write instead. Memory is not considered. Pure; thread-safe.
#ifndef LYNX_PLANNER_CANDIDATES_NO_LAYOUT_H_
#define LYNX_PLANNER_CANDIDATES_NO_LAYOUT_H_

#include "absl/status/status.h"
#include "planner/cost/cluster_topology.h"
#include "planner/plan/plan.h"
#include "planner/problem/job_spec.h"

namespace lynx {

// Always returns InvalidArgument. SearchSpace of the arguments must be empty, the spec must be valid, and the cluster must have
// at least as many devices as the job's minimum.
absl::Status ExplainNoLayout(const JobSpec& spec, const ClusterTopology& cluster, PlanTarget target, bool even_batches);

}  // namespace lynx

#endif  // LYNX_PLANNER_CANDIDATES_NO_LAYOUT_H_
