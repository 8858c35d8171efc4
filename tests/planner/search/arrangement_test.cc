// Checks the orders of the nodes of mixed clusters, and that the search uses them.
#include "planner/search/arrangement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "planner/report/plan_table.h"
#include "planner/search/make_plan.h"
#include "tests/planner/search/search_requests.h"

namespace lynx {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A cluster with fast nodes, and with slow nodes that compute at a fifth of the speed.
ClusterTopology Mixed(int32_t fast, int32_t slow) {
  ClusterTopology cluster = UniformCluster(fast, 2, SmallGpu());
  cluster.groups[0].name = "fast";
  NodeGroup other = cluster.groups[0];
  other.name = "slow";
  other.nodes = slow;
  other.profile.flops_per_second /= 5;
  other.profile.memory_bytes_per_second /= 5;
  cluster.groups.push_back(other);
  return cluster;
}

// Text such as "fast 1, slow 2".
std::string TextOf(const ClusterTopology& cluster) {
  std::string text;
  for (const NodeGroup& group : cluster.groups) {
    text += (text.empty() ? "" : ", ") + group.name + " " + std::to_string(group.nodes);
  }
  return text;
}

std::vector<std::string> TextsOf(const ClusterTopology& cluster) {
  std::vector<std::string> texts;
  for (const ClusterTopology& arranged : Arrangements(cluster)) texts.push_back(TextOf(arranged));
  return texts;
}

TEST(Arrangement, DividesAllGroupsIntoEqualParts) {
  EXPECT_THAT(TextsOf(Mixed(2, 4)), ElementsAre("fast 2, slow 4", "fast 1, slow 2, fast 1, slow 2", "slow 4, fast 2",
                                                "slow 2, fast 1, slow 2, fast 1"));
  EXPECT_THAT(TextsOf(Mixed(3, 4)), ElementsAre("fast 3, slow 4", "slow 4, fast 3"));
  EXPECT_THAT(TextsOf(UniformCluster(4, 2, SmallGpu())), ElementsAre(" 4"));
}

// Groups that differ only in their number of nodes are one kind.
TEST(Arrangement, TakesNodesOfAKindTogetherWhereverTheyStand) {
  ClusterTopology cluster = Mixed(1, 2);
  cluster.groups.push_back(cluster.groups[0]);
  EXPECT_THAT(TextsOf(cluster), ElementsAre("fast 1, slow 2, fast 1", "fast 2, slow 2", "fast 1, slow 1, fast 1, slow 1",
                                            "slow 2, fast 2", "slow 1, fast 1, slow 1, fast 1"));
  std::vector<std::vector<int32_t>> orders;
  for (const ClusterTopology& arranged : Arrangements(cluster)) orders.push_back(NodeOrder(cluster, arranged));
  EXPECT_THAT(orders, ElementsAre(ElementsAre(0, 1, 2, 3), ElementsAre(0, 3, 1, 2), ElementsAre(0, 1, 3, 2),
                                  ElementsAre(1, 2, 0, 3), ElementsAre(1, 0, 2, 3)));
  cluster.groups[2].memory_per_device = kGiB;
  EXPECT_EQ(TextsOf(cluster).front(), "fast 1, slow 2, fast 1");
  EXPECT_EQ(TextsOf(cluster).size(), 6u) << "three kinds";
  cluster = Mixed(1, 1);
  cluster.groups[1] = cluster.groups[0];
  EXPECT_THAT(TextsOf(cluster), ElementsAre("fast 1, fast 1")) << "one kind";
}

TEST(Arrangement, MovesSharedCoresOfNodesThatStandApart) {
  ClusterTopology cluster = Mixed(1, 1);
  cluster.groups.push_back(cluster.groups[0]);
  cluster.shared_cores = {{.devices = {0, 4}, .at_once_permille = 500}, {.devices = {2, 3}, .at_once_permille = 900}};
  const ClusterTopology arranged = Arrangements(cluster)[1];  // fast 2, slow 1
  ASSERT_EQ(TextOf(arranged), "fast 2, slow 1");
  ASSERT_EQ(arranged.shared_cores.size(), 2);
  EXPECT_THAT(arranged.shared_cores[0].devices, ElementsAre(0, 2));
  EXPECT_THAT(arranged.shared_cores[1].devices, ElementsAre(4, 5));
}

TEST(Arrangement, MovesSharedCoresWithTheirDevices) {
  ClusterTopology cluster = Mixed(2, 2);
  cluster.shared_cores = {{.devices = {2, 3}, .at_once_permille = 500}, {.devices = {4, 7, 99}, .at_once_permille = 900}};
  const ClusterTopology arranged = Arrangements(cluster)[1];  // fast 1, slow 1, fast 1, slow 1
  ASSERT_EQ(arranged.shared_cores.size(), 2);
  EXPECT_THAT(arranged.shared_cores[0].devices, ElementsAre(4, 5));
  EXPECT_THAT(arranged.shared_cores[1].devices, ElementsAre(2, 7));
  EXPECT_EQ(arranged.shared_cores[1].at_once_permille, 900);
  EXPECT_TRUE(CheckCluster(arranged).ok());
}

PlanRequest RequestOn(ClusterTopology cluster) {
  PlanRequest request;
  request.spec.model = {.layers = 8, .hidden = 128, .heads = 4, .ffn = 512, .seq = 64, .vocab = 256};
  request.spec.train.global_batch = 64;
  request.spec.resources.min_ranks = request.spec.resources.max_ranks = cluster.devices();
  request.cluster = std::move(cluster);
  return request;
}

Plan PlanOf(const PlanRequest& request) {
  absl::StatusOr<PlanResult> result = MakePlan(request);
  EXPECT_TRUE(result.ok()) << result.status();
  return std::get<Plan>(*std::move(result));
}

// With two replicas of two stages, each stage runs on one kind of node if the kinds alternate.
TEST(Arrangement, LetsEachStageRunOnOneKindOfNode) {
  PlanRequest request = RequestOn(Mixed(2, 2));
  request.spec.parallel = {.tp = 2, .pp = 2, .rank_order = RankOrder::kTpPpDp};
  const Plan given = PlanOf(request);
  request.cluster = FastestArrangement(request);
  EXPECT_EQ(request.cluster.groups.size(), 4);
  const Plan arranged = PlanOf(request);
  EXPECT_LT(Seconds(arranged.step), 0.8 * Seconds(given.step));
  EXPECT_THAT(PlanTable(arranged), HasSubstr("nodes, in the order of the ranks: " + NodeRunsText(arranged.nodes)));
  EXPECT_THAT(NodeRunsText(given.nodes), "fast x 2, slow x 2");
  EXPECT_NE(arranged.digest, given.digest);
  EXPECT_TRUE(CheckPlan(arranged).ok());
}

// The alternative is to number all replicas of a stage one after another. Then the kinds of nodes need not alternate.
TEST(Arrangement, IsNotNeededIfReplicasAreNumberedFirst) {
  PlanRequest request = RequestOn(Mixed(2, 2));
  request.spec.parallel = {.tp = 2, .pp = 2, .rank_order = RankOrder::kTpPpDp};
  PlanRequest arranged = request;
  arranged.cluster = FastestArrangement(request);
  request.spec.parallel.rank_order = RankOrder::kAuto;
  const Plan plan = PlanOf(request);
  EXPECT_EQ(plan.layout.rank_order, RankOrder::kTpDpPp);
  EXPECT_EQ(FastestArrangement(request), request.cluster);
  EXPECT_LT(Seconds(plan.step), 1.01 * Seconds(PlanOf(arranged).step));
}

TEST(Arrangement, KeepsTheGivenOrderIfNoOtherIsFaster) {
  PlanRequest request = RequestOn(Mixed(2, 2));
  request.spec.resources.max_ranks = request.spec.resources.min_ranks = 4;  // the fast nodes are enough
  EXPECT_EQ(FastestArrangement(request), request.cluster);
  request.cluster = UniformCluster(2, 4, SmallGpu());
  EXPECT_EQ(FastestArrangement(request), request.cluster);
}

TEST(Arrangement, NamesOnlyTheNodesThatThePlanUses) {
  PlanRequest request = RequestOn(Mixed(2, 2));
  request.spec.resources.max_ranks = request.spec.resources.min_ranks = 6;
  EXPECT_EQ(NodeRunsText(PlanOf(request).nodes), "fast x 2, slow x 1");
  for (NodeGroup& group : request.cluster.groups) group.name.clear();
  EXPECT_TRUE(PlanOf(request).nodes.empty());
}

}  // namespace
}  // namespace lynx
