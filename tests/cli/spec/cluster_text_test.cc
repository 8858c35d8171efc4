// Tests that a topology that is written as a cluster file is read as the same topology.
#include "cli/spec/cluster_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/spec/cluster_file.h"
#include "cli/spec/measured_text.h"

namespace lynx::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// Every field but those of latent attention has a value that is not its default.
LayerShape WholeShape() {
  return {.micro_batch = 1,
          .seq = 18,
          .hidden = 24,
          .heads = 8,
          .ffn = 20,
          .vocab = 6,
          .tp = 4,
          .dropout = true,
          .family = ModelFamily::kLlama,
          .kv_heads = 4,
          .attention = AttentionKernel::kFused,
          .dtype = DataType::kBfloat16,
          .stored_masks = true,
          .sequence_parallel = true,
          .cp = 9,
          .head_dim = 10,
          .qkv_bias = true,
          .qk_norm = true,
          .qk_norm_whole = true,
          .rotary_dims = 9,
          .matmul_type = MatmulType::kFloat8,
          .gradient_dtype = DataType::kBfloat16,
          .experts = 30,
          .top_k = 13,
          .expert_ffn = 14,
          .ep = 15,
          .capacity_permille = 16,
          .skew_permille = 17,
          .dropless = true,
          .shared_ffn = 18,
          .shared_gate = true,
          .encoder = true};
}

// The fields of latent attention, which many other fields exclude.
LayerShape LatentShape() {
  return {.micro_batch = 1,
          .seq = 18,
          .hidden = 24,
          .heads = 8,
          .ffn = 20,
          .vocab = 6,
          .family = ModelFamily::kLlama,
          .attention = AttentionKernel::kFused,
          .head_dim = 10,
          .rotary_dims = 4,
          .query_rank = 19,
          .kv_rank = 20,
          .value_dim = 21};
}

