// Tests jobs on nodes of several kinds: the ranks fill the nodes in the order for which their plan was made, also after a loss,
// after a restart of the server and after a change of the plan. The plans are made by the planner.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/search/arrangement.h"
#include "planner/search/make_plan.h"
#include "tests/server/controller/controller_steps.h"

namespace lynx::server {
namespace {

using ::lynx::server::testing::Cluster;
using ::lynx::server::testing::GiveWay;
using ::lynx::server::testing::MakeSpec;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// The profile of a node that computes `times` times as slow as a fast one.
std::shared_ptr<const HardwareProfile> Profile(int64_t times) {
  HardwareProfile profile;
  profile.device_kind = "test";
  profile.flops_per_second = 200'000'000'000 / times;
  profile.memory_bytes_per_second = 20'000'000'000 / times;
  profile.op_overhead = Nanos(2'000);
  profile.intra_node = {Nanos(5'000), 2'000'000'000};
  profile.inter_node = {Nanos(20'000), 500'000'000};
  return std::make_shared<const HardwareProfile>(profile);
}

// A job of two stages and two replicas on four nodes, with a tensor-parallel group on each node. In this order of ranks, a
// stage has two like nodes only if the nodes are put into another order.
JobSpec Spec(int32_t min_ranks = 8, int32_t max_ranks = 8) {
  JobSpec spec = MakeSpec("gpt", min_ranks, max_ranks);
  spec.model = {.layers = 8, .hidden = 128, .heads = 4, .ffn = 512, .seq = 64, .vocab = 256};
  spec.train.global_batch = 64;
  spec.train.steps = 100'000;
  spec.parallel = {.tp = 2, .rank_order = RankOrder::kTpPpDp};
  Normalize(spec);
  return spec;
}

// Makes plans as the planning pool does. Keeps the last plan, and the step that a plan would have with the nodes in the order
// of the request.
struct Planner {
  Plan plan;
  Nanos given;

  static Plan Make(const PlanRequest& request) {
    absl::StatusOr<PlanResult> result = MakePlan(request);
    EXPECT_TRUE(result.ok()) << result.status();
    return std::get<Plan>(*std::move(result));
  }
  PlanReady operator()(const PlanJob& ask) {
    PlanRequest request = ask.request;
    given = Make(request).step;
    if (ask.may_arrange) request.cluster = FastestArrangement(request);
    plan = Make(request);
    return {.job = ask.job,
            .attempt = ask.attempt,
            .result = std::make_shared<const Plan>(plan),
            .cluster = std::make_shared<const ClusterTopology>(request.cluster),
            .beside = ask.beside == nullptr ? Nanos(0) : ask.beside->step,
            .node_order = NodeOrder(ask.request.cluster, request.cluster)};
  }
};

class ControllerKinds : public ::testing::Test {
 protected:
  ControllerKinds() : cluster_(Options()) {}

  static ControllerOptions Options() {
    ControllerOptions options;
    options.wanted_shapes = [](const JobSpec&, const ClusterTopology&) { return std::vector<LayerShape>(); };
    return options;
  }
  void AddNode(const std::string& name, int64_t times, int devices = 2, const std::string& domain = "") {
    cluster_.AddNode(name, devices);
    cluster_.Node(name).agent.network_domain = domain;
    cluster_.Node(name).agent.profile = Profile(times);
    cluster_.Send(AgentReported{cluster_.Node(name).agent_stream, "10.0.0.1", cluster_.Node(name).agent});
    cluster_.Settle();
  }
  // A fast node, whose devices have this memory.
  void AddNodeWithMemory(const std::string& name, Bytes memory) {
    cluster_.AddNode(name, 2);
    AgentState& agent = cluster_.Node(name).agent;
    agent.profile = Profile(1);
    for (Device& device : agent.devices) device.memory = memory;
    cluster_.Send(AgentReported{cluster_.Node(name).agent_stream, "10.0.0.1", agent});
    cluster_.Settle();
  }
  // The most that a rank of the plan takes on the node, and on the other nodes.
  std::pair<Bytes, Bytes> TakenOn(const JobId& job, const std::string& node) {
    std::pair<Bytes, Bytes> taken;
    for (int32_t rank = 0; rank < cluster_.Ranks(job); ++rank) {
      const StagePlan& stage = planner_.plan.stages[static_cast<size_t>(CoordinatesOf(planner_.plan.layout, rank).stage)];
      Bytes& most = cluster_.NodeOfRank(job, rank) == node ? taken.first : taken.second;
      most = std::max(most, stage.states.total() + stage.arena);
    }
    return taken;
  }
  // Two fast nodes, n0 and n1, and two slow ones, n2 and n3.
  void AddFour() {
    for (const char* name : {"n0", "n1"}) AddNode(name, 1);
    for (const char* name : {"n2", "n3"}) AddNode(name, 5);
  }
  void Answer() { cluster_.AnswerPlansBy(std::ref(planner_)); }
  // Lets a job for all eight devices train.
  JobId Train(const JobSpec& spec = Spec()) {
    const JobId job = cluster_.Submit(spec);
    Answer();
    cluster_.AllReady(job);
    for (int64_t step = 0; step < 6; ++step) cluster_.StepAll(job, step);
    EXPECT_EQ(cluster_.State(job), JobState::kRunning);
    return job;
  }
  // The nodes of the job's tensor-parallel groups, in the order of the ranks.
  std::vector<std::string> Nodes(const JobId& job) {
    std::vector<std::string> nodes;
    for (int32_t rank = 0; rank < cluster_.Ranks(job); rank += 2) {
      nodes.push_back(cluster_.NodeOfRank(job, rank));
      EXPECT_EQ(cluster_.NodeOfRank(job, rank + 1), nodes.back());
    }
    return nodes;
  }
  void Lose(const std::string& node, const JobId& job) {
    cluster_.DetachAgent(node);
    cluster_.DetachWorker(node);
    for (int32_t rank = 0; rank < cluster_.Ranks(job); ++rank) {
      if (cluster_.NodeOfRank(job, rank) != node) cluster_.Exit(job, rank, 3, "peer lost", true);
    }
    cluster_.Advance(61);
  }

  Cluster cluster_;
  Planner planner_;
};

TEST_F(ControllerKinds, TheRanksFillTheNodesInTheOrderOfThePlan) {
  AddFour();
  const JobId job = Train();
  EXPECT_LT(Seconds(planner_.plan.step), 0.8 * Seconds(planner_.given)) << "each stage runs on one kind of node";
  EXPECT_EQ(NodeRunsText(planner_.plan.nodes), "group 0 x 1, group 1 x 1, group 0 x 1, group 1 x 1");
  EXPECT_THAT(Nodes(job), ElementsAre("n0", "n2", "n1", "n3"));
  EXPECT_EQ(cluster_.Record(job).plan_digest, planner_.plan.digest);
}

// In locality order, the slow nodes stand between the fast ones.
TEST_F(ControllerKinds, NodesOfAKindAreFoundWhereverTheyStand) {
  for (const char* name : {"n0", "n3"}) AddNode(name, 1, 2, std::string("rack-") + name);
  for (const char* name : {"n1", "n2"}) AddNode(name, 5, 2, std::string("rack-") + name);
  const JobId job = Train();
  EXPECT_THAT(Nodes(job), ElementsAre("n0", "n1", "n3", "n2"));
}

TEST_F(ControllerKinds, NodesOfOneKindKeepTheirOrder) {
  for (const char* name : {"n2", "n1", "n3", "n0"}) AddNode(name, 1);
  const JobId job = cluster_.Submit(Spec());
  ASSERT_EQ(cluster_.plans().size(), 1u);
  EXPECT_FALSE(cluster_.plans().front().may_arrange) << "there is nothing to try";
  EXPECT_EQ(cluster_.plans().front().request.cluster.groups.size(), 1u);
  Answer();
  EXPECT_THAT(planner_.plan.nodes, IsEmpty());
  EXPECT_THAT(Nodes(job), ElementsAre("n0", "n1", "n2", "n3"));
}

TEST_F(ControllerKinds, AnotherNodeOfTheKindTakesThePlaceOfALostOne) {
  AddFour();
  const JobId job = Train();
  AddNode("n4", 5);
  AddNode("n5", 1);
  Lose("n2", job);
  EXPECT_EQ(cluster_.State(job), JobState::kStarting);
  EXPECT_THAT(Nodes(job), ElementsAre("n0", "n3", "n1", "n4"));
  EXPECT_EQ(cluster_.Record(job).plan_digest, planner_.plan.digest) << "it keeps its plan";
}

TEST_F(ControllerKinds, ANodeOfAnotherKindServesIfThereIsNoBetterOne) {
  AddFour();
  const JobId job = Train();
  AddNode("n4", 1);
  Lose("n3", job);
  EXPECT_THAT(Nodes(job), ElementsAre("n0", "n2", "n1", "n4"));
}

TEST_F(ControllerKinds, ANodeThatGoesAwayWhileTheJobIsPlannedIsReplacedByOneOfItsKind) {
  AddFour();
  const JobId job = cluster_.Submit(Spec());
  AddNode("n4", 5);
  cluster_.DetachWorker("n2");
  Answer();
  EXPECT_THAT(Nodes(job), ElementsAre("n0", "n3", "n1", "n4"));
}

TEST_F(ControllerKinds, TheOrderOutlivesARestartOfTheServer) {
  AddFour();
  const JobId job = Train();
  cluster_.Hold(job);
  GiveWay(cluster_, job, 7);
  EXPECT_EQ(cluster_.State(job), JobState::kQueued);
  cluster_.RestartServer();
  for (const char* name : {"n3", "n2", "n1", "n0"}) {
    cluster_.AttachAgent(name);
    cluster_.AttachWorker(name);
  }
  cluster_.Release(job);
  EXPECT_EQ(cluster_.State(job), JobState::kStarting);
  EXPECT_THAT(Nodes(job), ElementsAre("n0", "n2", "n1", "n3"));
}

TEST_F(ControllerKinds, AJobThatGrowsIsOrderedAnew) {
  for (const char* name : {"n0", "n1"}) AddNode(name, 1);
  JobSpec spec = Spec(4, 8);
  spec.parallel.pp = 2;
  const JobId job = Train(spec);
  EXPECT_THAT(Nodes(job), ElementsAre("n0", "n1"));
  for (const char* name : {"n2", "n3"}) AddNode(name, 2);
  cluster_.Advance(10);
  ASSERT_EQ(cluster_.plans().size(), 1u);
  Answer();
  ASSERT_EQ(cluster_.Record(job).stop, StopKind::kReplan) << cluster_.Events(job).back().reason;
  GiveWay(cluster_, job, 7);
  EXPECT_EQ(cluster_.State(job), JobState::kStarting);
  EXPECT_EQ(NodeRunsText(planner_.plan.nodes), "group 0 x 1, group 1 x 1, group 0 x 1, group 1 x 1");
  EXPECT_THAT(Nodes(job), ElementsAre("n0", "n2", "n1", "n3"));
}

// The slow nodes come first in locality order, because of their domain. They would make every step longer.
TEST_F(ControllerKinds, AJobWithARangeOfRanksLeavesOutNodesThatWouldSlowItDown) {
  for (const char* name : {"n0", "n1"}) AddNode(name, 50, 2, "rack1");
  for (const char* name : {"n2", "n3"}) AddNode(name, 1, 2, "rack2");
  const JobId job = Train(Spec(2, 8));
  EXPECT_THAT(Nodes(job), ElementsAre("n2", "n3"));
  cluster_.Advance(100);
  EXPECT_THAT(cluster_.plans(), IsEmpty()) << "the same devices are not asked about again";
}

TEST_F(ControllerKinds, AJobThatDoesNotNeedAllNodesGetsTheFastOnes) {
  for (const char* name : {"n0", "n1"}) AddNode(name, 5);
  for (const char* name : {"n2", "n3"}) AddNode(name, 1);
  EXPECT_THAT(Nodes(Train(Spec(2, 4))), ElementsAre("n2", "n3"));
  EXPECT_THAT(Nodes(Train(Spec(4, 4))), ElementsAre("n0", "n1")) << "the others are taken";
}

// A job of two stages on two nodes. Its plan for as much memory as it likes says what it takes.
class ControllerMemoryKinds : public ControllerKinds {
 protected:
  static JobSpec TwoStages() {
    JobSpec spec = Spec(4, 4);
    spec.parallel.pp = 2;
    return spec;
  }
  static Bytes Wanted() {
    PlanRequest request{.spec = TwoStages(), .cluster = UniformCluster(2, 2, *Profile(1))};
    const Plan plan = Planner::Make(request);
    return std::min(plan.stages[0].states.total() + plan.stages[0].arena, plan.stages[1].states.total() + plan.stages[1].arena);
  }
};

TEST_F(ControllerMemoryKinds, AStageUsesTheMemoryOfItsNodes) {
  const Bytes small = Wanted() * 6 / 10, large = Wanted() * 4;
  AddNodeWithMemory("n0", small);
  AddNodeWithMemory("n1", large);
  const JobId job = cluster_.Submit(TwoStages());
  ASSERT_EQ(cluster_.plans().size(), 1u);
  const std::vector<NodeGroup>& groups = cluster_.plans().front().request.cluster.groups;
  ASSERT_EQ(groups.size(), 2u) << "the nodes are equally fast, but one has clearly more memory";
  EXPECT_EQ(groups[0].memory_per_device, small);
  EXPECT_EQ(groups[1].memory_per_device, large);
  EXPECT_TRUE(cluster_.plans().front().may_arrange);
  Answer();
  EXPECT_EQ(cluster_.State(job), JobState::kStarting);
  const auto [on_large, on_small] = TakenOn(job, "n1");
  EXPECT_LE(on_small, small);
  EXPECT_GT(on_large, small);
  EXPECT_LE(on_large, large);
}

TEST_F(ControllerMemoryKinds, APlanForMoreMemoryThanIsLeftIsReplaced) {
  const Bytes small = Wanted() * 6 / 10, large = Wanted() * 4;
  for (const auto& [name, memory] : {std::pair("n0", small), {"n1", large}}) AddNodeWithMemory(name, memory);
  const JobId job = Train(TwoStages());
  AddNodeWithMemory("n2", large);
  AddNodeWithMemory("n3", small);
  Lose("n1", job);
  EXPECT_EQ(cluster_.State(job), JobState::kStarting);
  EXPECT_THAT(Nodes(job), ::testing::UnorderedElementsAre("n0", "n2")) << "a node with as much memory takes the place";
  cluster_.AllReady(job);
  for (int64_t step = 0; step < 6; ++step) cluster_.StepAll(job, step);
  Lose("n2", job);
  ASSERT_EQ(cluster_.plans().size(), 1u) << "the plan does not fit n0 and n3: " << cluster_.Events(job).back().reason;
  for (const NodeGroup& group : cluster_.plans().front().request.cluster.groups) EXPECT_EQ(group.memory_per_device, small);
}

// If devices count as separate nodes, they must still be next to the other devices of their real node.
TEST_F(ControllerKinds, DevicesOfOneNodeStayTogether) {
  AddNode("n0", 1);
  AddNode("n1", 5, 3);
  JobSpec spec = Spec(5, 5);
  spec.parallel.tp = 1;
  cluster_.Submit(spec);
  ASSERT_EQ(cluster_.plans().size(), 1u);
  EXPECT_EQ(cluster_.plans().front().request.cluster.groups.size(), 2u);
  EXPECT_FALSE(cluster_.plans().front().may_arrange);
}

}  // namespace
}  // namespace lynx::server
