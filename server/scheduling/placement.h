// Placement: which free devices a job gets. Pure; thread-safe.
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

namespace lynx {

struct NodeDevices {
  NodeId node;
  std::vector<int32_t> free;  // ascending device indices
  Bytes memory_per_device;    // of the smallest; 0 = unknown
  std::string domain;         // its place in the network (common/network_domain.h); "" = not known
  bool slow = false;          // slower than was measured: it is taken after others that lie as close
};

// Devices set aside for a job that is being planned, and what the planner may count on there.
struct Reservation {
  std::vector<DeviceRef> devices;
  ClusterTopology topology;
};

struct Demand {
  int32_t min_ranks = 1;
  int32_t max_ranks = 1;
  int32_t group = 1;  // ranks that must share a node: the pinned tensor-parallel size
};

// Of those nodes, only the devices among `wanted`.
std::vector<NodeDevices> Among(const std::vector<NodeDevices>& nodes, const std::vector<DeviceRef>& wanted);

// The planner counts on nodes that are alike, so equally many devices are taken of each: of all such choices, the one with
// the most devices up to `max_ranks`, then the one with the fewest nodes, then the one whose nodes lie closest together. Where
// no such choice reaches `min_ranks` but all free devices together do, each counts as a node of its own. nullopt: too few, or
// more than `max_ranks` are demanded. `nodes` in near order (nearest.h), as are the devices.
std::optional<Reservation> Reserve(const std::vector<NodeDevices>& nodes, const Demand& demand);

// A gang: a device for every rank, by rank, or nullopt. Nodes are filled in the order given, a tensor-parallel group never
// crosses nodes, and a device takes one rank.
std::optional<std::vector<DeviceRef>> PlaceRanks(const ParallelLayout& layout, const std::vector<NodeDevices>& nodes);

// The same on those of the nodes that lie closest together. `nodes` in near order.
std::optional<std::vector<DeviceRef>> PlaceRanksNear(const ParallelLayout& layout, const std::vector<NodeDevices>& nodes);

}  // namespace lynx

#endif  // LYNX_SERVER_SCHEDULING_PLACEMENT_H_
