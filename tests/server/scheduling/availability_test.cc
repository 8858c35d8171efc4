#include "server/scheduling/availability.h"

#include <gtest/gtest.h>

namespace lynx::server {
namespace {

std::vector<DeviceRef> On(const std::string& node, std::vector<int32_t> devices) {
  std::vector<DeviceRef> all;
  for (const int32_t device : devices) all.push_back({NodeId(node), device});
  return all;
}

NodeDevices Facts(const NodeId& node) {
  return {.node = node, .memory_per_device = Bytes(9), .domain = "rack", .alone = true, .flops_per_second = 5};
}

// Returns a Fit that is satisfied if the nodes together have `count` free devices.
Fit Any(size_t count) {
  return [count](const std::vector<NodeDevices>& nodes) -> std::optional<std::vector<DeviceRef>> {
    std::vector<DeviceRef> all;
    for (const NodeDevices& node : nodes) {
      for (const int32_t device : node.free) all.push_back({node.node, device});
    }
    if (all.size() < count) return std::nullopt;
    all.resize(count);
    return all;
  };
}

// Returns a Fit that is satisfied if one node has `count` free devices.
Fit OfOneNode(size_t count) {
  return [count](const std::vector<NodeDevices>& nodes) -> std::optional<std::vector<DeviceRef>> {
    for (const NodeDevices& node : nodes) {
      if (node.free.size() >= count)
        return On(node.node.value, {node.free.begin(), node.free.begin() + static_cast<std::ptrdiff_t>(count)});
    }
    return std::nullopt;
  };
}

TEST(Availability, DevicesAreAddedAndTakenInOrder) {
  const std::vector<NodeDevices> free = {
      {.node = NodeId("b"), .free = {1}, .memory_per_device = Bytes(7), .domain = "rack", .slow = true}};
  std::vector<DeviceRef> more = On("b", {0});
  for (const DeviceRef& device : On("a", {3, 2})) more.push_back(device);
  const std::vector<NodeDevices> all = With(free, more, Facts);
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].node, NodeId("a"));
  EXPECT_EQ(all[0].free, (std::vector<int32_t>{2, 3}));
  EXPECT_TRUE(all[0].alone) << "what is known of a node without free devices stays known";
  EXPECT_EQ(all[0].memory_per_device, Bytes(9));
  EXPECT_EQ(all[0].flops_per_second, 5);
  EXPECT_EQ(all[1].free, (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(all[1].memory_per_device, Bytes(7));
  const std::vector<NodeDevices> left = Without(all, On("a", {2, 3}));
  ASSERT_EQ(left.size(), 1u) << "a node without devices is left out";
  EXPECT_EQ(left[0].node, NodeId("b"));
  EXPECT_EQ(left[0].memory_per_device, Bytes(7));
  EXPECT_EQ(left[0].domain, "rack");
  EXPECT_TRUE(left[0].slow) << "a node that is slower than its measurements stays so";
  EXPECT_EQ(WithoutNodes(all, {NodeId("b"), NodeId("z")}).size(), 1u);
}

TEST(Availability, AJobFitsWhenEnoughHasBeenGivenBack) {
  const std::vector<NodeDevices> free = {{.node = NodeId("a"), .free = {0}}};
  const std::vector<Release> releases = {{Nanos(30), On("a", {1})}, {Nanos(10), On("b", {0})}, {Nanos(20), On("b", {1})}};
  const auto two = WhenFits(free, releases, Facts, Any(2));
  ASSERT_TRUE(two.has_value());
  EXPECT_EQ(two->at, Nanos(10));
  EXPECT_EQ(two->devices, (std::vector<DeviceRef>{{NodeId("a"), 0}, {NodeId("b"), 0}}));
  EXPECT_EQ(WhenFits(free, releases, Facts, OfOneNode(2))->at, Nanos(20));
  EXPECT_EQ(WhenFits(free, releases, Facts, OfOneNode(2))->devices, On("b", {0, 1}));
  EXPECT_EQ(WhenFits(free, releases, Facts, Any(4))->at, Nanos(30));
  EXPECT_FALSE(WhenFits(free, releases, Facts, Any(5)).has_value());
  EXPECT_FALSE(WhenFits(free, {}, Facts, Any(1)).has_value());
}

TEST(Availability, OnlyThoseMakeRoomWhoseDevicesAreNeeded) {
  const std::vector<std::vector<DeviceRef>> holders = {On("a", {0}), On("b", {0}), On("a", {1}), On("c", {0, 1})};
  EXPECT_EQ(*WhoMakesRoom({}, holders, Facts, OfOneNode(2)), (std::vector<size_t>{0, 2})) << "b is asked before, and spared";
  EXPECT_EQ(*WhoMakesRoom({}, holders, Facts, Any(1)), (std::vector<size_t>{0}));
  EXPECT_EQ(*WhoMakesRoom({{.node = NodeId("a"), .free = {1, 2}}}, holders, Facts, OfOneNode(2)), std::vector<size_t>());
  EXPECT_FALSE(WhoMakesRoom({}, holders, Facts, Any(6)).has_value());
}

}  // namespace
}  // namespace lynx::server
