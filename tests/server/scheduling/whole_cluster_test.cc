#include "server/scheduling/whole_cluster.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace lynx::server {
namespace {

std::shared_ptr<const HardwareProfile> Profile(int64_t speed, const std::string& kind = "device") {
  HardwareProfile profile = StatedCpuProfile();
  profile.device_kind = kind;
  profile.flops_per_second *= speed;
  profile.memory_bytes_per_second *= speed;
  return std::make_shared<const HardwareProfile>(profile);
}

WholeNode Node(int number, int devices, std::shared_ptr<const HardwareProfile> profile, DeviceKind kind = DeviceKind::kCuda) {
  WholeNode node{.devices = {.node = NodeId(absl::StrCat("node", number)), .memory_per_device = kGiB * 8},
                 .kind = kind,
                 .profile = std::move(profile),
                 .host_memory = kGiB * 64};
  for (int i = 0; i < devices; ++i) node.devices.free.push_back(i);
  node.cores.resize(static_cast<size_t>(devices));
  return node;
}

TEST(WholeCluster, NodesThatAreAlikeAreOneGroupWithTheSmallestMemory) {
  std::vector<WholeNode> nodes = {Node(0, 4, Profile(10)), Node(1, 4, Profile(1)), Node(2, 4, Profile(10)),
                                  Node(3, 8, Profile(10))};
  nodes[2].devices.memory_per_device = kGiB * 7;
  nodes[2].host_memory = kGiB * 32;
  const ClusterTopology cluster = WholeCluster(nodes);
  ASSERT_EQ(cluster.groups.size(), 3u);
  const NodeGroup& first = cluster.groups[0];
  EXPECT_EQ(first.name, "kind 1");
  EXPECT_EQ(first.nodes, 2);
  EXPECT_EQ(first.devices_per_node, 4);
  EXPECT_EQ(first.memory_per_device, kGiB * 7);
  EXPECT_EQ(first.host_memory, kGiB * 32);
  EXPECT_FALSE(first.host_is_device);
  EXPECT_EQ(first.profile, *Profile(10));
  EXPECT_EQ(cluster.groups[1].name, "kind 2");
  EXPECT_EQ(cluster.groups[1].profile, *Profile(1));
  EXPECT_EQ(cluster.groups[2].devices_per_node, 8);
  EXPECT_EQ(cluster.devices(), 20);
  EXPECT_TRUE(CheckCluster(cluster).ok());
}

TEST(WholeCluster, NodesWithClearlyMoreMemoryAreAGroupOfTheirOwn) {
  std::vector<WholeNode> nodes = {Node(0, 4, Profile(1)), Node(1, 4, Profile(1)), Node(2, 4, Profile(1))};
  nodes[1].devices.memory_per_device = kGiB * 16;
  const ClusterTopology cluster = WholeCluster(nodes);
  ASSERT_EQ(cluster.groups.size(), 2u);
  EXPECT_EQ(cluster.groups[0].nodes, 2);
  EXPECT_EQ(cluster.groups[0].memory_per_device, kGiB * 8);
  EXPECT_EQ(cluster.groups[1].memory_per_device, kGiB * 16);
}

TEST(WholeCluster, LeavesOutNodesThatNothingIsKnownOf) {
  const std::vector<WholeNode> nodes = {Node(0, 4, nullptr), Node(1, 0, Profile(1)), Node(2, 2, Profile(1))};
  EXPECT_EQ(WholeCluster(nodes).nodes(), 1);
  EXPECT_TRUE(WholeCluster({nodes[0], nodes[1]}).groups.empty());
  EXPECT_TRUE(WholeCluster({}).groups.empty());
}

TEST(WholeCluster, ANodeThatMustBeAloneIsNotPartOfACluster) {
  std::vector<WholeNode> nodes = {Node(0, 4, Profile(1)), Node(1, 8, Profile(1)), Node(2, 8, Profile(1))};
  nodes[0].devices.alone = true;
  EXPECT_EQ(WholeCluster(nodes).devices(), 16);
  nodes[1].devices.alone = nodes[2].devices.alone = true;
  EXPECT_EQ(WholeCluster(nodes).devices(), 4);
}

// The numbers of devices follow the groups, not the nodes' order.
TEST(WholeCluster, RanksOfCpusShareMemoryAndCores) {
  std::vector<WholeNode> nodes = {Node(0, 2, Profile(1), DeviceKind::kCpu), Node(1, 2, Profile(10), DeviceKind::kCpu),
                                  Node(2, 2, Profile(1), DeviceKind::kCpu)};
  for (CoreUse& use : nodes[2].cores) use = {.machine = "m", .cores = {0}};
  const ClusterTopology cluster = WholeCluster(nodes);
  ASSERT_EQ(cluster.groups.size(), 2u);
  EXPECT_TRUE(cluster.groups[0].host_is_device);
  EXPECT_EQ(cluster.groups[0].host_memory, Bytes(0));
  const std::vector<SharedCores> shared = {{.devices = {2, 3}, .at_once_permille = 1000}};
  EXPECT_EQ(cluster.shared_cores, shared);
}

}  // namespace
}  // namespace lynx::server
