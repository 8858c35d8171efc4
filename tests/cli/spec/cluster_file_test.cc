#include "cli/spec/cluster_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "cli/spec/job_file.h"
#include "planner/plan/plan.h"
#include "planner/search/make_plan.h"

namespace lynx::cli {
namespace {

using ::testing::HasSubstr;

constexpr char kGood[] = R"(apiVersion: lynx/v1
kind: Cluster
name: mixed
devices:
  - name: fast
    kind: Fast GPU
    memory: {value: 80GiB, source: "data sheet"}
    reservedMemory: 2GiB
    peak: {float32: 20TFLOP/s, bfloat16: 300TFLOP/s, float8: 600TFLOP/s}
    memoryBandwidth: 2TB/s
    efficiency:
      gemm:
        source: "estimate"
        points: [{size: 1GFLOP, share: 0.4}, {size: 1TFLOP, share: 0.8}]
      attention: {points: [{size: 2048, share: 0.5}]}
      memory: {points: [{size: 1MiB, share: 0.25}, {size: 1GiB, share: 0.9}]}
    gemmTiles: {units: 108, rows: 256, columns: 128}
    opOverhead: 3us
    overlap: {slowdown: 1.5, communicationCompute: 0.1}
nodeGroups:
  - name: big
    nodes: 2
    devicesPerNode: 8
    device: fast
    hostMemory: 2TB
    hostCopy: {latency: 10us, toHost: 20GB/s, fromHost: 22GB/s, both: 30GB/s, slowdown: 1.1}
    links:
      inner:
        - {devices: 2, latency: 1us, bandwidth: 600GB/s}
        - {devices: 4, latency: 2us, bandwidth: 300GB/s, share: 0.8}
      node: {latency: 3us, bandwidth: 300GB/s, share: 0.5}
      network: {latency: 10us, bandwidth: {value: 200Gbit/s, source: "sheet"}, adapters: 8, podNodes: 32, oversubscription: 2.5}
  - name: small
    nodes: 1
    devicesPerNode: 4
    device:
      memory: 40GB
      peak: {float32: 10TFLOP/s}
      memoryBandwidth: 1TB/s
    links:
      node: {latency: 5us, bandwidth: 20GB/s}
      network: {latency: 20us, bandwidth: 10GB/s}
)";

std::string ErrorOf(const std::string& text) {
  const auto file = ParseClusterFile(text, "c.yaml");
  EXPECT_EQ(file.status().code(), absl::StatusCode::kInvalidArgument) << text;
  return std::string(file.status().message());
}

TEST(ClusterFile, ReadsGroupsOfNodes) {
  const auto file = ParseClusterFile(kGood, "c.yaml");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->name, "mixed");
  ASSERT_EQ(file->cluster.groups.size(), 2u);
  HardwareProfile fast;
  fast.device_kind = "Fast GPU";
  fast.flops_per_second = 20'000'000'000'000;
  fast.bfloat16_flops_per_second = 300'000'000'000'000;
  fast.float8_flops_per_second = 600'000'000'000'000;
  fast.memory_bytes_per_second = 2'000'000'000'000;
  fast.efficiency[0] = {{1'000'000'000, 400}, {1'000'000'000'000, 800}};
  fast.efficiency[static_cast<size_t>(OpClass::kAttention)] = {{2048, 500}};
  fast.efficiency[static_cast<size_t>(OpClass::kMemory)] = {{1 << 20, 250}, {1 << 30, 900}};
  fast.gemm_tiles = {108, 256, 128};
  fast.op_overhead = Nanos(3000);
  fast.inner_links = {{2, {Nanos(1000), 600'000'000'000}}, {4, {Nanos(2000), 240'000'000'000}}};
  fast.intra_node = {Nanos(3000), 150'000'000'000};
  fast.inter_node = {Nanos(10'000), 25'000'000'000};
  fast.adapters = 8;
  fast.pod_nodes = 32;
  fast.oversubscription_permille = 2500;
  fast.host = {Nanos(10'000), 20'000'000'000, 22'000'000'000, 30'000'000'000, 1100};
  fast.overlap_slowdown_permille = 1500;
  fast.communication_compute_permille = 100;
  EXPECT_EQ(file->cluster.groups[0], (NodeGroup{.name = "big",
                                                .nodes = 2,
                                                .devices_per_node = 8,
                                                .memory_per_device = kGiB * 78,
                                                .host_memory = Bytes(2'000'000'000'000),
                                                .profile = fast}));
  const NodeGroup& small = file->cluster.groups[1];
  EXPECT_EQ(small.memory_per_device, Bytes(40'000'000'000));
  EXPECT_EQ(small.profile.device_kind, "small");
  EXPECT_EQ(small.profile.host, HostLink());
  EXPECT_EQ(small.profile.inter_node, (LinkCost{Nanos(20'000), 10'000'000'000}));
  EXPECT_EQ(small.profile.float8_flops_per_second, 0);
  EXPECT_EQ(small.profile.adapters, 1);
  EXPECT_EQ(small.profile.pod_nodes, 0);
  EXPECT_EQ(small.profile.oversubscription_permille, 1000);
}

TEST(ClusterFile, KeepsTheSources) {
  const auto file = ParseClusterFile(kGood, "c.yaml");
  ASSERT_TRUE(file.ok()) << file.status();
  const auto source = [&](const std::string& path) {
    for (const NumberSource& number : file->sources) {
      if (number.path == path) return absl::StrCat(number.value, " by ", number.source);
    }
    return std::string("none");
  };
  EXPECT_EQ(source("devices[0].memory"), "80GiB by data sheet");
  EXPECT_EQ(source("nodeGroups[0].links.network.bandwidth"), "200Gbit/s by sheet");
  EXPECT_EQ(source("devices[0].peak.float32"), "20TFLOP/s by ");
}

struct BadCluster {
  std::string name, from, to, expected;
};
void PrintTo(const BadCluster& bad, std::ostream* out) { *out << bad.name; }

class BadClusterFile : public testing::TestWithParam<BadCluster> {};

TEST_P(BadClusterFile, NamesPlaceAndRemedy) {
  const std::string text = absl::StrReplaceAll(kGood, {{GetParam().from, GetParam().to}});
  ASSERT_NE(text, kGood);
  EXPECT_THAT(ErrorOf(text), HasSubstr(GetParam().expected));
}

INSTANTIATE_TEST_SUITE_P(
    All, BadClusterFile,
    testing::Values(
        BadCluster{"Kind", "kind: Cluster", "kind: TrainingJob", "c.yaml:2:7: kind: expected 'Cluster', found 'TrainingJob'"},
        BadCluster{"UnknownField", "hostMemory", "hostMemry",
                   "c.yaml:25:5: nodeGroups[0].hostMemry: unknown field; did you mean 'hostMemory'?"},
        BadCluster{"NoAdapter", "adapters: 8", "adapters: 0",
                   "nodeGroups[0].links.network.adapters: expected a whole number above zero"},
        BadCluster{"NoPod", "podNodes: 32", "podNodes: 0",
                   "nodeGroups[0].links.network.podNodes: expected a whole number above zero"},
        BadCluster{"OversubscriptionWithoutPods", "podNodes: 32, ", "",
                   "its network is oversubscribed, but between which nodes is not said: give the nodes of a pod"},
        BadCluster{"Undersubscribed", "oversubscription: 2.5", "oversubscription: 0.5",
                   "links.network.oversubscription: expected a number from 1 to 100, found '0.5'"},
        BadCluster{"UnknownLink", "      network: {latency: 20us", "      networks: {latency: 20us",
                   "c.yaml:42:7: nodeGroups[1].links.networks: unknown field; did you mean 'network'?"},
        BadCluster{"NoUnit", "memoryBandwidth: 2TB/s", "memoryBandwidth: 2000",
                   "c.yaml:10:22: devices[0].memoryBandwidth: expected a rate above zero such as"},
        BadCluster{"BadUnit", "20TFLOP/s", "20TFLOPS",
                   "devices[0].peak.float32: expected a rate above zero such as 312TFLOP/s"},
        BadCluster{"BadEightBitPeak", "float8: 600TFLOP/s", "float8: none",
                   "devices[0].peak.float8: expected a rate above zero such as 312TFLOP/s"},
        BadCluster{"BadFourBitPeak", "float8: 600TFLOP/s", "float8: 600TFLOP/s, float4: 1",
                   "devices[0].peak.float4: expected a rate above zero such as 312TFLOP/s"},
        BadCluster{"NoDevice", "device: fast", "device: fats",
                   "c.yaml:24:13: nodeGroups[0].device: no device is called 'fats'; did you mean 'fast'?"},
        BadCluster{"Missing", "    memoryBandwidth: 2TB/s\n", "",
                   "c.yaml:5:5: devices[0].memoryBandwidth: missing; it is required (of the device's own memory)"},
        BadCluster{"MissingLink", "      node: {latency: 5us, bandwidth: 20GB/s}\n", "",
                   "nodeGroups[1].links.node.latency: missing"},
        BadCluster{"NoGroups", "nodeGroups:\n", "nodeGroups: []\nx:\n",
                   "c.yaml:20:13: nodeGroups: has 0 items; give at least 1"},
        BadCluster{"ZeroNodes", "nodes: 2", "nodes: 0", "nodeGroups[0].nodes: expected a whole number above zero, found '0'"},
        BadCluster{"TooManyDevices", "nodes: 2", "nodes: 2000000",
                   "c.yaml:21:11: nodeGroups[0]: node group \"big\" of the cluster has 2000000 nodes of 8 devices; at most"},
        BadCluster{"Share", "GB/s, share: 0.5}", "GB/s, share: 1.5}",
                   "links.node.share: expected a number from 0.001 to 1, found '1.5'"},
        BadCluster{"PointsFall", "{size: 1TFLOP, share: 0.8}", "{size: 1GFLOP, share: 0.8}",
                   "devices[0].efficiency.gemm: sizes must rise from point to point"},
        BadCluster{"PointUnit", "{size: 2048,", "{size: 2kB,", "efficiency.attention.points[0].size: expected a whole number"},
        BadCluster{"ZeroSize", "{size: 2048,", "{size: 0,", "efficiency.attention.points[0].size: expected a size above zero"},
        BadCluster{"HalfATile", "rows: 256, ", "", "products are tiled 0 x 128 over 108 units: all must be"},
        BadCluster{"InnerOrder", "devices: 4, latency", "devices: 3, latency",
                   "nodeGroups[0]: node group \"big\" of the cluster joins 3 devices by an inner link"},
        BadCluster{"HostRates", "both: 30GB/s", "both: 60GB/s",
                   "nodeGroups[0]: the hardware profile of \"Fast GPU\" is unusable: copies to the host run at"},
        BadCluster{"AllReserved", "reservedMemory: 2GiB", "reservedMemory: 80GiB",
                   "c.yaml:24:13: nodeGroups[0].device: reservedMemory of its device is 80.0 GiB, all of its 80.0 GiB"},
        BadCluster{"Twice", "name: small", "name: big", "nodeGroups[1].name: 'big' is the name of another one"},
        BadCluster{"SourceAlone", "{value: 80GiB, source: \"data sheet\"}", "{source: \"data sheet\"}",
                   "c.yaml:7:13: devices[0].memory: expected one value, or {value: ..., source:"},
        BadCluster{"List", "name: mixed", "name: [mixed]", "c.yaml:3:7: name: expected one value (of the cluster)"}),
    [](const auto& info) { return info.param.name; });

TEST(ClusterFile, MeasuredFiguresReplaceStatedOnes) {
  ClusterTopology cluster = ParseClusterFile(kGood, "c.yaml")->cluster;
  HardwareProfile measured = StatedCpuProfile();
  EXPECT_THAT(std::string(UseMeasured(measured, cluster).message()),
              HasSubstr("but the cluster's devices are of kind 'Fast GPU', 'small'; set 'kind'"));
  measured.device_kind = "Fast GPU";
  measured.measured.push_back({.shape = {.micro_batch = 7}});
  const ClusterTopology stated = cluster;
  ASSERT_EQ(UseMeasured(measured, cluster), absl::OkStatus());
  const HardwareProfile& now = cluster.groups[0].profile;
  EXPECT_EQ(now.measured, measured.measured);
  EXPECT_EQ(now.intra_node, measured.intra_node);
  EXPECT_EQ(now.memory_bytes_per_second, measured.memory_bytes_per_second);
  EXPECT_EQ(now.efficiency, stated.groups[0].profile.efficiency) << "not measured";
  EXPECT_EQ(now.host, stated.groups[0].profile.host);
  EXPECT_EQ(now.adapters, 8);
  EXPECT_EQ(now.float8_flops_per_second, 600'000'000'000'000);
  EXPECT_EQ(now.pod_nodes, 32);
  EXPECT_EQ(now.oversubscription_permille, 2500);
  EXPECT_EQ(cluster.groups[1], stated.groups[1]) << "another kind";
}

std::vector<std::string> Examples() {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(std::string(LYNX_SOURCE_DIR) + "/examples/clusters")) {
    paths.push_back(entry.path().string());
  }
  return paths;
}

TEST(ClusterFile, ExamplesAreValidAndSayWhereEveryNumberIsFrom) {
  EXPECT_EQ(Examples().size(), 19u);
  for (const std::string& path : Examples()) {
    SCOPED_TRACE(path);
    const auto file = ReadClusterFile(path);
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ(std::filesystem::path(path).stem(), file->name);
    int numbers = 0;
    for (const NumberSource& number : file->sources) {
      // Names and numbers of machines need no source. The points of a curve need none, because the curve itself has one.
      const bool of_machines = absl::StrContains(number.path, ".points[") || absl::EndsWith(number.path, "ame") ||
                               absl::EndsWith(number.path, ".nodes") || absl::EndsWith(number.path, "devicesPerNode") ||
                               absl::EndsWith(number.path, ".device") || absl::EndsWith(number.path, ".kind");
      if (of_machines) continue;
      ++numbers;
      const bool says = absl::EndsWith(number.path, ".source") ? !number.value.empty() : !number.source.empty();
      EXPECT_TRUE(says) << number.path << " has no source";
    }
    EXPECT_GT(numbers, 25);
    for (const EfficiencyCurve& curve : file->cluster.groups[0].profile.efficiency) EXPECT_FALSE(curve.empty());
    EXPECT_GT(file->cluster.groups[0].profile.host.both_bytes_per_second, 0);
  }
}

TEST(ClusterFile, ExamplesCanBePlannedFor) {
  for (const std::string& path : Examples()) {
    SCOPED_TRACE(path);
    PlanRequest request;
    request.spec.model = {.layers = 8, .hidden = 1024, .heads = 16, .ffn = 4096, .seq = 1024, .vocab = 50304};
    request.spec.train.global_batch = 16;
    request.spec.resources = {.min_ranks = 8, .max_ranks = 8};
    request.spec.parallel.tp = 2;
    request.cluster = ReadClusterFile(path)->cluster;
    const auto result = MakePlan(request);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_TRUE(std::holds_alternative<Plan>(*result));
  }
}

TEST(ClusterFile, DocumentedReferenceIsCurrent) {
  const auto page = ReadTextFile(std::string(LYNX_SOURCE_DIR) + "/docs/cluster-file.md");
  ASSERT_TRUE(page.ok()) << page.status();
  EXPECT_THAT(*page, HasSubstr(ClusterFileReference())) << "paste the output of: lynxctl defaults --cluster-reference";
}

TEST(ClusterFile, DocumentationListsAllExamples) {
  const auto page = ReadTextFile(std::string(LYNX_SOURCE_DIR) + "/docs/cluster-file.md");
  ASSERT_TRUE(page.ok()) << page.status();
  for (const std::string& path : Examples()) {
    EXPECT_THAT(*page, HasSubstr(absl::StrCat("`", std::filesystem::path(path).stem().string(), "`")));
  }
}

// The links of a node may be a mesh in which a few devices have few links: the fewer devices, the slower.
TEST(ClusterFile, ExamplesSayWhereFewDevicesHaveFewLinks) {
  for (const char* name : {"mi300x", "mi325x", "mi355x", "v100-dgx1"}) {
    SCOPED_TRACE(name);
    const auto file = ReadClusterFile(absl::StrCat(LYNX_SOURCE_DIR, "/examples/clusters/", name, ".yaml"));
    ASSERT_TRUE(file.ok()) << file.status();
    const HardwareProfile& profile = file->cluster.groups[0].profile;
    ASSERT_EQ(profile.inner_links.size(), 2u);
    EXPECT_LT(profile.inner_links[0].link.bytes_per_second, profile.inner_links[1].link.bytes_per_second);
    EXPECT_LT(profile.inner_links[1].link.bytes_per_second, profile.intra_node.bytes_per_second);
  }
}

TEST(ClusterFile, MissingAndEmptyFilesSaySo) {
  EXPECT_EQ(ReadClusterFile("/nonexistent/c.yaml").status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(ErrorOf(""), HasSubstr("the file is empty; see examples/clusters/"));
}

}  // namespace
}  // namespace lynx::cli
