// Jobs that are planned again because a node has become slower or faster.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/controller_steps.h"

namespace lynx {
namespace {

using ::lynx::testing::Cluster;
using ::lynx::testing::Elastic;
using ::lynx::testing::GiveWay;
using ::lynx::testing::kOne;
using ::lynx::testing::kTwo;
using ::lynx::testing::PlanOf;
using ::lynx::testing::RunSteps;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kBefore = 20;

// A pipeline over two nodes; its steps go on, and the second stage's computation takes `permille` of what it did.
struct Pipeline {
  Cluster cluster;
  JobId job;
  int64_t step = kBefore;

  Pipeline() {
    cluster.AddNode("n0", 1);
    cluster.AddNode("n1", 1);
    job = RunSteps(cluster, Elastic(2, 2), kTwo, kBefore);
  }
  void Train(int64_t first_permille, int64_t second_permille, int steps = 20) {
    for (int i = 0; i < steps; ++i, ++step) {
      cluster.SayAll(job, [&](int32_t rank) {
        const int64_t permille = rank == 0 ? first_permille : second_permille;
        return RankMessage{.body = RankStep{.step = step, .loss = 1, .tokens = 512, .duration = Nanos(100'000'000),
                                            .forward = Nanos(30'000 * permille)}};
      });
    }
    cluster.Advance(6);
  }
};

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
  // The plan that it has takes 2.5 times as long: 250 ms.
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
  // Until it is as it was.
  pipeline.Train(1000, 1000);
  ASSERT_EQ(cluster.plans().size(), 1u);
  EXPECT_EQ(cluster.plans().front().request.cluster.groups.size(), 1u) << "the nodes are alike again";
  EXPECT_THAT(cluster.Events(pipeline.job)[cluster.Events(pipeline.job).size() - 2].reason, HasSubstr("node n1 computes 2.0 times faster"));
}

// What the plan takes for granted is remembered, however the node became as slow as it is.
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

}  // namespace
}  // namespace lynx
