#include "server/loop/planning_pool.h"

#include <condition_variable>
#include <mutex>
#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/search/make_plan.h"

namespace lynx::server {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Two fast nodes with two devices each, and two slow nodes, which compute at a fifth of the speed.
ClusterTopology Mixed() {
  ClusterTopology cluster = UniformCluster(2, 2, StatedCpuProfile());
  cluster.groups[0].profile.inter_node = cluster.groups[0].profile.intra_node = {Nanos(5'000), 2'000'000'000};
  cluster.groups.push_back(cluster.groups[0]);
  cluster.groups[0].name = "fast";
  cluster.groups[1].name = "slow";
  cluster.groups[1].profile.flops_per_second /= 5;
  cluster.groups[1].profile.memory_bytes_per_second /= 5;
  return cluster;
}

PlanJob Ask(ClusterTopology cluster, bool may_arrange) {
  PlanJob ask{.job = JobId("a"), .attempt = 3, .may_arrange = may_arrange};
  JobSpec& spec = ask.request.spec;
  spec.model = {.layers = 8, .hidden = 128, .heads = 4, .ffn = 512, .seq = 64, .vocab = 256};
  spec.train.global_batch = 64;
  spec.resources.min_ranks = spec.resources.max_ranks = cluster.devices();
  spec.parallel = {.tp = 2, .pp = 2, .rank_order = RankOrder::kTpPpDp};
  Normalize(spec);
  ask.request.cluster = std::move(cluster);
  return ask;
}

// The answers of a pool, and how often the pool called its planner.
struct Answered {
  PlanReady ready;
  int calls = 0;
};

Answered PlanInPool(const PlanJob& ask) {
  std::mutex mutex;
  std::condition_variable changed;
  std::optional<PlanReady> ready;
  int calls = 0;
  PlanningPool pool(
      1,
      [&](const PlanRequest& request) {
        ++calls;
        return MakePlan(request);
      },
      [&](PlanReady result, PlanTrigger, Nanos) {
        std::lock_guard lock(mutex);
        ready = std::move(result);
        changed.notify_all();
      });
  pool.Post(ask);
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return ready.has_value(); });
  return {*ready, calls};
}

const Plan& PlanOf(const Answered& answered) { return *std::get<std::shared_ptr<const Plan>>(answered.ready.result); }

TEST(PlanningPool, PlansForTheFastestOrderOfNodesAndTellsIt) {
  const Answered given = PlanInPool(Ask(Mixed(), false));
  EXPECT_THAT(given.ready.node_order, IsEmpty());
  EXPECT_EQ(*given.ready.cluster, Mixed());
  const Answered arranged = PlanInPool(Ask(Mixed(), true));
  EXPECT_EQ(arranged.ready.attempt, 3);
  EXPECT_THAT(arranged.ready.node_order, ElementsAre(0, 2, 1, 3));
  EXPECT_EQ(arranged.ready.cluster->groups.size(), 4u);
  EXPECT_EQ(NodeRunsText(PlanOf(arranged).nodes), "fast x 1, slow x 1, fast x 1, slow x 1");
  EXPECT_LT(Seconds(PlanOf(arranged).step), 0.8 * Seconds(PlanOf(given).step));
  EXPECT_EQ(PlanOf(arranged).digest, PlanOf(PlanInPool(Ask(Mixed(), true))).digest) << "the same inputs give the same plan";
}

TEST(PlanningPool, OneKindOfNodeIsPlannedOnceInItsOrder) {
  const ClusterTopology cluster = UniformCluster(4, 2, StatedCpuProfile());
  const Answered answered = PlanInPool(Ask(cluster, true));
  EXPECT_EQ(answered.calls, 1);
  EXPECT_THAT(answered.ready.node_order, IsEmpty());
  EXPECT_EQ(*answered.ready.cluster, cluster);
  EXPECT_EQ(PlanOf(answered).digest, PlanOf(PlanInPool(Ask(cluster, false))).digest);
}

}  // namespace
}  // namespace lynx::server
