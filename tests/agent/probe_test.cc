#include "agent/probe.h"

#include <gtest/gtest.h>

#include <set>

namespace lynx::agent {
namespace {

TEST(CpuModel, IsTheFirstProcessors) {
  EXPECT_EQ(CpuModel("processor\t: 0\nmodel name\t: AMD EPYC 7B13\nflags: a b\n\nmodel name : other\n"), "AMD EPYC 7B13");
  EXPECT_EQ(CpuModel("processor : 0\n"), "unknown");
  EXPECT_EQ(CpuModel(""), "unknown");
}

TEST(CpuProbe, GivesOneDevicePerAvailableCore) {
  const std::vector<int32_t> cores = AvailableCores();
  ASSERT_FALSE(cores.empty());
  const absl::StatusOr<std::vector<NodeDevice>> devices = CpuProbe({}).Find();
  ASSERT_TRUE(devices.ok()) << devices.status();
  ASSERT_EQ(devices->size(), std::min(cores.size(), size_t{kMaxDevices}));
  for (size_t i = 0; i < devices->size(); ++i) {
    const NodeDevice& device = (*devices)[i];
    EXPECT_EQ(device.index, static_cast<int32_t>(i));
    EXPECT_EQ(device.kind, DeviceKind::kCpu);
    EXPECT_FALSE(device.model.empty());
    EXPECT_EQ(device.cores, std::vector<int32_t>{cores[i]});
    // Every device has the same share of the machine's memory, so all shares together are not more than the memory.
    EXPECT_GT(device.memory, kMiB);
    EXPECT_EQ(device.memory, devices->front().memory);
  }
}

TEST(CpuProbe, DevicesShareTheCoresInTurn) {
  const int32_t core = AvailableCores().front();
  const absl::StatusOr<std::vector<NodeDevice>> devices =
      CpuProbe({.devices = 3, .cores = {core}, .memory_per_device = kGiB}).Find();
  ASSERT_TRUE(devices.ok());
  ASSERT_EQ(devices->size(), 3u);
  for (const NodeDevice& device : *devices) {
    EXPECT_EQ(device.cores, std::vector<int32_t>{core});
    EXPECT_EQ(device.memory, kGiB);
  }
}

TEST(CpuProbe, RefusesWhatTheNodeDoesNotHave) {
  const absl::Status core = CpuProbe({.cores = {4000}}).Find().status();
  EXPECT_EQ(core.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(std::string(core.message()).find("core 4000"), std::string::npos);
  EXPECT_EQ(CpuProbe({.devices = 65}).Find().status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace lynx::agent
