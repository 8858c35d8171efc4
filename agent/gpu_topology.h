// The connections between a node's GPUs that plans need to know: whether neighbours form blocks that are connected more closely
// than the rest. Pure.
#ifndef LYNX_AGENT_GPU_TOPOLOGY_H_
#define LYNX_AGENT_GPU_TOPOLOGY_H_

#include <cstdint>
#include <vector>

#include "agent/probe.h"

namespace lynx::agent {

// Sizes of aligned blocks of consecutive devices, such that each GPU is connected to all GPUs of its block and to no other.
// There is at most one size for each meaning of "connected": by NVLink; by NVLink or below one PCIe switch; by one of these or
// on one NUMA node. The sizes ascend; each divides the next, and the number of devices. Empty if all devices are connected
// alike, or if they do not form blocks.
std::vector<int32_t> LinkBlocks(const std::vector<NodeDevice>& devices);

}  // namespace lynx::agent

#endif  // LYNX_AGENT_GPU_TOPOLOGY_H_
