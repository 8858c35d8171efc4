#include "agent/measurement_cache.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <chrono>
#include <filesystem>
#include <fstream>

#include "node/file.h"

namespace lynx::agent {
namespace {

LayerShape Shape(int32_t tp) {
  return {.micro_batch = 1, .seq = 128, .hidden = 256, .heads = 4, .ffn = 1024, .vocab = 256, .tp = tp};
}

MeasureResult Result(int32_t tp) {
  ShapeTimes times{.shape = Shape(tp), .optimizer_per_mega_parameter = Nanos(9)};
  for (const OpInfo& op : LayerGraph::Of({}).ops()) {
    times.ops[static_cast<size_t>(op.op)] = {Nanos(10), Nanos(20), Nanos(op.has_weight_pass ? 30 : 0)};
  }
  return {.device_kind = "cpu: test",
          .measured = {times},
          .flops_per_second = 7,
          .bfloat16_flops_per_second = 6,
          .memory_bytes_per_second = 8,
          .op_overhead = Nanos(9)};
}

class MeasurementCacheTest : public testing::Test {
 protected:
  void SetUp() override {
    char pattern[] = "/tmp/lynx-cache-test-XXXXXX";
    folder_ = ::mkdtemp(pattern);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  MeasurementCache Cache(const std::string& node_key) const { return MeasurementCache(folder_ + "/measured", node_key); }

  std::string folder_;
};

TEST_F(MeasurementCacheTest, KeepsBeyondItsOwnLife) {
  EXPECT_FALSE(Cache("node").FindDevices({Shape(1)}).has_value());
  EXPECT_FALSE(Cache("node").FindLink().has_value());
  const LinkResult link{.link = {Nanos(5), 60}, .overlap_slowdown_permille = 1050};
  Cache("node").KeepDevices({Shape(1)}, Result(1));
  Cache("node").KeepLink(link);
  EXPECT_EQ(Cache("node").FindDevices({Shape(1)}), Result(1));
  EXPECT_EQ(Cache("node").FindLink(), link);
  const GpuLinksResult links{.link = {Nanos(4), 70}, .inner_links = {{2, {Nanos(3), 80}}}, .route_memory = kMiB};
  EXPECT_FALSE(Cache("node").FindGpuLinks().has_value());
  Cache("node").KeepGpuLinks(links);
  EXPECT_EQ(Cache("node").FindGpuLinks(), links);
}

TEST_F(MeasurementCacheTest, FindsOnlyUnderTheSameKey) {
  Cache("node").KeepDevices({Shape(1)}, Result(1));
  Cache("node").KeepLink({.link = {Nanos(5), 60}});
  EXPECT_FALSE(Cache("other").FindDevices({Shape(1)}).has_value());
  EXPECT_FALSE(Cache("other").FindLink().has_value());
  EXPECT_FALSE(Cache("node").FindDevices({Shape(2)}).has_value());
  LayerShape in_bfloat16 = Shape(1);
  in_bfloat16.dtype = DataType::kBfloat16;
  EXPECT_FALSE(Cache("node").FindDevices({in_bfloat16}).has_value());
  EXPECT_FALSE(Cache("node").FindDevices({}).has_value());
}

TEST_F(MeasurementCacheTest, DamagedFilesAreAsGoodAsNone) {
  Cache("node").KeepLink({.link = {Nanos(5), 60}});
  for (const auto& entry : std::filesystem::directory_iterator(folder_ + "/measured")) {
    const std::string text = *ReadFile(entry.path().string());
    std::ofstream(entry.path()) << text.substr(0, text.size() / 2);
  }
  EXPECT_FALSE(Cache("node").FindLink().has_value());
}

TEST_F(MeasurementCacheTest, HoldsABoundedNumberOfFiles) {
  const std::string measured = folder_ + "/measured";
  std::filesystem::create_directory(measured);
  const auto now = std::filesystem::file_time_type::clock::now();
  for (int hours = 1; hours <= 270; ++hours) {
    const std::string path = measured + "/" + std::to_string(hours) + ".measured";
    std::ofstream(path) << "old";
    std::filesystem::last_write_time(path, now - std::chrono::hours(hours));
  }
  MeasurementCache cache = Cache("node");
  cache.KeepDevices({Shape(1)}, Result(1));
  EXPECT_EQ(static_cast<size_t>(std::distance(std::filesystem::directory_iterator(measured), {})), MeasurementCache::kMaxFiles);
  EXPECT_TRUE(cache.FindDevices({Shape(1)}).has_value());
  EXPECT_TRUE(std::filesystem::exists(measured + "/1.measured"));
  EXPECT_FALSE(std::filesystem::exists(measured + "/270.measured"));
}

TEST_F(MeasurementCacheTest, TheNodesKeyHoldsAllThatResultsDependOn) {
  const std::string binary = folder_ + "/rank";
  std::ofstream(binary) << "one build";
  MeasurementOptions options{.rank_binary = binary, .address = "127.0.0.1"};
  std::vector<NodeDevice> devices = {{.kind = DeviceKind::kCpu, .model = "A", .cores = {0}}};
  const std::string key = *NodeKey(options, devices);
  EXPECT_EQ(*NodeKey(options, devices), key);

  MeasurementOptions paced = options;
  paced.pacing_bytes_per_second = 5;
  EXPECT_NE(*NodeKey(paced, devices), key);
  MeasurementOptions encrypted = options;
  encrypted.encrypt = true;
  EXPECT_NE(*NodeKey(encrypted, devices), key);
  devices[0].model = "B";
  EXPECT_NE(*NodeKey(options, devices), key);
  devices[0] = {.kind = DeviceKind::kCpu, .model = "A", .cores = {1}};
  EXPECT_NE(*NodeKey(options, devices), key);
  devices[0].cores = {0};
  devices.push_back(devices[0]);
  EXPECT_NE(*NodeKey(options, devices), key);
  devices.pop_back();
  std::ofstream(binary) << "another build";
  EXPECT_NE(*NodeKey(options, devices), key);
  std::filesystem::remove(binary);
  EXPECT_EQ(NodeKey(options, devices).status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace lynx::agent
