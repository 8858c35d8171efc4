#include "planner/cost/group_path.h"

#include <algorithm>
#include <bit>

#include "common/check.h"
#include "planner/cost/op_cost.h"

namespace lynx {
namespace {

constexpr int64_t kTreeRatePermille = 920;  // rate of trees, in thousandths of the rate of rings (see the header)

// The rate that is left of `rate` if `flows` transfers at a time leave a pod whose uplinks have room for `room_permille`
// thousandths of a transfer.
int64_t SharedRate(int64_t rate, int64_t flows, int64_t room_permille) {
  if (flows * 1000 <= room_permille) return rate;
  return std::max<int64_t>(1, static_cast<int64_t>(static_cast<__int128>(rate) * room_permille / (flows * 1000)));
}

int64_t RoomPermille(const HardwareProfile& profile) {
  return int64_t{profile.pod_nodes} * 1'000'000 / profile.oversubscription_permille;
}

// The number of members, and the first and the last one, of a group in one node.
struct NodeMembers {
  int32_t node = 0;
  int32_t first = 0, last = 0;
  int64_t count = 0;
};

std::vector<NodeMembers> ByNode(const std::vector<int32_t>& members, const RankPlaces& places) {
  std::vector<NodeMembers> nodes;
  for (const int32_t rank : members) {
    const int32_t node = places.NodeOf(rank);
    if (nodes.empty() || nodes.back().node != node) nodes.push_back({node, rank, rank, 0});
    nodes.back().last = rank;
    ++nodes.back().count;
  }
  return nodes;
}

// Returns how much of an adapter's `rate` this group gets if rings of all such groups leave the pods at the same time.
int64_t RateBetweenPods(int64_t rate, const std::vector<NodeMembers>& nodes, const HardwareProfile& profile,
                        const RankPlaces& places) {
  if (places.pod_nodes == 0 || nodes.front().node / places.pod_nodes == nodes.back().node / places.pod_nodes) return rate;
  int64_t slowest = rate;
  for (auto begin = nodes.begin(); begin != nodes.end();) {
    const int32_t pod = begin->node / places.pod_nodes;
    const auto end =
        std::find_if(begin, nodes.end(), [&](const NodeMembers& one) { return one.node / places.pod_nodes != pod; });
    const int64_t own = end - begin;
    const int64_t groups = (places.UsedNodes(pod) + own - 1) / own;
    slowest = std::min(slowest, SharedRate(rate, groups, RoomPermille(profile)));
    begin = end;
  }
  return slowest;
}

// Time of `steps` steps of bytes/n each, of which `between` have the latency between nodes.
Nanos RingTime(Bytes bytes, int32_t n, int32_t steps, int32_t between, const GroupPath& path) {
  const Nanos step = TimeAtRate((bytes.value + n - 1) / n, path.link.bytes_per_second);
  if (path.nodes == 1) return (path.link.latency + step) * steps;
  return step * steps + path.link.latency * between + path.inside_latency * std::max(0, steps - between);
}

// Returns the rate of a ring over its adapter. The other ranks of a node are in groups like this one, whose rings run at the
// same time. If all rings of a node need more adapters than it has, they share them. One adapter stands for an unknown number:
// nothing is shared.
int64_t SharedAdapterRate(const HardwareProfile& profile, const RankPlaces& places, int64_t rings, int64_t members) {
  const int64_t rate = profile.inter_node.bytes_per_second;
  if (profile.adapters == 1) return rate;
  const int64_t ranks = std::min(places.ranks_per_node, places.ranks);
  const int64_t wanted = std::max<int64_t>(1, ranks / members) * rings;
  return wanted <= profile.adapters ? rate : std::max<int64_t>(1, rate / wanted * profile.adapters);
}

}  // namespace

int32_t RankPlaces::UsedNodes(int32_t pod) const {
  const int32_t nodes = (ranks + ranks_per_node - 1) / ranks_per_node;
  return pod_nodes == 0 ? nodes : std::clamp(nodes - pod * pod_nodes, 0, pod_nodes);
}

size_t LinkLevelOf(int32_t first, int32_t last, const HardwareProfile& profile, int32_t ranks_per_node) {
  const size_t levels = profile.inner_links.size();
  if (first / ranks_per_node != last / ranks_per_node) return levels + 1;
  for (size_t i = 0; i < levels; ++i) {
    const int32_t devices = profile.inner_links[i].devices;
    if (first % ranks_per_node / devices == last % ranks_per_node / devices) return i;
  }
  return levels;
}

const LinkCost& LinkAt(size_t level, const HardwareProfile& profile) {
  if (level < profile.inner_links.size()) return profile.inner_links[level].link;
  return level == profile.inner_links.size() ? profile.intra_node : profile.inter_node;
}

LinkCost LinkBetweenPods(const HardwareProfile& profile, int32_t used_nodes) {
  const LinkCost& link = profile.inter_node;
  return {link.latency, SharedRate(link.bytes_per_second, used_nodes, RoomPermille(profile))};
}

GroupPath PathThrough(const std::vector<int32_t>& members, const HardwareProfile& profile, const RankPlaces& places) {
  LYNX_CHECK(!members.empty());
  const std::vector<NodeMembers> nodes = ByNode(members, places);
  int64_t rings = profile.adapters;
  size_t inside = 0;  // the level of the link that joins the members of a node
  for (const NodeMembers& node : nodes) {
    rings = std::min(rings, node.count);
    inside = std::max(inside, LinkLevelOf(node.first, node.last, profile, places.ranks_per_node));
  }
  const LinkCost& within = LinkAt(inside, profile);
  const int64_t adapter = SharedAdapterRate(profile, places, rings, nodes.front().count);
  const int64_t between = RateBetweenPods(adapter, nodes, profile, places);
  GroupPath path{.link = {profile.inter_node.latency, between}, .inside_latency = within.latency};
  if (profile.gemm_tiles.units > 0) path.nodes = static_cast<int32_t>(nodes.size());
  if (rings == 1) return path;
  const int64_t carried = within.bytes_per_second;
  path.link.bytes_per_second = carried / rings > between ? between * rings : std::max(between, carried);
  return path;
}

GroupPath SlowerPath(GroupPath a, const GroupPath& b) {
  a.link.latency = std::max(a.link.latency, b.link.latency);
  a.link.bytes_per_second = std::min(a.link.bytes_per_second, b.link.bytes_per_second);
  a.inside_latency = std::max(a.inside_latency, b.inside_latency);
  a.nodes = std::max(a.nodes, b.nodes);
  return a;
}

Nanos AllGatherTime(Bytes bytes, int32_t n, const GroupPath& path) {
  if (n <= 1) return Nanos(0);
  return RingTime(bytes, n, n - 1, path.nodes - 1, path);
}

Nanos AllToAllTime(Bytes bytes, int32_t n, const GroupPath& path, bool steps) {
  if (n <= 1) return Nanos(0);
  if (steps) return RingTime(bytes, n, n - 1, 0, {.link = path.link});
  const int64_t inside = path.nodes == 1 ? 1 : (n + path.nodes - 1) / path.nodes;  // members in a node
  const int64_t sent = (bytes.value + n - 1) / n * (n - inside);
  return path.link.latency + (path.nodes == 1 ? Nanos(0) : path.inside_latency) +
         TimeAtRate(sent * inside, path.link.bytes_per_second);
}

Nanos AllReduceTime(Bytes bytes, int32_t n, const GroupPath& path) {
  if (n <= 1) return Nanos(0);
  const Nanos ring = RingTime(bytes, n, 2 * (n - 1), 2 * (path.nodes - 1), path);
  if (path.nodes == 1) return ring;
  const int64_t rate = std::max<int64_t>(1, path.link.bytes_per_second / 1000 * kTreeRatePermille);
  const int32_t chain = (n + path.nodes - 1) / path.nodes - 1;
  const int32_t depth = std::bit_width(static_cast<uint32_t>(path.nodes)) - 1;
  const Nanos latency = path.inside_latency * chain + path.link.latency * depth;
  return std::min(ring, (latency + TimeAtRate(bytes.value, rate)) * 2);
}

}  // namespace lynx
