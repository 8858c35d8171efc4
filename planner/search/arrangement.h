// The order of the nodes of a mixed cluster. Ranks fill the nodes in order, so the order decides which stages and replicas run
// on which kind of node. A synchronous step is as slow as its slowest rank. If every replica of a stage runs on the same kind
// of node, the partition can give the stage the work that suits this kind; if the replicas of a stage run on different kinds,
// the fast ones wait. Pure; not thread-safe.
#ifndef LYNX_PLANNER_SEARCH_ARRANGEMENT_H_
#define LYNX_PLANNER_SEARCH_ARRANGEMENT_H_

#include <cstdint>
#include <vector>

#include "planner/cost/cluster_topology.h"
#include "planner/plan/plan.h"

namespace lynx {

// Orders of the nodes of a cluster with several kinds of nodes; the first is the given order. Groups that differ at most in
// their number of nodes are one kind. Each other order divides the nodes of every kind into the same number of equal parts, and
// repeats: one part of each kind. With as many parts as replicas, all replicas run on the same kinds of nodes. A cluster with
// one kind has only the given order.
std::vector<ClusterTopology> Arrangements(const ClusterTopology& cluster);

// Returns the cluster in the order for which the search finds the fastest plan; the given order, if no other order gives a
// faster plan.
ClusterTopology FastestArrangement(const PlanRequest& request);

// Returns for each node of `arranged`, in its order, the number of this node in `given`. `arranged` must be one of the
// arrangements of `given`. The nodes of a kind have the same order in both.
std::vector<int32_t> NodeOrder(const ClusterTopology& given, const ClusterTopology& arranged);

}  // namespace lynx

#endif  // LYNX_PLANNER_SEARCH_ARRANGEMENT_H_
