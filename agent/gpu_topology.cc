#include "agent/gpu_topology.h"

#include <algorithm>
#include <functional>

namespace lynx::agent {
namespace {

using Joined = std::function<bool(const NodeDevice&, const NodeDevice&)>;

bool Has(const std::vector<int32_t>& indices, const NodeDevice& device) {
  return std::find(indices.begin(), indices.end(), device.index) != indices.end();
}

// The size of the blocks; 0: the devices do not form several equal blocks of two or more.
int32_t BlockOf(const std::vector<NodeDevice>& devices, const Joined& joined) {
  const auto count = static_cast<int32_t>(devices.size());
  int32_t block = 1;
  while (block < count && joined(devices[0], devices[static_cast<size_t>(block)])) ++block;
  if (block < 2 || block == count || count % block != 0) return 0;
  for (int32_t i = 0; i < count; ++i) {
    for (int32_t j = 0; j < count; ++j) {
      if (i == j) continue;
      if (joined(devices[static_cast<size_t>(i)], devices[static_cast<size_t>(j)]) != (i / block == j / block)) return 0;
    }
  }
  return block;
}

}  // namespace

std::vector<int32_t> LinkBlocks(const std::vector<NodeDevice>& devices) {
  std::vector<int32_t> blocks;
  if (devices.empty()) return blocks;
  const Joined by_nvlink = [](const auto& a, const auto& b) { return Has(a.nvlinks, b); };
  const Joined by_switch = [&](const auto& a, const auto& b) { return by_nvlink(a, b) || Has(a.pcie_neighbours, b); };
  const Joined by_node = [&](const auto& a, const auto& b) {
    return by_switch(a, b) || (a.numa_node >= 0 && a.numa_node == b.numa_node);
  };
  for (const Joined& joined : {by_nvlink, by_switch, by_node}) {
    const int32_t block = BlockOf(devices, joined), last = blocks.empty() ? 1 : blocks.back();
    if (block > last && block % last == 0) blocks.push_back(block);
  }
  return blocks;
}

}  // namespace lynx::agent
