// Tests which cluster offline planning assumes.
#include "cli/verbs/plan_request.h"

#include <gmock/gmock.h>
#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "proto/convert.h"

namespace lynx::cli {
namespace {

using ::testing::HasSubstr;

class PlanRequestTest : public ::testing::Test {
 protected:
  PlanRequestTest() {
    char pattern[] = "/tmp/lynx-plan-request-XXXXXX";
    folder_ = ::mkdtemp(pattern);
    options_.file = folder_ + "/job.yaml";
    options_.device_memory = "16GiB";
  }
  ~PlanRequestTest() override { std::filesystem::remove_all(folder_); }

  // Returns the only node group for a job on this kind of device.
  NodeGroup GroupOf(const std::string& device) {
    std::ofstream(options_.file) << R"(apiVersion: lynx/v1
kind: TrainingJob
name: tiny
model: {layers: 4, hidden: 64, heads: 4, seq: 32}
data: {kind: text, path: corpus.txt}
train: {steps: 10, globalBatch: 8}
resources: {ranks: 2, activationMemoryPerRank: 24MiB, device: )"
                                 << device << "}\n";
    const absl::StatusOr<PlanRequest> request = ReadPlanRequest(options_);
    EXPECT_TRUE(request.ok()) << request.status();
    return request.ok() ? request->cluster.groups.front() : NodeGroup();
  }
  void UseProfileOf(const std::string& device_kind) {
    options_.profile = folder_ + "/profile.json";
    HardwareProfile profile = StatedCpuProfile();
    profile.device_kind = device_kind;
    std::string text;
    ASSERT_TRUE(google::protobuf::util::MessageToJsonString(ToProto(profile), &text).ok());
    std::ofstream(options_.profile) << text;
  }

  std::string folder_;
  PlanOptions options_;
};

TEST_F(PlanRequestTest, OnlyACpusMemoryIsItsNodes) {
  EXPECT_TRUE(GroupOf("cpu").host_is_device);
  EXPECT_TRUE(GroupOf("any").host_is_device) << "the stated profile is of a CPU";
  EXPECT_FALSE(GroupOf("cuda").host_is_device);
  EXPECT_EQ(GroupOf("cuda").host_memory, Bytes(0)) << "which nobody has stated";
  options_.target = "any";
  EXPECT_FALSE(GroupOf("cpu").host_is_device) << "another framework's devices are not known";
}

TEST_F(PlanRequestTest, AJobOnAnyDeviceIsOnThatOfTheProfile) {
  UseProfileOf("cuda:0: NVIDIA H200");
  EXPECT_FALSE(GroupOf("any").host_is_device);
  EXPECT_TRUE(GroupOf("cpu").host_is_device);
  UseProfileOf("cpu: some cores");
  EXPECT_TRUE(GroupOf("any").host_is_device);
}

TEST_F(PlanRequestTest, AnEmptyClusterFileIsNoCluster) {
  GroupOf("cpu");
  options_.cluster = folder_ + "/cluster.yaml";
  std::ofstream(options_.cluster).close();
  const absl::Status status = ReadPlanRequest(options_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("cluster.yaml"));
}

TEST_F(PlanRequestTest, ACountOfNodesNeedsOneGroup) {
  GroupOf("cpu");
  const auto with_groups = [&](const std::string& groups) {
    options_.cluster = folder_ + "/cluster.yaml";
    std::ofstream(options_.cluster) << "apiVersion: lynx/v1\nkind: Cluster\nname: two\nnodeGroups:\n" << groups;
    return ReadPlanRequest(options_);
  };
  const std::string first = R"(  - name: first
    nodes: 1
    devicesPerNode: 4
    device: {memory: 40GB, peak: {float32: 10TFLOP/s}, memoryBandwidth: 1TB/s}
    links: {node: {latency: 5us, bandwidth: 20GB/s}, network: {latency: 20us, bandwidth: 10GB/s}}
)";
  std::string second = first;
  second.replace(second.find("first"), 5, "second");
  options_.nodes = 3;
  const auto one = with_groups(first);
  ASSERT_TRUE(one.ok()) << one.status();
  EXPECT_EQ(one->cluster.groups.front().nodes, 3);
  const absl::Status refused = with_groups(first + second).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("nodes 3: "));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("has 2 groups of nodes; change their counts in the file"));
}

TEST_F(PlanRequestTest, HostMemoryIsStated) {
  options_.host_memory = "1TiB";
  EXPECT_EQ(GroupOf("cuda").host_memory, kGiB * 1024);
  options_.host_memory = "much";
  const absl::Status status = ReadPlanRequest(options_).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("--host-memory: "));
}

}  // namespace
}  // namespace lynx::cli
