// ClusterTopology: what the planner may count on: groups of nodes that are alike, each with the profile of its
// devices and links. Ranks fill the nodes in order: group after group, node after node, device after device; so the
// order of the groups says which devices the first ranks, and with them the first pipeline stages, run on.
//
// Plain data; thread-safe.
#ifndef LYNX_PLANNER_COST_CLUSTER_TOPOLOGY_H_
#define LYNX_PLANNER_COST_CLUSTER_TOPOLOGY_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/units.h"
#include "planner/cost/hardware_profile.h"
#include "planner/problem/layout.h"

namespace lynx {

// Nodes that are alike.
struct NodeGroup {
  std::string name;              // for messages; "" where there is one group
  int32_t nodes = 1;             // >= 1
  int32_t devices_per_node = 1;  // >= 1
  Bytes memory_per_device;       // 0 = unknown: model states are not checked
  Bytes host_memory;             // of a node, shared by its devices; 0 = unknown
  // Devices whose memory is their node's, such as CPU ranks: what they send to the host stays in memory_per_device,
  // and host_memory is not read.
  bool host_is_device = false;
  HardwareProfile profile;  // of each device, and of the links inside a node and out of it

  int32_t devices() const { return nodes * devices_per_node; }
  bool operator==(const NodeGroup&) const = default;
};

// Cores that more devices share than they carry at full speed: CPU ranks that outnumber the cores of a machine, of
// one node or of several on it, or have less of its processor time than cores.
struct SharedCores {
  // Counted as ranks are, over all groups in their order; ascending. Those beyond the cluster's last do not count.
  std::vector<int32_t> devices;
  // How many ranks run at full speed at the same time: 500 = one at half of it. Less than 1000 for each device.
  int32_t at_once_permille = 0;
  bool operator==(const SharedCores&) const = default;
};

struct ClusterTopology {
  std::vector<NodeGroup> groups;               // >= 1
  std::vector<SharedCores> shared_cores = {};  // empty: each device computes beside all others as it was measured

  int32_t nodes() const;
  int32_t devices() const;
  int32_t least_devices_per_node() const;
  // Where a rank runs; ranks beyond the last device count as on the last node. Node: counted over all groups.
  int32_t GroupOfRank(int32_t rank) const;
  int32_t NodeOfRank(int32_t rank) const;

  bool operator==(const ClusterTopology&) const = default;
};

// A cluster of one group.
ClusterTopology UniformCluster(int32_t nodes, int32_t devices_per_node, HardwareProfile profile = {},
                               Bytes memory_per_device = Bytes(0));

// InvalidArgument, naming the group and the number, unless there is a group, counts are at least one and at most 2^20
// devices in all, memory is not negative, inner links divide the devices of a node, CheckProfile accepts each
// profile, and shared cores have devices in order and fewer ranks at full speed than those.
absl::Status CheckCluster(const ClusterTopology& cluster);

// "2 nodes of 8", "2 nodes of 8 and 4 nodes of 4".
std::string NodesText(const ClusterTopology& cluster);

// The groups that a stage's ranks, of all replicas, stand in: ascending, each once.
std::vector<int32_t> GroupsOfStage(const ClusterTopology& cluster, const ParallelLayout& layout, int32_t stage);
// The least memory of the devices of a stage that is known; 0 = none is.
Bytes DeviceMemoryOfStage(const ClusterTopology& cluster, const ParallelLayout& layout, int32_t stage);
// What each rank of a stage may send to the host, if states and activations take `taken` of its device: an even share
// of its node's memory with all devices of the node, whether they are used or not; where the host is the device, what
// the device has left. The least that is known; nullopt: none is.
std::optional<Bytes> HostShareOfStage(const ClusterTopology& cluster, const ParallelLayout& layout, int32_t stage, Bytes taken);

// One profile that stands for both: a synchronous step is as slow as its slowest rank, so every figure is the worse
// of the two. Measured shapes are those that both have.
HardwareProfile SlowerProfile(HardwareProfile a, const HardwareProfile& b);
// Of all groups.
HardwareProfile SlowestProfile(const ClusterTopology& cluster);

}  // namespace lynx

#endif  // LYNX_PLANNER_COST_CLUSTER_TOPOLOGY_H_
