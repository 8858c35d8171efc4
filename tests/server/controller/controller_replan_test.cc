// Tests jobs that get a new plan: for fewer devices if some were lost, for more devices if some are free.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "planner/candidates/search.h"
#include "tests/server/controller/controller_steps.h"

namespace lynx::server {
namespace {

using ::lynx::server::testing::Answer;
using ::lynx::server::testing::Cluster;
using ::lynx::server::testing::Elastic;
using ::lynx::server::testing::FakeRank;
using ::lynx::server::testing::GiveWay;
using ::lynx::server::testing::kExitYielded;
using ::lynx::server::testing::kFour;
using ::lynx::server::testing::kOne;
using ::lynx::server::testing::kTwo;
using ::lynx::server::testing::MakeSpec;
using ::lynx::server::testing::MakeTestPlan;
using ::lynx::server::testing::PlanOf;
using ::lynx::server::testing::RunSteps;
using ::testing::HasSubstr;
using ::testing::Not;

// A job has trained on n0. Then a second node joins, and the server requests a plan for both nodes.
JobId WithMoreToHave(Cluster& cluster, const JobSpec& spec, int64_t steps = 6) {
  cluster.AddNode("n0");
  const JobId job = RunSteps(cluster, spec, kTwo, steps);
  cluster.AddNode("n1");
  cluster.Advance(10);
  cluster.MeasureAll();
  return job;
}

TEST(ControllerReplan, AJobGrowsOntoANodeThatComes) {
  Cluster cluster;
  const JobId job = WithMoreToHave(cluster, Elastic(2, 4));
  EXPECT_EQ(cluster.State(job), JobState::kRunning) << "it trains while it is planned";
  ASSERT_EQ(cluster.plans().size(), 1u);
  EXPECT_EQ(cluster.plans().front().request.cluster.devices(), 4);
  Answer(cluster, kFour, 50);
  EXPECT_EQ(cluster.State(job), JobState::kRunning);
  EXPECT_EQ(cluster.Record(job).stop, StopKind::kReplan);
  EXPECT_TRUE(cluster.RankOf(job, 0)->assignment.yield) << "its ranks go on, and are asked to give way";
  EXPECT_EQ(cluster.RankOf(job, 0)->seen.phase, RankPhase::kRunning);
  cluster.StepAll(job, 6);
  GiveWay(cluster, job, 7);
  EXPECT_EQ(cluster.State(job), JobState::kStarting);
  EXPECT_EQ(cluster.Record(job).generation, Generation(2));
  EXPECT_EQ(cluster.Ranks(job), 4);
  EXPECT_EQ(cluster.Record(job).plan_digest, std::string(64, 'e'));
  EXPECT_EQ(cluster.RankOf(job, 3)->assignment.resume_step, 7);
  EXPECT_FALSE(cluster.RankOf(job, 3)->assignment.yield);
  EXPECT_EQ(cluster.Record(job).restarts, 0) << "nothing failed";
  EXPECT_EQ(cluster.Record(job).restart_charge, 0);
  cluster.AllReady(job, 7);
  cluster.FinishAll(job);
  EXPECT_EQ(cluster.State(job), JobState::kSucceeded);
  EXPECT_THAT(cluster.Kinds(job), HasSubstr("running replan replan-adopted checkpoint planned replanned running"));
  std::string adopted;
  for (const JobEvent& event : cluster.Events(job)) {
    if (event.kind == "replan-adopted") adopted = event.reason;
  }
  EXPECT_THAT(adopted, HasSubstr("there are free devices on n1"));
  EXPECT_THAT(adopted, HasSubstr("predicted step 50.0 ms"));
  EXPECT_THAT(adopted, HasSubstr("predicted step 100.0 ms"));
}

TEST(ControllerReplan, APlanThatIsHardlyFasterIsNotWorthAChange) {
  Cluster cluster;
  const JobId job = WithMoreToHave(cluster, Elastic(2, 4));
  Answer(cluster, kFour, 96);
  EXPECT_EQ(cluster.Record(job).stop, StopKind::kNone);
  EXPECT_EQ(cluster.Events(job).back().kind, "replan-kept");
  EXPECT_THAT(cluster.Events(job).back().reason, HasSubstr("would not become 5% shorter"));
  cluster.Advance(100);
  EXPECT_TRUE(cluster.plans().empty()) << "the same devices are not asked about again";
  EXPECT_FALSE(cluster.RankOf(job, 0)->assignment.yield);
  // The job has given back the devices that were reserved for it. So another job gets them.
  const JobId other = cluster.Submit(Elastic(2, 2));
  EXPECT_EQ(cluster.State(other), JobState::kPlanning);
}

// The job has 6 steps of 0.1 s left. The change of plan would save half of this time, which is too little.
TEST(ControllerReplan, AChangeMustPayInTheStepsThatAreLeft) {
  Cluster cluster;
  const JobId job = WithMoreToHave(cluster, Elastic(2, 4, 12));
  Answer(cluster, kFour, 50);
  EXPECT_EQ(cluster.Record(job).stop, StopKind::kNone);
  EXPECT_THAT(cluster.Events(job).back().reason, HasSubstr("in the 6 steps left do not pay"));
}

TEST(ControllerReplan, JobsOfAFixedSizeDoNotGrow) {
  Cluster cluster;
  const JobId job = WithMoreToHave(cluster, Elastic(2, 2));
  EXPECT_TRUE(cluster.plans().empty());
  EXPECT_THAT(cluster.Kinds(job), Not(HasSubstr("replan")));
}

TEST(ControllerReplan, DevicesThatAJobWaitsForAreNotGivenToOneThatTrains) {
  Cluster cluster;
  cluster.AddNode("n0");
  const JobId job = RunSteps(cluster, Elastic(2, 4), kTwo, 6);
  const JobId waiting = cluster.Submit(MakeSpec("other", 3, 3));
  cluster.AddNode("n1");
  cluster.Advance(10);
  cluster.MeasureAll();
  EXPECT_TRUE(cluster.plans().empty());
  EXPECT_EQ(cluster.State(waiting), JobState::kQueued);
  EXPECT_THAT(cluster.Kinds(job), Not(HasSubstr("replan")));
}

// While the job is planned and while its ranks give way, no other job gets the reserved devices.
TEST(ControllerReplan, DevicesAreHeldUntilTheChange) {
  Cluster cluster;
  const JobId job = WithMoreToHave(cluster, Elastic(2, 4));
  const JobId other = cluster.Submit(MakeSpec("other", 2, 2));
  EXPECT_EQ(cluster.State(other), JobState::kQueued);
  Answer(cluster, kFour, 50);
  cluster.Advance(1);
  EXPECT_EQ(cluster.State(other), JobState::kQueued);
  GiveWay(cluster, job, 6);
  EXPECT_EQ(cluster.Ranks(job), 4);
  EXPECT_EQ(cluster.State(other), JobState::kQueued);
}

TEST(ControllerReplan, AnInfeasiblePlanForMoreKeepsTheJobRunning) {
  Cluster cluster;
  const JobId job = WithMoreToHave(cluster, Elastic(2, 4));
  cluster.AnswerPlansWith(Infeasible{.reason = "no layout fits"});
  EXPECT_EQ(cluster.State(job), JobState::kRunning);
  EXPECT_THAT(cluster.Events(job).back().reason, HasSubstr("no layout fits"));
}

TEST(ControllerReplan, RanksThatDoNotGiveWayInTimeGoOn) {
  Cluster cluster;
  const JobId job = WithMoreToHave(cluster, Elastic(2, 4));
  Answer(cluster, kFour, 50);
  cluster.Advance(61);
  EXPECT_EQ(cluster.Record(job).stop, StopKind::kNone);
  EXPECT_FALSE(cluster.RankOf(job, 1)->assignment.yield) << "the request is taken back";
  EXPECT_THAT(cluster.Events(job).back().reason, HasSubstr("have not given way in time"));
  // The ranks give way nevertheless, because they did so before the withdrawal of the request reached them.
  GiveWay(cluster, job, 9);
  EXPECT_EQ(cluster.State(job), JobState::kStarting);
  EXPECT_EQ(cluster.Ranks(job), 2) << "with the plan that it has";
  EXPECT_EQ(cluster.RankOf(job, 0)->assignment.resume_step, 9);
  EXPECT_EQ(cluster.Record(job).restart_charge, 0);
}

TEST(ControllerReplan, ARankThatFailsInsteadOfGivingWayRestartsTheJob) {
  Cluster cluster;
  const JobId job = WithMoreToHave(cluster, Elastic(2, 4));
  Answer(cluster, kFour, 50);
  cluster.Exit(job, 1, 137);
  EXPECT_EQ(cluster.State(job), JobState::kStarting);
  EXPECT_EQ(cluster.Record(job).restarts, 1);
  EXPECT_EQ(cluster.Ranks(job), 2);
  EXPECT_THAT(cluster.Kinds(job), HasSubstr("replan-adopted rank-lost restarting"));
  // A change of plan is still worth its cost, so the server asks for a plan again.
  cluster.AllReady(job);
  cluster.StepAll(job, 0);
  cluster.Advance(10);
  EXPECT_EQ(cluster.plans().size(), 1u);
}

// While the plan was made, each rank lost the other one. It is not known which rank is at fault.
TEST(ControllerReplan, APlanThatComesWhenAJobIsBreakingIsNotAdopted) {
  Cluster cluster;
  const JobId job = WithMoreToHave(cluster, Elastic(2, 4));
  for (int32_t rank : {0, 1}) cluster.Exit(job, rank, 3, "a peer is gone", true);
  ASSERT_EQ(cluster.State(job), JobState::kRunning) << "the culprit is waited for";
  Answer(cluster, kFour, 50);
  EXPECT_EQ(cluster.Record(job).stop, StopKind::kNone);
  EXPECT_THAT(cluster.Events(job).back().reason, HasSubstr("ranks were lost while it was planned"));
  cluster.Advance(3);
  EXPECT_EQ(cluster.State(job), JobState::kStarting);
  EXPECT_EQ(cluster.Ranks(job), 2);
  const size_t events = cluster.Events(job).size();
  cluster.AllReady(job);
  cluster.Advance(120);
  EXPECT_EQ(cluster.State(job), JobState::kRunning);
  EXPECT_EQ(cluster.Events(job).size(), events + 1) << "nothing was left over that would happen to it";
}

TEST(ControllerReplan, ARankThatHangsInsteadOfGivingWayIsFoundOut) {
  Cluster cluster;
  const JobId job = WithMoreToHave(cluster, Elastic(2, 4));
  Answer(cluster, kFour, 50);
  cluster.Exit(job, 1, 3, "rank 0 has been silent", true);
  cluster.Advance(3);
  EXPECT_EQ(cluster.State(job), JobState::kStarting);
  EXPECT_EQ(cluster.Record(job).restarts, 1);
  EXPECT_THAT(cluster.Kinds(job), HasSubstr("rank-lost restarting"));
}

TEST(ControllerReplan, ARankThatHangsAfterItGaveWayIsEnded) {
  Cluster cluster;
  const JobId job = WithMoreToHave(cluster, Elastic(2, 4));
  Answer(cluster, kFour, 50);
  cluster.Say(job, 0, CheckpointReport{7, "/c/step-7", Bytes(1)});
  cluster.SayAll(job, [&](int32_t) { return RankMessage{.report = RankYielded{7}}; });
  cluster.Exit(job, 0, kExitYielded);
  cluster.Advance(9);
  EXPECT_EQ(cluster.Ranks(job), 2) << "the other one may be about to end";
  cluster.Advance(3);
  EXPECT_EQ(cluster.State(job), JobState::kStarting);
  EXPECT_EQ(cluster.Ranks(job), 4) << "with the new plan";
  EXPECT_EQ(cluster.Record(job).restart_charge, 0);
}

// The last checkpoint was of step 1,000. A node fails after step 1,900, and comes back when the job trains on the other node.
TEST(ControllerReplan, AJobGrowsThoughItHasStepsToDoAgain) {
  Cluster cluster;
  cluster.AddNode("n0");
  cluster.AddNode("n1");
  const JobId job = RunSteps(cluster, Elastic(1, 4), kFour, 1);
  cluster.StepAll(job, 1900);
  cluster.Say(job, 0, CheckpointReport{1000, "/c/step-1000", Bytes(1)});
  cluster.DetachAgent("n1");
  cluster.DetachWorker("n1");
  cluster.Exit(job, 0, 3, "peer lost", true);
  cluster.Exit(job, 1, 3, "peer lost", true);
  cluster.Advance(13);
  cluster.MeasureAll();
  Answer(cluster, kTwo, 190);
  cluster.AllReady(job, 1000);
  cluster.AttachAgent("n1");
  cluster.AttachWorker("n1");
  cluster.StepAll(job, 1000);
  cluster.Advance(10);
  cluster.MeasureAll();
  ASSERT_EQ(cluster.plans().size(), 1u);
  Answer(cluster, kFour, 100);
  EXPECT_EQ(cluster.Record(job).stop, StopKind::kReplan);
}

// The older job lost a node, so it waits for four devices. Two of its own devices are free.
TEST(ControllerReplan, AJobThatShrinksTakesNothingThatAnOlderOneWaitsFor) {
  Cluster cluster;
  for (const char* node : {"n0", "n1"}) cluster.AddNode(node);
  const JobId older = RunSteps(cluster, MakeSpec("older", 4, 4), kFour, 1);
  for (const char* node : {"n2", "n3"}) cluster.AddNode(node);
  const JobId younger = RunSteps(cluster, Elastic(1, 8), kFour, 1);
  for (const char* node : {"n1", "n3"}) {
    cluster.DetachAgent(node);
    cluster.DetachWorker(node);
  }
  cluster.Advance(61);
  EXPECT_EQ(cluster.State(older), JobState::kQueued);
  EXPECT_EQ(cluster.State(younger), JobState::kPlanning);
  cluster.MeasureAll();
  ASSERT_EQ(cluster.plans().size(), 1u);
  EXPECT_EQ(cluster.plans().front().request.cluster.devices(), 2);
  Answer(cluster, kTwo, 190);
  EXPECT_EQ(cluster.NodeOfRank(younger, 1), "n2");
}

TEST(ControllerReplan, AJobThatEndsInsteadOfGivingWayHasSucceeded) {
  Cluster cluster;
  const JobId job = WithMoreToHave(cluster, Elastic(2, 4));
  Answer(cluster, kFour, 50);
  cluster.FinishAll(job);
  EXPECT_EQ(cluster.State(job), JobState::kSucceeded);
  const JobId other = cluster.Submit(MakeSpec("other", 4, 4));
  EXPECT_EQ(cluster.State(other), JobState::kPlanning) << "all devices are free again";
}

TEST(ControllerReplan, ACancelledJobNeedNotGiveWayFirst) {
  Cluster cluster;
  const JobId job = WithMoreToHave(cluster, Elastic(2, 4));
  Answer(cluster, kFour, 50);
  cluster.Cancel(job, "enough");
  EXPECT_EQ(cluster.State(job), JobState::kCancelled);
  EXPECT_EQ(cluster.RankOf(job, 0), nullptr) << "ended at once, and released";
}

TEST(ControllerReplan, TheNewNodeMayGoAwayBeforeTheChange) {
  Cluster cluster;
  const JobId job = WithMoreToHave(cluster, Elastic(2, 4));
  Answer(cluster, kFour, 50);
  cluster.DetachWorker("n1");
  GiveWay(cluster, job, 6);
  EXPECT_EQ(cluster.State(job), JobState::kStarting);
  EXPECT_EQ(cluster.Ranks(job), 2);
  EXPECT_EQ(cluster.Record(job).plan_digest, std::string(64, 'c'));
  cluster.AllReady(job, 6);
  cluster.StepAll(job, 6);
  cluster.AttachWorker("n1");
  cluster.Advance(10);
  EXPECT_EQ(cluster.plans().size(), 1u) << "it is back, and the job may grow after all";
}

TEST(ControllerReplan, AServerThatRestartsTakesTheRequestBack) {
  Cluster cluster;
  const JobId job = WithMoreToHave(cluster, Elastic(2, 4));
  Answer(cluster, kFour, 50);
  cluster.RestartServer();
  for (const char* node : {"n0", "n1"}) {
    cluster.AttachAgent(node);
    cluster.AttachWorker(node);
  }
  cluster.Settle();
  EXPECT_EQ(cluster.State(job), JobState::kRunning);
  EXPECT_EQ(cluster.Record(job).stop, StopKind::kNone);
  EXPECT_FALSE(cluster.RankOf(job, 0)->assignment.yield);
  cluster.StepAll(job, 6);
  cluster.Advance(10);
  EXPECT_EQ(cluster.plans().size(), 1u) << "and plans for more again";
}

TEST(ControllerReplan, PlansForMoreAreBudgeted) {
  ControllerOptions options;
  options.most_replans_per_hour = 1;
  Cluster cluster(options);
  const JobId job = WithMoreToHave(cluster, Elastic(2, 6));
  Answer(cluster, kFour, 50);
  GiveWay(cluster, job, 6);
  cluster.AllReady(job, 6);
  cluster.StepAll(job, 6);
  cluster.AddNode("n2");
  cluster.Advance(30);
  cluster.MeasureAll();
  EXPECT_TRUE(cluster.plans().empty());
  cluster.Advance(3600, 10);
  cluster.MeasureAll();
  EXPECT_EQ(cluster.plans().size(), 1u);
}

// A node on which a job trains cannot measure. The server assumes that this node is as fast as the idle node.
TEST(ControllerReplan, OnlyIdleNodesAreAskedToMeasure) {
  ControllerOptions options;
  options.wanted_shapes = [](const JobSpec& spec, const ClusterTopology& cluster) {
    return std::vector<LayerShape>{ShapeOf(spec.model, ParallelLayout{cluster.devices() > 2 ? 2 : 1}, 1)};
  };
  Cluster cluster(options);
  cluster.AddNode("n0");
  const JobId job = RunSteps(cluster, Elastic(2, 4), kTwo, 6);
  cluster.AddNode("n1");
  cluster.Advance(10);
  EXPECT_TRUE(cluster.Node("n0").wanted.shapes.empty());
  EXPECT_EQ(cluster.Node("n1").wanted.shapes.size(), 1u);
  EXPECT_TRUE(cluster.plans().empty()) << "it waits for the measurement";
  cluster.Measure("n1");
  ASSERT_EQ(cluster.plans().size(), 1u);
  EXPECT_EQ(cluster.State(job), JobState::kRunning);
}

// The node was not asked for some op times that the first plan uses. So the node measures them, and then the job is planned
// again.
class ControllerMeasuresForAPlan : public ::testing::Test {
 protected:
  static ControllerOptions Options() {
    ControllerOptions options;
    options.wanted_shape_of = WantedShapeOf;
    return options;
  }
  void SetUp() override {
    cluster_.AddNode("n0");
    job_ = cluster_.Submit(MakeSpec("a", 2, 2));
    cluster_.MeasureAll();
    cluster_.AnswerPlans({.tp = 2});
  }
  Cluster cluster_{Options()};
  JobId job_;
};

TEST_F(ControllerMeasuresForAPlan, ThenTheJobIsPlannedAgain) {
  EXPECT_EQ(cluster_.State(job_), JobState::kPlanning);
  EXPECT_TRUE(cluster_.plans().empty()) << "it waits for the measurement";
  EXPECT_EQ(cluster_.Node("n0").wanted.shapes.size(), 2u);
  EXPECT_THAT(cluster_.Events(job_).back().reason,
              HasSubstr("uses op times that were not measured; the nodes measure them for tp 2 and micro-batch 1, and the job "
                        "is planned again"));
  cluster_.MeasureAll();
  ASSERT_EQ(cluster_.plans().size(), 1u);
  const auto& measured = cluster_.plans().front().request.cluster.groups.front().profile.measured;
  EXPECT_TRUE(std::any_of(measured.begin(), measured.end(), [](const ShapeTimes& times) { return times.shape.tp == 2; }));
  cluster_.AnswerPlans({.tp = 2});
  EXPECT_EQ(cluster_.State(job_), JobState::kStarting);
  EXPECT_TRUE(cluster_.Node("n0").wanted.shapes.empty());
}

// The agent does not answer. When the time limit is over, the job is planned again without the missing op times, and begins.
TEST_F(ControllerMeasuresForAPlan, AnAgentThatDoesNotAnswerDelaysTheJobByTheTimeLimitAtMost) {
  cluster_.Advance(Seconds(Options().measure_timeout) + 1);
  ASSERT_EQ(cluster_.plans().size(), 1u);
  cluster_.AnswerPlans({.tp = 2});
  EXPECT_EQ(cluster_.State(job_), JobState::kStarting);
}

TEST(ControllerReplan, AJobShrinksWhenANodeIsLost) {
  Cluster cluster;
  cluster.AddNode("n0");
  cluster.AddNode("n1");
  const JobId job = RunSteps(cluster, Elastic(1, 4), kFour, 6);
  cluster.Say(job, 0, CheckpointReport{5, "/c/step-5", Bytes(1)});
  ASSERT_EQ(cluster.NodeOfRank(job, 3), "n1");
  // The node fails together with its ranks, and their peers notice this at once.
  cluster.DetachAgent("n1");
  cluster.DetachWorker("n1");
  cluster.Exit(job, 0, 3, "peer lost", true);
  cluster.Exit(job, 1, 3, "peer lost", true);
  cluster.Advance(9);
  EXPECT_EQ(cluster.Ranks(job), 4) << "its daemon may only be restarting";
  cluster.Advance(4);
  EXPECT_EQ(cluster.State(job), JobState::kPlanning);
  cluster.MeasureAll();
  ASSERT_EQ(cluster.plans().size(), 1u);
  EXPECT_EQ(cluster.plans().front().request.cluster.devices(), 2);
  Answer(cluster, kTwo, 190);
  EXPECT_EQ(cluster.State(job), JobState::kStarting);
  EXPECT_EQ(cluster.Ranks(job), 2);
  EXPECT_EQ(cluster.NodeOfRank(job, 0), "n0");
  EXPECT_EQ(cluster.RankOf(job, 0)->assignment.resume_step, 5);
  EXPECT_EQ(cluster.Record(job).restarts, 1);
  cluster.AllReady(job, 5);
  EXPECT_EQ(cluster.State(job), JobState::kRunning);
  // The node comes back with its old ranks. They end, and the job gets more devices.
  cluster.AttachAgent("n1");
  cluster.AttachWorker("n1");
  cluster.Settle();
  cluster.StepAll(job, 6);
  cluster.Advance(10);
  cluster.MeasureAll();
  Answer(cluster, kFour, 100);
  GiveWay(cluster, job, 8);
  EXPECT_EQ(cluster.Ranks(job), 4);
}

TEST(ControllerReplan, AJobThatFitsNoSmallerClusterWaits) {
  Cluster cluster;
  cluster.AddNode("n0");
  cluster.AddNode("n1");
  const JobId job = RunSteps(cluster, Elastic(1, 4), kFour, 6);
  cluster.DetachAgent("n1");
  cluster.DetachWorker("n1");
  cluster.Advance(61);
  cluster.MeasureAll();
  cluster.AnswerPlansWith(Infeasible{.reason = "stage 0 needs 9 GiB more"});
  EXPECT_EQ(cluster.State(job), JobState::kQueued);
  EXPECT_EQ(cluster.Events(job).back().kind, "queued");
  EXPECT_THAT(cluster.Events(job).back().reason, HasSubstr("stage 0 needs 9 GiB more"));
  cluster.AttachAgent("n1");
  cluster.AttachWorker("n1");
  cluster.Settle();
  EXPECT_EQ(cluster.State(job), JobState::kStarting) << "with the plan that it had";
  EXPECT_EQ(cluster.Ranks(job), 4);
}

TEST(ControllerReplan, AJobOfAFixedSizeWaitsForItsDevices) {
  Cluster cluster;
  cluster.AddNode("n0");
  cluster.AddNode("n1");
  const JobId job = RunSteps(cluster, Elastic(4, 4), kFour, 6);
  cluster.DetachWorker("n1");
  cluster.Advance(61);
  EXPECT_EQ(cluster.State(job), JobState::kQueued);
  EXPECT_TRUE(cluster.plans().empty());
}

TEST(ControllerReplan, APlannedJobThatLosesItsNodesWhileItWaitsIsPlannedForOthers) {
  Cluster cluster;
  cluster.AddNode("n0");
  const JobId job = RunSteps(cluster, Elastic(1, 4), kTwo, 6);
  cluster.DetachAgent("n0");
  cluster.DetachWorker("n0");
  cluster.Advance(61);
  EXPECT_EQ(cluster.State(job), JobState::kQueued);
  cluster.AddNode("n1", 1);
  EXPECT_EQ(cluster.State(job), JobState::kPlanning);
  cluster.MeasureAll();
  Answer(cluster, kOne, 300);
  EXPECT_EQ(cluster.State(job), JobState::kStarting);
  EXPECT_EQ(cluster.NodeOfRank(job, 0), "n1");
}

}  // namespace
}  // namespace lynx::server
