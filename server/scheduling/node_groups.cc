#include "server/scheduling/node_groups.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "server/scheduling/slowest_profile.h"

namespace lynx::server {
namespace {

bool Close(double a, double b) {
  const auto [low, high] = std::minmax(a, b);
  return high * 100 <= low * (100 + kAlikePercent);
}

bool Close(const LinkCost& a, const LinkCost& b) {
  const auto time = [](const LinkCost& link) {
    return static_cast<double>(link.latency.value) +
           static_cast<double>(kMiB.value) * 1e9 / static_cast<double>(std::max<int64_t>(1, link.bytes_per_second));
  };
  return Close(time(a), time(b));
}

double TimeOf(const ShapeTimes& times) {
  double sum = 0;
  for (const OpTimes& op : times.ops) sum += static_cast<double>((op.forward + op.backward + op.weight).value);
  return sum;
}

// True if `places` consists of whole blocks: each block has `block` consecutive places and begins at a multiple of `block`.
bool AreBlocks(const std::vector<int32_t>& places, int32_t block) {
  if (static_cast<int32_t>(places.size()) % block != 0) return false;
  for (size_t i = 0; i < places.size(); ++i) {
    const size_t first = i / static_cast<size_t>(block) * static_cast<size_t>(block);
    if (places[first] % block != 0 || places[i] != places[first] + static_cast<int32_t>(i - first)) return false;
  }
  return true;
}

}  // namespace

bool Alike(const HardwareProfile& a, const HardwareProfile& b) {
  if (a.device_kind != b.device_kind) return false;
  if (!Close(a.intra_node, b.intra_node) || !Close(a.inter_node, b.inter_node) || a.adapters != b.adapters) return false;
  bool shared = false;
  for (const ShapeTimes& times : a.measured) {
    for (const ShapeTimes& other : b.measured) {
      if (times.shape != other.shape) continue;
      if (!Close(TimeOf(times), TimeOf(other))) return false;
      shared = true;
    }
  }
  return shared || (Close(static_cast<double>(a.flops_per_second), static_cast<double>(b.flops_per_second)) &&
                    Close(static_cast<double>(a.memory_bytes_per_second), static_cast<double>(b.memory_bytes_per_second)));
}

bool AlikeMemory(Bytes a, Bytes b) {
  return a == Bytes(0) || b == Bytes(0) || Close(static_cast<double>(a.value), static_cast<double>(b.value));
}

std::vector<std::shared_ptr<const HardwareProfile>> ShareShapes(std::vector<std::shared_ptr<const HardwareProfile>> profiles) {
  const auto has = [](const HardwareProfile& profile, const LayerShape& shape) {
    return std::any_of(profile.measured.begin(), profile.measured.end(),
                       [&](const ShapeTimes& times) { return times.shape == shape; });
  };
  const std::vector<std::shared_ptr<const HardwareProfile>> own = profiles;
  std::vector<LayerShape> all;
  for (const std::shared_ptr<const HardwareProfile>& profile : own) {
    if (profile == nullptr) continue;
    for (const ShapeTimes& times : profile->measured) {
      if (std::find(all.begin(), all.end(), times.shape) == all.end()) all.push_back(times.shape);
    }
  }
  for (size_t i = 0; i < own.size(); ++i) {
    // Most nodes have measured all shapes. They are skipped, because comparing thousands of nodes with each other takes long.
    if (own[i] == nullptr || std::all_of(all.begin(), all.end(), [&](const LayerShape& shape) { return has(*own[i], shape); }))
      continue;
    for (const std::shared_ptr<const HardwareProfile>& other : own) {
      if (profiles[i]->measured.size() == all.size()) break;  // nothing is missing any more
      if (other == nullptr || !Alike(*own[i], *other)) continue;
      for (const ShapeTimes& times : other->measured) {
        if (has(*profiles[i], times.shape)) continue;
        HardwareProfile more = *profiles[i];
        more.measured.push_back(times);
        profiles[i] = std::make_shared<const HardwareProfile>(std::move(more));
      }
    }
  }
  return profiles;
}

ClusterTopology GroupNodes(const ClusterTopology& nodes, const std::vector<std::shared_ptr<const HardwareProfile>>& profiles,
                           const std::vector<Bytes>& memory) {
  LYNX_CHECK(nodes.groups.size() == 1 && static_cast<size_t>(nodes.nodes()) == profiles.size());
  LYNX_CHECK(memory.empty() || memory.size() == profiles.size());
  const HardwareProfile slowest = SlowestProfile(profiles);
  struct Kind {
    const HardwareProfile* first;  // the profile of its first node
    HardwareProfile slowest;
    Bytes least, most;  // the known memory of a device; 0: none is known
  };
  std::vector<Kind> kinds;
  std::vector<size_t> kind_of;  // one entry for each node
  for (size_t node = 0; node < profiles.size(); ++node) {
    const HardwareProfile& profile = profiles[node] == nullptr ? slowest : *profiles[node];
    const Bytes own = memory.empty() ? Bytes(0) : memory[node];
    // The node is compared with both the first and the slowest node of the kind, and with the least and the most memory.
    // Otherwise small differences between nodes could add up within a kind.
    const auto fits = [&](const Kind& kind) {
      return Alike(*kind.first, profile) && Alike(kind.slowest, profile) && AlikeMemory(kind.least, own) &&
             AlikeMemory(kind.most, own);
    };
    size_t kind = kind_of.empty() ? 0 : kind_of.back();
    if (kinds.empty() || !fits(kinds[kind]))
      kind = static_cast<size_t>(std::find_if(kinds.begin(), kinds.end(), fits) - kinds.begin());
    if (kind == kinds.size()) {
      kinds.push_back({&profile, profile, own, own});
    } else {
      kinds[kind].slowest = SlowerProfile(std::move(kinds[kind].slowest), profile);
      if (own > Bytes(0)) kinds[kind].least = kinds[kind].least == Bytes(0) ? own : std::min(kinds[kind].least, own);
      kinds[kind].most = std::max(kinds[kind].most, own);
    }
    kind_of.push_back(kind);
  }
  ClusterTopology grouped;
  for (size_t node = 0; node < kind_of.size(); ++node) {
    if (node > 0 && kind_of[node] == kind_of[node - 1]) {
      ++grouped.groups.back().nodes;
      continue;
    }
    NodeGroup& group = grouped.groups.emplace_back(nodes.groups.front());
    group.nodes = 1;
    group.profile = kinds[kind_of[node]].slowest;
    if (!memory.empty()) group.memory_per_device = kinds[kind_of[node]].least;
    if (kinds.size() > 1) group.name = absl::StrCat("group ", kind_of[node]);
  }
  return grouped;
}

void TakeShares(const std::vector<NodeShare>& shares, NodeGroup& group) {
  std::optional<Bytes> least;  // smallest host memory per device
  for (const NodeShare& share : shares) {
    const Bytes one = share.host_memory / std::max(1, share.devices);
    least = std::min(least.value_or(one), one);
  }
  group.host_memory = least.value_or(Bytes(0)) * group.devices_per_node;
  std::erase_if(group.profile.inner_links, [&](const LinkLevel& level) {
    return !std::all_of(shares.begin(), shares.end(),
                        [&](const NodeShare& share) { return AreBlocks(share.places, level.devices); });
  });
}

}  // namespace lynx::server
