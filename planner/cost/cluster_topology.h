// ClusterTopology describes the devices that the planner may use: groups of identical nodes, each with the profile of its
// devices and links. Ranks fill the nodes in order: group after group, node after node, device after device. So the order of
// the groups decides on which devices the first pipeline stages run.
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

// Nodes with the same number and kind of devices, and the same links.
struct NodeGroup {
  std::string name;              // for messages; "" if there is only one group
  int32_t nodes = 1;             // >= 1
  int32_t devices_per_node = 1;  // >= 1
  Bytes memory_per_device;       // 0 = unknown: model states are not checked against it
  Bytes host_memory;             // memory of a node, shared by its devices; 0 = unknown
  // True for devices that use their node's memory, such as CPU ranks. Offloaded tensors then still count for memory_per_device,
  // and host_memory is not used.
  bool host_is_device = false;
  HardwareProfile profile;  // of each device, and of the links inside and between nodes

  int32_t devices() const { return nodes * devices_per_node; }
  bool operator==(const NodeGroup&) const = default;
};

// Cores that are shared by more devices than these cores can run at full speed. Examples: CPU ranks that outnumber the cores of
// a machine (which may hold one node or several), or CPU ranks whose share of processor time is less than the number of cores.
struct SharedCores {
  // Device numbers, ascending. Like ranks, devices are counted over all groups in their order. Numbers beyond the last device
  // of the cluster are ignored.
  std::vector<int32_t> devices;
  // How many ranks run at full speed at the same time, in thousandths: 500 = one rank at half speed. Less than 1000 per
  // device.
  int32_t at_once_permille = 0;
  bool operator==(const SharedCores&) const = default;
};

struct ClusterTopology {
  std::vector<NodeGroup> groups;  // >= 1
  // empty: each device computes at its measured speed even while all other devices compute
  std::vector<SharedCores> shared_cores = {};

  int32_t nodes() const;
  int32_t devices() const;
  int32_t least_devices_per_node() const;
  // Returns the group or the node on which a rank runs. Ranks beyond the last device count as ranks of the last node. Nodes are
  // numbered over all groups.
  int32_t GroupOfRank(int32_t rank) const;
  int32_t NodeOfRank(int32_t rank) const;

  bool operator==(const ClusterTopology&) const = default;
};

// A cluster of one group.
ClusterTopology UniformCluster(int32_t nodes, int32_t devices_per_node, HardwareProfile profile = {},
                               Bytes memory_per_device = Bytes(0));

// Returns InvalidArgument with the group and the number unless: there is a group; counts are at least one and at most
// 2^20 devices in all; memory is not negative; inner links divide the devices of a node; CheckProfile accepts each
// profile; shared cores list their devices in order and run fewer ranks at full speed than they have devices.
absl::Status CheckCluster(const ClusterTopology& cluster);

// "2 nodes of 8", "2 nodes of 8 and 4 nodes of 4".
std::string NodesText(const ClusterTopology& cluster);

// The groups on which a stage's ranks run, over all replicas: ascending, without repeats.
std::vector<int32_t> GroupsOfStage(const ClusterTopology& cluster, const ParallelLayout& layout, int32_t stage);
// The smallest known memory of the devices of a stage; 0 = no memory is known.
Bytes DeviceMemoryOfStage(const ClusterTopology& cluster, const ParallelLayout& layout, int32_t stage);
// Bytes that each rank of a stage may offload to the host if states and activations take `taken` bytes of its device. This is
// an even share of the node's memory over all devices of the node, whether they are used or not. If host_is_device, it is what
// the device's memory has left. Returns the smallest known value over the groups; nullopt if no value is known.
std::optional<Bytes> HostShareOfStage(const ClusterTopology& cluster, const ParallelLayout& layout, int32_t stage, Bytes taken);

// Returns one profile for ranks on both kinds of devices. A synchronous step is as slow as its slowest rank, so every value is
// the worse of the two profiles' values. The result has only the measured shapes that both profiles have.
HardwareProfile SlowerProfile(HardwareProfile a, const HardwareProfile& b);
// Returns one profile for ranks on all groups: applies SlowerProfile to the profile of one group after another.
HardwareProfile SlowestProfile(const ClusterTopology& cluster);

}  // namespace lynx

#endif  // LYNX_PLANNER_COST_CLUSTER_TOPOLOGY_H_
