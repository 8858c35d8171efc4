// Tests what people and time limits ask of jobs: to be held, to leave a node, to end. Also tests what a failure means after
// such a request.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/controller/controller_steps.h"

namespace lynx::server {
namespace {

using ::lynx::server::testing::Answer;
using ::lynx::server::testing::Cluster;
using ::lynx::server::testing::Elastic;
using ::lynx::server::testing::GiveWay;
using ::lynx::server::testing::kTwo;
using ::lynx::server::testing::MakeSpec;
using ::lynx::server::testing::RunSteps;
using ::testing::HasSubstr;
using ::testing::Not;

JobSpec Spec(int32_t ranks = 2) {
  JobSpec spec = MakeSpec("gpt", ranks, ranks);
  spec.train.steps = 10'000;
  return spec;
}

const Cordon kDrain{.reason = "new fans", .drain = true};

TEST(ControllerHold, AHeldJobWaitsUntilItIsReleased) {
  Cluster cluster;
  cluster.AddNode("n0");
  JobSpec spec = Spec();
  spec.scheduling.hold = true;
  const JobId job = cluster.Submit(spec);
  EXPECT_EQ(cluster.State(job), JobState::kQueued);
  EXPECT_THAT(cluster.Record(job).reason, HasSubstr("is held; 'lynxctl release " + job.value + "'"));
  cluster.RestartServer();
  cluster.AttachAgent("n0");
  cluster.AttachWorker("n0");
  EXPECT_EQ(cluster.State(job), JobState::kQueued);
  cluster.Release(job);
  EXPECT_EQ(cluster.State(job), JobState::kPlanning);
  EXPECT_THAT(cluster.Kinds(job), HasSubstr("submitted released planning"));
  cluster.Hold(job, "not now");
  EXPECT_EQ(cluster.State(job), JobState::kQueued) << "while it is planned";
  EXPECT_EQ(cluster.Events(job).back().reason, "held: not now");
  EXPECT_EQ(cluster.State(cluster.Submit(Spec())), JobState::kPlanning) << "it holds up nobody";
}

TEST(ControllerHold, AJobThatTrainsGivesWayAndWaits) {
  Cluster cluster;
  cluster.AddNode("n0");
  const JobId job = RunSteps(cluster, Spec(), kTwo, 6);
  cluster.Hold(job);
  EXPECT_EQ(cluster.Record(job).stop, StopKind::kPreempt);
  cluster.Hold(job);
  GiveWay(cluster, job, 7);
  EXPECT_EQ(cluster.State(job), JobState::kQueued);
  EXPECT_EQ(cluster.Record(job).preemptions, 0);
  EXPECT_THAT(cluster.Record(job).reason, HasSubstr("is held"));
  cluster.Release(job);
  EXPECT_EQ(cluster.State(job), JobState::kStarting);
  EXPECT_EQ(cluster.RankOf(job, 0)->assignment.resume_step, 7);
}

TEST(ControllerHold, AJobThatStartsIsStoppedAtOnce) {
  Cluster cluster;
  cluster.AddNode("n0");
  const JobId job = cluster.Submit(Spec());
  cluster.MeasureAll();
  Answer(cluster, kTwo, 10);
  EXPECT_EQ(cluster.State(job), JobState::kStarting);
  cluster.Hold(job);
  cluster.ReportAll();
  EXPECT_EQ(cluster.State(job), JobState::kQueued);
  EXPECT_TRUE(cluster.Record(job).ranks.empty());
}

TEST(ControllerHold, AFailedRankOfAHeldJobDoesNotStartItAgain) {
  Cluster cluster;
  cluster.AddNode("n0");
  const JobId job = RunSteps(cluster, Spec(), kTwo, 6);
  cluster.Hold(job);
  cluster.Exit(job, 0, 137);
  cluster.ReportAll();
  EXPECT_EQ(cluster.State(job), JobState::kQueued);
  EXPECT_TRUE(cluster.Record(job).held);
}

TEST(ControllerHold, AJobThatHasEndedIsNotHeld) {
  Cluster cluster;
  const JobId job = cluster.Submit(Spec());
  cluster.Cancel(job);
  cluster.Hold(job);
  EXPECT_EQ(cluster.last_reply()->status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(cluster.last_reply()->status.message()), HasSubstr("has ended: it is cancelled"));
  cluster.Release(job);
  EXPECT_TRUE(cluster.last_reply()->status.ok());
  cluster.Hold(JobId("nobody"));
  EXPECT_EQ(cluster.last_reply()->status.code(), absl::StatusCode::kNotFound);
  cluster.Release(JobId("nobody"));
  EXPECT_EQ(cluster.last_reply()->status.code(), absl::StatusCode::kNotFound);
}

TEST(ControllerHold, ACordonedNodeGetsNoRanksAndKeepsThoseItHas) {
  Cluster cluster;
  cluster.AddNode("n0");
  const JobId job = RunSteps(cluster, Spec(), kTwo, 1);
  cluster.SetCordon("n0", Cordon{.reason = "odd noise"});
  EXPECT_EQ(cluster.Record(job).stop, StopKind::kNone);
  EXPECT_EQ(cluster.controller().ViewOf(NodeId("n0")).cordon->reason, "odd noise");
  cluster.FinishAll(job);
  const JobId next = cluster.Submit(Spec());
  EXPECT_EQ(cluster.State(next), JobState::kQueued);
  EXPECT_THAT(cluster.Record(next).reason, HasSubstr("2 of cordoned nodes"));
  cluster.RestartServer();
  cluster.AttachAgent("n0");
  cluster.AttachWorker("n0");
  EXPECT_EQ(cluster.State(next), JobState::kQueued) << "it outlives the server";
  cluster.SetCordon("n0", std::nullopt);
  EXPECT_EQ(cluster.State(next), JobState::kPlanning);
}

TEST(ControllerHold, ANodeCanBeCordonedBeforeItComes) {
  Cluster cluster;
  cluster.SetCordon("n7", Cordon{});
  ASSERT_EQ(cluster.controller().Nodes().size(), 1u);
  EXPECT_FALSE(cluster.controller().Nodes().front().worker_attached);
  cluster.AddNode("n7");
  EXPECT_EQ(cluster.State(cluster.Submit(Spec())), JobState::kQueued);
}

TEST(ControllerHold, ACordonOutlivesItsNodeUntilItIsTakenAway) {
  Cluster cluster;
  cluster.AddNode("n0");
  cluster.SetCordon("n0", Cordon{.reason = "odd noise"});
  cluster.DetachAgent("n0");
  cluster.DetachWorker("n0");
  cluster.Advance(700, 50);
  ASSERT_EQ(cluster.controller().Nodes().size(), 1u) << "the node is forgotten, the cordon is not";
  EXPECT_EQ(cluster.controller().Nodes().front().last_seen, Nanos(0));
  cluster.RestartServer();
  EXPECT_EQ(cluster.controller().ViewOf(NodeId("n0")).cordon->reason, "odd noise");
  cluster.SetCordon("n0", std::nullopt);
  EXPECT_TRUE(cluster.controller().Nodes().empty());
}

TEST(ControllerHold, CordonsAreBounded) {
  Cluster cluster({.max_nodes = 2});
  cluster.AddNode("n0");
  cluster.SetCordon("typo-1", Cordon{});
  cluster.SetCordon("typo-2", Cordon{});
  EXPECT_TRUE(cluster.last_reply()->status.ok());
  cluster.SetCordon("n0", kDrain);
  EXPECT_EQ(cluster.last_reply()->status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(cluster.last_reply()->status.message()), HasSubstr("the server has 2 cordoned nodes, its limit; "));
  EXPECT_FALSE(cluster.controller().ViewOf(NodeId("n0")).cordon.has_value());
  cluster.SetCordon("typo-2", kDrain);
  EXPECT_TRUE(cluster.last_reply()->status.ok()) << "another reason for one that there is";
  cluster.SetCordon("typo-1", std::nullopt);
  cluster.SetCordon("n0", kDrain);
  EXPECT_TRUE(cluster.last_reply()->status.ok());
  cluster.SetCordon("never", std::nullopt);
  EXPECT_TRUE(cluster.last_reply()->status.ok()) << "there is nothing to take away";
  cluster.RestartServer();
  EXPECT_EQ(cluster.controller().Nodes().size(), 2u);
}

TEST(ControllerHold, JobsMoveFromANodeThatIsDrained) {
  Cluster cluster;
  cluster.AddNode("n0");
  const JobId job = RunSteps(cluster, Spec(), kTwo, 6);
  cluster.AddNode("n1");
  cluster.SetCordon("n0", kDrain);
  EXPECT_EQ(cluster.Record(job).stop, StopKind::kMove);
  EXPECT_THAT(cluster.Events(job).back().reason, HasSubstr("node n0 is drained: new fans"));
  GiveWay(cluster, job, 7);
  EXPECT_EQ(cluster.State(job), JobState::kStarting);
  EXPECT_EQ(cluster.NodeOfRank(job, 0), "n1");
  EXPECT_EQ(cluster.RankOf(job, 0)->assignment.resume_step, 7);
  EXPECT_EQ(cluster.Record(job).restarts, 0);
  EXPECT_TRUE(cluster.controller().ViewOf(NodeId("n0")).jobs.empty());
}

TEST(ControllerHold, AnElasticJobShrinksOffANodeThatIsDrained) {
  Cluster cluster;
  cluster.AddNode("n0");
  cluster.AddNode("n1");
  const JobId job = RunSteps(cluster, Elastic(2, 4), ParallelLayout{2, 2, 1}, 6);
  cluster.SetCordon("n1", kDrain);
  GiveWay(cluster, job, 7);
  EXPECT_EQ(cluster.State(job), JobState::kPlanning);
  EXPECT_THAT(cluster.Kinds(job), HasSubstr("draining checkpoint replan-forced"));
  ASSERT_EQ(cluster.plans().size(), 1u);
  EXPECT_EQ(cluster.plans().front().request.cluster.devices(), 2);
}

TEST(ControllerHold, WhatHasNotLeftByTheDeadlineIsEnded) {
  Cluster cluster;
  cluster.AddNode("n0");
  const JobId job = RunSteps(cluster, Spec(), kTwo, 6);
  Cordon cordon = kDrain;
  cordon.deadline = Nanos(1'000'000'000'000) + Nanos(200'000'000'000);
  cluster.SetCordon("n0", cordon);
  cluster.Advance(150, 1);
  EXPECT_EQ(cluster.Record(job).stop, StopKind::kMove) << "the ranks have until the deadline";
  EXPECT_EQ(cluster.State(job), JobState::kRunning);
  cluster.Advance(60, 1);
  EXPECT_EQ(cluster.State(job), JobState::kQueued);
  EXPECT_THAT(cluster.Kinds(job), HasSubstr("draining moving"));
  cluster.SetCordon("n0", std::nullopt);
  EXPECT_EQ(cluster.State(job), JobState::kStarting);
}

TEST(ControllerHold, ANodeThatIsToStayAfterAllKeepsItsJobs) {
  Cluster cluster;
  cluster.AddNode("n0");
  const JobId job = RunSteps(cluster, Spec(), kTwo, 6);
  cluster.SetCordon("n0", kDrain);
  EXPECT_TRUE(cluster.RankOf(job, 0)->assignment.yield);
  cluster.SetCordon("n0", Cordon{});
  EXPECT_FALSE(cluster.RankOf(job, 0)->assignment.yield);
  EXPECT_EQ(cluster.Record(job).reason, "goes on as planned");
  cluster.SetCordon("n0", kDrain);
  EXPECT_TRUE(cluster.RankOf(job, 0)->assignment.yield);
  cluster.SetCordon("n0", std::nullopt);
  EXPECT_EQ(cluster.Record(job).stop, StopKind::kNone);
  EXPECT_FALSE(cluster.RankOf(job, 0)->assignment.yield);
}

TEST(ControllerHold, AJobThatIsHeldWhileItGivesWayToAnotherPlanWaits) {
  Cluster cluster;
  cluster.AddNode("n0");
  const JobId job = RunSteps(cluster, Elastic(2, 4), kTwo, 6);
  cluster.AddNode("n1");
  cluster.Advance(10);
  cluster.MeasureAll();
  Answer(cluster, ParallelLayout{2, 2, 1}, 50);
  EXPECT_EQ(cluster.Record(job).stop, StopKind::kReplan);
  cluster.Hold(job);
  GiveWay(cluster, job, 7);
  EXPECT_EQ(cluster.State(job), JobState::kQueued);
  EXPECT_EQ(cluster.Record(job).generation, Generation(1));
}

TEST(ControllerHold, WithoutADeadlineTheRanksAreAskedAgain) {
  Cluster cluster;
  cluster.AddNode("n0");
  const JobId job = RunSteps(cluster, Spec(), kTwo, 6);
  cluster.SetCordon("n0", kDrain);
  cluster.Advance(62, 1);
  EXPECT_EQ(cluster.Record(job).stop, StopKind::kNone);
  EXPECT_EQ(cluster.Events(job).back().kind, "goes-on");
  cluster.Advance(60, 1);
  EXPECT_EQ(cluster.Record(job).stop, StopKind::kMove);
  // The new deadline must also be used for ranks that were asked to give way before it was set.
  Cordon cordon = kDrain;
  cordon.deadline = Nanos(1'000'000'000'000) + Nanos(130'000'000'000);
  cluster.SetCordon("n0", cordon);
  cluster.Advance(15, 1);
  EXPECT_EQ(cluster.State(job), JobState::kQueued);
}

TEST(ControllerHold, ATimeLimitEndsAJobWithACheckpoint) {
  Cluster cluster;
  cluster.AddNode("n0");
  JobSpec spec = Spec();
  spec.scheduling.time_limit = Nanos(100'000'000'000);
  const JobId job = RunSteps(cluster, spec, kTwo, 6);
  cluster.Advance(60, 1);
  cluster.StepAll(job, 6);
  cluster.RestartServer();  // the time that the job has trained so far must still count
  cluster.AttachAgent("n0");
  cluster.AttachWorker("n0");
  cluster.Advance(30, 1);
  EXPECT_EQ(cluster.Record(job).stop, StopKind::kNone);
  cluster.Advance(12, 1);
  EXPECT_EQ(cluster.Record(job).stop, StopKind::kTimeLimit);
  GiveWay(cluster, job, 8);
  EXPECT_EQ(cluster.State(job), JobState::kFailed);
  EXPECT_THAT(cluster.Record(job).reason,
              HasSubstr("its time limit of 1m40s is over; its newest checkpoint, of step 8, is /c/step"));
  EXPECT_NEAR(static_cast<double>(cluster.Record(job).trained.value), 102e9, 2e9);
}

TEST(ControllerHold, ATimeLimitEndsAJobThatDoesNotGiveWay) {
  Cluster cluster;
  cluster.AddNode("n0");
  JobSpec spec = Spec();
  spec.scheduling.time_limit = Nanos(100'000'000'000);
  const JobId job = RunSteps(cluster, spec, kTwo, 6);
  cluster.Advance(165, 1);
  EXPECT_EQ(cluster.State(job), JobState::kFailed);
  EXPECT_THAT(cluster.Record(job).reason, HasSubstr("it wrote no checkpoint"));
}

TEST(ControllerHold, ServersThatRestartAskAgain) {
  Cluster cluster;
  cluster.AddNode("n0");
  const JobId job = RunSteps(cluster, Spec(), kTwo, 6);
  cluster.Hold(job);
  cluster.RestartServer();
  EXPECT_EQ(cluster.Record(job).stop, StopKind::kNone);
  cluster.AttachAgent("n0");
  cluster.AttachWorker("n0");
  cluster.Advance(1);
  EXPECT_EQ(cluster.Record(job).stop, StopKind::kPreempt);
  cluster.StepAll(job, 6);
  GiveWay(cluster, job, 7);
  EXPECT_EQ(cluster.State(job), JobState::kQueued);
}

TEST(ControllerLeave, ACancelledJobWritesACheckpointFirst) {
  Cluster cluster;
  cluster.AddNode("n0");
  const JobId job = RunSteps(cluster, Spec(), kTwo, 6);
  cluster.Leave(job);
  EXPECT_EQ(cluster.Record(job).stop, StopKind::kLeave);
  EXPECT_TRUE(cluster.RankOf(job, 0)->assignment.yield);
  cluster.Leave(job);
  cluster.StepAll(job, 6);
  EXPECT_EQ(cluster.State(job), JobState::kRunning) << "the step is finished";
  GiveWay(cluster, job, 7);
  EXPECT_EQ(cluster.State(job), JobState::kCancelled);
  EXPECT_THAT(cluster.Record(job).reason, HasSubstr("cancelled: enough; its newest checkpoint, of step 7, is /c/step"));
  EXPECT_THAT(cluster.Kinds(job), HasSubstr("running leaving checkpoint cancelled"));
}

TEST(ControllerLeave, RanksThatDoNotWriteOneAreEndedAfterTheGrace) {
  Cluster cluster;
  cluster.AddNode("n0");
  const JobId job = RunSteps(cluster, Spec(), kTwo, 6);
  cluster.Leave(job, Nanos(10'000'000'000));
  cluster.Advance(9, 1);
  EXPECT_EQ(cluster.State(job), JobState::kRunning);
  cluster.Advance(3, 1);
  EXPECT_EQ(cluster.State(job), JobState::kCancelled);
  EXPECT_THAT(cluster.Record(job).reason, HasSubstr("cancelled: enough; it wrote no checkpoint"));
}

TEST(ControllerLeave, ACallWithoutACheckpointEndsThemAtOnce) {
  Cluster cluster;
  cluster.AddNode("n0");
  const JobId job = RunSteps(cluster, Spec(), kTwo, 6);
  cluster.Leave(job);
  cluster.Cancel(job, "now");
  EXPECT_EQ(cluster.State(job), JobState::kCancelled);
  EXPECT_EQ(cluster.Record(job).reason, "cancelled: now");
}

TEST(ControllerLeave, AFailureMeanwhileIsNoRestart) {
  Cluster cluster;
  cluster.AddNode("n0");
  const JobId job = RunSteps(cluster, Spec(), kTwo, 6);
  cluster.Leave(job);
  cluster.Exit(job, 1, 137);
  cluster.Settle();
  EXPECT_EQ(cluster.State(job), JobState::kCancelled);
  EXPECT_THAT(cluster.Record(job).reason, HasSubstr("cancelled; rank 1 on node n0 was killed by signal 9"));
  EXPECT_EQ(cluster.Record(job).restarts, 0);
}

TEST(ControllerLeave, OneThatStartsOrGivesWayAlreadyLeaves) {
  Cluster cluster;
  cluster.AddNode("n0");
  const JobId starting = cluster.Submit(Spec());
  cluster.MeasureAll();
  Answer(cluster, kTwo, 10);
  cluster.Leave(starting);
  cluster.ReportAll();
  EXPECT_EQ(cluster.State(starting), JobState::kCancelled) << "it has nothing to keep";
  const JobId held = RunSteps(cluster, Spec(), kTwo, 6);
  cluster.Hold(held);
  cluster.Leave(held);
  EXPECT_EQ(cluster.Record(held).stop, StopKind::kLeave);
  GiveWay(cluster, held, 7);
  EXPECT_EQ(cluster.State(held), JobState::kCancelled);
}

TEST(ControllerLeave, ServersThatRestartAskAgain) {
  Cluster cluster;
  cluster.AddNode("n0");
  const JobId job = RunSteps(cluster, Spec(), kTwo, 6);
  cluster.Leave(job);
  cluster.RestartServer();
  cluster.AttachAgent("n0");
  cluster.AttachWorker("n0");
  cluster.Advance(1);
  EXPECT_EQ(cluster.Record(job).stop, StopKind::kLeave);
  cluster.StepAll(job, 6);
  GiveWay(cluster, job, 7);
  EXPECT_EQ(cluster.State(job), JobState::kCancelled);
}

JobSpec WithRules(std::vector<FailureRule> rules) {
  JobSpec spec = Spec();
  spec.on_failure = std::move(rules);
  return spec;
}

TEST(ControllerHold, AnExitCodeMayMeanThatAJobHasFailed) {
  Cluster cluster;
  cluster.AddNode("n0");
  const JobId job = RunSteps(cluster, WithRules({{.exit_code = 2, .action = FailureAction::kFail}}), kTwo, 1);
  cluster.Exit(job, 0, 7);
  cluster.ReportAll();
  EXPECT_EQ(cluster.Record(job).generation, Generation(2)) << "this one does not";
  cluster.AllReady(job);
  cluster.Exit(job, 0, 2);
  cluster.ReportAll();
  EXPECT_EQ(cluster.State(job), JobState::kFailed);
  EXPECT_THAT(cluster.Record(job).reason, HasSubstr("onFailure says that it is not to be tried again"));
}

TEST(ControllerHold, AFirstFaultIsTriedAgainIfARuleSaysSo) {
  Cluster cluster;
  cluster.AddNode("n0");
  const JobId job = cluster.Submit(WithRules({{.log = "no route", .action = FailureAction::kRetry}}));
  cluster.MeasureAll();
  Answer(cluster, kTwo, 10);
  cluster.Say(job, 0, RankFailure{.reason = "no route to the data"});
  EXPECT_EQ(cluster.State(job), JobState::kStarting);
  EXPECT_EQ(cluster.Record(job).restarts, 1);
}

TEST(ControllerHold, ALineOfARankMayExcludeItsNode) {
  Cluster cluster;
  cluster.AddNode("n0");
  const JobId job = RunSteps(cluster, WithRules({{.log = "ECC error", .action = FailureAction::kExcludeNode}}), kTwo, 1);
  cluster.Node("n0").logs.push_back({.key = cluster.RankOf(job, 1)->seen.key, .lines = {"bank 7: ECC error at 0x1", "ends"}});
  cluster.Exit(job, 1, 1);
  cluster.ReportAll();
  EXPECT_EQ(cluster.State(job), JobState::kQueued);
  EXPECT_EQ(cluster.Record(job).excluded, std::vector<NodeId>{NodeId("n0")});
  EXPECT_THAT(cluster.Kinds(job), HasSubstr("node-excluded"));
  EXPECT_THAT(cluster.Record(job).reason, HasSubstr("without its excluded nodes n0"));
  EXPECT_EQ(cluster.State(cluster.Submit(Spec())), JobState::kQueued) << "the job keeps its place for a while";
  cluster.AddNode("n1");
  EXPECT_EQ(cluster.State(job), JobState::kStarting);
  EXPECT_EQ(cluster.NodeOfRank(job, 0), "n1");
}

}  // namespace
}  // namespace lynx::server
