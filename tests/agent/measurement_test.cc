#include "agent/measurement.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "node/file.h"

namespace lynx::agent {
namespace {

LayerShape Shape(int32_t tp) {
  return {.micro_batch = 1, .seq = 128, .hidden = 256, .heads = 4, .ffn = 1024, .vocab = 256, .tp = tp};
}

ShapeTimes Times(int32_t tp, int64_t forward, int64_t backward) {
  ShapeTimes times{.shape = Shape(tp), .optimizer_per_mega_parameter = Nanos(forward)};
  times.ops.fill({Nanos(forward), Nanos(backward), Nanos(0)});
  return times;
}

TEST(Slowest, TakesTheSlowestOfEachAndOnlyWhatAllHave) {
  const MeasureResult one{.device_kind = "cpu: a",
                          .measured = {Times(1, 10, 40), Times(2, 7, 7)},
                          .flops_per_second = 100,
                          .bfloat16_flops_per_second = 400,
                          .memory_bytes_per_second = 50,
                          .op_overhead = Nanos(3),
                          .host = {Nanos(1), 70, 80, 90, 1000}};
  const MeasureResult two{.device_kind = "cpu: a",
                          .measured = {Times(4, 1, 1), Times(1, 20, 30)},
                          .flops_per_second = 90,
                          .bfloat16_flops_per_second = 500,
                          .memory_bytes_per_second = 60,
                          .op_overhead = Nanos(2),
                          .host = {Nanos(2), 60, 80, 85, 1100}};
  const MeasureResult slowest = Slowest({one, two});
  EXPECT_EQ(slowest.flops_per_second, 90);
  EXPECT_EQ(slowest.bfloat16_flops_per_second, 400);
  EXPECT_EQ(slowest.memory_bytes_per_second, 50);
  EXPECT_EQ(slowest.op_overhead, Nanos(3));
  EXPECT_EQ(slowest.host, two.host);
  EXPECT_EQ(slowest.measured, std::vector<ShapeTimes>{Times(1, 20, 40)});
  EXPECT_EQ(Slowest({one}), one);
}

class MeasurementTest : public testing::Test {
 protected:
  void SetUp() override {
    char pattern[] = "/tmp/lynx-measurement-test-XXXXXX";
    folder_ = ::mkdtemp(pattern);
    ::setenv("LYNX_FAKE_MEASURE", folder_.c_str(), 1);
    options_ = {
        .rank_binary = std::string(LYNX_BINARY_DIR) + "/bin/fake_measure", .directory = folder_, .address = "127.0.0.1"};
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void SetMode(const std::string& mode) { std::ofstream(folder_ + "/mode") << mode; }

  std::string folder_;
  MeasurementOptions options_;
  const std::vector<NodeDevice> devices_ = {{.index = 0, .kind = DeviceKind::kCpu, .cores = {2}},
                                            {.index = 1, .kind = DeviceKind::kCpu, .cores = {5}}};
  WakeEvent cancel_;
};

TEST_F(MeasurementTest, TakesTheSlowestDevice) {
  const absl::StatusOr<MeasureResult> result = MeasureDevices(options_, devices_, {Shape(1), Shape(2)}, cancel_);
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_EQ(result->measured.size(), 2u);
  // The device on core 5 is the slower one of the fake devices.
  EXPECT_EQ(result->measured[1].shape, Shape(2));
  EXPECT_EQ(result->measured[1].ops[static_cast<size_t>(Op::kQkv)], (OpTimes{Nanos(6000), Nanos(12000), Nanos(18000)}));
  EXPECT_EQ(result->flops_per_second, 1'000'000'000 / 6);
}

TEST_F(MeasurementTest, MeasuresTheLinkBetweenTheFirstTwoDevices) {
  options_.pacing_bytes_per_second = 125'000'000;
  const absl::StatusOr<LinkResult> link = MeasureLink(options_, devices_, cancel_);
  ASSERT_TRUE(link.ok()) << link.status();
  EXPECT_EQ(link->link, (LinkCost{Nanos(25'000), 125'000'000}));
  EXPECT_EQ(*ReadFile(folder_ + "/runs"), "--measure-link 2 5\n");
  ASSERT_TRUE(MeasureLink(options_, {devices_[1]}, cancel_).ok());
  EXPECT_EQ(*ReadFile(folder_ + "/runs"), "--measure-link 2 5\n--measure-link 5 5\n");
  options_.encrypt = true;
  ASSERT_TRUE(MeasureLink(options_, devices_, cancel_).ok());
  EXPECT_EQ(*ReadFile(folder_ + "/runs"), "--measure-link 2 5\n--measure-link 5 5\n--measure-link 2 5 encrypted\n");
}

TEST_F(MeasurementTest, MeasuresTheLinksBetweenAllGpusAndTheirBlocks) {
  std::vector<NodeDevice> gpus;
  for (int32_t i = 0; i < 4; ++i) {
    gpus.push_back({.index = i, .kind = DeviceKind::kCuda, .cores = {i}, .uuid = absl::StrCat("GPU-", i), .nvlinks = {i ^ 1}});
  }
  const absl::StatusOr<GpuLinksResult> links = MeasureGpuLinks(options_, gpus, cancel_);
  ASSERT_TRUE(links.ok()) << links.status();
  EXPECT_EQ(links->link, (LinkCost{Nanos(4'000), 100'000'000'000}));
  EXPECT_EQ(links->inner_links, (std::vector<LinkLevel>{{2, {Nanos(3'000), 200'000'000'000}}}));
  EXPECT_EQ(*ReadFile(folder_ + "/runs"), "--measure-gpu-links GPU-0 GPU-1 GPU-2 GPU-3\n");
  SetMode("garbage");
  EXPECT_NE(
      std::string(MeasureGpuLinks(options_, gpus, cancel_).status().message()).find("measuring the links between the GPUs"),
      std::string::npos);
  SetMode("fail");
  EXPECT_EQ(MeasureGpuLinks(options_, gpus, cancel_).status().code(), absl::StatusCode::kInternal);
}

TEST_F(MeasurementTest, AFailingBinaryIsAnErrorWithItsOwnWords) {
  SetMode("fail");
  const absl::Status status = MeasureDevices(options_, devices_, {Shape(1)}, cancel_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  const std::string text(status.message());
  EXPECT_NE(text.find("measuring device 0"), std::string::npos) << text;
  EXPECT_NE(text.find("the device is on fire"), std::string::npos) << text;
  EXPECT_EQ(MeasureLink(options_, devices_, cancel_).status().code(), absl::StatusCode::kInternal);
}

TEST_F(MeasurementTest, ABinaryThatHangsIsKilledAtTheLimit) {
  SetMode("hang");
  options_.limit = Nanos(300'000'000);
  EXPECT_EQ(MeasureDevices(options_, devices_, {Shape(1)}, cancel_).status().code(), absl::StatusCode::kDeadlineExceeded);
  std::ifstream pids(folder_ + "/hanging");
  int count = 0;
  for (pid_t pid = 0; pids >> pid; ++count) EXPECT_FALSE(std::filesystem::exists(absl::StrCat("/proc/", pid)));
  EXPECT_LE(count, 2);
}

TEST_F(MeasurementTest, AnAnswerThatIsNoneIsAnError) {
  SetMode("garbage");
  const absl::Status status = MeasureDevices(options_, devices_, {}, cancel_).status();
  EXPECT_FALSE(status.ok());
  EXPECT_NE(std::string(status.message()).find("measuring device 0"), std::string::npos);
  EXPECT_FALSE(MeasureLink(options_, devices_, cancel_).ok());
}

TEST_F(MeasurementTest, AMissingBinaryIsAnError) {
  options_.rank_binary = "/no/such/lynx-rank";
  const absl::Status status = MeasureDevices(options_, devices_, {}, cancel_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_NE(std::string(status.message()).find("/no/such/lynx-rank"), std::string::npos);
}

}  // namespace
}  // namespace lynx::agent
