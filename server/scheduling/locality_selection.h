// Locality selection: chooses nodes that lie close together in the network. Pure; thread-safe.
#ifndef LYNX_SERVER_SCHEDULING_LOCALITY_SELECTION_H_
#define LYNX_SERVER_SCHEDULING_LOCALITY_SELECTION_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "server/scheduling/placement.h"

namespace lynx::server {

// A kind of nodes counts as clearly faster than another if its devices compute at more than this many percent of the other's
// rate. The limit is far from 100, because measurements of equal nodes differ by up to 25% (node_groups.h).
inline constexpr int kFasterPercent = 150;

// Sorts into locality order: by domain, then slow nodes last, then clearly faster kinds of nodes first, then by name. Nodes in
// the same part of the network are then neighbours.
void SortByLocality(std::vector<NodeDevices>& nodes);

// Returns how many units a node offers, such as devices or tensor-parallel groups; 0 or more. `needed` counts the same units.
using Capacity = std::function<int64_t(const NodeDevices&)>;

// Chooses nodes that together offer `needed`. If some part of the network alone offers `needed`, the part whose nodes are
// closest together is taken; of several such parts, the one with the least left over. Otherwise several parts are taken, the
// largest first, so that there are few of them. The same rule applies within each part. If nodes are equally close, the first
// are taken. If all nodes together do not offer enough, all are returned. `nodes` and the result are in locality order.
std::vector<NodeDevices> SelectByLocality(const std::vector<NodeDevices>& nodes, int64_t needed, const Capacity& capacity);

}  // namespace lynx::server

#endif  // LYNX_SERVER_SCHEDULING_LOCALITY_SELECTION_H_
