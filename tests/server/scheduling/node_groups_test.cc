#include "server/scheduling/node_groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lynx::server {
namespace {

using ::testing::ElementsAre;
using Profiles = std::vector<std::shared_ptr<const HardwareProfile>>;

HardwareProfile Measured(int64_t permille) {
  HardwareProfile profile = StatedCpuProfile();
  ShapeTimes times{.shape = {.micro_batch = 1}};
  times.ops.fill({Nanos(permille), Nanos(2 * permille), Nanos(0)});
  profile.measured = {times};
  return profile;
}

std::shared_ptr<const HardwareProfile> Shared(HardwareProfile profile) {
  return std::make_shared<const HardwareProfile>(std::move(profile));
}

std::vector<int32_t> Sizes(const ClusterTopology& cluster) {
  std::vector<int32_t> sizes;
  for (const NodeGroup& group : cluster.groups) sizes.push_back(group.nodes);
  return sizes;
}

TEST(NodeGroups, NodesThatAgreeAreOneGroupWithTheSlowestFigures) {
  const ClusterTopology cluster =
      GroupNodes(UniformCluster(3, 2, {}, kGiB), {Shared(Measured(1000)), nullptr, Shared(Measured(1200))});
  ASSERT_THAT(Sizes(cluster), ElementsAre(3));
  EXPECT_EQ(cluster, UniformCluster(3, 2, Measured(1200), kGiB));
}

TEST(NodeGroups, AClearlySlowerNodeIsAGroupOfItsOwn) {
  const ClusterTopology cluster = GroupNodes(UniformCluster(4, 2, {}, kGiB), {Shared(Measured(1000)), Shared(Measured(1100)),
                                                                              Shared(Measured(2000)), Shared(Measured(1000))});
  ASSERT_THAT(Sizes(cluster), ElementsAre(2, 1, 1));
  EXPECT_EQ(cluster.groups[0].profile, Measured(1100));
  EXPECT_EQ(cluster.groups[1].profile, Measured(2000));
  EXPECT_EQ(cluster.groups[2].memory_per_device, kGiB);
  EXPECT_EQ(cluster.groups[1].name, "group 1");
  EXPECT_EQ(CheckCluster(cluster), absl::OkStatus());
}

TEST(NodeGroups, NodesOfOneKindAreKnownWhereverTheyStand) {
  Profiles profiles;
  for (int64_t permille : {1000, 2000, 1200, 2100, 1100}) profiles.push_back(Shared(Measured(permille)));
  const ClusterTopology cluster = GroupNodes(UniformCluster(5, 2, {}, kGiB), profiles);
  ASSERT_THAT(Sizes(cluster), ElementsAre(1, 1, 1, 1, 1));
  for (const size_t group : {0, 2, 4}) {
    EXPECT_EQ(cluster.groups[group], cluster.groups[0]);
    EXPECT_EQ(cluster.groups[group].profile, Measured(1200)) << "the slowest figures of the kind";
  }
  EXPECT_EQ(cluster.groups[0].name, "group 0");
  EXPECT_EQ(cluster.groups[1], cluster.groups[3]);
  EXPECT_EQ(cluster.groups[3].name, "group 1");
}

TEST(NodeGroups, AGroupDoesNotDriftFromNodeToNode) {
  Profiles profiles;
  for (int64_t permille : {1000, 1200, 1400, 1600}) profiles.push_back(Shared(Measured(permille)));
  EXPECT_THAT(Sizes(GroupNodes(UniformCluster(4, 1), profiles)), ElementsAre(2, 2));
}

std::vector<Bytes> MemoryOf(const ClusterTopology& cluster) {
  std::vector<Bytes> memory;
  for (const NodeGroup& group : cluster.groups) memory.push_back(group.memory_per_device);
  return memory;
}

TEST(NodeGroups, NodesWithClearlyMoreMemoryAreAnotherKind) {
  const Profiles profiles(4, Shared(Measured(1000)));
  const auto grouped = [&](const std::vector<int64_t>& gib) {
    std::vector<Bytes> memory;
    for (const int64_t size : gib) memory.push_back(kGiB * size);
    return GroupNodes(UniformCluster(4, 2, {}, kGiB), profiles, memory);
  };
  const ClusterTopology two = grouped({40, 38, 80, 78});
  ASSERT_THAT(Sizes(two), ElementsAre(2, 2));
  EXPECT_THAT(MemoryOf(two), ElementsAre(kGiB * 38, kGiB * 78)) << "the least of the kind";
  EXPECT_EQ(two.groups[0].profile, two.groups[1].profile);
  EXPECT_NE(two.groups[0].name, two.groups[1].name);
  EXPECT_EQ(CheckCluster(two), absl::OkStatus());
  EXPECT_THAT(MemoryOf(grouped({40, 80, 40, 80})), ElementsAre(kGiB * 40, kGiB * 80, kGiB * 40, kGiB * 80));
  EXPECT_THAT(MemoryOf(grouped({40, 40, 40, 45})), ElementsAre(kGiB * 40)) << "one kind";
  EXPECT_THAT(MemoryOf(grouped({100, 120, 140, 160})), ElementsAre(kGiB * 100, kGiB * 140))
      << "small differences do not add up";
  EXPECT_THAT(MemoryOf(grouped({0, 40, 0, 42})), ElementsAre(kGiB * 40)) << "what is unknown is no difference";
  EXPECT_THAT(MemoryOf(grouped({0, 0, 0, 0})), ElementsAre(Bytes(0)));
}

// The first two nodes are alike. The third node is slower and has measured another shape.
TEST(NodeGroups, NodesThatAreAlikeShareTheShapesThatTheyMeasured) {
  HardwareProfile more = Measured(1100);
  more.measured.push_back({.shape = {.micro_batch = 7}});
  HardwareProfile slow = Measured(2000);
  slow.measured.push_back({.shape = {.micro_batch = 9}});
  const Profiles shared = ShareShapes({Shared(Measured(1000)), Shared(more), Shared(slow), nullptr});
  ASSERT_EQ(shared.size(), 4u);
  ASSERT_EQ(shared[0]->measured.size(), 2u);
  EXPECT_EQ(shared[0]->measured[0], Measured(1000).measured[0]) << "its own stay";
  EXPECT_EQ(shared[0]->measured[1].shape.micro_batch, 7);
  EXPECT_EQ(*shared[1], more);
  EXPECT_EQ(*shared[2], slow);
  EXPECT_EQ(shared[3], nullptr);
}

TEST(NodeGroups, NodesWithoutAnyProfileAreTheStatedOne) {
  EXPECT_EQ(GroupNodes(UniformCluster(2, 4), {nullptr, nullptr}), UniformCluster(2, 4, StatedCpuProfile()));
}

TEST(NodeGroups, LinksKindsAndRatesTellNodesApart) {
  const HardwareProfile one = StatedCpuProfile();
  EXPECT_TRUE(Alike(one, one));
  const auto alike = [&](auto change) {
    HardwareProfile other = one;
    change(other);
    EXPECT_EQ(Alike(one, other), Alike(other, one));
    return Alike(one, other);
  };
  EXPECT_FALSE(alike([](auto& p) { p.device_kind = "other"; }));
  EXPECT_FALSE(alike([](auto& p) { p.intra_node.bytes_per_second /= 2; }));
  EXPECT_FALSE(alike([](auto& p) { p.inter_node.latency = Nanos(100'000'000); }));
  EXPECT_FALSE(alike([](auto& p) { p.flops_per_second *= 2; }));
  EXPECT_FALSE(alike([](auto& p) { p.memory_bytes_per_second /= 2; }));
  EXPECT_TRUE(alike([](auto& p) { p.flops_per_second = p.flops_per_second * 11 / 10; }));
  // Measured op times are more important than rates: if the op times are equal, the nodes are alike, even if a rate differs.
  HardwareProfile a = Measured(1000), b = Measured(1000);
  b.flops_per_second /= 3;
  EXPECT_TRUE(Alike(a, b));
}

NodeGroup GpuGroup(int32_t per_node, std::vector<int32_t> blocks) {
  NodeGroup group{.nodes = 2, .devices_per_node = per_node};
  for (const int32_t block : blocks) group.profile.inner_links.push_back({block, {Nanos(1), 1000}});
  return group;
}

std::vector<int32_t> BlocksOf(const NodeGroup& group) {
  std::vector<int32_t> blocks;
  for (const LinkLevel& level : group.profile.inner_links) blocks.push_back(level.devices);
  return blocks;
}

TEST(TakeShares, HostMemoryIsOfTheNodeThatHasLeastForEachDevice) {
  NodeGroup group = GpuGroup(2, {});
  TakeShares({{{0, 1}, 4, kGiB * 8}, {{0, 1}, 2, kGiB * 6}}, group);
  EXPECT_EQ(group.host_memory, kGiB * 4);
  TakeShares({{{0, 1}, 4, kGiB * 8}, {{0, 1}, 2, Bytes(0)}}, group);
  EXPECT_EQ(group.host_memory, Bytes(0)) << "one has not said";
}

TEST(TakeShares, OnlyLinksOfWholeBlocksStay) {
  const auto blocks = [](const std::vector<int32_t>& first, const std::vector<int32_t>& second) {
    NodeGroup group = GpuGroup(static_cast<int32_t>(first.size()), {2, 4});
    TakeShares({{first, 8, Bytes(0)}, {second, 8, Bytes(0)}}, group);
    return BlocksOf(group);
  };
  EXPECT_THAT(blocks({0, 1, 2, 3}, {4, 5, 6, 7}), ElementsAre(2, 4));
  EXPECT_THAT(blocks({0, 1, 2, 3}, {2, 3, 4, 5}), ElementsAre(2)) << "across two blocks of four";
  EXPECT_THAT(blocks({0, 1}, {6, 7}), ElementsAre(2));
  EXPECT_THAT(blocks({0, 1}, {1, 2}), ElementsAre());
  EXPECT_THAT(blocks({0, 1, 2, 4}, {0, 1, 2, 3}), ElementsAre());
  EXPECT_THAT(blocks({5}, {5}), ElementsAre());
}

}  // namespace
}  // namespace lynx::server
