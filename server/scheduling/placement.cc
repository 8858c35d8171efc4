// See placement.h.
#include "server/scheduling/placement.h"

#include <algorithm>
#include <set>

#include "common/check.h"
#include "server/scheduling/locality_selection.h"

namespace lynx::server {
namespace {

Bytes SmallerKnown(Bytes a, Bytes b) {
  if (a == Bytes(0)) return b;
  if (b == Bytes(0)) return a;
  return std::min(a, b);
}

// Adds the memory of a device of the next node.
void AddMemory(Bytes of_node, Reservation& reservation) {
  Bytes& least = reservation.topology.groups.front().memory_per_device;
  least = SmallerKnown(least, of_node);
  reservation.node_memory.push_back(of_node);
}

// Takes `per_node` devices from each of `nodes_wanted` nodes. Only nodes with at least `per_node` free devices are used.
Reservation TakeAlike(const std::vector<NodeDevices>& nodes, int32_t per_node, int32_t nodes_wanted) {
  Reservation reservation;
  reservation.topology = UniformCluster(nodes_wanted, per_node);
  const auto has_as_many = [&](const NodeDevices& node) { return static_cast<int32_t>(node.free.size()) >= per_node ? 1 : 0; };
  for (const NodeDevices& node : SelectByLocality(nodes, nodes_wanted, has_as_many)) {
    for (int32_t i = 0; i < per_node; ++i) reservation.devices.push_back({node.node, node.free[static_cast<size_t>(i)]});
    AddMemory(node.memory_per_device, reservation);
  }
  return reservation;
}

Reservation TakeSingly(const std::vector<NodeDevices>& nodes, int32_t count) {
  Reservation reservation;
  reservation.topology = UniformCluster(count, 1);
  const auto devices_of = [](const NodeDevices& node) { return static_cast<int64_t>(node.free.size()); };
  for (const NodeDevices& node : SelectByLocality(nodes, count, devices_of)) {
    for (const int32_t device : node.free) {
      if (static_cast<int32_t>(reservation.devices.size()) == count) return reservation;
      reservation.devices.push_back({node.node, device});
      AddMemory(node.memory_per_device, reservation);
    }
  }
  return reservation;
}

}  // namespace

std::vector<NodeDevices> AllTogether(std::vector<NodeDevices> nodes) {
  for (NodeDevices& node : nodes) node.alone = false;
  return nodes;
}

std::vector<std::vector<NodeDevices>> UsableTogether(const std::vector<NodeDevices>& nodes) {
  std::vector<std::vector<NodeDevices>> sets(1);
  for (const NodeDevices& node : nodes) {
    if (!node.alone) sets.front().push_back(node);
  }
  if (sets.front().empty()) sets.clear();
  for (const NodeDevices& node : nodes) {
    if (node.alone) sets.push_back({node});
  }
  return sets;
}

std::vector<NodeDevices> Among(const std::vector<NodeDevices>& nodes, const std::vector<DeviceRef>& wanted) {
  std::vector<NodeDevices> result;
  for (const NodeDevices& node : nodes) {
    NodeDevices kept = node;
    kept.free.clear();
    for (const int32_t device : node.free) {
      if (std::find(wanted.begin(), wanted.end(), DeviceRef{node.node, device}) != wanted.end()) {
        kept.free.push_back(device);
      }
    }
    result.push_back(std::move(kept));
  }
  return result;
}

std::vector<NodeDevices> NodesOf(const std::vector<DeviceRef>& devices) {
  std::vector<NodeDevices> nodes;
  for (const DeviceRef& device : devices) {
    if (nodes.empty() || nodes.back().node != device.node) nodes.push_back({.node = device.node});
    nodes.back().free.push_back(device.device);
  }
  return nodes;
}

bool AreWholeNodes(const Reservation& reservation) {
  std::set<NodeId> nodes;
  for (const DeviceRef& device : reservation.devices) nodes.insert(device.node);
  return std::ssize(nodes) == reservation.topology.nodes();
}

std::vector<DeviceRef> InNodeOrder(const Reservation& reservation, const std::vector<int32_t>& node_order) {
  if (node_order.empty()) return reservation.devices;
  const auto per_node = static_cast<std::ptrdiff_t>(reservation.topology.least_devices_per_node());
  LYNX_CHECK(std::ssize(node_order) * per_node == std::ssize(reservation.devices));
  std::vector<DeviceRef> devices;
  for (const int32_t node : node_order) {
    const auto first = reservation.devices.begin() + node * per_node;
    devices.insert(devices.end(), first, first + per_node);
  }
  return devices;
}

namespace {

// Reserve for nodes that can be used together.
std::optional<Reservation> ReserveTogether(const std::vector<NodeDevices>& nodes, const Demand& demand) {
  int32_t total = 0;
  int32_t most = 0;
  for (const NodeDevices& node : nodes) {
    total += static_cast<int32_t>(node.free.size());
    most = std::max(most, static_cast<int32_t>(node.free.size()));
  }
  if (total < demand.min_ranks || demand.min_ranks > demand.max_ranks) return std::nullopt;
  int32_t best_per_node = 0;
  int32_t best_nodes = 0;
  // Tries many devices per node first, then fewer. A later choice wins only with more devices in total. So if two choices have
  // the same total, the one with fewer nodes wins.
  for (int32_t per_node = std::min(most, demand.max_ranks); per_node >= demand.group; --per_node) {
    const auto fits = [&](const NodeDevices& n) { return static_cast<int32_t>(n.free.size()) >= per_node; };
    const int32_t having = static_cast<int32_t>(std::count_if(nodes.begin(), nodes.end(), fits));
    const int32_t taken = std::min(having, demand.max_ranks / per_node);
    if (taken * per_node > best_nodes * best_per_node) {
      best_per_node = per_node;
      best_nodes = taken;
    }
  }
  if (best_nodes * best_per_node >= demand.min_ranks) return TakeAlike(nodes, best_per_node, best_nodes);
  if (demand.group > 1) return std::nullopt;
  return TakeSingly(nodes, std::min(total, demand.max_ranks));
}

}  // namespace

std::optional<Reservation> Reserve(const std::vector<NodeDevices>& nodes, const Demand& demand) {
  if (std::none_of(nodes.begin(), nodes.end(), [](const NodeDevices& node) { return node.alone; })) {
    return ReserveTogether(nodes, demand);
  }
  std::optional<Reservation> best;
  for (const std::vector<NodeDevices>& set : UsableTogether(nodes)) {
    std::optional<Reservation> on_it = ReserveTogether(set, demand);
    if (!on_it.has_value() || (best.has_value() && best->devices.size() >= on_it->devices.size())) continue;
    best = std::move(on_it);
  }
  return best;
}

std::optional<std::vector<DeviceRef>> PlaceRanks(const ParallelLayout& layout, const std::vector<NodeDevices>& nodes) {
  std::vector<DeviceRef> placement;
  const size_t ranks = static_cast<size_t>(layout.ranks());
  const size_t group = static_cast<size_t>(layout.tp);
  for (const NodeDevices& node : nodes) {
    // All groups have the same size, so each node can take as many groups as fit: no device is wasted that another order could
    // use.
    for (size_t next = 0; next + group <= node.free.size() && placement.size() < ranks; next += group) {
      for (size_t i = 0; i < group; ++i) placement.push_back({node.node, node.free[next + i]});
    }
  }
  if (placement.size() < ranks) return std::nullopt;
  return placement;
}

std::optional<std::vector<DeviceRef>> PlaceRanksByLocality(const ParallelLayout& layout,
                                                           const std::vector<NodeDevices>& nodes) {
  const auto groups_of = [&](const NodeDevices& node) { return static_cast<int64_t>(node.free.size()) / layout.tp; };
  return PlaceRanks(layout, SelectByLocality(nodes, layout.ranks() / layout.tp, groups_of));
}

}  // namespace lynx::server
