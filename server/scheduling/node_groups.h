// Node groups: describe to the planner the nodes that a job would run on. Nodes with similar measurements and memory are of one
// kind, with the slowest figures and the least memory of its nodes. A node that is clearly slower or faster, has clearly more
// or less memory, or has other links, is of another kind, so that the planner can give its stages suitable work. Pure;
// thread-safe.
#ifndef LYNX_SERVER_SCHEDULING_NODE_GROUPS_H_
#define LYNX_SERVER_SCHEDULING_NODE_GROUPS_H_

#include <memory>
#include <vector>

#include "planner/cost/cluster_topology.h"

namespace lynx::server {

// Measurements of equal nodes differ by up to this much from run to run.
inline constexpr int kAlikePercent = 25;

// True if both profiles have the same kind of device and the same number of network adapters, and everything that both have
// measured takes about as long. The function compares a transfer of 1 MiB inside the node and between nodes, and all ops of a
// shape together. If the profiles share no shape, it compares the arithmetic and memory rates instead.
bool Alike(const HardwareProfile& a, const HardwareProfile& b);

// True if devices with these amounts of memory may be of one kind: they differ by at most kAlikePercent, or one is unknown (0).
bool AlikeMemory(Bytes a, Bytes b);

// Fills in shapes that a node has not measured, because nodes that train cannot measure. The times are copied from the first
// node in the list that has measured the shape and has a similar profile (Alike).
std::vector<std::shared_ptr<const HardwareProfile>> ShareShapes(std::vector<std::shared_ptr<const HardwareProfile>> profiles);

// Divides `nodes`, which is one group without a profile, into groups. `profiles`: one for each node, in order. A node with a
// null profile counts as being as slow as the slowest node (StatedCpuProfile if no node has a profile). `memory`: that of a
// device of each node, 0 if it is unknown; empty: that of `nodes`. Nodes that are alike, in speed and in memory, are of one
// kind, and have the slowest figures and the least known memory of this kind. Consecutive nodes of one kind share a group;
// groups of one kind have the same name, profile and memory.
ClusterTopology GroupNodes(const ClusterTopology& nodes, const std::vector<std::shared_ptr<const HardwareProfile>>& profiles,
                           const std::vector<Bytes>& memory = {});

// The devices of one node that a job has, and what the node has in total.
struct NodeShare {
  std::vector<int32_t> places;  // places of the job's devices among the node's devices, in the order of the ranks
  int32_t devices = 0;          // number of devices of the node
  Bytes host_memory;            // the node's memory for offloading by all its GPUs
};

// Reduces a group of GPU nodes to the job's share of them. The group's host memory becomes the smallest host memory per device
// of any node, times the job's devices per node (0 if a node has not reported its host memory). An inner link is kept only if
// the job's devices on each node are whole blocks of the devices that the link joins. `shares`: one for each of the group's
// nodes.
void TakeShares(const std::vector<NodeShare>& shares, NodeGroup& group);

}  // namespace lynx::server

#endif  // LYNX_SERVER_SCHEDULING_NODE_GROUPS_H_
