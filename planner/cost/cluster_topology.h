// ClusterTopology describes the devices that the planner may use: groups of identical nodes. Each group has the profile of its
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
  std::string name;              // name of the group in messages; "" if there is only one group
  int32_t nodes = 1;             // at least 1
  int32_t devices_per_node = 1;  // at least 1
  Bytes memory_per_device;       // 0 = unknown: the planner does not check whether the model states fit
  Bytes host_memory;             // memory of a node, shared by its devices; 0 = unknown
  // True if the devices use their node's memory, as CPU ranks do. Then offloaded tensors are part of memory_per_device, and
  // host_memory is not used.
  bool host_is_device = false;
  HardwareProfile profile;  // profile of each device, and of the links inside a node and between nodes

  int32_t devices() const { return nodes * devices_per_node; }
  bool operator==(const NodeGroup&) const = default;
};

// A set of cores whose devices cannot all run at full speed at the same time. For example, a machine (one node or several) has
// more CPU ranks than cores, or CPU ranks get less processor time than their number of cores would give.
struct SharedCores {
  // Device numbers, ascending. Devices are numbered like ranks: over all groups, in the order of the groups. Numbers beyond the
  // last device of the cluster are ignored.
  std::vector<int32_t> devices;
  // The number of ranks that can run at full speed at the same time, in thousandths: 500 = one rank at half speed. It is less
  // than 1000 times the number of devices.
  int32_t at_once_permille = 0;
  bool operator==(const SharedCores&) const = default;
};

struct ClusterTopology {
  std::vector<NodeGroup> groups;  // at least one group
  // empty: each device computes at its measured speed, even if all other devices compute at the same time
  std::vector<SharedCores> shared_cores = {};

  int32_t nodes() const;
  int32_t devices() const;
  int32_t least_devices_per_node() const;
  // Returns the group or the node on which a rank runs. A rank beyond the last device is treated as a rank of the last node.
  // Nodes are numbered over all groups.
  int32_t GroupOfRank(int32_t rank) const;
  int32_t NodeOfRank(int32_t rank) const;

  bool operator==(const ClusterTopology&) const = default;
};

// Returns a cluster that has one group.
ClusterTopology UniformCluster(int32_t nodes, int32_t devices_per_node, HardwareProfile profile = {},
                               Bytes memory_per_device = Bytes(0));

// Returns OK if all of this holds: there is a group; counts are at least one, with at most 2^20 devices in all; memory is not
// negative; inner links divide the devices of a node; CheckProfile accepts each profile; shared cores list their devices in
// order and run fewer ranks at full speed than they have devices. Otherwise returns InvalidArgument with the group and the
// number.
absl::Status CheckCluster(const ClusterTopology& cluster);

// Text such as "2 nodes of 8" or "2 nodes of 8 and 4 nodes of 4".
std::string NodesText(const ClusterTopology& cluster);

// The groups on which the ranks of a stage run, over all replicas, in ascending order. Each group occurs once.
std::vector<int32_t> GroupsOfStage(const ClusterTopology& cluster, const ParallelLayout& layout, int32_t stage);
// The smallest memory of a device on which the stage runs, among the known values; 0 = no value is known.
Bytes DeviceMemoryOfStage(const ClusterTopology& cluster, const ParallelLayout& layout, int32_t stage);
// States and activations take `taken` bytes of each device of the stage. Returns the bytes that each rank may then offload to
// the host. If host_is_device, this is what remains of the device's memory. Otherwise it is an even share of the node's memory
// over all devices of the node, even over unused ones. Over several groups, returns the smallest known value; nullopt if no
// value is known.
std::optional<Bytes> HostShareOfStage(const ClusterTopology& cluster, const ParallelLayout& layout, int32_t stage, Bytes taken);

// Returns one profile for ranks that run on both kinds of devices. A synchronous step is as slow as its slowest rank, so every
// value is the worse value of the two profiles. The result has only the measured shapes that both profiles have.
HardwareProfile SlowerProfile(HardwareProfile a, const HardwareProfile& b);
// Returns one profile for ranks that run on all groups: combines the groups' profiles with SlowerProfile.
HardwareProfile SlowestProfile(const ClusterTopology& cluster);

}  // namespace lynx

#endif  // LYNX_PLANNER_COST_CLUSTER_TOPOLOGY_H_