ShapeTimes Times(LayerShape shape) {
  ShapeTimes times{.shape = shape, .optimizer_per_mega_parameter = Nanos(12'345)};
  for (size_t op = 0; op < times.ops.size(); ++op) {
    const auto n = static_cast<int64_t>(op);
    times.ops[op] = {Nanos(1000 + n), Nanos(2001 + n), Nanos(n % 2 == 0 ? 0 : 3002 + n)};
  }
  return times;
}

NodeGroup GpuGroup() {
  NodeGroup group{.name = "kind 1", .nodes = 3, .devices_per_node = 8, .memory_per_device = Bytes(84'987'740'161)};
  group.host_memory = Bytes(2'000'000'000'001);
  HardwareProfile& p = group.profile;
  p.device_kind = "GPU \"one\": \\ with a tab\t and \xc3\xa9";
  p.measured = {Times(WholeShape()), Times(LatentShape()),
                Times({.micro_batch = 4, .seq = 128, .hidden = 64, .heads = 4, .ffn = 256, .vocab = 512})};
  p.flops_per_second = 19'512'345'678'901;
  p.bfloat16_flops_per_second = 312'000'000'000'000;
  p.float8_flops_per_second = 1'978'987'654'321'001;
  p.memory_bytes_per_second = 2'039'123'456'789;
  p.efficiency = {EfficiencyCurve{{1'000'001, 400}, {1'000'000'000, 1000}}, EfficiencyCurve{{2048, 1}},
                  EfficiencyCurve{{4096, 999}}, EfficiencyCurve{{4097, 500}}, EfficiencyCurve{{1, 250}, {1'048'577, 900}}};
  p.gemm_tiles = {.units = 108, .rows = 256, .columns = 128};
  p.op_overhead = Nanos(3141);
  p.inner_links = {{2, {Nanos(900), 600'000'000'001}}, {4, {Nanos(901), 500'000'000'003}}};
  p.intra_node = {Nanos(2'999), 300'123'456'789};
  p.inter_node = {Nanos(10'001), 24'999'999'999};
  p.adapters = 8;
  p.pod_nodes = 32;
  p.oversubscription_permille = 2'345;
  p.host = {Nanos(10'007), 20'000'000'001, 22'000'000'003, 30'000'000'007, 1'101};
  p.overlap_slowdown_permille = 1'501;
  p.communication_compute_permille = 123;
  return group;
}

NodeGroup CpuGroup() {
  NodeGroup group{.name = "kind 2", .nodes = 2, .devices_per_node = 2, .memory_per_device = Bytes(1'073'741'824)};
  group.host_is_device = true;
  group.profile = StatedCpuProfile();
  return group;
}

TEST(ClusterText, IsReadAsTheSameCluster) {
  ClusterTopology cluster{.groups = {GpuGroup(), CpuGroup()}};
  cluster.shared_cores = {{.devices = {24, 25, 26}, .at_once_permille = 2'500},
                          {.devices = {0, 2, 3, 27}, .at_once_permille = 1}};
  const auto text = ClusterText("this cluster", "5 nodes, as measured", cluster);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_THAT(*text, StartsWith("# 5 nodes, as measured\napiVersion: lynx/v1\n"));
  const auto file = ParseClusterFile(*text, "cluster.yaml");
  ASSERT_TRUE(file.ok()) << file.status() << "\n" << *text;
  EXPECT_EQ(file->name, "this cluster");
  ASSERT_EQ(file->cluster.groups.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    const HardwareProfile& read = file->cluster.groups[i].profile;
    const HardwareProfile& written = cluster.groups[i].profile;
    EXPECT_EQ(read.device_kind, written.device_kind);
    EXPECT_EQ(read.flops_per_second, written.flops_per_second);
    EXPECT_EQ(read.measured, written.measured);
    EXPECT_EQ(read, written) << *text;
  }
  EXPECT_EQ(file->cluster, cluster) << *text;
}

TEST(ClusterText, CutsAKindThatIsTooLong) {
  ClusterTopology cluster{.groups = {CpuGroup()}};
  cluster.groups.front().profile.device_kind = std::string(99, 'k') + "\xc3\xa9";
  const auto file = ParseClusterFile(*ClusterText("c", "c", cluster), "cluster.yaml");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->cluster.groups.front().profile.device_kind, std::string(99, 'k'));
}

TEST(ClusterText, HasALargestLength) {
  ClusterTopology cluster;
  for (int i = 0; i < 4000; ++i) {
    cluster.groups.push_back(CpuGroup());
    cluster.groups.back().name = "kind " + std::to_string(i);
  }
  const auto text = ClusterText("c", "c", cluster);
  EXPECT_EQ(text.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(text.status().message(), HasSubstr("at most 524288 are written"));
}

TEST(ClusterText, NeedsAKind) {
  ClusterTopology cluster{.groups = {CpuGroup()}};
  cluster.groups.front().profile.device_kind = "";
  EXPECT_THAT(ClusterText("c", "c", cluster).status().message(), HasSubstr("kind of the devices of kind 2 is unknown"));
}

TEST(ClusterText, NeedsMemoryAndAValidCluster) {
  ClusterTopology cluster{.groups = {CpuGroup()}};
  cluster.groups.front().memory_per_device = Bytes(0);
  const auto unknown = ClusterText("c", "c", cluster);
  EXPECT_EQ(unknown.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(unknown.status().message(), HasSubstr("memory of the devices of kind 2 is unknown"));
  EXPECT_EQ(ClusterText("c", "c", {}).status().code(), absl::StatusCode::kInvalidArgument);
}

// What a person writes there by hand, wrongly.
TEST(ClusterText, MistakesSayWhatIsExpected) {
  EXPECT_THAT(ParseShape("seq").status().message(), HasSubstr("expected NAME=VALUE, found 'seq'"));
  EXPECT_THAT(ParseShape("sequence=3").status().message(), HasSubstr("expected a field of a shape"));
  EXPECT_THAT(ParseShape("seq=-3").status().message(), HasSubstr("expected a value of seq, found 'seq=-3'"));
  EXPECT_THAT(ParseShape("dropout=1").status().message(), HasSubstr("expected a value of dropout"));
  EXPECT_THAT(ParseShape("dtype=half").status().message(), HasSubstr("expected a value of dtype"));
  const std::string small = "microBatch=1 seq=8 hidden=8 heads=2 ffn=8 vocab=8";
  EXPECT_TRUE(ParseShape(small).ok()) << ParseShape(small).status();
  EXPECT_THAT(ParseShape("seq=8").status().message(), HasSubstr("expected microBatch from 1 to 1048576, found 'seq=8'"));
  EXPECT_THAT(ParseShape(small + " tp=4").status().message(), HasSubstr("expected heads to be a multiple of tp"));
  EXPECT_THAT(ParseShape(small + " rotaryDims=5").status().message(), HasSubstr("expected rotaryDims of at most a head"));
  const std::string latent = small + " family=llama attention=fused rotaryDims=2 kvRank=4 valueDim=3";
  EXPECT_TRUE(ParseShape(latent).ok()) << ParseShape(latent).status();
  for (const char* const change :
       {"rotaryDims=0", "attention=unfused", "kvHeads=1", "family=gpt", "qkNorm=true", "qkvBias=true", "matmulType=float8"}) {
    EXPECT_THAT(ParseShape(latent + " " + change).status().message(), HasSubstr("which latent attention (kvRank) needs"))
        << change;
  }
  EXPECT_THAT(ParseShape(latent + " kvRank=131073").status().message(), HasSubstr("expected kvRank from 0 to 131072"));
  EXPECT_THAT(ParseShape(latent + " valueDim=131073").status().message(), HasSubstr("expected valueDim from 1 to 131072"));
  EXPECT_THAT(ParseShape(small + " queryRank=2").status().message(), HasSubstr("expected queryRank from 0 to 0"));
  EXPECT_THAT(ParseShape(small + " valueDim=2").status().message(), HasSubstr("expected valueDim from 0 to 0"));
  EXPECT_THAT(ParseOpTimes("matmul=1,2,3").status().message(), HasSubstr("expected the name of an op"));
  EXPECT_THAT(ParseOpTimes("qkv=1,2").status().message(), HasSubstr("expected three times in nanoseconds"));
  ClusterTopology cluster{.groups = {CpuGroup()}};
  cluster.shared_cores = {{.devices = {0, 1}, .at_once_permille = 500}};
  const std::string good = *ClusterText("c", "c", cluster);
  const auto error = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    return std::string(ParseClusterFile(text, "c.yaml").status().message());
  };
  EXPECT_THAT(error("\"0-1\"", "\"1-0\""), HasSubstr("expected numbers of devices such as 0-3 8"));
  EXPECT_THAT(error("\"0-1\"", "\"0-9999999\""), HasSubstr("expected numbers of devices such as 0-3 8"));
  EXPECT_THAT(error("\"0-1\"", "\"\""), HasSubstr("expected numbers of devices such as 0-3 8"));
  EXPECT_THAT(error("atOnce: 0.500", "atOnce: 0"), HasSubstr("expected a number from 0.001 to 1000000"));
  EXPECT_THAT(error("atOnce: 0.500", "atOnce: 2"), HasSubstr("c.yaml"));
  EXPECT_THAT(error("hostIsDevice: true", "hostIsDevice: maybe"), HasSubstr("expected true or false"));
}

}  // namespace
}  // namespace lynx::cli
