// How a node's GPUs lie to each other, as far as plans ask: whether neighbours form blocks that are joined more closely than
// the rest. Pure.
#ifndef LYNX_AGENT_GPU_TOPOLOGY_H_
#define LYNX_AGENT_GPU_TOPOLOGY_H_

#include <cstdint>
#include <vector>

#include "agent/probe.h"

namespace lynx {

// Sizes of aligned blocks of neighbours, in the order of the devices, of which each GPU is joined to those of its block and to
// no other: by NVLink; or by that or below one PCIe switch; or by these or on one NUMA node. Ascending, each divides the next
// and the number of devices. None where all are joined alike, or not in blocks.
std::vector<int32_t> LinkBlocks(const std::vector<NodeDevice>& devices);

}  // namespace lynx

#endif  // LYNX_AGENT_GPU_TOPOLOGY_H_
