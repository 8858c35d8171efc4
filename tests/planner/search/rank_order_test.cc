// Tests which of the two orders in which ranks can be numbered (RankOrder) the planner chooses.
#include <gtest/gtest.h>

#include <set>

#include "planner/candidates/search.h"
#include "planner/search/make_plan.h"
#include "tests/planner/search/search_requests.h"

namespace lynx {
namespace {

using enum RankOrder;

// Four stages and four replicas on four nodes of four devices.
PlanRequest SixteenRanks(int64_t network_rate) {
  PlanRequest request;
  request.spec.model = {.layers = 8, .hidden = 128, .heads = 4, .ffn = 512, .seq = 64, .vocab = 256};
  request.spec.train.global_batch = 64;
  request.cluster = UniformCluster(4, 4, SmallGpu());
  request.cluster.groups[0].profile.inter_node.bytes_per_second = network_rate;
  request.spec.resources.min_ranks = request.spec.resources.max_ranks = 16;
  request.spec.parallel = {.tp = 1, .pp = 4, .dp = 4};
  return request;
}

std::set<RankOrder> OrdersOf(const PlanRequest& request) {
  std::set<RankOrder> orders;
  for (const Candidate& candidate : SearchSpace(request.spec, request.cluster, request.target, /*even_batches=*/false)) {
    orders.insert(candidate.layout.rank_order);
  }
  return orders;
}

Plan PlanOf(const PlanRequest& request) {
  const absl::StatusOr<PlanResult> result = MakePlan(request);
  EXPECT_TRUE(result.ok()) << result.status();
  return std::get<Plan>(*result);
}

TEST(RankOrder, BothAreCandidatesBetweenNodes) {
  PlanRequest request = SixteenRanks(500'000'000);
  EXPECT_EQ(OrdersOf(request), (std::set{kTpPpDp, kTpDpPp}));
  request.spec.parallel.rank_order = kTpDpPp;
  EXPECT_EQ(OrdersOf(request), std::set{kTpDpPp});
  request.spec.parallel = {.tp = 1, .pp = 1, .dp = 16, .rank_order = kTpDpPp};
  EXPECT_EQ(OrdersOf(request), std::set{kTpPpDp}) << "with one stage, both are the same";
}

TEST(RankOrder, OneIsEnoughIfAllRanksHaveTheSameLinks) {
  PlanRequest request = SixteenRanks(500'000'000);
  request.cluster = UniformCluster(1, 16, SmallGpu());
  EXPECT_EQ(OrdersOf(request), std::set{kTpPpDp});
  ClusterTopology cores = request.cluster;
  cores.shared_cores = {{.devices = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, .at_once_permille = 2000}};
  std::swap(cores, request.cluster);
  EXPECT_EQ(OrdersOf(request), std::set{kTpPpDp}) << "all ranks share the same cores";
  request.cluster.shared_cores[0].devices = {0, 1, 2, 3};
  EXPECT_EQ(OrdersOf(request).size(), 2u) << "which ranks are slow depends on the order";
  request.cluster = cores;
  request.cluster.groups[0].profile.inner_links = {{4, {Nanos(1'000), 8'000'000'000}}};
  EXPECT_EQ(OrdersOf(request).size(), 2u) << "four devices have a faster link";
}

// Over a slow network, the gradients of a model that is large compared with its microbatches stay inside the nodes. Over a
// network as fast as the links inside a node, the order makes no difference, and the default remains.
TEST(RankOrder, ReplicasShareANodeIfGradientsAreLargeAndTheNetworkIsSlow) {
  PlanRequest request = SixteenRanks(20'000'000);
  const Plan plan = PlanOf(request);
  EXPECT_EQ(plan.layout.rank_order, kTpDpPp);
  request.spec.parallel.rank_order = kTpPpDp;
  EXPECT_GT(PlanOf(request).step, plan.step);
}

}  // namespace
}  // namespace lynx
