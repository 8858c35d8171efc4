// Node groups: what the planner is told of the nodes that a job would run on. Nodes whose measurements agree are one
// group, planned for by the slowest figures among them; a node that is clearly slower or faster, or has other links,
// is a group of its own, so that its stages get what suits them. Pure; thread-safe.
#ifndef LYNX_SERVER_SCHEDULING_NODE_GROUPS_H_
#define LYNX_SERVER_SCHEDULING_NODE_GROUPS_H_

#include <memory>
#include <vector>

#include "planner/cost/cluster_topology.h"

namespace lynx {

// Measurements of like nodes differ by so much from run to run.
inline constexpr int kAlikePercent = 25;

// Of the same kind of device, and whatever both have measured takes about as long: all ops of a shape together, or,
// where no shape is shared, arithmetic and memory rates; a transfer of 1 MiB inside the node and between nodes.
bool Alike(const HardwareProfile& a, const HardwareProfile& b);

// A shape that one node has measured and another one not is taken to take as long there as on the first node before or after
// it that is alike in all else. (Nodes that train cannot measure.)
std::vector<std::shared_ptr<const HardwareProfile>> ShareShapes(std::vector<std::shared_ptr<const HardwareProfile>> profiles);

// `nodes`: one group without a profile. `profiles`: of each of its nodes in order; null where the node has none,
// which is then taken to be as slow as the slowest (StatedCpuProfile where no node has one). Neighbours that are
// alike share a group.
ClusterTopology GroupNodes(const ClusterTopology& nodes, const std::vector<std::shared_ptr<const HardwareProfile>>& profiles);

// A node's devices that a job has.
struct NodeShare {
  std::vector<int32_t> places;  // of them among the node's devices, in the order of the ranks
  int32_t devices = 0;          // that the node has
  Bytes host_memory;            // of the node, for all its GPUs to offload to
};

// Makes a group of GPUs what the job's share of its nodes is: host memory as of the node that has least for each device (0
// where one has not said), and only those inner links of which the devices are whole blocks, as their agents measured them.
// `shares`: of the group's nodes.
void TakeShares(const std::vector<NodeShare>& shares, NodeGroup& group);

}  // namespace lynx

#endif  // LYNX_SERVER_SCHEDULING_NODE_GROUPS_H_
