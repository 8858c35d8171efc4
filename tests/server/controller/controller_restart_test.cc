// Tests that a restarted server continues the jobs in its store.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/controller/controller_fixture.h"

namespace lynx::server {
namespace {

using ::lynx::server::testing::Cluster;
using ::lynx::server::testing::MakeSpec;
using ::testing::HasSubstr;

const ParallelLayout kFour{2, 2, 1};

TEST(ControllerRestartTest, TakesUpARunningJob) {
  Cluster cluster;
  cluster.AddNode("n0");
  cluster.AddNode("n1");
  const JobId job = cluster.Run(MakeSpec("gpt", 4, 4), kFour);
  cluster.StepAll(job, 0);
  cluster.Advance(2);
  const RankAssignment before = cluster.RankOf(job, 2)->assignment;
  cluster.RestartServer();
  EXPECT_EQ(cluster.State(job), JobState::kRunning);
  cluster.Advance(30);
  EXPECT_EQ(cluster.State(job), JobState::kRunning) << "nodes have time to come back";
  for (const char* node : {"n0", "n1"}) cluster.AttachWorker(node);
  cluster.Settle();
  ASSERT_NE(cluster.RankOf(job, 2), nullptr);
  EXPECT_EQ(*cluster.RankOf(job, 2)->assignment.peers, *before.peers);
  EXPECT_EQ(cluster.RankOf(job, 2)->assignment.key, before.key) << "no second run";
  EXPECT_EQ(cluster.RankOf(job, 2)->seen.phase, RankPhase::kRunning);
  for (int64_t step = 1; step < 6; ++step) cluster.StepAll(job, step);
  EXPECT_EQ(cluster.Record(job).progress.steps_done, 6);
  cluster.FinishAll(job);
  EXPECT_EQ(cluster.State(job), JobState::kSucceeded);
  EXPECT_EQ(cluster.Record(job).generation, Generation(1));
  EXPECT_THAT(cluster.Kinds(job), HasSubstr("running server-restarted succeeded"));
}

TEST(ControllerRestartTest, TakesUpAStartingJob) {
  for (const bool peers_known : {false, true}) {
    Cluster cluster;
    cluster.AddNode("n0");
    cluster.AddNode("n1");
    cluster.Node("n1").obedient = peers_known;
    const JobId job = cluster.Submit(MakeSpec("gpt", 4, 4));
    cluster.MeasureAll();
    cluster.AnswerPlans(kFour);
    cluster.RestartServer();
    cluster.Node("n1").obedient = true;
    for (const char* node : {"n0", "n1"}) cluster.AttachWorker(node);
    cluster.Settle();
    cluster.AllReady(job);
    EXPECT_EQ(cluster.State(job), JobState::kRunning);
    EXPECT_EQ(cluster.Record(job).generation, Generation(1));
  }
}

TEST(ControllerRestartTest, PlansAgain) {
  Cluster cluster;
  cluster.AddNode("n0");
  const JobId planning = cluster.Submit(MakeSpec("planning", 2, 2));
  const JobId queued = cluster.Submit(MakeSpec("queued", 2, 2));
  cluster.RestartServer();
  EXPECT_EQ(cluster.State(planning), JobState::kQueued);
  EXPECT_EQ(cluster.State(queued), JobState::kQueued);
  cluster.AttachAgent("n0");
  cluster.AttachWorker("n0");
  EXPECT_EQ(cluster.State(planning), JobState::kPlanning);
  EXPECT_EQ(cluster.State(queued), JobState::kQueued);
  cluster.MeasureAll();
  cluster.AnswerPlans({2, 1, 1});
  EXPECT_EQ(cluster.State(planning), JobState::kStarting);
}

TEST(ControllerRestartTest, GoesOnStopping) {
  Cluster cluster;
  cluster.AddNode("n0");
  const JobId job = cluster.Run(MakeSpec("gpt", 2, 2), {2, 1, 1});
  cluster.Node("n0").obedient = false;
  cluster.Cancel(job);
  cluster.RestartServer();
  cluster.AttachWorker("n0");
  EXPECT_EQ(cluster.State(job), JobState::kRunning);
  cluster.Node("n0").obedient = true;
  cluster.Settle();
  EXPECT_EQ(cluster.State(job), JobState::kCancelled);
}

}  // namespace
}  // namespace lynx::server
