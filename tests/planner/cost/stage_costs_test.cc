#include "planner/cost/stage_costs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "planner/plan/plan.h"
#include "planner/search/make_plan.h"

namespace lynx {
namespace {

// Returns a cluster of four nodes with two devices each. On the last `slow` nodes, everything takes `factor` times as long.
ClusterTopology Cluster(int32_t slow, int64_t factor) {
  HardwareProfile profile = StatedCpuProfile();
  profile.flops_per_second /= factor;
  profile.memory_bytes_per_second /= factor;
  profile.op_overhead = profile.op_overhead * factor;
  ClusterTopology cluster;
  if (slow < 4) cluster.groups.push_back({.nodes = 4 - slow, .devices_per_node = 2, .profile = StatedCpuProfile()});
  if (slow > 0) cluster.groups.push_back({.nodes = slow, .devices_per_node = 2, .profile = profile});
  return cluster;
}

PlanRequest Request(const ClusterTopology& cluster, const ParallelLayout& layout) {
  PlanRequest request;
  request.spec.model = {.layers = 16, .hidden = 256, .heads = 4, .ffn = 1024, .seq = 128, .vocab = 256, .dropout = 0.1};
  request.spec.train.global_batch = 16;
  request.spec.train.micro_batch = 1;
  request.spec.resources = {.min_ranks = layout.ranks(), .max_ranks = layout.ranks()};
  request.spec.parallel = {.tp = layout.tp, .pp = layout.pp, .dp = layout.dp};
  request.cluster = cluster;
  return request;
}

Plan PlanOf(const PlanRequest& request) {
  const auto result = MakePlan(request);
  EXPECT_TRUE(result.ok()) << result.status();
  return std::get<Plan>(*result);
}

std::vector<int32_t> LayersOf(const Plan& plan) {
  std::vector<int32_t> layers;
  for (const StagePlan& stage : plan.stages) layers.push_back(stage.slices.at(0).layers());
  return layers;
}

TEST(StageCosts, AStageIsAsSlowAsItsSlowestRank) {
  const ModelSpec model = Request({}, {}).spec.model;
  const ClusterTopology cluster = Cluster(1, 3);
  const ParallelLayout deep{.tp = 2, .pp = 4, .dp = 1};
  const StageCosts costs(cluster, model, deep, 1);
  EXPECT_FALSE(costs.alike());
  EXPECT_EQ(&costs.Of(0), &costs.Of(2)) << "the same groups share a model";
  const auto layer = [](const CostModel& c) { return c.LayerTime(LayerType::kTransformer, Pass::kForward); };
  const CostModel fast(cluster.groups[0].profile, model, deep, 1, 2);
  const CostModel slow(cluster.groups[1].profile, model, deep, 1, 2);
  EXPECT_EQ(layer(costs.Of(1)), layer(fast));
  EXPECT_EQ(layer(costs.Of(3)), layer(slow));
  // The second replica's last stage runs on the slow node, and the first replica waits for it.
  const ParallelLayout wide{.tp = 2, .pp = 2, .dp = 2};
  const StageCosts replicas(cluster, model, wide, 1);
  EXPECT_EQ(layer(replicas.Of(0)), layer(CostModel(cluster.groups[0].profile, model, wide, 1, 2)));
  EXPECT_EQ(layer(replicas.Of(1)), layer(CostModel(cluster.groups[1].profile, model, wide, 1, 2)));
  EXPECT_TRUE(StageCosts(UniformCluster(4, 2, StatedCpuProfile()), model, deep, 1).alike());
  EXPECT_TRUE(StageCosts(fast, 4).alike());
}

TEST(StageCosts, ASlowNodeGetsFewerLayers) {
  const ParallelLayout layout{.tp = 2, .pp = 4, .dp = 1};
  const Plan alike = PlanOf(Request(Cluster(0, 1), layout));
  const Plan uneven = PlanOf(Request(Cluster(1, 3), layout));
  EXPECT_EQ(CheckPlan(uneven), absl::OkStatus());
  EXPECT_LE(LayersOf(uneven)[3] * 2, LayersOf(alike)[3]);
  EXPECT_GT(uneven.step, alike.step);
  // A plan that treats every node as slow takes far longer per step.
  const Plan slowest = PlanOf(Request(Cluster(4, 3), layout));
  EXPECT_LT(uneven.step.value * 100, slowest.step.value * 60);
  // An even partition is right for equal nodes. On these nodes it would take longer, because its last stage alone takes longer.
  EXPECT_LT(uneven.stages[3].forward, alike.stages[3].forward * 3);
}

TEST(StageCosts, ASlowNodeInFrontGetsFewerLayersToo) {
  const ParallelLayout layout{.tp = 2, .pp = 4, .dp = 1};
  ClusterTopology cluster = Cluster(1, 3);
  std::swap(cluster.groups[0], cluster.groups[1]);
  const std::vector<int32_t> layers = LayersOf(PlanOf(Request(cluster, layout)));
  EXPECT_LT(layers[0] * 2, layers[1]);
  EXPECT_EQ(std::accumulate(layers.begin(), layers.end(), 0), 16);
}

// One stage has a slower link. With less memory, the transfers over this link hide the recomputation of this stage.
TEST(StageCosts, ASlowLinkChangesThePolicyOfItsStage) {
  const ParallelLayout layout{.tp = 2, .pp = 4, .dp = 1};
  ClusterTopology cluster = Cluster(1, 1);
  cluster.groups[1].profile.intra_node.bytes_per_second /= 20;
  PlanRequest request = Request(cluster, layout);
  const Plan ample = PlanOf(request);
  Bytes largest;
  for (const StagePlan& stage : ample.stages) largest = std::max(largest, stage.arena);
  request.spec.resources.activation_memory_per_rank = largest * 45 / 100;
  const Plan plan = PlanOf(request);
  EXPECT_EQ(CheckPlan(plan), absl::OkStatus());
  request.cluster = Cluster(0, 1);
  const Plan alike = PlanOf(request);
  EXPECT_NE(LayersOf(plan), LayersOf(alike));
  EXPECT_NE(plan.stages[3].slices[0].policy, alike.stages[3].slices[0].policy);
}

// The search drops candidates by means of bounds. If it may use every layout, it must find the same result as the best layout
// that a job pins.
TEST(StageCosts, TheSearchFindsTheBestPinnedLayoutOnUnequalNodes) {
  for (uint32_t seed = 1; seed <= 6; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 rng(seed);
    const ClusterTopology cluster = Cluster(static_cast<int32_t>(1 + rng() % 3), static_cast<int64_t>(2 + rng() % 4));
    PlanRequest open = Request(cluster, {.tp = 2, .pp = 4, .dp = 1});
    open.spec.model.layers = static_cast<int32_t>(4 + rng() % 5);
    open.spec.parallel = {};
    const Plan best = PlanOf(open);
    for (int32_t tp : {1, 2}) {
      for (int32_t pp : {1, 2, 4}) {
        PlanRequest pinned = open;
        pinned.spec.parallel = {.tp = tp, .pp = pp, .dp = 8 / (tp * pp)};
        const auto result = MakePlan(pinned);
        if (!result.ok()) continue;
        EXPECT_LE(best.step, std::get<Plan>(*result).step) << "tp " << tp << " pp " << pp;
      }
    }
  }
}

}  // namespace
}  // namespace lynx
