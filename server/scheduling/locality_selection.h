// Which of many nodes lie close together in the network. Pure; thread-safe.
#ifndef LYNX_SERVER_SCHEDULING_LOCALITY_SELECTION_H_
#define LYNX_SERVER_SCHEDULING_LOCALITY_SELECTION_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "server/scheduling/placement.h"

namespace lynx {

// In near order: by domain, slow ones last, then by name. Nodes of a part of the network are then one after another.
void SortNear(std::vector<NodeDevices>& nodes);

// How much of what is needed a node offers: 0 or more.
using Capacity = std::function<int64_t(const NodeDevices&)>;

// Nodes that together offer `needed`, in near order: inside the closest part of the network that has it, of several the one
// that has least to spare; where no part alone has it, in few parts, the largest first. What has to be had of a part is had of
// as few of its own parts, and so on; of nodes that lie equally close the first. All of them where they do not offer as much.
// `nodes` in near order.
std::vector<NodeDevices> Nearest(const std::vector<NodeDevices>& nodes, int64_t needed, const Capacity& capacity);

}  // namespace lynx

#endif  // LYNX_SERVER_SCHEDULING_LOCALITY_SELECTION_H_
