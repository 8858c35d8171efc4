// Tests jobs that get a new plan because a node has become slower or faster.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/controller/controller_steps.h"

namespace lynx::server {
namespace {

using ::lynx::server::testing::Cluster;
using ::lynx::server::testing::Elastic;
using ::lynx::server::testing::GiveWay;
using ::lynx::server::testing::kOne;
using ::lynx::server::testing::kTwo;
using ::lynx::server::testing::PlanOf;
using ::lynx::server::testing::RunSteps;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kBefore = 20;

// A job that trains as a pipeline of two stages on two nodes. At first its times are normal. Train() reports steps in which the
// forward pass of a stage takes `permille` / 1000 of its normal time.
struct Pipeline {
  Cluster cluster;
  JobId job;
  int64_t step = kBefore;

  explicit Pipeline(int nodes = 2, int devices = 1) {
    for (int n = 0; n < nodes; ++n) cluster.AddNode("n" + std::to_string(n), devices);
    job = RunSteps(cluster, Elastic(2, 2), kTwo, kBefore);
  }
  // Reports `steps` steps of `step_millis` ms each. The transfer from the first to the second stage keeps the link busy for
  // `busy_millis` ms of each step.
  void Send(int64_t step_millis, int64_t busy_millis, int steps = 20) {
    for (int i = 0; i < steps; ++i, ++step) {
      cluster.SayAll(job, [&](int32_t rank) {
        StepReport done{
            .step = step, .loss = 1, .tokens = 512, .duration = Nanos(step_millis * 1'000'000), .forward = Nanos(30'000'000)};
        if (rank == 0) done.links = {{.peer = 1, .bytes = 1'150'000, .busy = Nanos(busy_millis * 1'000'000)}};
        return RankMessage{.report = done};
      });
    }
    cluster.Advance(6);
  }
  void Train(int64_t first_permille, int64_t second_permille, int steps = 20) {
    for (int i = 0; i < steps; ++i, ++step) {
      cluster.SayAll(job, [&](int32_t rank) {
        const int64_t permille = rank == 0 ? first_permille : second_permille;
        return RankMessage{
            .report = StepReport{
                .step = step, .loss = 1, .tokens = 512, .duration = Nanos(100'000'000), .forward = Nanos(30'000 * permille)}};
      });
    }
    cluster.Advance(6);
  }
};

HardwareProfile Profile(Cluster& cluster, const std::string& node) { return *cluster.Node(node).agent.profile; }

TEST(ControllerDrift, ANodeThatBecomesSlowerIsNamedAndPlannedAround) {
  Pipeline pipeline;
  Cluster& cluster = pipeline.cluster;
  pipeline.Train(1000, 1000);
  EXPECT_THAT(cluster.Kinds(pipeline.job), Not(HasSubstr("drift")));
  pipeline.Train(1000, 2500);
  EXPECT_THAT(cluster.Kinds(pipeline.job), HasSubstr("running drift replan"));
  EXPECT_THAT(cluster.Events(pipeline.job)[cluster.Events(pipeline.job).size() - 2].reason,
              HasSubstr("node n1 computes 2.5 times slower than before, beside the others"));
  ASSERT_EQ(cluster.plans().size(), 1u);
  const ClusterTopology& asked = cluster.plans().front().request.cluster;
  ASSERT_EQ(asked.groups.size(), 2u);
  EXPECT_EQ(asked.groups[1].profile.flops_per_second, asked.groups[0].profile.flops_per_second * 2 / 5);
  EXPECT_EQ(asked.groups[1].profile.inter_node, asked.groups[0].profile.inter_node);
  // With the present plan a step now takes 2.5 times as long, 250 ms. With the new plan it takes 150 ms.
  cluster.AnswerPlansWith(PlanOf(Elastic(2, 2), kTwo, 150));
  EXPECT_EQ(cluster.Record(pipeline.job).stop, StopKind::kReplan);
  GiveWay(cluster, pipeline.job, pipeline.step);
  EXPECT_EQ(cluster.State(pipeline.job), JobState::kStarting);
  EXPECT_EQ(cluster.Record(pipeline.job).generation, Generation(2));
  EXPECT_EQ(cluster.Record(pipeline.job).restarts, 0);
}

TEST(ControllerDrift, APlanThatIsNoBetterIsNotTakenAndNotAskedForAgain) {
  Pipeline pipeline;
  Cluster& cluster = pipeline.cluster;
  pipeline.Train(1000, 2000);
  ASSERT_EQ(cluster.plans().size(), 1u);
  cluster.AnswerPlansWith(PlanOf(Elastic(2, 2), kTwo, 196));
  EXPECT_EQ(cluster.Record(pipeline.job).stop, StopKind::kNone);
  EXPECT_EQ(cluster.Events(pipeline.job).back().kind, "replan-kept");
  pipeline.Train(1000, 2000);
  pipeline.Train(1000, 2000);
  EXPECT_TRUE(cluster.plans().empty());
  // The job trains until the node is as fast as before.
  pipeline.Train(1000, 1000);
  ASSERT_EQ(cluster.plans().size(), 1u);
  EXPECT_EQ(cluster.plans().front().request.cluster.groups.size(), 1u) << "the nodes are alike again";
  EXPECT_THAT(cluster.Events(pipeline.job)[cluster.Events(pipeline.job).size() - 2].reason,
              HasSubstr("node n1 computes 2.0 times faster"));
}

// A node becomes 1.5 times as slow, and the job keeps its plan. Then the node becomes 3 times as slow. The kept plan was made
// for full speed, so the server compares with full speed: the node is slower by a factor of 3, and not of 2.
TEST(ControllerDrift, SlownessIsThatOfTheNodeSinceThePlanWasMade) {
  Pipeline pipeline;
  Cluster& cluster = pipeline.cluster;
  pipeline.Train(1000, 1500);
  cluster.AnswerPlansWith(PlanOf(Elastic(2, 2), kTwo, 148));
  EXPECT_EQ(cluster.Events(pipeline.job).back().kind, "replan-kept");
  pipeline.Train(1000, 1500);
  pipeline.Train(1000, 3000);
  ASSERT_EQ(cluster.plans().size(), 1u);
  const ClusterTopology& asked = cluster.plans().front().request.cluster;
  EXPECT_EQ(asked.groups.back().profile.flops_per_second, asked.groups.front().profile.flops_per_second / 3);
  cluster.AnswerPlansWith(PlanOf(Elastic(2, 2), kTwo, 250));
  EXPECT_EQ(cluster.Record(pipeline.job).stop, StopKind::kReplan) << "the plan that it has takes 300 ms";
}

TEST(ControllerDrift, WhatSlowsAllNodesIsNoReasonToPlanAgain) {
  Pipeline pipeline;
  pipeline.Train(3000, 3000);
  pipeline.Train(1000, 1250);
  EXPECT_THAT(pipeline.cluster.Kinds(pipeline.job), Not(HasSubstr("drift")));
}

TEST(ControllerDrift, ANodesAgentThatRestartsMeasuresAnew) {
  Pipeline pipeline;
  Cluster& cluster = pipeline.cluster;
  pipeline.Train(1000, 2000);
  cluster.AnswerPlansWith(PlanOf(Elastic(2, 2), kTwo, 196));
  cluster.Cancel(pipeline.job);
  cluster.Submit(Elastic(2, 2));
  cluster.MeasureAll();
  ASSERT_EQ(cluster.plans().size(), 1u);
  EXPECT_EQ(cluster.plans().front().request.cluster.groups.size(), 2u) << "what one job has shown counts for the next";
  cluster.AnswerPlansWith(Infeasible{.reason = "no"});
  cluster.DetachAgent("n1");
  cluster.Node("n1").agent_boot = "b";
  cluster.AttachAgent("n1");
  cluster.Submit(Elastic(2, 2, 500));
  cluster.MeasureAll();
  ASSERT_EQ(cluster.plans().size(), 1u);
  EXPECT_EQ(cluster.plans().front().request.cluster.groups.size(), 1u);
}

// According to StatedCpuProfile, the transfer of 1.15 MB takes 10 ms.
TEST(ControllerDrift, ALinkThatBecomesSlowerIsNamedAndPlannedAround) {
  Pipeline pipeline;
  Cluster& cluster = pipeline.cluster;
  pipeline.Send(100, 8);
  pipeline.Send(100, 8);
  EXPECT_THAT(cluster.Kinds(pipeline.job), Not(HasSubstr("drift")));
  pipeline.Send(200, 98);
  EXPECT_THAT(cluster.Kinds(pipeline.job), HasSubstr("running drift replan"));
  EXPECT_THAT(cluster.Events(pipeline.job)[cluster.Events(pipeline.job).size() - 2].reason,
              HasSubstr("the link between nodes n0 and n1 is slower than before (n0 to n1: 1.1 MiB of a step take 98.0 ms in "
                        "place of 8.0 ms)"));
  ASSERT_EQ(cluster.plans().size(), 1u);
  const ClusterTopology& asked = cluster.plans().front().request.cluster;
  ASSERT_EQ(asked.groups.size(), 1u) << "both ends";
  // The transfer takes the stated time plus 90 ms, which is ten times as long.
  EXPECT_EQ(asked.groups[0].profile.inter_node.bytes_per_second, StatedCpuProfile().inter_node.bytes_per_second / 10);
  EXPECT_EQ(asked.groups[0].profile.flops_per_second, StatedCpuProfile().flops_per_second);
  // The server evaluates the present plan with the same links.
  EXPECT_EQ(cluster.plans().front().beside->step, Nanos(100'000'000));
  EXPECT_EQ(cluster.plans().front().beside_on.groups.front().profile, asked.groups.front().profile);
  cluster.AnswerPlansWith(PlanOf(Elastic(2, 2), kTwo, 180), Nanos(200'000'000));
  EXPECT_EQ(cluster.Record(pipeline.job).stop, StopKind::kReplan);
}

TEST(ControllerDrift, AfterALinkHasRecoveredItCountsAsItWas) {
  Pipeline pipeline;
  Cluster& cluster = pipeline.cluster;
  pipeline.Send(100, 8);
  pipeline.Send(200, 98);
  ASSERT_EQ(cluster.plans().size(), 1u);
  cluster.AnswerPlansWith(PlanOf(Elastic(2, 2), kTwo, 195), Nanos(200'000'000));
  EXPECT_EQ(cluster.Events(pipeline.job).back().kind, "replan-kept") << "no better than what it has";
  EXPECT_THAT(cluster.Events(pipeline.job).back().reason,
              HasSubstr(", which takes 200.0 ms by what is known now: a step would not become 5% shorter"));
  pipeline.Send(200, 98);
  EXPECT_TRUE(cluster.plans().empty());
  pipeline.Send(100, 8);
  EXPECT_THAT(cluster.Events(pipeline.job)[cluster.Events(pipeline.job).size() - 2].reason,
              HasSubstr("the links of node n0 are faster again, the links of node n1 are faster again"));
  ASSERT_EQ(cluster.plans().size(), 1u);
  EXPECT_EQ(cluster.plans().front().request.cluster.groups[0].profile, Profile(cluster, "n0"));
  cluster.AnswerPlansWith(PlanOf(Elastic(2, 2), kTwo, 99));
  EXPECT_EQ(cluster.Events(pipeline.job).back().kind, "replan-kept") << "its steps are as short as they were";
}

TEST(ControllerDrift, ALinkThatIsFasterThanWhenTheJobBeganSaysNothing) {
  Pipeline pipeline;
  pipeline.Send(200, 98);
  pipeline.Send(200, 98);
  pipeline.Send(100, 8);
  EXPECT_THAT(pipeline.cluster.Kinds(pipeline.job), Not(HasSubstr("drift")));
}

TEST(ControllerDrift, LinksWithinANodeAreNotLookedAt) {
  Pipeline pipeline(1, 2);
  pipeline.Send(100, 8);
  pipeline.Send(200, 98);
  EXPECT_THAT(pipeline.cluster.Kinds(pipeline.job), Not(HasSubstr("drift")));
}

// The job has three replicas on separate nodes. The links of n0 become slow. Then the job must use only the other nodes.
TEST(ControllerDrift, ASlowNodeIsTheLastThatAnElasticJobTakes) {
  Cluster cluster;
  for (const char* name : {"n0", "n1", "n2"}) cluster.AddNode(name, 1);
  const ParallelLayout three{1, 1, 3};
  const JobId job = RunSteps(cluster, Elastic(1, 3), three, kBefore);
  int64_t step = kBefore;
  const auto send = [&](int64_t millis) {
    for (int i = 0; i < 20; ++i, ++step) {
      cluster.SayAll(job, [&](int32_t rank) {
        const int64_t busy = rank == 0 || rank == 2 ? millis : 1;
        StepReport done{.step = step,
                        .loss = 1,
                        .tokens = 512,
                        .duration = Nanos((100 + millis) * 1'000'000),
                        .forward = Nanos(30'000'000)};
        done.links = {{.peer = (rank + 1) % 3, .bytes = 1'150'000, .busy = Nanos(busy * 1'000'000)}};
        return RankMessage{.report = done};
      });
    }
    cluster.Advance(6);
  };
  send(1);
  send(401);
  EXPECT_THAT(cluster.Events(job)[cluster.Events(job).size() - 2].reason,
              HasSubstr("the links of node n0 (to n1, n2) are slower than before"));
  ASSERT_EQ(cluster.plans().size(), 1u);
  const ClusterTopology& asked = cluster.plans().front().request.cluster;
  ASSERT_EQ(asked.groups.size(), 2u);
  EXPECT_EQ(asked.groups[0].nodes, 2);
  EXPECT_EQ(asked.groups[0].profile.inter_node, StatedCpuProfile().inter_node);
  EXPECT_LT(asked.groups[1].profile.inter_node.bytes_per_second, StatedCpuProfile().inter_node.bytes_per_second / 30);
  cluster.AnswerPlansWith(PlanOf(Elastic(1, 3), ParallelLayout{1, 1, 2}, 150), Nanos(500'000'000));
  GiveWay(cluster, job, step);
  ASSERT_EQ(cluster.State(job), JobState::kStarting);
  EXPECT_EQ(cluster.NodeOfRank(job, 0), "n1");
  EXPECT_EQ(cluster.NodeOfRank(job, 1), "n2");
}

const ParallelLayout kExpertGroup{.dp = 2, .ep = 2};

// A job whose experts are on two ranks of two nodes. Train() reports steps with this skew.
struct ExpertGroup {
  Cluster cluster;
  JobId job;
  int64_t step = kBefore;

  static JobSpec Spec(double skew) {
    JobSpec spec = Elastic(2, 2);
    spec.model.family = ModelFamily::kLlama;
    spec.model.moe = {.experts = 8, .top_k = 2, .capacity = 2, .skew = skew};
    Normalize(spec);
    return spec;
  }
  explicit ExpertGroup(double skew = 1, const ParallelLayout& layout = kExpertGroup) {
    for (const char* name : {"n0", "n1"}) cluster.AddNode(name, 1);
    job = RunSteps(cluster, Spec(skew), layout, kBefore);
  }
  void Train(double skew, int steps = 40) {
    for (int i = 0; i < steps; ++i, ++step) {
      cluster.SayAll(job, [&](int32_t) {
        return RankMessage{.report = StepReport{.step = step,
                                                .loss = 1,
                                                .tokens = 512,
                                                .duration = Nanos(100'000'000),
                                                .forward = Nanos(30'000'000),
                                                .experts = {.rows_routed = 100, .skew = skew}}};
      });
    }
    cluster.Advance(6);
  }
  const JobEvent& LastButOne() { return cluster.Events(job)[cluster.Events(job).size() - 2]; }
};

TEST(ControllerDrift, ALoadOfExpertsThatStaysUnevenIsPlannedFor) {
  ExpertGroup group;
  Cluster& cluster = group.cluster;
  group.Train(1.25);
  EXPECT_THAT(cluster.Kinds(group.job), Not(HasSubstr("drift"))) << "less than what counts as a change";
  group.Train(3, 5);
  EXPECT_THAT(cluster.Kinds(group.job), Not(HasSubstr("drift"))) << "a few steps say nothing";
  group.Train(1.75);
  EXPECT_THAT(cluster.Kinds(group.job), HasSubstr("running drift replan"));
  EXPECT_THAT(group.LastButOne().reason,
              HasSubstr("the experts of the fullest rank receive 1.75 times the even share of rows, and 1.00 times was planned "
                        "for (model.moe.skew); memory suffices, because model.moe.capacity bounds the rows"));
  ASSERT_EQ(cluster.plans().size(), 1u);
  const PlanJob asked = cluster.plans().front();
  EXPECT_EQ(asked.request.spec.model.moe.skew, 1.8) << "rounded up to tenths";
  EXPECT_EQ(asked.beside->model.moe.skew, 1.8) << "the present plan is judged by the same load";
  cluster.AnswerPlansWith(PlanOf(asked.request.spec, kExpertGroup, 150), Nanos(250'000'000));
  EXPECT_EQ(cluster.Record(group.job).stop, StopKind::kReplan);
  GiveWay(cluster, group.job, group.step);
  EXPECT_EQ(cluster.Record(group.job).generation, Generation(2));
  EXPECT_EQ(cluster.RankOf(group.job, 0)->assignment.plan->model.moe.skew, 1.8);
  EXPECT_EQ(cluster.RankOf(group.job, 0)->assignment.spec->model.moe.skew, 1) << "the job is what it was";
  cluster.AllReady(group.job, group.step);
  group.Train(1.75);
  EXPECT_TRUE(cluster.plans().empty()) << "as planned";
  // After a restart, the server learns the skew from the plan.
  cluster.RestartServer();
  for (const char* name : {"n0", "n1"}) {
    cluster.AttachAgent(name);
    cluster.AttachWorker(name);
  }
  group.Train(1.75);
  EXPECT_TRUE(cluster.plans().empty()) << "still as planned";
  group.Train(1);
  ASSERT_EQ(cluster.plans().size(), 1u) << "the load is even again";
  EXPECT_EQ(cluster.plans().front().request.spec.model.moe.skew, 1);
}

TEST(ControllerDrift, AnUnevenLoadForWhichNoPlanIsBetterIsNotAskedForAgain) {
  ExpertGroup group(1.5);
  group.Train(2);
  ASSERT_EQ(group.cluster.plans().size(), 1u);
  group.cluster.AnswerPlansWith(PlanOf(group.cluster.plans().front().request.spec, kExpertGroup, 196), Nanos(200'000'000));
  EXPECT_EQ(group.cluster.Events(group.job).back().kind, "replan-kept");
  group.Train(2);
  group.Train(2);
  EXPECT_TRUE(group.cluster.plans().empty());
  // The job states a skew of 1.5, so the server plans for no less. Its plan does already.
  group.Train(1);
  EXPECT_TRUE(group.cluster.plans().empty());
  // The load becomes uneven again, which the server must treat as a new change.
  group.Train(2);
  EXPECT_EQ(group.cluster.plans().size(), 1u);
}

// In another layout, the same router may give a more even load. The job must not change back and forth between both layouts.
TEST(ControllerDrift, AMoreEvenLoadInAnotherLayoutIsNotPlannedFor) {
  ExpertGroup group;
  Cluster& cluster = group.cluster;
  group.Train(2);
  ASSERT_EQ(cluster.plans().size(), 1u);
  const ParallelLayout other{.dp = 2, .ep = 2, .zero = ZeroStage::kOptimizer};
  cluster.AnswerPlansWith(PlanOf(cluster.plans().front().request.spec, other, 150), Nanos(250'000'000));
  GiveWay(cluster, group.job, group.step);
  cluster.AllReady(group.job, group.step);
  group.Train(1.2);
  EXPECT_TRUE(cluster.plans().empty()) << "1.2 in this layout does not say that the other one would have an even load";
  group.Train(2.8);
  EXPECT_EQ(cluster.plans().size(), 1u) << "more uneven than planned for";
}

TEST(ControllerDrift, AnEvenLoadOnOneRankSaysNothing) {
  ExpertGroup group(2, ParallelLayout{.dp = 2});
  group.Train(1);
  EXPECT_THAT(group.cluster.Kinds(group.job), Not(HasSubstr("drift")));
}

}  // namespace
}  // namespace lynx::server
