// Shared cores, for the planner: finds which of a job's devices use the same cores, on one node or on several nodes of one
// machine. Also finds devices whose limit of processor time is below their number of cores. Ignores the core use of other jobs.
// Pure; thread-safe.
#ifndef LYNX_SERVER_SCHEDULING_SHARED_CORES_H_
#define LYNX_SERVER_SCHEDULING_SHARED_CORES_H_

#include <string>
#include <vector>

#include "planner/cost/cluster_topology.h"
#include "server/values/node_state.h"

namespace lynx::server {

// The cores that a device uses.
struct CoreUse {
  std::string machine;         // the machine that the core numbers belong to
  std::vector<int32_t> cores;  // empty: unknown, or a GPU, which shares cores with no device
  std::string limit_group;     // devices with the same group share the limit
  int64_t limit_permille = 0;  // processor time limit of the group, in thousandths of a core; 0: no limit
};

// The cores of the node's device with this index. A node that does not report its machine counts as a separate machine.
CoreUse CoreUseOf(const AgentState& node, int32_t device);

// The groups of devices that together need more cores than the group has; devices are numbered in the order of the cluster.
// Devices whose cores overlap, directly or through other devices, form a group, and so do devices with the same limit. The
// function assumes that each device of a group uses as many cores at a time as the device with the most cores.
std::vector<SharedCores> SharedCoresOf(const std::vector<CoreUse>& devices);

}  // namespace lynx::server

#endif  // LYNX_SERVER_SCHEDULING_SHARED_CORES_H_
