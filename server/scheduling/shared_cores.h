// SharedCores of the planner's cluster: which of a job's devices lie on the same cores, of one node or of several on
// one machine, and which have to do with less processor time than cores. Other jobs on these cores are not counted.
// Pure; thread-safe.
#ifndef LYNX_SERVER_SCHEDULING_SHARED_CORES_H_
#define LYNX_SERVER_SCHEDULING_SHARED_CORES_H_

#include <string>
#include <vector>

#include "planner/cost/cluster_topology.h"
#include "server/values/node_state.h"

namespace lynx {

// What a device takes of its machine's processors.
struct CoreUse {
  std::string machine;         // that the cores are numbered on
  std::vector<int32_t> cores;  // empty: not known, as a GPU has none to compute on: shared with nobody
  std::string limit_group;     // devices with the same one share the limit
  int64_t limit_permille = 0;  // as in ReportedCores
};

// What the node's device with that index takes. A node that does not say its machine counts as a machine of its own.
CoreUse CoreUseOf(const AgentState& node, int32_t device);

// The groups of devices, numbered in the order of the cluster, that outnumber what they share. Devices whose cores
// overlap, directly or by way of others, share all of these cores, and each can use as many at a time as the one that
// has most.
std::vector<SharedCores> SharedCoresOf(const std::vector<CoreUse>& devices);

}  // namespace lynx

#endif  // LYNX_SERVER_SCHEDULING_SHARED_CORES_H_
