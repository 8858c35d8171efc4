// See whole_cluster.h.
#include "server/scheduling/whole_cluster.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/scheduling/node_groups.h"

namespace lynx::server {
namespace {

std::vector<const WholeNode*> Usable(const std::vector<WholeNode>& nodes) {
  std::vector<const WholeNode*> together, alone;
  for (const WholeNode& node : nodes) {
    if (node.profile == nullptr || node.devices.free.empty()) continue;
    (node.devices.alone ? alone : together).push_back(&node);
  }
  if (!together.empty() || alone.empty()) return together;
  return {alone.front()};
}

// `nodes` have the same number of devices each. Adds their groups to `groups`, and the nodes of each group, in order, to
// `members`.
void AddGroups(const std::vector<const WholeNode*>& nodes, std::vector<NodeGroup>& groups,
               std::vector<std::vector<const WholeNode*>>& members) {
  std::vector<std::shared_ptr<const HardwareProfile>> profiles;
  std::vector<Bytes> memory;
  for (const WholeNode* node : nodes) {
    profiles.push_back(node->profile);
    memory.push_back(node->devices.memory_per_device);
  }
  profiles = ShareShapes(std::move(profiles));
  const int32_t per_node = static_cast<int32_t>(nodes.front()->devices.free.size());
  const ClusterTopology grouped = GroupNodes(UniformCluster(static_cast<int32_t>(nodes.size()), per_node), profiles, memory);
  std::map<std::string, size_t> group_of;  // by GroupNodes' name of the kind
  size_t next = 0;
  for (const NodeGroup& run : grouped.groups) {
    const auto [at, added] = group_of.try_emplace(run.name, groups.size());
    if (added) {
      groups.push_back(run);
      groups.back().nodes = 0;
      members.emplace_back();
    }
    groups[at->second].nodes += run.nodes;
    for (int32_t i = 0; i < run.nodes; ++i) members[at->second].push_back(nodes[next++]);
  }
}

void DescribeHostMemory(const std::vector<const WholeNode*>& nodes, NodeGroup& group) {
  std::vector<NodeShare> shares;
  for (const WholeNode* node : nodes) {
    NodeShare& share = shares.emplace_back(NodeShare{.devices = group.devices_per_node, .host_memory = node->host_memory});
    for (int32_t place = 0; place < group.devices_per_node; ++place) share.places.push_back(place);
  }
  // A CPU's device memory is the host's memory, so the planner must not count it a second time for offloading.
  group.host_is_device = nodes.front()->kind == DeviceKind::kCpu;
  if (!group.host_is_device) TakeShares(shares, group);
}

}  // namespace

ClusterTopology WholeCluster(const std::vector<WholeNode>& nodes) {
  std::vector<size_t> sizes;
  std::map<size_t, std::vector<const WholeNode*>> by_size;  // by the number of a node's devices
  for (const WholeNode* node : Usable(nodes)) {
    std::vector<const WholeNode*>& alike = by_size[node->devices.free.size()];
    if (alike.empty()) sizes.push_back(node->devices.free.size());
    alike.push_back(node);
  }
  ClusterTopology cluster;
  std::vector<std::vector<const WholeNode*>> members;
  for (const size_t size : sizes) AddGroups(by_size[size], cluster.groups, members);
  std::vector<CoreUse> uses;
  for (size_t i = 0; i < cluster.groups.size(); ++i) {
    cluster.groups[i].name = absl::StrCat("kind ", i + 1);
    DescribeHostMemory(members[i], cluster.groups[i]);
    for (const WholeNode* node : members[i]) uses.insert(uses.end(), node->cores.begin(), node->cores.end());
  }
  cluster.shared_cores = SharedCoresOf(uses);
  return cluster;
}

}  // namespace lynx::server
