#include "server/scheduling/planned_kinds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace lynx::server {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

HardwareProfile Profile(int64_t times) {
  HardwareProfile profile = StatedCpuProfile();
  profile.flops_per_second /= times;
  profile.memory_bytes_per_second /= times;
  return profile;
}

// The free nodes in locality order. The number says by how many times each node is slower than a fast node.
struct FreeNodes {
  std::vector<NodeDevices> nodes;
  std::map<NodeId, int64_t> times;

  FreeNodes& Add(const std::string& name, int64_t slower, int32_t devices = 2, const std::string& domain = "") {
    NodeDevices& node = nodes.emplace_back(NodeDevices{.node = NodeId(name), .domain = domain});
    for (int32_t device = 0; device < devices; ++device) node.free.push_back(device);
    times[node.node] = slower;
    return *this;
  }
  // Sets the memory of the devices of each node.
  FreeNodes& Memory(const std::vector<int64_t>& gib) {
    for (size_t i = 0; i < gib.size(); ++i) nodes[i].memory_per_device = kGiB * gib[i];
    return *this;
  }
  // Returns the node of each tensor-parallel group. Empty: there is no room for all ranks.
  std::vector<std::string> Place(const ParallelLayout& layout, const ClusterTopology& planned) const {
    const auto placement = PlaceRanksByKind(layout, planned, nodes, [&](const NodeId& node) {
      const int64_t slower = times.at(node);
      return slower == 0 ? nullptr : std::make_shared<const HardwareProfile>(Profile(slower));
    });
    std::vector<std::string> names;
    for (size_t rank = 0; placement.has_value() && rank < placement->size(); rank += static_cast<size_t>(layout.tp))
      names.push_back((*placement)[rank].node.value);
    return names;
  }
};

// Four nodes with two devices each: fast, slow, fast, slow.
ClusterTopology Alternating() {
  ClusterTopology cluster;
  for (const int64_t times : {1, 3, 1, 3}) {
    cluster.groups.push_back(UniformCluster(1, 2, Profile(times)).groups.front());
    cluster.groups.back().name = times == 1 ? "fast" : "slow";
  }
  return cluster;
}

const ParallelLayout kEight{.tp = 2, .pp = 2, .dp = 2};

TEST(PlannedKinds, EachPlaceGetsANodeOfItsKind) {
  const FreeNodes nodes = FreeNodes().Add("a", 1).Add("b", 1).Add("c", 3).Add("d", 3);
  EXPECT_THAT(nodes.Place(kEight, Alternating()), ElementsAre("a", "c", "b", "d"));
  const FreeNodes others = FreeNodes().Add("a", 3).Add("b", 3).Add("c", 7).Add("d", 1).Add("e", 1);
  EXPECT_THAT(others.Place(kEight, Alternating()), ElementsAre("d", "a", "e", "b"));
}

// Four nodes of one speed: 40 GiB, 80 GiB, 40 GiB, 80 GiB.
ClusterTopology AlternatingMemory() {
  ClusterTopology cluster = Alternating();
  for (NodeGroup& group : cluster.groups) {
    group.memory_per_device = kGiB * (group.name == "fast" ? 40 : 80);
    group.profile = Profile(1);
  }
  return cluster;
}

TEST(PlannedKinds, EachPlaceGetsANodeWithItsMemory) {
  FreeNodes nodes = FreeNodes().Add("a", 1).Add("b", 1).Add("c", 1).Add("d", 1);
  EXPECT_THAT(nodes.Memory({80, 80, 40, 40}).Place(kEight, AlternatingMemory()), ElementsAre("c", "a", "d", "b"));
  EXPECT_THAT(nodes.Memory({80, 80, 80, 40}).Place(kEight, AlternatingMemory()), ElementsAre("d", "a", "c", "b"))
      << "another node takes the place if it has more memory";
  EXPECT_THAT(nodes.Memory({40, 40, 40, 80}).Place(kEight, AlternatingMemory()), ElementsAre("a", "d", "b", "c"))
      << "the caller looks whether the plan fits there";
}

// A place for much memory gets the larger of the nodes that are left, whichever is closer.
TEST(PlannedKinds, OfOtherNodesThoseWithEnoughMemoryComeFirst) {
  FreeNodes nodes = FreeNodes().Add("a", 7).Add("b", 7).Add("c", 7).Add("d", 7);
  EXPECT_THAT(nodes.Memory({40, 160, 40, 160}).Place(kEight, AlternatingMemory()), ElementsAre("a", "b", "c", "d"));
  EXPECT_THAT(nodes.Memory({160, 40, 160, 40}).Place({.tp = 2, .pp = 2, .dp = 1}, AlternatingMemory()), ElementsAre("b", "a"));
}

TEST(PlannedKinds, OtherNodesTakeThePlacesForWhichNoNodeIsAlike) {
  const FreeNodes nodes = FreeNodes().Add("a", 1).Add("b", 1).Add("c", 1).Add("d", 3);
  EXPECT_THAT(nodes.Place(kEight, Alternating()), ElementsAre("a", "d", "b", "c"));
  const FreeNodes unknown = FreeNodes().Add("a", 0).Add("b", 0).Add("c", 1).Add("d", 0);
  EXPECT_THAT(unknown.Place(kEight, Alternating()), ElementsAre("c", "b", "a", "d"));
}

TEST(PlannedKinds, OnlyThePlacesThatTheRanksNeedAreTaken) {
  const FreeNodes nodes = FreeNodes().Add("a", 3).Add("b", 1);
  EXPECT_THAT(nodes.Place({.tp = 2, .pp = 2, .dp = 1}, Alternating()), ElementsAre("b", "a"));
  EXPECT_THAT(nodes.Place({.tp = 2, .pp = 1, .dp = 1}, Alternating()), ElementsAre("b"));
  EXPECT_THAT(nodes.Place(kEight, Alternating()), IsEmpty());
}

TEST(PlannedKinds, ALargerNodeTakesSeveralPlacesAndASmallerOneNone) {
  const FreeNodes nodes = FreeNodes().Add("a", 1, 1).Add("b", 1, 5).Add("c", 3, 4);
  EXPECT_THAT(nodes.Place(kEight, Alternating()), ElementsAre("b", "c", "b", "c"));
}

TEST(PlannedKinds, OfTheNodesOfAKindThoseThatLieTogetherAreTaken) {
  const FreeNodes nodes = FreeNodes().Add("a", 1, 2, "r1").Add("b", 1, 2, "r2").Add("c", 1, 2, "r2").Add("d", 3).Add("e", 3);
  EXPECT_THAT(nodes.Place(kEight, Alternating()), ElementsAre("b", "d", "c", "e"));
}

}  // namespace
}  // namespace lynx::server
