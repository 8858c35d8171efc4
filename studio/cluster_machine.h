// A cluster that runs, as a machine that the studio's page can choose. Pure; thread-safe.
#ifndef LYNX_STUDIO_CLUSTER_MACHINE_H_
#define LYNX_STUDIO_CLUSTER_MACHINE_H_

#include "planner/cost/cluster_topology.h"
#include "studio/service.h"

namespace lynx {

inline constexpr char kThisCluster[] = "this cluster";

// `cluster`: without groups if nothing is known of any node; then, or if no cluster file can describe it, the result has no
// machine but a note that says why. `left_out`: how many nodes of the running cluster are not in `cluster`; the note says so.
StudioCluster ClusterMachine(const ClusterTopology& cluster, int32_t left_out = 0);

}  // namespace lynx

#endif  // LYNX_STUDIO_CLUSTER_MACHINE_H_
