// Placement: chooses the free devices that a job gets. Pure; thread-safe.
#ifndef LYNX_SERVER_SCHEDULING_PLACEMENT_H_
#define LYNX_SERVER_SCHEDULING_PLACEMENT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/ids.h"
#include "planner/plan/plan.h"
#include "planner/problem/layout.h"
#include "server/values/job.h"

namespace lynx::server {

struct NodeDevices {
  NodeId node;
  std::vector<int32_t> free;     // indices of the free devices, ascending
  Bytes memory_per_device;       // memory of the node's smallest device; 0: unknown
  std::string domain;            // place in the network (common/network_domain.h); empty: unknown
  bool slow = false;             // slower than its agent measured; used only after other nodes that are equally close
  bool alone = false;            // its network's rate is not known, so a job may not be on it and on other nodes
  int64_t flops_per_second = 0;  // rate of each device, measured by its agent: CPUs in float32, GPUs in bfloat16; 0: unknown
};

// Devices that are reserved for a job while it is planned, and what the planner may assume about them.
struct Reservation {
  std::vector<DeviceRef> devices;
  ClusterTopology topology;  // one group
  // The memory of a device of each node of the topology; 0: unknown. Empty: as the topology says.
  std::vector<Bytes> node_memory;
};

struct Demand {
  int32_t min_ranks = 1;
  int32_t max_ranks = 1;
  int32_t group = 1;  // number of ranks that must share a node: the tensor-parallel size, if it is fixed
};

// Returns the same nodes, but all of them may be used together.
std::vector<NodeDevices> AllTogether(std::vector<NodeDevices> nodes);

// Divides the nodes into sets whose nodes may be used together: first all nodes that need not be alone, if there are any, then
// each of the others.
std::vector<std::vector<NodeDevices>> UsableTogether(const std::vector<NodeDevices>& nodes);

// Copies `nodes`, but keeps only those free devices that are in `wanted`.
std::vector<NodeDevices> Among(const std::vector<NodeDevices>& nodes, const std::vector<DeviceRef>& wanted);

// The nodes of a list of devices, in the order of the list. Consecutive devices of one node are the free devices of one entry.
std::vector<NodeDevices> NodesOf(const std::vector<DeviceRef>& devices);

// True if every node of the reservation's topology is a node of its own, not one of several devices that count as nodes.
bool AreWholeNodes(const Reservation& reservation);

// The reserved devices with their nodes in another order. `node_order`: for each node of the result, its number among the nodes
// of the reservation; empty: the order stays.
std::vector<DeviceRef> InNodeOrder(const Reservation& reservation, const std::vector<int32_t>& node_order);

// Takes the same number of devices of each node, because the planner assumes that nodes are alike. The number is at least
// `group`. From all such choices it takes the one with the most devices up to `max_ranks`, then the fewest nodes, then the
// nodes that lie closest together. If no such choice reaches `min_ranks`, but all free devices together do and `group` is 1,
// each device counts as a node of its own. A node that must be alone is a choice of its own. If the other nodes together give
// the same number of devices, they are preferred to it. nullopt: too few devices, or `min_ranks` exceeds `max_ranks`. `nodes`
// and the devices of the result are in locality order (locality_selection.h).
std::optional<Reservation> Reserve(const std::vector<NodeDevices>& nodes, const Demand& demand);

// Gang placement: returns one device for every rank, by rank; nullopt: they do not all fit. Nodes are filled in the given
// order, all ranks of a tensor-parallel group are on one node, and each device takes one rank.
std::optional<std::vector<DeviceRef>> PlaceRanks(const ParallelLayout& layout, const std::vector<NodeDevices>& nodes);

// Places the ranks by the rules of PlaceRanks, but on the nodes that lie closest together. `nodes` must be in locality order.
std::optional<std::vector<DeviceRef>> PlaceRanksByLocality(const ParallelLayout& layout, const std::vector<NodeDevices>& nodes);

}  // namespace lynx::server

#endif  // LYNX_SERVER_SCHEDULING_PLACEMENT_H_
