#include "agent/gpu_topology.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lynx::agent {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<NodeDevice> Gpus(int32_t count) {
  std::vector<NodeDevice> devices;
  for (int32_t i = 0; i < count; ++i) devices.push_back({.index = i, .kind = DeviceKind::kCuda});
  return devices;
}

// Divides the devices into blocks of `block` devices. Adds to the `list` of each device the other devices of its block.
void Join(std::vector<NodeDevice>& devices, int32_t block, std::vector<int32_t> NodeDevice::*list) {
  for (NodeDevice& device : devices) {
    for (const NodeDevice& other : devices) {
      if (device.index != other.index && device.index / block == other.index / block) {
        (device.*list).push_back(other.index);
      }
    }
  }
}

TEST(LinkBlocks, NoneWhereAllAreAlike) {
  EXPECT_THAT(LinkBlocks({}), IsEmpty());
  EXPECT_THAT(LinkBlocks(Gpus(1)), IsEmpty());
  EXPECT_THAT(LinkBlocks(Gpus(8)), IsEmpty());
  std::vector<NodeDevice> all = Gpus(8);
  Join(all, 8, &NodeDevice::nvlinks);
  EXPECT_THAT(LinkBlocks(all), IsEmpty()) << "NVSwitch";
}

TEST(LinkBlocks, BridgedPairsBelowSwitchesOnNodes) {
  std::vector<NodeDevice> devices = Gpus(16);
  Join(devices, 2, &NodeDevice::nvlinks);
  EXPECT_THAT(LinkBlocks(devices), ElementsAre(2));
  Join(devices, 4, &NodeDevice::pcie_neighbours);
  EXPECT_THAT(LinkBlocks(devices), ElementsAre(2, 4));
  for (NodeDevice& device : devices) device.numa_node = device.index / 8;
  EXPECT_THAT(LinkBlocks(devices), ElementsAre(2, 4, 8));
}

TEST(LinkBlocks, CountsTheDevicesThatAreOfferedInTheirOrder) {
  std::vector<NodeDevice> devices = Gpus(8);
  Join(devices, 4, &NodeDevice::nvlinks);
  EXPECT_THAT(LinkBlocks({devices[0], devices[1], devices[6], devices[7]}), ElementsAre(2));
  EXPECT_THAT(LinkBlocks({devices[0], devices[4], devices[1], devices[5]}), IsEmpty()) << "not neighbours";
  EXPECT_THAT(LinkBlocks({devices[0], devices[1], devices[4]}), IsEmpty()) << "of two and one";
  EXPECT_THAT(LinkBlocks({devices[0], devices[1], devices[2], devices[4]}), IsEmpty()) << "of three and one";
}

TEST(LinkBlocks, MeshesThatAreNoBlocksHaveNone) {
  std::vector<NodeDevice> ring = Gpus(4);
  for (NodeDevice& device : ring) device.nvlinks = {(device.index + 1) % 4, (device.index + 3) % 4};
  EXPECT_THAT(LinkBlocks(ring), IsEmpty());
}

}  // namespace
}  // namespace lynx::agent
