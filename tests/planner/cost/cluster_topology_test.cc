#include "planner/cost/cluster_topology.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/plan/plan.h"
#include "planner/search/make_plan.h"

namespace lynx {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Returns a cluster of two nodes with 4 devices each, followed by three nodes with 2 devices each.
ClusterTopology Mixed() {
  ClusterTopology cluster = UniformCluster(2, 4, StatedCpuProfile(), kGiB * 8);
  cluster.groups[0].name = "big";
  cluster.groups.push_back(
      {.name = "small", .nodes = 3, .devices_per_node = 2, .memory_per_device = kGiB * 3, .profile = StatedCpuProfile()});
  return cluster;
}

TEST(ClusterTopology, CountsOverGroups) {
  const ClusterTopology cluster = Mixed();
  EXPECT_EQ(cluster.nodes(), 5);
  EXPECT_EQ(cluster.devices(), 14);
  EXPECT_EQ(cluster.least_devices_per_node(), 2);
  EXPECT_EQ(NodesText(cluster), "2 nodes of 4 and 3 nodes of 2");
  EXPECT_EQ(NodesText(UniformCluster(2, 8)), "2 nodes of 8");
}

TEST(ClusterTopology, RanksFillNodesInOrder) {
  const ClusterTopology cluster = Mixed();
  std::vector<int32_t> groups, nodes;
  for (int32_t rank = 0; rank < 15; ++rank) {
    groups.push_back(cluster.GroupOfRank(rank));
    nodes.push_back(cluster.NodeOfRank(rank));
  }
  EXPECT_THAT(groups, ElementsAre(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1));
  EXPECT_THAT(nodes, ElementsAre(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 3, 3, 4, 4, 4));
}

TEST(ClusterTopology, GroupsOfAStageAreThoseOfAllItsReplicas) {
  const ClusterTopology cluster = Mixed();
  // There is one replica, with ranks 0 to 11 in stages of 2 ranks.
  EXPECT_THAT(GroupsOfStage(cluster, {.tp = 2, .pp = 6, .dp = 1}, 3), ElementsAre(0));
  EXPECT_THAT(GroupsOfStage(cluster, {.tp = 2, .pp = 6, .dp = 1}, 4), ElementsAre(1));
  // There are two replicas. Stage 2 has the ranks 4, 5, 10 and 11; stage 0 has the ranks 0, 1, 6 and 7.
  EXPECT_THAT(GroupsOfStage(cluster, {.tp = 2, .pp = 3, .dp = 2}, 2), ElementsAre(0, 1));
  EXPECT_THAT(GroupsOfStage(cluster, {.tp = 2, .pp = 3, .dp = 2}, 0), ElementsAre(0));
  // Context-parallel ranks count too: stage 0 has the ranks 0 to 9.
  EXPECT_THAT(GroupsOfStage(cluster, {.tp = 2, .pp = 1, .dp = 1, .cp = 5}, 0), ElementsAre(0, 1));
}

TEST(ClusterTopology, MemoryOfAStageIsTheLeastThatIsKnown) {
  ClusterTopology cluster = Mixed();
  const ParallelLayout layout{.tp = 2, .pp = 3, .dp = 2};
  EXPECT_EQ(DeviceMemoryOfStage(cluster, layout, 0), kGiB * 8);
  EXPECT_EQ(DeviceMemoryOfStage(cluster, layout, 2), kGiB * 3);
  cluster.groups[1].memory_per_device = Bytes(0);
  EXPECT_EQ(DeviceMemoryOfStage(cluster, layout, 2), kGiB * 8);
  cluster.groups[0].memory_per_device = Bytes(0);
  EXPECT_EQ(DeviceMemoryOfStage(cluster, layout, 2), Bytes(0));
}

ShapeTimes TimesOf(int32_t micro_batch, int64_t nanos) {
  ShapeTimes times{.shape = {.micro_batch = micro_batch}};
  times.ops.fill({Nanos(nanos), Nanos(2 * nanos), Nanos(nanos / 2)});
  times.optimizer_per_mega_parameter = Nanos(nanos);
  return times;
}

TEST(ClusterTopology, SlowerProfileTakesTheWorseOfEveryFigure) {
  HardwareProfile a = StatedCpuProfile(), b = StatedCpuProfile();
  a.measured = {TimesOf(1, 100), TimesOf(2, 200)};
  b.measured = {TimesOf(2, 300), TimesOf(4, 400)};
  a.flops_per_second /= 2;
  b.memory_bytes_per_second /= 2;
  a.op_overhead += Nanos(1);
  b.intra_node = {a.intra_node.latency + Nanos(1), a.intra_node.bytes_per_second * 2};
  a.inter_node.bytes_per_second /= 3;
  a.adapters = 8;
  b.adapters = 4;
  a.pod_nodes = 16;
  a.oversubscription_permille = 2000;
  b.pod_nodes = 8;
  b.overlap_slowdown_permille += 7;
  a.communication_compute_permille += 5;
  b.device_kind = "other";
  const HardwareProfile slower = SlowerProfile(a, b);
  EXPECT_EQ(slower.measured, std::vector{TimesOf(2, 300)});
  EXPECT_EQ(slower.flops_per_second, a.flops_per_second);
  EXPECT_EQ(slower.memory_bytes_per_second, b.memory_bytes_per_second);
  EXPECT_EQ(slower.op_overhead, a.op_overhead);
  EXPECT_EQ(slower.intra_node, (LinkCost{b.intra_node.latency, a.intra_node.bytes_per_second}));
  EXPECT_EQ(slower.inter_node, a.inter_node);
  EXPECT_EQ(slower.adapters, 4);
  EXPECT_EQ(slower.pod_nodes, 8);
  EXPECT_EQ(slower.oversubscription_permille, 2000);
  const HardwareProfile plain = StatedCpuProfile();
  EXPECT_EQ(SlowerProfile(a, plain).pod_nodes, 16) << "the other nodes have no pods";
  EXPECT_EQ(SlowerProfile(plain, a).pod_nodes, 16);
  EXPECT_EQ(slower.overlap_slowdown_permille, b.overlap_slowdown_permille);
  EXPECT_EQ(slower.communication_compute_permille, a.communication_compute_permille);
  EXPECT_EQ(slower.device_kind, "mixed");
  EXPECT_EQ(SlowerProfile(b, a), SlowerProfile(b, slower)) << "the order does not matter";
}

TEST(ClusterTopology, SlowerProfileTakesTheWorseDescription) {
  HardwareProfile a = StatedCpuProfile(), b = StatedCpuProfile();
  a.bfloat16_flops_per_second = a.flops_per_second * 2;
  a.float8_flops_per_second = a.flops_per_second * 4;
  a.efficiency[0] = {{10, 500}, {1000, 900}};
  b.efficiency[0] = {{100, 600}};
  a.gemm_tiles = {108, 256, 128};
  a.inner_links = {{2, {Nanos(1), 100}}};
  b.inner_links = {{2, {Nanos(2), 200}}};
  a.host = {Nanos(1), 10, 10, 15};
  b.host = {Nanos(2), 20, 2, 21, 1500};
  const HardwareProfile slower = SlowerProfile(a, b);
  EXPECT_EQ(slower.bfloat16_flops_per_second, b.flops_per_second) << "b's 16-bit rate is its other rate";
  EXPECT_EQ(slower.float8_flops_per_second, 0) << "b has no 8-bit products";
  EXPECT_EQ(slower.efficiency[0], (EfficiencyCurve{{10, 500}, {100, 600}, {1000, 600}}));
  EXPECT_EQ(slower.gemm_tiles, a.gemm_tiles);
  EXPECT_EQ(slower.inner_links, (std::vector<LinkLevel>{{2, {Nanos(2), 100}}}));
  EXPECT_EQ(slower.host, (HostLink{Nanos(2), 10, 2, 12, 1500}));
  EXPECT_EQ(CheckProfile(slower), absl::OkStatus());
  EXPECT_EQ(SlowerProfile(b, a), slower) << "the order does not matter";
  b.inner_links.clear();
  EXPECT_TRUE(SlowerProfile(a, b).inner_links.empty()) << "links that b lacks";
  for (int64_t i = 1; i <= 63; ++i) b.efficiency[0].push_back({1000 + i, static_cast<int32_t>(700 - i)});
  EXPECT_EQ(SlowerProfile(a, b).efficiency[0], (EfficiencyCurve{{10, 500}})) << "66 points are too many for one curve";
}

TEST(ClusterTopology, CheckNamesTheGroupAndTheNumber) {
  const auto error = [](auto change) {
    ClusterTopology cluster = Mixed();
    change(cluster);
    const absl::Status status = CheckCluster(cluster);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_EQ(CheckCluster(Mixed()), absl::OkStatus());
  EXPECT_EQ(error([](auto& c) { c.groups.clear(); }), "the cluster has no nodes");
  EXPECT_THAT(error([](auto& c) { c.groups[1].nodes = 0; }), HasSubstr("node group \"small\" of the cluster has 0 nodes"));
  EXPECT_THAT(error([](auto& c) { c.groups[0].devices_per_node = -1; }), HasSubstr("\"big\" of the cluster has -1 devices"));
  EXPECT_THAT(error([](auto& c) { c.groups[0].name = "", c.groups[0].host_memory = Bytes(-5); }),
              HasSubstr("node group 0 of the cluster has -5 bytes"));
  EXPECT_THAT(error([](auto& c) { c.groups[0].nodes = 1 << 30; }), HasSubstr("at most 1048576 devices"));
  EXPECT_THAT(error([](auto& c) { c.groups[0].nodes = c.groups[1].nodes = 1 << 18; }), HasSubstr("at most 1048576"));
  EXPECT_THAT(error([](auto& c) {
                c.groups[0].profile.inner_links = {{3, {Nanos(1), 1}}};
              }),
              HasSubstr("\"big\" of the cluster joins 3 devices by an inner link, which does not divide the 4"));
  EXPECT_THAT(error([](auto& c) { c.groups[1].profile.flops_per_second = 0; }), HasSubstr("must be positive"));
}

// A cluster with equal devices in two groups is the same as one with all of them in one group.
TEST(ClusterTopology, TwoEqualGroupsPlanAsOne) {
  PlanRequest request;
  request.spec.model = {.layers = 6, .hidden = 128, .heads = 4, .ffn = 512, .seq = 64, .vocab = 256, .dropout = 0.1};
  request.spec.train.global_batch = 16;
  request.spec.resources = {.min_ranks = 4, .max_ranks = 4, .activation_memory_per_rank = kMiB};
  request.cluster = UniformCluster(2, 2, StatedCpuProfile(), kGiB);
  const Plan one = std::get<Plan>(MakePlan(request).value());
  request.cluster.groups.push_back(request.cluster.groups[0]);
  request.cluster.groups[0].nodes = request.cluster.groups[1].nodes = 1;
  EXPECT_EQ(std::get<Plan>(MakePlan(request).value()).digest, one.digest);
}

TEST(ClusterTopology, ASmallDeviceLimitsItsStageAlone) {
  PlanRequest request;
  request.spec.model = {.layers = 6, .hidden = 128, .heads = 4, .ffn = 512, .seq = 64, .vocab = 256, .dropout = 0.1};
  request.spec.train.global_batch = 16;
  request.spec.train.micro_batch = 2;
  request.spec.resources = {.min_ranks = 2, .max_ranks = 2};
  request.spec.parallel = {.tp = 1, .pp = 2, .dp = 1};
  request.cluster = UniformCluster(2, 1, StatedCpuProfile(), kGiB);
  const Plan ample = std::get<Plan>(MakePlan(request).value());
  const auto total = [](const StagePlan& stage) { return stage.arena + stage.states.total(); };
  request.cluster.groups.push_back(request.cluster.groups[0]);
  request.cluster.groups[0].nodes = request.cluster.groups[1].nodes = 1;
  request.cluster.groups[1].memory_per_device = total(ample.stages[1]) * 85 / 100;
  const Plan plan = std::get<Plan>(MakePlan(request).value());
  EXPECT_LE(total(plan.stages[1]), request.cluster.groups[1].memory_per_device);
  EXPECT_GT(total(plan.stages[0]), request.cluster.groups[1].memory_per_device);
  EXPECT_EQ(CheckPlan(plan), absl::OkStatus());
}

}  // namespace
}  // namespace lynx
