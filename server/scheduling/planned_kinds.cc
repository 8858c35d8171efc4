// See planned_kinds.h.
#include "server/scheduling/planned_kinds.h"

#include <algorithm>
#include <deque>
#include <string>
#include <utility>

#include "server/scheduling/locality_selection.h"
#include "server/scheduling/node_groups.h"

namespace lynx::server {
namespace {

// The nodes that were chosen for the places of one kind of nodes. Groups with the same name are of one kind.
struct Kind {
  const NodeGroup* group;
  int64_t places = 0;
  std::deque<NodeDevices> nodes;  // the chosen nodes, each with as many free devices as a place needs
};

// The places that the ranks fill, in their order: for each node of `planned` that they need, the index of its kind in `kinds`.
// Adds the kinds and their numbers of places to `kinds`.
std::vector<size_t> PlacesOf(const ParallelLayout& layout, const ClusterTopology& planned, std::vector<Kind>& kinds) {
  std::vector<size_t> places;
  int32_t ranks = 0;  // the number of ranks for which the places so far have room
  for (const NodeGroup& group : planned.groups) {
    auto kind = std::find_if(kinds.begin(), kinds.end(), [&](const Kind& known) { return known.group->name == group.name; });
    if (kind == kinds.end()) kind = kinds.insert(kind, {.group = &group});
    for (int32_t node = 0; node < group.nodes && ranks < layout.ranks(); ++node) {
      ranks += group.devices_per_node / layout.tp * layout.tp;
      ++kind->places;
      places.push_back(static_cast<size_t>(kind - kinds.begin()));
    }
  }
  return places;
}

// Chooses nodes of `nodes` that are close together for the places of the kind that are still empty. Moves their devices from
// `left` to the kind.
void Take(const std::vector<NodeDevices>& nodes, Kind& kind, std::vector<NodeDevices>& left) {
  const auto devices = static_cast<size_t>(kind.group->devices_per_node);
  const int64_t needed = kind.places - std::ssize(kind.nodes);
  const auto places_of = [&](const NodeDevices& node) { return static_cast<int64_t>(node.free.size() / devices); };
  auto from = left.begin();
  for (NodeDevices& chosen : SelectByLocality(nodes, needed, places_of)) {
    from = std::find_if(from, left.end(), [&](const NodeDevices& node) { return node.node == chosen.node; });
    while (from->free.size() >= devices && std::ssize(kind.nodes) < kind.places) {
      NodeDevices place = *from;
      place.free.resize(devices);
      from->free.erase(from->free.begin(), from->free.begin() + static_cast<std::ptrdiff_t>(devices));
      kind.nodes.push_back(std::move(place));
    }
  }
}

}  // namespace

std::optional<std::vector<DeviceRef>> PlaceRanksByKind(const ParallelLayout& layout, const ClusterTopology& planned,
                                                       const std::vector<NodeDevices>& nodes, const ProfileOf& profile_of) {
  std::vector<Kind> kinds;
  const std::vector<size_t> places = PlacesOf(layout, planned, kinds);
  std::vector<NodeDevices> left = nodes;
  for (Kind& kind : kinds) {
    std::vector<NodeDevices> alike;
    for (const NodeDevices& node : left) {
      const std::shared_ptr<const HardwareProfile> profile = profile_of(node.node);
      const bool memory = AlikeMemory(kind.group->memory_per_device, node.memory_per_device);
      if (memory && profile != nullptr && Alike(kind.group->profile, *profile)) alike.push_back(node);
    }
    Take(alike, kind, left);
  }
  // Kinds with much memory choose first, because fewer nodes are large enough for their places.
  std::vector<Kind*> by_memory;
  for (Kind& kind : kinds) by_memory.push_back(&kind);
  std::stable_sort(by_memory.begin(), by_memory.end(),
                   [](const Kind* a, const Kind* b) { return a->group->memory_per_device > b->group->memory_per_device; });
  for (Kind* kind : by_memory) {
    std::vector<NodeDevices> large;
    for (const NodeDevices& node : left) {
      if (node.memory_per_device >= kind->group->memory_per_device) large.push_back(node);
    }
    Take(large, *kind, left);
  }
  for (Kind& kind : kinds) Take(std::vector<NodeDevices>(left), kind, left);
  std::vector<NodeDevices> order;
  for (const size_t place : places) {
    std::deque<NodeDevices>& chosen = kinds[place].nodes;
    if (chosen.empty()) return std::nullopt;
    order.push_back(std::move(chosen.front()));
    chosen.pop_front();
  }
  return PlaceRanks(layout, order);
}

}  // namespace lynx::server
