// See availability.h.
#include "server/scheduling/availability.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "server/scheduling/locality_selection.h"

namespace lynx::server {

std::vector<NodeDevices> With(std::vector<NodeDevices> free, const std::vector<DeviceRef>& devices, const NodeFacts& facts) {
  std::map<NodeId, std::vector<int32_t>> added;
  for (const DeviceRef& device : devices) added[device.node].push_back(device.device);
  for (NodeDevices& node : free) {
    const auto more = added.find(node.node);
    if (more == added.end()) continue;
    node.free.insert(node.free.end(), more->second.begin(), more->second.end());
    std::sort(node.free.begin(), node.free.end());
    added.erase(more);
  }
  if (added.empty()) return free;
  for (auto& [name, indices] : added) {
    std::sort(indices.begin(), indices.end());
    free.push_back(facts(name));
    free.back().free = std::move(indices);
  }
  SortByLocality(free);
  return free;
}

std::vector<NodeDevices> Without(const std::vector<NodeDevices>& free, const std::vector<DeviceRef>& devices) {
  const std::set<DeviceRef> taken(devices.begin(), devices.end());
  std::vector<NodeDevices> left;
  for (const NodeDevices& node : free) {
    NodeDevices kept = node;
    kept.free.clear();
    for (const int32_t device : node.free) {
      if (!taken.contains(DeviceRef{node.node, device})) kept.free.push_back(device);
    }
    if (!kept.free.empty()) left.push_back(std::move(kept));
  }
  return left;
}

std::vector<NodeDevices> WithoutNodes(std::vector<NodeDevices> free, const std::vector<NodeId>& nodes) {
  std::erase_if(free, [&](const NodeDevices& node) { return std::find(nodes.begin(), nodes.end(), node.node) != nodes.end(); });
  return free;
}

std::optional<Expectation> WhenFits(const std::vector<NodeDevices>& free, std::vector<Release> releases, const NodeFacts& facts,
                                    const Fit& fit) {
  std::stable_sort(releases.begin(), releases.end(), [](const Release& a, const Release& b) { return a.at < b.at; });
  const auto after = [&](size_t count) {
    std::vector<DeviceRef> given;
    for (size_t i = 0; i < count; ++i) given.insert(given.end(), releases[i].devices.begin(), releases[i].devices.end());
    return fit(With(free, given, facts));
  };
  if (releases.empty() || !after(releases.size()).has_value()) return std::nullopt;
  // Binary search for the fewest releases that are enough: the first `low` releases are not enough, the first `high` are.
  size_t low = 0, high = releases.size();
  while (high - low > 1) {
    const size_t middle = (low + high) / 2;
    (after(middle).has_value() ? high : low) = middle;
  }
  return Expectation{releases[high - 1].at, *after(high)};
}

std::optional<std::vector<size_t>> WhoMakesRoom(const std::vector<NodeDevices>& free,
                                                const std::vector<std::vector<DeviceRef>>& holders, const NodeFacts& facts,
                                                const Fit& fit) {
  const auto fits = [&](const std::vector<size_t>& chosen) {
    std::vector<DeviceRef> given;
    for (const size_t i : chosen) given.insert(given.end(), holders[i].begin(), holders[i].end());
    return fit(With(free, given, facts)).has_value();
  };
  const auto first = [](size_t count) {
    std::vector<size_t> indices(count);
    std::iota(indices.begin(), indices.end(), size_t{0});
    return indices;
  };
  if (!fits(first(holders.size()))) return std::nullopt;
  size_t enough = 0;
  for (size_t low = 0, high = holders.size(); low < high;) {
    const size_t middle = (low + high) / 2;
    if (fits(first(middle))) {
      high = middle;
    } else {
      low = middle + 1;
    }
    enough = high;
  }
  std::vector<size_t> chosen = first(enough);
  // Removes holders that are not needed, beginning with the holder that is asked last.
  for (size_t i = chosen.size(); i-- > 0;) {
    std::vector<size_t> fewer = chosen;
    fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i));
    if (fits(fewer)) chosen = std::move(fewer);
  }
  return chosen;
}

}  // namespace lynx::server
