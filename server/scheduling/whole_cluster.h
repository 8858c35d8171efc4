// Whole cluster: describes all nodes to the planner, for people who ask what a job would do on the cluster when it is free.
// Pure; thread-safe.
#ifndef LYNX_SERVER_SCHEDULING_WHOLE_CLUSTER_H_
#define LYNX_SERVER_SCHEDULING_WHOLE_CLUSTER_H_

#include <memory>
#include <vector>

#include "planner/cost/cluster_topology.h"
#include "server/scheduling/placement.h"
#include "server/scheduling/shared_cores.h"

namespace lynx::server {

// A node, and what its agent reported of it.
struct WholeNode {
  NodeDevices devices;  // all its devices of one kind count as free
  DeviceKind kind = DeviceKind::kCpu;
  std::shared_ptr<const HardwareProfile> profile;  // null: nothing has been measured yet
  Bytes host_memory;                               // for offloading by all devices; 0: unknown
  std::vector<CoreUse> cores;                      // of each device
};

// What the planner may assume about the nodes: nodes that are alike (node_groups.h) and have the same number of devices are a
// group. A group has the slowest figures of its nodes and the smallest memory. Groups have the names "kind 1", "kind 2", ...,
// in the order of the first node with their number of devices, and then of their own first node. Nodes that must be alone
// (NodeDevices::alone) are left out, except that the first of them is the cluster if there are no others. Nodes without a
// profile are left out. Without nodes, the result has no groups. `nodes` must be in locality order (locality_selection.h).
ClusterTopology WholeCluster(const std::vector<WholeNode>& nodes);

}  // namespace lynx::server

#endif  // LYNX_SERVER_SCHEDULING_WHOLE_CLUSTER_H_
