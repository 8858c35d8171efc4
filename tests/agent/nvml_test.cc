// Tests the code that loads NVML, with a library of the tests instead of NVIDIA's.
#include "agent/nvml.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include "tests/agent/fake_driver.h"

namespace lynx::agent {
namespace {

using ::lynx::agent::testing::FakeDriver;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string ErrorOf(const std::string& library) {
  const absl::StatusOr<std::unique_ptr<Nvml>> opened = Nvml::Open(library);
  return opened.ok() ? "" : std::string(opened.status().message());
}

TEST(NvmlTest, TellsOfDevices) {
  const FakeDriver driver(
      "gpus 2\n"
      "gpu.1.name NVIDIA H200\n"
      "gpu.1.memory 150000000000\n"
      "gpu.1.used 1000\n"
      "gpu.1.bus 00000000:3B:00.0\n");
  const std::unique_ptr<Nvml> nvml = Nvml::Open(FakeDriver::Library()).value();
  EXPECT_EQ(nvml->driver_version(), "570.00-fake");
  ASSERT_EQ(nvml->count(), 2);
  const GpuFacts expected{.index = 1,
                          .name = "NVIDIA H200",
                          .uuid = "GPU-fake-1",
                          .bus = "0000:3b:00.0",
                          .memory = Bytes(150'000'000'000),
                          .free_memory = Bytes(149'999'999'000),
                          .compute_major = 9,
                          .compute_minor = 0,
                          .sm_clock_mhz = 345,
                          .max_sm_clock_mhz = 1980,
                          .pcie_generation = 5,
                          .pcie_width = 16};
  EXPECT_EQ(nvml->Facts(1).value(), expected);
}

TEST(NvmlTest, TellsWhichGpusNvLinkJoins) {
  // GPUs 0 and 1 are connected directly; GPUs 2 and 3 are connected to the switches.
  const FakeDriver driver(
      "gpus 5\n"
      "gpu.0.links 00000000:11:00.0,00000000:11:00.0\n"
      "gpu.1.links 00000000:10:00.0\n"
      "gpu.2.links switch,switch\n"
      "gpu.3.links switch\n");
  const std::unique_ptr<Nvml> nvml = Nvml::Open(FakeDriver::Library()).value();
  EXPECT_THAT(nvml->Facts(0)->nvlinks, ElementsAre(1));
  EXPECT_THAT(nvml->Facts(1)->nvlinks, ElementsAre(0));
  EXPECT_THAT(nvml->Facts(2)->nvlinks, ElementsAre(3));
  EXPECT_THAT(nvml->Facts(4)->nvlinks, IsEmpty());
}

TEST(NvmlTest, TellsWhichGpusPcieSwitchesJoin) {
  const FakeDriver driver("gpus 4\ngpu.1.neighbours 0,3\n");
  const std::unique_ptr<Nvml> nvml = Nvml::Open(FakeDriver::Library()).value();
  EXPECT_THAT(nvml->Facts(0)->pcie_neighbours, IsEmpty());
  EXPECT_THAT(nvml->Facts(1)->pcie_neighbours, ElementsAre(0, 3));
}

TEST(NvmlTest, TellsWhichGpusAreSplit) {
  const FakeDriver driver("gpus 3\ngpu.1.mig 0\ngpu.2.mig 1\n");
  const std::unique_ptr<Nvml> nvml = Nvml::Open(FakeDriver::Library()).value();
  EXPECT_FALSE(nvml->Facts(0)->is_split) << "it cannot be split";
  EXPECT_FALSE(nvml->Facts(1)->is_split);
  EXPECT_TRUE(nvml->Facts(2)->is_split);
}

TEST(NvmlTest, SaysWhyThereIsNoDriver) {
  const absl::Status missing = Nvml::Open("libnvidia-ml-of-nobody.so.1").status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.message()), HasSubstr("no NVIDIA driver: libnvidia-ml-of-nobody.so.1"));
  EXPECT_THAT(ErrorOf(FakeDriver::OldLibrary()),
              HasSubstr("has no nvmlEventSetWait_v2: the NVIDIA driver is too old; install 470 or newer"));
  {
    const FakeDriver driver("init 9\n");
    EXPECT_THAT(ErrorOf(FakeDriver::Library()),
                HasSubstr("nvmlInit_v2: Driver Not Loaded (NVML error 9); load the NVIDIA kernel module"));
  }
  const FakeDriver driver("init 18\n");
  EXPECT_THAT(ErrorOf(FakeDriver::Library()), HasSubstr("updated but not reloaded: restart the machine"));
  EXPECT_EQ(Nvml::Open(FakeDriver::Library()).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(NvmlTest, AGpuThatFailsIsAnErrorOfItsOwn) {
  const FakeDriver driver("gpus 3\ngpu.0.handle 15\n");
  const std::unique_ptr<Nvml> nvml = Nvml::Open(FakeDriver::Library()).value();
  EXPECT_THAT(std::string(nvml->Facts(0).status().message()), HasSubstr("GPU 0 does not answer: GPU is lost"));
  EXPECT_TRUE(nvml->Read(0).lost);
  EXPECT_TRUE(nvml->Facts(1).ok());
  EXPECT_FALSE(nvml->Read(1).lost);
  driver.Write("gpus 3\ngpu.0.handle 15\ngpu.1.lost 1\n");
  EXPECT_TRUE(nvml->Read(1).lost);
  EXPECT_THAT(std::string(nvml->Facts(1).status().message()), HasSubstr("GPU 1 does not answer: GPU is lost"));
  EXPECT_FALSE(nvml->Read(2).lost);
}

TEST(NvmlTest, ReadsWhatTheGpuTells) {
  const FakeDriver driver("gpus 1\ngpu.0.utilization 93\ngpu.0.used 1073741824\ngpu.0.ecc 2\ngpu.0.throttle 64\n");
  const std::unique_ptr<Nvml> nvml = Nvml::Open(FakeDriver::Library()).value();
  const GpuReadings readings = nvml->Read(0);
  EXPECT_EQ(readings.utilization_percent, 93);
  EXPECT_EQ(readings.memory_used, Bytes(1 << 30));
  EXPECT_EQ(readings.sm_clock_mhz, 345);
  EXPECT_EQ(readings.power_watts, 70.5);
  EXPECT_EQ(readings.uncorrected_ecc_errors, 2);
  EXPECT_EQ(readings.throttle_reasons, 64u);
  EXPECT_EQ(readings.temperature_celsius, std::nullopt) << "the fake one does not tell";
}

TEST(NvmlTest, TellsXidsOneByOne) {
  const FakeDriver driver("gpus 2\nxid 1 79\nxid 0 31\n");
  const std::unique_ptr<Nvml> nvml = Nvml::Open(FakeDriver::Library()).value();
  const std::optional<GpuXid> first = nvml->AwaitXid(Nanos(1'000'000));
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->index, 1);
  EXPECT_EQ(first->xid, 79);
  EXPECT_EQ(nvml->AwaitXid(Nanos(1'000'000))->xid, 31);
  EXPECT_FALSE(nvml->AwaitXid(Nanos(1'000'000)).has_value());
}

}  // namespace
}  // namespace lynx::agent
