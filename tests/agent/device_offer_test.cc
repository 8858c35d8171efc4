// Tests which devices a node offers. The tests use a fake driver, and a fake rank binary that can use some of the driver's
// GPUs.
#include "agent/device_offer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "tests/agent/fake_driver.h"

namespace lynx::agent {
namespace {

using ::lynx::agent::testing::FakeDriver;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(DeviceWishTest, SaysWhatIsOffered) {
  const std::pair<const char*, DeviceWish> cases[] = {
      {"auto", {DeviceKind::kAny, 0}},   {"cpu", {DeviceKind::kCpu, 0}},     {"cuda", {DeviceKind::kCuda, 0}},
      {"auto:3", {DeviceKind::kAny, 3}}, {"cpu:64", {DeviceKind::kCpu, 64}}, {"cuda:2", {DeviceKind::kCuda, 2}},
      {"0", {DeviceKind::kCpu, 0}},      {"4", {DeviceKind::kCpu, 4}},
  };
  for (const auto& [text, wish] : cases) EXPECT_EQ(ParseDeviceWish(text).value(), wish) << text;
  for (const char* text : {"", "any", "gpu", "cuda:", "cuda:0", "cuda:-1", "cuda:65", "4:2", "-1", "65", "cpu:2:2"}) {
    const absl::Status status = ParseDeviceWish(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr(std::string("--devices ") + text + " is not auto, cpu or cuda"));
  }
}

TEST(ShareOfCoresTest, EveryGpuHasCores) {
  const std::vector<int32_t> cores = {0, 1, 2, 3, 4};
  EXPECT_EQ(ShareOfCores(cores, 0, 2), (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(ShareOfCores(cores, 1, 2), (std::vector<int32_t>{2, 3, 4}));
  EXPECT_EQ(ShareOfCores(cores, 6, 8), (std::vector<int32_t>{1}));
}

class DeviceOfferTest : public ::testing::Test {
 protected:
  DeviceOfferTest() {
    char pattern[] = "/tmp/lynx-offer-test-XXXXXX";
    folder_ = ::mkdtemp(pattern);
    SetRankBinary("exit 0");
  }
  ~DeviceOfferTest() override { std::filesystem::remove_all(folder_); }

  // `script` runs with the arguments of the rank binary: --check-cuda and a UUID.
  void SetRankBinary(const std::string& script) {
    std::ofstream(folder_ + "/rank") << "#!/bin/sh\n[ \"$1\" = --check-cuda ] || exit 9\n" << script << "\n";
    ::chmod((folder_ + "/rank").c_str(), 0755);
  }
  void WriteFile(const std::string& name, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(folder_ + "/" + name).parent_path());
    std::ofstream(folder_ + "/" + name) << text;
  }
  absl::StatusOr<DeviceOffer> Find(DeviceKind kind, int64_t most = 0, std::vector<int32_t> gpus = {}) {
    return FindOffer({kind, most}, {.cores = {AvailableCores().front()}, .memory_per_device = Bytes(0)},
                     {.gpus = std::move(gpus), .rank_binary = folder_ + "/rank", .system = folder_ + "/sys"}, library_);
  }

  std::string folder_;
  std::string library_ = FakeDriver::Library();
};

TEST_F(DeviceOfferTest, AutoOffersTheGpusOfANodeThatHasSome) {
  const FakeDriver driver(
      "gpus 2\ngpu.1.name NVIDIA H200\ngpu.1.memory 150323855360\ngpu.1.bus 00000000:3B:00.0\n"
      "gpu.1.links 00000000:10:00.0\ngpu.1.neighbours 0\ngpu.0.memory 8589934592\n");
  WriteFile("sys/bus/pci/devices/0000:3b:00.0/numa_node", "1\n");
  const int32_t core = AvailableCores().back();
  WriteFile("sys/devices/system/node/node1/cpulist", std::to_string(core) + "\n");
  const DeviceOffer offer = FindOffer({}, {}, {.rank_binary = folder_ + "/rank", .system = folder_ + "/sys"}, library_).value();
  ASSERT_EQ(offer.devices.size(), 2u);
  EXPECT_THAT(offer.conditions, IsEmpty());
  EXPECT_NE(offer.nvml, nullptr);
  const NodeDevice expected{.index = 1,
                            .kind = DeviceKind::kCuda,
                            .model = "NVIDIA H200",
                            .memory = Bytes((int64_t{140} - 2) << 30),
                            .cores = {core},
                            .uuid = "GPU-fake-1",
                            .detail = "GPU 1, compute 9.0, 345 of 1980 MHz, PCIe 5 x16, NUMA node 1, NVLink to 0",
                            .reserved = kGiB * 2,
                            .nvlinks = {0},
                            .pcie_neighbours = {0},
                            .numa_node = 1};
  EXPECT_EQ(offer.devices[1], expected);
  EXPECT_EQ(offer.devices[0].memory, Bytes(int64_t{7} << 30)) << "of a small one, an eighth is left";
  EXPECT_EQ(offer.devices[0].cores, AvailableCores()) << "it is near to none";
  EXPECT_EQ(OfferText({expected}), "cuda 1: NVIDIA H200, 138.0 GiB, " + expected.detail + "\n");
}

TEST_F(DeviceOfferTest, OnlyTheGpusThatAreAskedFor) {
  const FakeDriver driver("gpus 4\n");
  const DeviceOffer two = Find(DeviceKind::kCuda, 2).value();
  ASSERT_EQ(two.devices.size(), 2u);
  EXPECT_EQ(two.devices[1].index, 1);
  const DeviceOffer named = Find(DeviceKind::kAny, 0, {3, 1}).value();
  ASSERT_EQ(named.devices.size(), 2u);
  EXPECT_EQ(named.devices[0].index, 1);
  EXPECT_EQ(named.devices[1].index, 3);
  const absl::Status none = Find(DeviceKind::kAny, 0, {4}).status();
  EXPECT_EQ(none.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(none.message()), HasSubstr("--devices auto: --gpus names GPU 4; this machine has 4, from 0"));
}

TEST_F(DeviceOfferTest, AutoGoesOnWithCpusAndSaysWhyUnlessThereIsNoGpuAtAll) {
  const auto condition = [&](const DeviceOffer& offer) {
    EXPECT_EQ(offer.devices.front().kind, DeviceKind::kCpu);
    EXPECT_EQ(offer.nvml, nullptr);
    return offer.conditions.empty() ? "" : offer.conditions.front().kind + ": " + offer.conditions.front().message;
  };
  library_ = "libnvidia-ml-of-nobody.so.1";
  EXPECT_EQ(condition(Find(DeviceKind::kAny).value()), "");
  library_ = FakeDriver::OldLibrary();
  EXPECT_THAT(condition(Find(DeviceKind::kAny).value()), HasSubstr("no-gpus: "));
  EXPECT_THAT(condition(Find(DeviceKind::kAny).value()), HasSubstr("the NVIDIA driver is too old"));
  library_ = FakeDriver::Library();
  const FakeDriver driver("gpus 0\n");
  EXPECT_EQ(condition(Find(DeviceKind::kAny).value()), "");
  driver.Write("gpus 1\ngpu.0.handle 15\n");
  EXPECT_THAT(condition(Find(DeviceKind::kAny).value()), HasSubstr("gpu-unusable: GPU 0 does not answer: GPU is lost"));
  driver.Write("gpus 1\n");
  SetRankBinary("echo this build has no CUDA >&2; exit 1");
  EXPECT_THAT(condition(Find(DeviceKind::kAny).value()), HasSubstr("gpu-unusable: GPU 0 (NVIDIA Fake) cannot be used: "));
  EXPECT_THAT(condition(Find(DeviceKind::kAny).value()), HasSubstr("this build has no CUDA"));
  EXPECT_EQ(Find(DeviceKind::kAny)->conditions.front().device, "GPU-fake-0");
}

TEST_F(DeviceOfferTest, CudaIsAnErrorWhereNoGpuCanBeUsed) {
  const FakeDriver driver("gpus 1\n");
  SetRankBinary("echo this build has no CUDA >&2; exit 1");
  EXPECT_THAT(std::string(Find(DeviceKind::kCuda).status().message()), HasSubstr("--devices cuda: GPU 0 (NVIDIA Fake)"));
  library_ = "libnvidia-ml-of-nobody.so.1";
  EXPECT_THAT(std::string(Find(DeviceKind::kCuda).status().message()), HasSubstr("--devices cuda: no NVIDIA driver"));
}

TEST_F(DeviceOfferTest, AGpuThatFailsIsLeftOutAndTheOthersAreOffered) {
  const FakeDriver driver("gpus 3\ngpu.0.handle 15\n");
  SetRankBinary("[ \"$2\" != GPU-fake-2 ] || { echo out of memory >&2; exit 1; }");
  const DeviceOffer offer = Find(DeviceKind::kAny).value();
  ASSERT_EQ(offer.devices.size(), 1u);
  EXPECT_EQ(offer.devices[0].index, 1);
  ASSERT_EQ(offer.conditions.size(), 2u);
  EXPECT_THAT(offer.conditions[0].message, HasSubstr("GPU 0 does not answer"));
  EXPECT_THAT(offer.conditions[1].message, HasSubstr("out of memory"));
  EXPECT_TRUE(offer.conditions[1].withdrawn);
}

// The GPU has 16 GiB. Other processes use 1 GiB of it.
TEST_F(DeviceOfferTest, WhatAProcessTakesOfAGpuIsReserved) {
  const FakeDriver driver("gpus 1\ngpu.0.used 1073741824\n");
  const auto first = [&](Bytes stated = Bytes(0)) {
    return FindOffer({DeviceKind::kCuda, 0}, {}, {.reserved = stated, .rank_binary = folder_ + "/rank"}, library_)
        .value()
        .devices.front();
  };
  SetRankBinary("echo cuda:0: a GPU; echo 15569256448");  // 14.5 of 15 GiB are left
  EXPECT_EQ(first().process_memory, kMiB * 512);
  EXPECT_EQ(first().reserved, kGiB * 2);
  EXPECT_EQ(first().memory, kGiB * 14);
  SetRankBinary("echo cuda:0: a GPU; echo 10737418240");
  EXPECT_EQ(first().reserved, kGiB * 5) << "more than was thought of";
  EXPECT_EQ(first().memory, kGiB * 11);
  EXPECT_EQ(first(kGiB * 3).memory, kGiB * 13) << "as stated";
  EXPECT_EQ(first(kGiB * 3).reserved, Bytes(0));
  SetRankBinary("echo cuda:0: an older build");
  EXPECT_EQ(first().process_memory, Bytes(0));
  EXPECT_EQ(first().memory, kGiB * 14);
}

TEST(OfferedMemoryTest, ShrinksOnlyByWhatWasNotReserved) {
  const NodeDevice device{.memory = kGiB * 14, .reserved = kGiB * 2, .process_memory = kMiB * 512};
  EXPECT_EQ(OfferedMemory(device, Bytes(0)), kGiB * 14);
  EXPECT_EQ(OfferedMemory(device, kMiB * 1536), kGiB * 14) << "it fits beside the process";
  EXPECT_EQ(OfferedMemory(device, kMiB * 2048), kGiB * 14 - kMiB * 512);
  EXPECT_EQ(OfferedMemory(device, kGiB * 16), Bytes(0));
  EXPECT_EQ(OfferedMemory({.memory = kGiB}, kGiB * 16), kGiB) << "stated";
}

TEST_F(DeviceOfferTest, CpuLooksForNoGpu) {
  const FakeDriver driver("gpus 1\n");
  SetRankBinary("exit 0");
  EXPECT_EQ(Find(DeviceKind::kCpu)->devices.front().kind, DeviceKind::kCpu);
}

}  // namespace
}  // namespace lynx::agent
