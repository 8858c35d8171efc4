#include "planner/cost/cluster_topology.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/check.h"
#include "common/status.h"

namespace lynx {
namespace {

constexpr int64_t kMaxDevices = 1 << 20;

const ShapeTimes* FindShape(const HardwareProfile& profile, const LayerShape& shape) {
  const auto found = std::find_if(profile.measured.begin(), profile.measured.end(),
                                  [&](const ShapeTimes& times) { return times.shape == shape; });
  return found == profile.measured.end() ? nullptr : &*found;
}

void TakeSlower(OpTimes& to, const OpTimes& from) {
  to.forward = std::max(to.forward, from.forward);
  to.backward = std::max(to.backward, from.backward);
  to.weight = std::max(to.weight, from.weight);
}

void TakeSlower(LinkCost& to, const LinkCost& from) {
  to.latency = std::max(to.latency, from.latency);
  to.bytes_per_second = std::min(to.bytes_per_second, from.bytes_per_second);
}

// Makes `to` the lower of the two curves at every size that at least one of them lists. Between two such sizes, the result is
// at most as high as the lower curve: the lower of two straight lines is never below the line between its end points.
void TakeSlower(EfficiencyCurve& to, const EfficiencyCurve& from) {
  if (to == from) return;
  EfficiencyCurve slower;
  const auto add = [&](int64_t size) { slower.push_back({size, std::min(EfficiencyAt(to, size), EfficiencyAt(from, size))}); };
  for (const EfficiencyPoint& point : to) add(point.size);
  for (const EfficiencyPoint& point : from) add(point.size);
  std::sort(slower.begin(), slower.end(), [](const auto& a, const auto& b) { return a.size < b.size; });
  slower.erase(std::unique(slower.begin(), slower.end()), slower.end());
  if (slower.size() > kMaxEfficiencyPoints) {  // too many points for one curve: use the lowest value for all sizes
    const auto lowest =
        std::min_element(slower.begin(), slower.end(), [](const auto& a, const auto& b) { return a.permille < b.permille; });
    slower = {*lowest};
  }
  to = std::move(slower);
}

void TakeSlower(HostLink& to, const HostLink& from) {
  to.latency = std::max(to.latency, from.latency);
  to.to_host_bytes_per_second = std::min(to.to_host_bytes_per_second, from.to_host_bytes_per_second);
  to.from_host_bytes_per_second = std::min(to.from_host_bytes_per_second, from.from_host_bytes_per_second);
  to.both_bytes_per_second = std::min(
      {to.both_bytes_per_second, from.both_bytes_per_second, to.to_host_bytes_per_second + to.from_host_bytes_per_second});
  to.op_slowdown_permille = std::max(to.op_slowdown_permille, from.op_slowdown_permille);
}

// Drops all inner links if the two lists have different levels: a plan over all nodes cannot use links that only some of the
// nodes have.
void TakeSlower(std::vector<LinkLevel>& to, const std::vector<LinkLevel>& from) {
  const bool alike = std::equal(to.begin(), to.end(), from.begin(), from.end(),
                                [](const LinkLevel& a, const LinkLevel& b) { return a.devices == b.devices; });
  if (!alike) to.clear();
  for (size_t i = 0; i < to.size(); ++i) TakeSlower(to[i].link, from[i].link);
}

// Returns the tiles with which a full wave does more work (GemmTiles), because a partial last wave then leaves more units of
// the GPU idle. If all fields are 0, the device has no tiles and is assumed to leave no unit idle.
GemmTiles SlowerTiles(const GemmTiles& a, const GemmTiles& b) {
  const auto work = [](const GemmTiles& tiles) { return int64_t{tiles.units} * tiles.rows * tiles.columns; };
  return work(b) > work(a) ? b : a;
}

std::vector<ShapeTimes> SharedShapes(const std::vector<ShapeTimes>& measured, const HardwareProfile& other) {
  std::vector<ShapeTimes> shared;
  for (ShapeTimes times : measured) {
    const ShapeTimes* match = FindShape(other, times.shape);
    if (match == nullptr) continue;
    for (size_t op = 0; op < times.ops.size(); ++op) TakeSlower(times.ops[op], match->ops[op]);
    times.optimizer_per_mega_parameter = std::max(times.optimizer_per_mega_parameter, match->optimizer_per_mega_parameter);
    shared.push_back(times);
  }
  return shared;
}

// The group and the node on which a rank runs.
std::pair<int32_t, int32_t> FindRank(const ClusterTopology& cluster, int32_t rank) {
  LYNX_CHECK(!cluster.groups.empty() && rank >= 0);
  int32_t first_node = 0;
  for (size_t i = 0; i < cluster.groups.size(); ++i) {
    const NodeGroup& group = cluster.groups[i];
    if (rank < group.devices()) return {static_cast<int32_t>(i), first_node + rank / group.devices_per_node};
    rank -= group.devices();
    first_node += group.nodes;
  }
  return {static_cast<int32_t>(cluster.groups.size()) - 1, first_node - 1};
}

absl::Status CheckGroup(const NodeGroup& group, const std::string& where) {
  const auto bad = [&](const std::string& what) { return absl::InvalidArgumentError(absl::StrCat(where, what)); };
  if (group.nodes < 1) return bad(absl::StrCat("has ", group.nodes, " nodes; it must have at least one"));
  if (group.devices_per_node < 1) {
    return bad(absl::StrCat("has ", group.devices_per_node, " devices on a node; it must have at least one"));
  }
  if (int64_t{group.nodes} * group.devices_per_node > kMaxDevices) {
    return bad(absl::StrCat("has ", group.nodes, " nodes of ", group.devices_per_node, " devices; at most ", kMaxDevices,
                            " devices can be planned for"));
  }
  if (group.memory_per_device.value < 0 || group.host_memory.value < 0) {
    return bad(absl::StrCat("has ", std::min(group.memory_per_device, group.host_memory).value,
                            " bytes of memory; it must not be negative (0 = unknown)"));
  }
  for (const LinkLevel& level : group.profile.inner_links) {
    if (level.devices > 0 && group.devices_per_node % level.devices == 0) continue;
    return bad(absl::StrCat("joins ", level.devices, " devices by an inner link, which does not divide the ",
                            group.devices_per_node, " of a node"));
  }
  return CheckProfile(group.profile);
}

absl::Status CheckShared(const SharedCores& shared) {
  const auto bad = [](const std::string& what) {
    return absl::InvalidArgumentError(absl::StrCat("shared cores of the cluster ", what));
  };
  const std::vector<int32_t>& devices = shared.devices;
  if (devices.empty() || devices.front() < 0) return bad("name no device, or one below 0");
  if (std::adjacent_find(devices.begin(), devices.end(), std::greater_equal<>()) != devices.end()) {
    return bad("do not name their devices in order, each once");
  }
  if (shared.at_once_permille >= 1 && shared.at_once_permille < 1000 * std::ssize(devices)) return absl::OkStatus();
  return bad(absl::StrCat("carry ", shared.at_once_permille,
                          " thousandths of a rank at full speed, which is not within 1 and less than their ", devices.size(),
                          " devices"));
}

}  // namespace

int32_t ClusterTopology::nodes() const {
  int32_t sum = 0;
  for (const NodeGroup& group : groups) sum += group.nodes;
  return sum;
}

int32_t ClusterTopology::devices() const {
  int32_t sum = 0;
  for (const NodeGroup& group : groups) sum += group.devices();
  return sum;
}

int32_t ClusterTopology::least_devices_per_node() const {
  LYNX_CHECK(!groups.empty());
  int32_t least = std::numeric_limits<int32_t>::max();
  for (const NodeGroup& group : groups) least = std::min(least, group.devices_per_node);
  return least;
}

int32_t ClusterTopology::GroupOfRank(int32_t rank) const { return FindRank(*this, rank).first; }

int32_t ClusterTopology::NodeOfRank(int32_t rank) const { return FindRank(*this, rank).second; }

ClusterTopology UniformCluster(int32_t nodes, int32_t devices_per_node, HardwareProfile profile, Bytes memory_per_device) {
  return {{NodeGroup{.nodes = nodes,
                     .devices_per_node = devices_per_node,
                     .memory_per_device = memory_per_device,
                     .profile = std::move(profile)}}};
}

absl::Status CheckCluster(const ClusterTopology& cluster) {
  if (cluster.groups.empty()) return absl::InvalidArgumentError("the cluster has no nodes");
  int64_t devices = 0;
  for (size_t i = 0; i < cluster.groups.size(); ++i) {
    const NodeGroup& group = cluster.groups[i];
    const std::string where = group.name.empty() ? absl::StrCat("node group ", i, " of the cluster ")
                                                 : absl::StrCat("node group \"", group.name, "\" of the cluster ");
    LYNX_RETURN_IF_ERROR(CheckGroup(group, where));
    devices += group.devices();
    if (devices > kMaxDevices) {
      return absl::InvalidArgumentError(
          absl::StrCat("the cluster has ", devices, " devices or more; at most ", kMaxDevices, " can be planned for"));
    }
  }
  for (const SharedCores& shared : cluster.shared_cores) LYNX_RETURN_IF_ERROR(CheckShared(shared));
  return absl::OkStatus();
}

std::string NodesText(const ClusterTopology& cluster) {
  return absl::StrJoin(cluster.groups, " and ", [](std::string* out, const NodeGroup& group) {
    absl::StrAppend(out, group.nodes, " nodes of ", group.devices_per_node);
  });
}

std::vector<int32_t> GroupsOfStage(const ClusterTopology& cluster, const ParallelLayout& layout, int32_t stage) {
  if (cluster.groups.size() == 1) return {0};
  std::vector<int32_t> found;
  for (int32_t dp = 0; dp < layout.dp; ++dp) {
    const int32_t first = RankOf(layout, {0, stage, dp});
    const int32_t last = RankOf(layout, {layout.tp - 1, stage, dp, layout.cp - 1});
    for (int32_t group = cluster.GroupOfRank(first); group <= cluster.GroupOfRank(last); ++group) {
      found.push_back(group);
    }
  }
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

Bytes DeviceMemoryOfStage(const ClusterTopology& cluster, const ParallelLayout& layout, int32_t stage) {
  Bytes least;
  for (const int32_t group : GroupsOfStage(cluster, layout, stage)) {
    const Bytes memory = cluster.groups[group].memory_per_device;
    if (memory.value > 0 && (least.value == 0 || memory < least)) least = memory;
  }
  return least;
}

std::optional<Bytes> HostShareOfStage(const ClusterTopology& cluster, const ParallelLayout& layout, int32_t stage,
                                      Bytes taken) {
  std::optional<Bytes> least;
  for (const int32_t group : GroupsOfStage(cluster, layout, stage)) {
    const NodeGroup& nodes = cluster.groups[static_cast<size_t>(group)];
    const Bytes known = nodes.host_is_device ? nodes.memory_per_device : nodes.host_memory;
    if (known.value == 0) continue;
    const Bytes share = nodes.host_is_device ? std::max(Bytes(0), known - taken) : known / nodes.devices_per_node;
    least = least ? std::min(*least, share) : share;
  }
  return least;
}

HardwareProfile SlowerProfile(HardwareProfile a, const HardwareProfile& b) {
  a.measured = SharedShapes(a.measured, b);
  if (a.device_kind != b.device_kind) a.device_kind = "mixed";
  if (a.bfloat16_flops_per_second != b.bfloat16_flops_per_second) {
    a.bfloat16_flops_per_second = std::min(a.FlopsPerSecond(DataType::kBfloat16), b.FlopsPerSecond(DataType::kBfloat16));
  }
  a.flops_per_second = std::min(a.flops_per_second, b.flops_per_second);
  a.float8_flops_per_second = std::min(a.float8_flops_per_second, b.float8_flops_per_second);
  a.float4_flops_per_second = std::min(a.float4_flops_per_second, b.float4_flops_per_second);
  a.memory_bytes_per_second = std::min(a.memory_bytes_per_second, b.memory_bytes_per_second);
  a.op_overhead = std::max(a.op_overhead, b.op_overhead);
  for (size_t i = 0; i < a.efficiency.size(); ++i) TakeSlower(a.efficiency[i], b.efficiency[i]);
  a.gemm_tiles = SlowerTiles(a.gemm_tiles, b.gemm_tiles);
  TakeSlower(a.inner_links, b.inner_links);
  TakeSlower(a.host, b.host);
  TakeSlower(a.intra_node, b.intra_node);
  TakeSlower(a.inter_node, b.inter_node);
  a.adapters = std::min(a.adapters, b.adapters);
  // The ranks of a group may fill smaller pods first. If a kind of node has no pods, the pods of the other kind are used.
  if (a.pod_nodes == 0 || (b.pod_nodes > 0 && b.pod_nodes < a.pod_nodes)) a.pod_nodes = b.pod_nodes;
  a.oversubscription_permille = std::max(a.oversubscription_permille, b.oversubscription_permille);
  a.overlap_slowdown_permille = std::max(a.overlap_slowdown_permille, b.overlap_slowdown_permille);
  a.communication_compute_permille = std::max(a.communication_compute_permille, b.communication_compute_permille);
  return a;
}

HardwareProfile SlowestProfile(const ClusterTopology& cluster) {
  LYNX_CHECK(!cluster.groups.empty());
  HardwareProfile slowest = cluster.groups.front().profile;
  for (size_t i = 1; i < cluster.groups.size(); ++i) slowest = SlowerProfile(std::move(slowest), cluster.groups[i].profile);
  return slowest;
}

}  // namespace lynx
