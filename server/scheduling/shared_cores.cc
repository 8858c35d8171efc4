// See shared_cores.h.
#include "server/scheduling/shared_cores.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"

namespace lynx::server {
namespace {

// Adds the devices to `shared` if together they need more cores than they have. `permille`: the cores that they have, in
// thousandths of a core.
void AddIfShort(const std::vector<CoreUse>& users, std::vector<int32_t> devices, int64_t permille,
                std::vector<SharedCores>& shared) {
  size_t threads = 1;
  for (const int32_t device : devices) threads = std::max(threads, users[static_cast<size_t>(device)].cores.size());
  const int64_t at_once = std::max<int64_t>(1, permille / static_cast<int64_t>(threads));
  if (at_once >= 1000 * std::ssize(devices)) return;
  shared.push_back({std::move(devices), static_cast<int32_t>(at_once)});
}

// Returns for each device the index of the first device whose cores overlap with its own, directly or through other devices.
std::vector<int32_t> OverlappingFrom(const std::vector<CoreUse>& users) {
  std::vector<int32_t> first(users.size());
  std::iota(first.begin(), first.end(), 0);
  const auto root = [&](int32_t device) {
    while (first[static_cast<size_t>(device)] != device) device = first[static_cast<size_t>(device)];
    return device;
  };
  std::map<std::pair<std::string, int32_t>, int32_t> user_of;  // for each machine and core, the first device that uses it
  for (int32_t device = 0; device < std::ssize(users); ++device) {
    for (const int32_t core : users[static_cast<size_t>(device)].cores) {
      const auto [user, added] = user_of.try_emplace({users[static_cast<size_t>(device)].machine, core}, device);
      if (added) continue;
      const int32_t other = root(user->second), own = root(device);
      first[static_cast<size_t>(std::max(other, own))] = std::min(other, own);
    }
  }
  for (int32_t device = 0; device < std::ssize(users); ++device) first[static_cast<size_t>(device)] = root(device);
  return first;
}

}  // namespace

CoreUse CoreUseOf(const AgentState& node, int32_t device) {
  const auto found =
      std::find_if(node.devices.begin(), node.devices.end(), [&](const Device& one) { return one.index == device; });
  if (found == node.devices.end() || found->kind != DeviceKind::kCpu) return {};
  const std::string own = absl::StrCat("node ", node.node.value);
  return {.machine = node.cores.machine.empty() ? own : node.cores.machine,
          .cores = found->cores,
          .limit_group = node.cores.limit_group.empty() ? own : node.cores.limit_group,
          .limit_permille = node.cores.limit_permille};
}

std::vector<SharedCores> SharedCoresOf(const std::vector<CoreUse>& devices) {
  struct Members {
    std::vector<int32_t> devices;
    std::set<int32_t> cores;
    int64_t limit_permille = 0;
  };
  std::map<int32_t, Members> overlapping;
  std::map<std::string, Members> limited;
  const std::vector<int32_t> first = OverlappingFrom(devices);
  for (int32_t i = 0; i < std::ssize(devices); ++i) {
    const CoreUse& use = devices[static_cast<size_t>(i)];
    if (use.cores.empty()) continue;
    Members& sharing = overlapping[first[static_cast<size_t>(i)]];
    sharing.devices.push_back(i);
    sharing.cores.insert(use.cores.begin(), use.cores.end());
    if (use.limit_permille == 0) continue;
    Members& of_limit = limited[use.limit_group];
    of_limit.devices.push_back(i);
    // Devices of one group report the same limit, unless the limit changed between the starts of their agents. In that case the
    // lowest limit is used.
    of_limit.limit_permille =
        of_limit.limit_permille == 0 ? use.limit_permille : std::min(of_limit.limit_permille, use.limit_permille);
  }
  std::vector<SharedCores> shared;
  for (auto& [group, members] : overlapping) {
    AddIfShort(devices, std::move(members.devices), 1000 * std::ssize(members.cores), shared);
  }
  for (auto& [group, members] : limited) AddIfShort(devices, std::move(members.devices), members.limit_permille, shared);
  return shared;
}

}  // namespace lynx::server
