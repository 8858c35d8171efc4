#include "planner/cost/group_path.h"

#include <gtest/gtest.h>

#include <numeric>

#include "planner/cost/cost_model.h"
#include "tests/planner/plan/plan_fixtures.h"

namespace lynx {
namespace {

// A GPU with links of simple rates: 100 GB/s and 2 us in a node, 10 GB/s and 10 us for each adapter between nodes.
HardwareProfile Gpu(int32_t adapters) {
  HardwareProfile profile = StatedCpuProfile();
  profile.gemm_tiles = {100, 256, 128};
  profile.intra_node = {Nanos(2'000), 100'000'000'000};
  profile.inter_node = {Nanos(10'000), 10'000'000'000};
  profile.adapters = adapters;
  return profile;
}

std::vector<int32_t> Ranks(int32_t count, int32_t stride = 1) {
  std::vector<int32_t> ranks(static_cast<size_t>(count));
  std::iota(ranks.begin(), ranks.end(), 0);
  for (int32_t& rank : ranks) rank *= stride;
  return ranks;
}

TEST(GroupPath, RingCollectivesByHand) {
  const GroupPath path{.link = {Nanos(5), 500'000'000}};
  // The group has 4 ranks, and the tensor 1000 bytes. There are 6 steps of 250 bytes at 2 ns per byte, with 5 ns of latency
  // each.
  EXPECT_EQ(AllReduceTime(Bytes(1000), 4, path), Nanos(6 * 505));
  EXPECT_EQ(AllGatherTime(Bytes(1000), 4, path), Nanos(3 * 505));
  EXPECT_EQ(AllReduceTime(Bytes(1000), 1, path), Nanos(0));
}

TEST(GroupPath, OnlyStepsBetweenNodesHaveTheirLatencyOnGpus) {
  const RankPlaces places{.ranks = 32, .ranks_per_node = 8};
  const GroupPath path = PathThrough(Ranks(32), Gpu(8), places);
  EXPECT_EQ(path, (GroupPath{{Nanos(10'000), 80'000'000'000}, Nanos(2'000), 4}));
  // The ring has 31 steps of 1 MB at 80 GB/s. 3 of the steps go between nodes.
  EXPECT_EQ(AllGatherTime(Bytes(32'000'000), 32, path), Nanos(31 * 12'500 + 3 * 10'000 + 28 * 2'000));
  const GroupPath spread = PathThrough(Ranks(4, 8), Gpu(8), places);
  EXPECT_EQ(spread, (GroupPath{{Nanos(10'000), 10'000'000'000}, Nanos(2'000), 4})) << "a member in each node";
  EXPECT_EQ(AllGatherTime(Bytes(4'000'000), 4, spread), Nanos(3 * (100'000 + 10'000)));
}

TEST(GroupPath, GroupsOfANodeShareItsAdapters) {
  const RankPlaces places{.ranks = 32, .ranks_per_node = 8};
  const auto rate = [&](int32_t members_in_node, int32_t adapters) {
    std::vector<int32_t> members;
    for (const int32_t node : {0, 1, 2, 3}) {
      for (int32_t i = 0; i < members_in_node; ++i) members.push_back(node * 8 + i * (8 / members_in_node));
    }
    return PathThrough(members, Gpu(adapters), places).link.bytes_per_second;
  };
  // If a node has half as many adapters as devices, all its groups together have half the rate that they have with one adapter
  // per device.
  for (const int32_t members : {1, 2, 4, 8}) {
    const int64_t groups = 8 / members;
    EXPECT_EQ(rate(members, 8) * groups, 80'000'000'000) << members;
    EXPECT_EQ(rate(members, 4) * groups, 40'000'000'000) << members;
    EXPECT_EQ(rate(members, 1), 10'000'000'000) << "one stands for an unknown number";
  }
}

// Trees have few steps and a lower rate. So they win where latency matters: small transfers, or many ranks.
TEST(GroupPath, AllReduceOnGpusTakesTheFasterOfRingsAndTrees) {
  const auto path = [](int32_t nodes) {
    return PathThrough(Ranks(nodes * 8), Gpu(8), {.ranks = nodes * 8, .ranks_per_node = 8});
  };
  // 16 nodes: a chain of 7 steps in a node, 4 levels between nodes; 73.6 GB/s.
  EXPECT_EQ(AllReduceTime(Bytes(7'360'000), 128, path(16)), Nanos(2 * (7 * 2'000 + 4 * 10'000 + 100'000)));
  const Nanos ring_latency = Nanos(2 * (15 * 10'000 + 112 * 2'000));
  const Bytes large(int64_t{128} * 800'000'000);  // 0.8 GB a step
  EXPECT_EQ(AllReduceTime(large, 128, path(16)), ring_latency + Nanos(int64_t{254} * 10'000'000));
  // The size at which trees become faster rises with the ranks: 100 MB use a ring on 2 nodes, and trees on 64.
  const Bytes medium(100'000'000);
  const auto by_ring = [&](int32_t nodes) {
    const GroupPath on = path(nodes);
    const int32_t n = nodes * 8;
    return AllReduceTime(medium, n, on) == AllGatherTime(medium, n, on) * 2;
  };
  EXPECT_TRUE(by_ring(2));
  EXPECT_FALSE(by_ring(64));
  EXPECT_EQ(AllReduceTime(medium, 8, PathThrough(Ranks(8), Gpu(8), {.ranks = 8, .ranks_per_node = 8})),
            AllGatherTime(medium, 8, PathThrough(Ranks(8), Gpu(8), {.ranks = 8, .ranks_per_node = 8})) * 2)
      << "inside a node, a tree is a chain of all members";
}

TEST(GroupPath, RanksOfTheEngineRunRingsOnly) {
  HardwareProfile cpu = Gpu(8);
  cpu.gemm_tiles = {};
  const GroupPath path = PathThrough(Ranks(128), cpu, {.ranks = 128, .ranks_per_node = 8});
  EXPECT_EQ(path.nodes, 1);
  EXPECT_EQ(AllReduceTime(Bytes(128'000), 128, path), Nanos(254 * (10'000 + 13)));
}

// Pods of 4 nodes with one rank each. The links out of a pod carry the data of one node at a time.
TEST(GroupPath, GroupsShareTheLinksBetweenPods) {
  HardwareProfile profile = Gpu(1);
  profile.pod_nodes = 4;
  profile.oversubscription_permille = 4000;
  RankPlaces places{.ranks = 8, .ranks_per_node = 1, .pod_nodes = 4};
  const auto rate = [&](const std::vector<int32_t>& members) {
    return PathThrough(members, profile, places).link.bytes_per_second;
  };
  EXPECT_EQ(rate({0, 1, 2, 3}), 10'000'000'000) << "inside a pod";
  EXPECT_EQ(rate({0, 4}), 2'500'000'000) << "four such groups leave each pod at the same time";
  EXPECT_EQ(rate({0, 1, 4, 5}), 5'000'000'000) << "two groups";
  EXPECT_EQ(rate({0, 1, 2, 3, 4, 5, 6, 7}), 10'000'000'000) << "one ring leaves each pod once";
  EXPECT_EQ(rate({2, 3, 4}), 2'500'000'000) << "the pod where the group has the fewest nodes";
  places.ranks = 6;
  EXPECT_EQ(places.UsedNodes(1), 2);
  EXPECT_EQ(rate({0, 1, 2, 3, 4, 5}), 10'000'000'000) << "the job uses two nodes of the second pod";
  profile.oversubscription_permille = 1000;
  EXPECT_EQ(rate({0, 4}), 10'000'000'000);
  // With two ranks in a node, a group of all ranks has one ring for each adapter. Each ring has its share of the links between
  // pods.
  profile.oversubscription_permille = 8000;
  profile.adapters = 2;
  places = {.ranks = 16, .ranks_per_node = 2, .pod_nodes = 4};
  EXPECT_EQ(rate(Ranks(16)), 2 * 5'000'000'000);
}

TEST(GroupPath, TheCostModelCountsPods) {
  const ModelSpec model = TinyModel(4);
  HardwareProfile profile = Gpu(1);
  profile.inter_node = {Nanos(0), 1'000'000'000};
  const auto costs = [&](const ParallelLayout& layout) { return CostModel(profile, model, layout, 1, 1); };
  const ParallelLayout replicas{.pp = 4, .dp = 2}, stages{.pp = 4, .dp = 2, .rank_order = RankOrder::kTpDpPp};
  const Nanos across = costs(replicas).DataReduceTime(2000), beside = costs(stages).DataReduceTime(2000);
  EXPECT_EQ(across, beside);
  profile.pod_nodes = 4;
  profile.oversubscription_permille = 4000;
  EXPECT_EQ(costs(replicas).DataReduceTime(2000), across * 4) << "each replica fills a pod";
  EXPECT_EQ(costs(stages).DataReduceTime(2000), beside) << "the replicas of a stage are neighbours";
  EXPECT_EQ(costs(replicas).BoundaryTime(0, Bytes(1000)), Nanos(1000)) << "inside a pod";
  EXPECT_EQ(costs(stages).BoundaryTime(0, Bytes(1000)), Nanos(1000));
  EXPECT_EQ(costs(stages).BoundaryTime(1, Bytes(1000)), Nanos(4000)) << "stages 1 and 2 are in different pods";
}

TEST(GroupPath, TheCostModelSumsGradientsByTreesOnGpus) {
  const ModelSpec model = TinyModel(4);
  HardwareProfile profile = Gpu(8);
  const CostModel gpu(profile, model, {.dp = 64}, 1, 8);
  EXPECT_EQ(gpu.DataReduceTime(1'840'000), Nanos(2 * (7 * 2'000 + 3 * 10'000 + 100'000))) << "8 nodes, 7.36 MB";
  const CostModel shared(profile, model, {.dp = 64, .zero = ZeroStage::kOptimizer}, 1, 8);
  EXPECT_EQ(shared.DataReduceTime(1'840'000), Nanos(63 * 1'438 + 7 * 10'000 + 56 * 2'000)) << "a reduce-scatter is a ring";
  EXPECT_EQ(gpu.NormTime(), Nanos(126 * (10'000 + 1))) << "the host sums over all ranks";
  profile.gemm_tiles = {};
  EXPECT_EQ(CostModel(profile, model, {.dp = 64}, 1, 8).DataReduceTime(1'840'000), Nanos(126 * (10'000 + 1'438)));
}

}  // namespace
}  // namespace lynx
