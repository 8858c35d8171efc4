#include "server/scheduling/placement.h"

#include <random>
#include <set>

#include <gtest/gtest.h>

namespace lynx::server {
namespace {

std::vector<NodeDevices> NodesWith(const std::vector<int>& free) {
  std::vector<NodeDevices> nodes;
  for (size_t n = 0; n < free.size(); ++n) {
    NodeDevices node{.node = NodeId("n" + std::to_string(n)), .memory_per_device = Bytes(100 + static_cast<int64_t>(n))};
    for (int d = 0; d < free[n]; ++d) node.free.push_back(d);
    nodes.push_back(node);
  }
  return nodes;
}

TEST(ReserveTest, TakesAlikeDevicesOfFewNodes) {
  struct Case {
    std::vector<int> free;
    Demand demand;
    int32_t nodes, per_node;  // 0, 0: there is no placement
  };
  const Case cases[] = {
      {{2, 2}, {4, 4, 1}, 2, 2},     {{2, 2}, {1, 2, 1}, 1, 2},  // as few nodes as possible
      {{2, 2}, {1, 3, 1}, 1, 2},  // two devices, because three cannot be the same number on each node
      {{1, 2}, {2, 2, 1}, 1, 2},     {{1, 2}, {3, 3, 1}, 3, 1},  // each device counts as a node of its own
      {{1, 1}, {2, 2, 2}, 0, 0},                                 // a group of two fits on no node
      {{4, 4, 1}, {8, 16, 4}, 2, 4}, {{2, 2}, {5, 8, 1}, 0, 0},
      {{2, 2}, {3, 3, 2}, 0, 0},  // four devices are free, but three devices cannot be divided into groups of two
      {{2, 2}, {3, 2, 1}, 0, 0},  // the minimum of three is more than the maximum of two
      {{}, {1, 1, 1}, 0, 0},         {{3, 3}, {4, 4, 1}, 2, 2},
  };
  for (const Case& c : cases) {
    const std::optional<Reservation> reservation = Reserve(NodesWith(c.free), c.demand);
    ASSERT_EQ(reservation.has_value(), c.nodes > 0);
    if (!reservation.has_value()) continue;
    EXPECT_EQ(reservation->topology.nodes(), c.nodes);
    EXPECT_EQ(reservation->topology.groups.front().devices_per_node, c.per_node);
    EXPECT_EQ(reservation->devices.size(), static_cast<size_t>(c.nodes * c.per_node));
    EXPECT_GE(reservation->topology.groups.front().memory_per_device, Bytes(100));
  }
}

TEST(ReserveTest, ANodeThatMustBeAloneIsNotUsedWithOthers) {
  std::vector<NodeDevices> nodes = NodesWith({2, 4, 2, 2});
  nodes[0].alone = nodes[1].alone = true;
  const auto names = [](const std::optional<Reservation>& reservation) {
    std::set<std::string> used;
    for (const DeviceRef& device : reservation.value_or(Reservation()).devices) used.insert(device.node.value);
    return used;
  };
  using Names = std::set<std::string>;
  EXPECT_EQ(names(Reserve(nodes, {2, 2, 1})), Names({"n2"}));
  EXPECT_EQ(names(Reserve(nodes, {4, 4, 1})), Names({"n2", "n3"})) << "as many devices as n1";
  EXPECT_EQ(names(Reserve(nodes, {4, 4, 4})), Names({"n1"}));
  EXPECT_EQ(names(Reserve(nodes, {5, 10, 1})), Names());
  EXPECT_EQ(Reserve(AllTogether(nodes), {5, 10, 1})->devices.size(), 8u) << "two of each node";
  for (NodeDevices& node : nodes) node.alone = true;
  EXPECT_EQ(names(Reserve(nodes, {1, 9, 1})), Names({"n1"})) << "the node with the most devices";
  EXPECT_EQ(UsableTogether(nodes).size(), 4u);
}

TEST(ReserveTest, SmallestMemoryCounts) {
  std::vector<NodeDevices> nodes = NodesWith({2, 2});
  nodes[0].memory_per_device = Bytes(0);  // 0: the memory is not known
  EXPECT_EQ(Reserve(nodes, {4, 4, 1})->topology.groups.front().memory_per_device, Bytes(101));
}

TEST(ReserveTest, TheMemoryOfEachNodeIsKept) {
  const auto memory = [](const std::vector<int>& free, const Demand& demand) {
    std::vector<int64_t> bytes;
    const std::optional<Reservation> reservation = Reserve(NodesWith(free), demand);
    EXPECT_TRUE(reservation.has_value());
    if (!reservation.has_value()) return bytes;
    for (const Bytes of_node : reservation->node_memory) bytes.push_back(of_node.value);
    return bytes;
  };
  EXPECT_EQ(memory({2, 1, 2}, {4, 4, 1}), (std::vector<int64_t>{100, 102}));
  EXPECT_EQ(memory({1, 2}, {3, 3, 1}), (std::vector<int64_t>{100, 101, 101})) << "each device counts as a node";
}

TEST(NodeOrderTest, NodesOfAReservationChangePlacesAsAWhole) {
  const Reservation reservation = *Reserve(NodesWith({2, 3, 2}), {6, 6, 2});
  EXPECT_TRUE(AreWholeNodes(reservation));
  EXPECT_EQ(InNodeOrder(reservation, {}), reservation.devices);
  const std::vector<DeviceRef> devices = InNodeOrder(reservation, {2, 0, 1});
  const std::vector<DeviceRef> expected = {{NodeId("n2"), 0}, {NodeId("n2"), 1}, {NodeId("n0"), 0},
                                           {NodeId("n0"), 1}, {NodeId("n1"), 0}, {NodeId("n1"), 1}};
  EXPECT_EQ(devices, expected);
  const std::vector<NodeDevices> nodes = NodesOf(devices);
  ASSERT_EQ(nodes.size(), 3u);
  EXPECT_EQ(nodes[0].node, NodeId("n2"));
  EXPECT_EQ(nodes[2].free, (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(PlaceRanks({.tp = 2, .pp = 3, .dp = 1}, nodes), devices);
}

TEST(NodeOrderTest, DevicesThatCountAsNodesAreNotWholeNodes) {
  EXPECT_FALSE(AreWholeNodes(*Reserve(NodesWith({1, 2}), {3, 3, 1})));
  EXPECT_TRUE(AreWholeNodes(*Reserve(NodesWith({1, 1}), {2, 2, 1})));
}

TEST(PlaceRanksTest, FillsNodesInOrderAndKeepsGroupsTogether) {
  const auto placement = PlaceRanks({.tp = 2, .pp = 2, .dp = 1}, NodesWith({3, 2}));
  ASSERT_TRUE(placement.has_value());
  const std::vector<DeviceRef> expected = {{NodeId("n0"), 0}, {NodeId("n0"), 1}, {NodeId("n1"), 0}, {NodeId("n1"), 1}};
  EXPECT_EQ(*placement, expected);
}

TEST(PlaceRanksTest, AllOrNone) {
  EXPECT_FALSE(PlaceRanks({.tp = 2, .pp = 2, .dp = 1}, NodesWith({3, 1})).has_value());
  EXPECT_FALSE(PlaceRanks({.tp = 1, .pp = 5, .dp = 1}, NodesWith({2, 2})).has_value());
  EXPECT_TRUE(PlaceRanks({.tp = 1, .pp = 4, .dp = 1}, NodesWith({3, 1})).has_value());
}

TEST(PlaceRanksTest, RandomPlacementsAreGangs) {
  constexpr uint64_t kSeed = 7;
  SCOPED_TRACE(::testing::Message() << "seed " << kSeed);
  std::mt19937_64 random(kSeed);
  const auto pick = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  for (int i = 0; i < 2000; ++i) {
    std::vector<int> free;
    for (int n = pick(0, 5); n > 0; --n) free.push_back(pick(0, 5));
    const ParallelLayout layout{1 << pick(0, 2), pick(1, 3), pick(1, 2)};
    int groups = 0;
    for (const int count : free) groups += count / layout.tp;
    const auto placement = PlaceRanks(layout, NodesWith(free));
    ASSERT_EQ(placement.has_value(), groups * layout.tp >= layout.ranks());
    if (!placement.has_value()) continue;
    ASSERT_EQ(placement->size(), static_cast<size_t>(layout.ranks()));
    EXPECT_EQ(std::set<DeviceRef>(placement->begin(), placement->end()).size(), placement->size());
    for (int32_t r = 0; r < layout.ranks(); ++r) {
      EXPECT_EQ((*placement)[r].node, (*placement)[r / layout.tp * layout.tp].node);
    }
  }
}

}  // namespace
}  // namespace lynx::server
