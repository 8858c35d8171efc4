// Planned kinds: places the ranks of a plan that was made for nodes of several kinds (node_groups.h), if the plan begins on
// other nodes than those that it was made for, or begins again. In such a plan, the work of a stage suits the kind of nodes for
// which it was planned. Pure; thread-safe.
#ifndef LYNX_SERVER_SCHEDULING_PLANNED_KINDS_H_
#define LYNX_SERVER_SCHEDULING_PLANNED_KINDS_H_

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "planner/cost/cluster_topology.h"
#include "server/scheduling/placement.h"

namespace lynx::server {

// The present profile of a node; null: unknown.
using ProfileOf = std::function<std::shared_ptr<const HardwareProfile>(const NodeId&)>;

// Places the ranks by the rules of PlaceRanks, on nodes in the order of `planned`, the cluster that the plan was made for. Each
// node of `planned` gets its place taken by a free node that is alike (Alike and AlikeMemory in node_groups.h); of several such
// nodes, by those that lie closest together. Where no free node is alike, other nodes take the places, first those whose
// devices have at least as much memory. A node of unknown memory (0) may be alike, but among the other nodes it is not known
// to have enough, and comes last. Only whole nodes of `planned` are used: a node with fewer free devices than a node of
// `planned` has is left out. nullopt: the ranks do not all fit in this way. `nodes` must be in locality order
// (locality_selection.h).
std::optional<std::vector<DeviceRef>> PlaceRanksByKind(const ParallelLayout& layout, const ClusterTopology& planned,
                                                       const std::vector<NodeDevices>& nodes, const ProfileOf& profile_of);

}  // namespace lynx::server

#endif  // LYNX_SERVER_SCHEDULING_PLANNED_KINDS_H_
