// Tests jobs from their submission to their success, the queue, and cancelling.
#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/controller/controller_fixture.h"

namespace lynx::server {
namespace {

using ::lynx::server::testing::Cluster;
using ::lynx::server::testing::FakeNode;
using ::lynx::server::testing::MakeSpec;
using ::lynx::server::testing::MakeTestPlan;
using ::testing::HasSubstr;

const ParallelLayout kFour{2, 2, 1};

TEST(ControllerJobsTest, RunsFromSubmissionToSuccess) {
  Cluster cluster;
  cluster.AddNode("n0");
  cluster.AddNode("n1");
  const JobId job = cluster.Submit(MakeSpec("gpt", 4, 4));
  EXPECT_EQ(cluster.State(job), JobState::kPlanning);
  EXPECT_EQ(cluster.Node("n0").wanted.shapes.size(), 1u);
  EXPECT_TRUE(cluster.plans().empty()) << "nothing has been measured";
  cluster.Measure("n0");
  EXPECT_TRUE(cluster.plans().empty()) << "one node still measures";
  cluster.Measure("n1");
  ASSERT_EQ(cluster.plans().size(), 1u);
  const ClusterTopology& topology = cluster.plans()[0].request.cluster;
  ClusterTopology expected = UniformCluster(2, 2, topology.groups.at(0).profile, Bytes(1 << 30));
  expected.groups[0].host_is_device = true;
  EXPECT_EQ(topology, expected);
  EXPECT_EQ(cluster.plans()[0].request.cluster.groups[0].profile.measured.size(), 1u);
  EXPECT_TRUE(cluster.Node("n0").wanted.shapes.empty());

  cluster.AnswerPlans(kFour);
  EXPECT_EQ(cluster.State(job), JobState::kStarting);
  EXPECT_EQ(cluster.Record(job).generation, Generation(1));
  const std::vector<std::string> nodes = {"n0", "n0", "n1", "n1"};
  for (int32_t r = 0; r < 4; ++r) {
    ASSERT_NE(cluster.RankOf(job, r), nullptr);
    EXPECT_EQ(cluster.NodeOfRank(job, r), nodes[static_cast<size_t>(r)]);
    const RankAssignment& assignment = cluster.RankOf(job, r)->assignment;
    ASSERT_NE(assignment.peers, nullptr);
    EXPECT_EQ(assignment.peers->size(), 4u);
    EXPECT_EQ(assignment.peers->at(static_cast<size_t>(r)).port, cluster.RankOf(job, r)->seen.port);
    EXPECT_EQ(assignment.cores, std::vector<int32_t>{r % 2});
    EXPECT_EQ(assignment.resume_step, -1);
  }
  cluster.AllReady(job);
  EXPECT_EQ(cluster.State(job), JobState::kRunning);
  for (int64_t step = 0; step < 5; ++step) cluster.StepAll(job, step);
  EXPECT_EQ(cluster.Record(job).progress.steps_done, 5);
  EXPECT_DOUBLE_EQ(cluster.Record(job).progress.first_loss, 5.0);
  cluster.Say(job, 0, CheckpointReport{5, "/c/step-5", Bytes(1000)});
  EXPECT_EQ(cluster.Record(job).checkpoint_step, 5);
  EXPECT_EQ(cluster.checkpoints().size(), 1u);
  cluster.FinishAll(job);
  EXPECT_EQ(cluster.State(job), JobState::kSucceeded);
  EXPECT_EQ(cluster.Kinds(job), "submitted planning planned placed running checkpoint succeeded");
  EXPECT_EQ(cluster.RankOf(job, 0), nullptr) << "the workers forget the ranks";
  EXPECT_EQ(cluster.Stored(job).measured.at(1).steps, 3) << "all steps but the first two";
}

TEST(ControllerJobsTest, AStepOfOneRankMeansRunning) {
  Cluster cluster;
  cluster.AddNode("n0");
  const JobId job = cluster.Submit(MakeSpec("gpt", 2, 2));
  cluster.MeasureAll();
  cluster.AnswerPlans({2, 1, 1});
  cluster.Say(job, 1, StepReport{.step = 0, .duration = Nanos(5)});
  EXPECT_EQ(cluster.State(job), JobState::kRunning);
}

TEST(ControllerJobsTest, RanksStartOnlyWhenAllListen) {
  Cluster cluster;
  cluster.AddNode("n0");
  cluster.AddNode("n1");
  cluster.Node("n1").obedient = false;
  const JobId job = cluster.Submit(MakeSpec("gpt", 4, 4));
  cluster.MeasureAll();
  cluster.AnswerPlans(kFour);
  ASSERT_NE(cluster.RankOf(job, 0), nullptr);
  EXPECT_EQ(cluster.RankOf(job, 0)->assignment.peers, nullptr);
  EXPECT_EQ(cluster.RankOf(job, 0)->seen.phase, RankPhase::kListening);
  cluster.Node("n1").obedient = true;
  cluster.Settle();
  EXPECT_NE(cluster.RankOf(job, 0)->assignment.peers, nullptr);
  EXPECT_EQ(cluster.RankOf(job, 3)->seen.phase, RankPhase::kRunning);
}

TEST(ControllerJobsTest, CheckpointsGoWhereTheJobSaysOrBelowTheServersRoot) {
  ControllerOptions options;
  options.checkpoint_root = "/srv/jobs";
  Cluster cluster(options);
  cluster.AddNode("n0");
  cluster.AddNode("n1");
  const JobId silent = cluster.Submit(MakeSpec("silent", 2, 2));
  JobSpec spec = MakeSpec("says", 2, 2);
  spec.checkpoint.directory = "/shared/run";
  const JobId says = cluster.Submit(spec);
  cluster.MeasureAll();
  cluster.AnswerPlans({2, 1, 1});
  EXPECT_EQ(cluster.RankOf(silent, 0)->assignment.checkpoint_directory, "/srv/jobs/" + silent.value + "/checkpoints");
  EXPECT_EQ(cluster.RankOf(says, 0)->assignment.checkpoint_directory, "/shared/run");
}

TEST(ControllerJobsTest, TheKeyOfAnotherUsersJobIsRefused) {
  Cluster cluster;
  const JobId job = cluster.Submit(MakeSpec("gpt", 1, 1), "key", "alice");
  EXPECT_EQ(cluster.controller().Find(job)->owner, "alice");
  EXPECT_EQ(cluster.Submit(MakeSpec("gpt", 1, 1), "key", "bob"), JobId()) << "the answer does not name the job";
  EXPECT_EQ(cluster.last_reply()->status.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(cluster.last_reply()->status.message()), HasSubstr("was used by another user"));
  EXPECT_EQ(cluster.Submit(MakeSpec("gpt", 1, 1), "key", "alice"), job);
  EXPECT_TRUE(cluster.last_reply()->existed);
  EXPECT_EQ(cluster.Submit(MakeSpec("gpt", 1, 1), "key", "local"), job) << "on a server without TLS each key is everybody's";
  cluster.RestartServer();
  EXPECT_EQ(cluster.Submit(MakeSpec("gpt", 1, 1), "key", "bob"), JobId());
}

TEST(ControllerJobsTest, AJobBeginsAfterTheJobOfItsOwnerNotAfterAnotherOfThatName) {
  Cluster cluster;
  JobSpec spec = MakeSpec("gpt", 1, 1);
  spec.name = "prepare";
  const JobId own = cluster.Submit(spec, "", "alice");
  cluster.Submit(spec, "", "bob");
  JobSpec after = MakeSpec("gpt", 1, 1);
  after.scheduling.after = {"prepare"};
  const JobId job = cluster.Submit(after, "", "alice");
  EXPECT_EQ(cluster.controller().Find(job)->waits_for, std::vector<JobId>{own});
}

TEST(ControllerJobsTest, SameKeyAndSpecIsTheSameJob) {
  Cluster cluster;
  const JobId first = cluster.Submit(MakeSpec("gpt", 1, 1), "key");
  const JobId again = cluster.Submit(MakeSpec("gpt", 1, 1), "key");
  EXPECT_EQ(first, again);
  EXPECT_TRUE(cluster.last_reply()->existed);
  EXPECT_TRUE(cluster.last_reply()->status.ok());
  cluster.Submit(MakeSpec("other", 1, 1), "key");
  EXPECT_EQ(cluster.last_reply()->status.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(cluster.last_reply()->status.message()), HasSubstr(first.value));
  cluster.RestartServer();
  EXPECT_EQ(cluster.Submit(MakeSpec("gpt", 1, 1), "key"), first) << "the key outlives the server";
}

TEST(ControllerJobsTest, ALostSubmissionNeverWas) {
  Cluster cluster;
  const JobId job = cluster.Submit(MakeSpec("gpt", 1, 1), "key");
  cluster.Send(SubmissionLost{job});
  EXPECT_EQ(cluster.controller().Find(job), nullptr);
  EXPECT_TRUE(cluster.controller().List(10, {}).empty());
  const JobId again = cluster.Submit(MakeSpec("gpt", 1, 1), "key");
  EXPECT_NE(again, job);
  EXPECT_FALSE(cluster.last_reply()->existed);
}

TEST(ControllerJobsTest, TheQueueIsBounded) {
  Cluster cluster({.max_unfinished_jobs = 2});
  cluster.Submit(MakeSpec("a", 1, 1));
  cluster.Submit(MakeSpec("b", 1, 1));
  cluster.Submit(MakeSpec("c", 1, 1));
  EXPECT_EQ(cluster.last_reply()->status.code(), absl::StatusCode::kResourceExhausted);
}

TEST(ControllerJobsTest, InfeasibleFailsWithReasonAndSuggestion) {
  Cluster cluster;
  cluster.AddNode("n0");
  const JobId job = cluster.Submit(MakeSpec("gpt", 2, 2));
  cluster.MeasureAll();
  cluster.AnswerPlansWith(Infeasible{.reason = "stage 0 needs 3.1 GiB more", .suggestion = "tp: 4"});
  EXPECT_EQ(cluster.State(job), JobState::kFailed);
  EXPECT_EQ(cluster.Record(job).reason, "stage 0 needs 3.1 GiB more; the smallest change that fits: tp: 4");
  EXPECT_EQ(cluster.Kinds(job), "submitted planning failed");
}

TEST(ControllerJobsTest, ARefusedRequestFails) {
  Cluster cluster;
  cluster.AddNode("n0");
  const JobId job = cluster.Submit(MakeSpec("gpt", 2, 2));
  cluster.MeasureAll();
  cluster.AnswerPlansWith(absl::InvalidArgumentError("no layout of 2 ranks divides 3 heads"));
  EXPECT_EQ(cluster.State(job), JobState::kFailed);
  EXPECT_EQ(cluster.Record(job).reason, "no layout of 2 ranks divides 3 heads");
}

TEST(ControllerJobsTest, InfeasibleOnWhatIsFreeWaitsForMore) {
  Cluster cluster;
  cluster.AddNode("n0");
  cluster.AddNode("n1");
  const JobId small = cluster.Run(MakeSpec("small", 2, 2), {2, 1, 1});
  const JobId large = cluster.Submit(MakeSpec("large", 1, 4));
  cluster.MeasureAll();
  cluster.AnswerPlansWith(Infeasible{.reason = "too small"});
  EXPECT_EQ(cluster.State(large), JobState::kQueued);
  EXPECT_TRUE(cluster.plans().empty()) << "not tried again on as few devices";
  cluster.FinishAll(small);
  EXPECT_EQ(cluster.State(large), JobState::kPlanning);
  ASSERT_EQ(cluster.plans().size(), 1u);
  EXPECT_EQ(cluster.plans()[0].request.cluster.nodes(), 2);
}

// The job may have two or three ranks, and its tensor-parallel groups have two. So it can never use a third device. If it
// waited for a third device, it would wait forever, and so would all jobs behind it.
TEST(ControllerJobsTest, InfeasibleFailsWhereMoreDevicesCannotBeHad) {
  Cluster cluster;
  cluster.AddNode("n0");
  cluster.AddNode("n1");
  JobSpec spec = MakeSpec("pinned", 2, 3);
  spec.parallel.tp = 2;
  const JobId job = cluster.Submit(spec);
  const JobId next = cluster.Submit(MakeSpec("next", 4, 4));
  cluster.MeasureAll();
  ASSERT_EQ(cluster.plans().size(), 1u);
  cluster.AnswerPlansWith(Infeasible{.reason = "stage 0 needs 1 GiB more"});
  EXPECT_EQ(cluster.State(job), JobState::kFailed);
  EXPECT_EQ(cluster.Record(job).reason, "stage 0 needs 1 GiB more");
  EXPECT_EQ(cluster.State(next), JobState::kPlanning);
}

TEST(ControllerJobsTest, PlansForHostsOfWhichTheMemoryIsTheDevices) {
  Cluster cluster;
  cluster.AddNode("n0");
  cluster.Submit(MakeSpec("gpt", 2, 2));
  cluster.MeasureAll();
  ASSERT_EQ(cluster.plans().size(), 1u);
  for (const NodeGroup& group : cluster.plans().front().request.cluster.groups) {
    EXPECT_TRUE(group.host_is_device);
    EXPECT_EQ(group.memory_per_device, Bytes(1 << 30));
  }
}

TEST(ControllerJobsTest, WaitsForDevicesAndSaysSo) {
  Cluster cluster;
  const JobId job = cluster.Submit(MakeSpec("gpt", 4, 4));
  EXPECT_EQ(cluster.State(job), JobState::kQueued);
  EXPECT_THAT(cluster.Record(job).reason, HasSubstr("waits for 4 devices, but the attached nodes have 0"));
  cluster.AddNode("n0");
  EXPECT_THAT(cluster.Record(job).reason, HasSubstr("have 2"));
  cluster.AddNode("n1");
  EXPECT_EQ(cluster.State(job), JobState::kPlanning);
}

TEST(ControllerJobsTest, NoJobPassesAnOlderOne) {
  Cluster cluster;
  cluster.AddNode("n0");
  cluster.AddNode("n1");
  const JobId running = cluster.Run(MakeSpec("running", 2, 2), {2, 1, 1});
  const JobId big = cluster.Submit(MakeSpec("big", 4, 4));
  const JobId little = cluster.Submit(MakeSpec("little", 1, 1));
  EXPECT_EQ(cluster.State(big), JobState::kQueued);
  EXPECT_EQ(cluster.State(little), JobState::kQueued) << "two devices are free, but its turn has not come";
  EXPECT_THAT(cluster.Record(big).reason, HasSubstr("of 4 devices 2 are free"));
  cluster.FinishAll(running);
  EXPECT_EQ(cluster.State(big), JobState::kPlanning);
  EXPECT_EQ(cluster.State(little), JobState::kQueued);
  cluster.Cancel(big);
  EXPECT_EQ(cluster.State(little), JobState::kPlanning);
}

TEST(ControllerJobsTest, TwoJobsShareACluster) {
  Cluster cluster;
  cluster.AddNode("n0");
  cluster.AddNode("n1");
  const JobId a = cluster.Run(MakeSpec("a", 2, 2), {2, 1, 1});
  const JobId b = cluster.Run(MakeSpec("b", 2, 2), {2, 1, 1});
  EXPECT_EQ(cluster.State(a), JobState::kRunning);
  EXPECT_EQ(cluster.State(b), JobState::kRunning);
  EXPECT_EQ(cluster.NodeOfRank(a, 0), "n0");
  EXPECT_EQ(cluster.NodeOfRank(b, 0), "n1");
  const std::vector<NodeView> nodes = cluster.controller().Nodes();
  ASSERT_EQ(nodes.size(), 2u);
  EXPECT_EQ(nodes[0].devices_used, 2);
  EXPECT_EQ(nodes[1].jobs, std::vector<JobId>{b});
}

TEST(ControllerJobsTest, DevicesThatAPlanLeavesGoToTheNextJob) {
  Cluster cluster;
  cluster.AddNode("n0");
  const JobId a = cluster.Submit(MakeSpec("a", 1, 2));
  const JobId b = cluster.Submit(MakeSpec("b", 1, 1));
  EXPECT_EQ(cluster.State(b), JobState::kQueued);
  cluster.MeasureAll();
  cluster.AnswerPlans({1, 1, 1});
  EXPECT_EQ(cluster.State(a), JobState::kStarting);
  EXPECT_EQ(cluster.State(b), JobState::kPlanning);
}

TEST(ControllerJobsTest, MeasuringIsBounded) {
  Cluster cluster({.measure_timeout = Nanos(5'000'000'000)});
  cluster.AddNode("n0");
  const JobId job = cluster.Submit(MakeSpec("gpt", 2, 2));
  cluster.Advance(4);
  EXPECT_TRUE(cluster.plans().empty());
  cluster.Advance(2);
  ASSERT_EQ(cluster.plans().size(), 1u);
  EXPECT_EQ(cluster.plans()[0].request.cluster.groups[0].profile, StatedCpuProfile());
  EXPECT_EQ(cluster.Kinds(job), "submitted planning measured");
  EXPECT_THAT(cluster.Events(job).at(2).reason, HasSubstr("not all has been measured within 5.00 s, on n0; plans with "));
  cluster.AnswerPlans({2, 1, 1});
  EXPECT_EQ(cluster.State(job), JobState::kStarting);
}

TEST(ControllerJobsTest, MeasuringThatSomebodyWouldNoticeIsTold) {
  Cluster cluster;
  cluster.AddNode("n0");
  const JobId job = cluster.Submit(MakeSpec("gpt", 2, 2));
  cluster.Advance(2);
  cluster.MeasureAll();
  EXPECT_EQ(cluster.Kinds(job), "submitted planning measured");
  EXPECT_EQ(cluster.Events(job).at(2).reason, "op times of 1 layer shape were measured in 2.00 s");
}

TEST(ControllerJobsTest, ShapesThatCannotBeMeasuredAreNotWaitedFor) {
  Cluster cluster;
  cluster.AddNode("n0");
  cluster.Submit(MakeSpec("gpt", 2, 2));
  FakeNode& node = cluster.Node("n0");
  node.agent.failed_shapes = node.wanted.shapes;
  cluster.Send(AgentReported{node.agent_stream, "10.0.0.1", node.agent});
  EXPECT_EQ(cluster.plans().size(), 1u);
}

TEST(ControllerJobsTest, ANodeThatForgetsWhatItMeasuredIsWaitedForAgain) {
  Cluster cluster;
  cluster.AddNode("n0");
  cluster.AddNode("n1");
  cluster.Submit(MakeSpec("gpt", 4, 4));
  cluster.Measure("n0");
  FakeNode& node = cluster.Node("n0");
  node.agent.profile = nullptr;  // a new agent has measured nothing yet
  cluster.Send(AgentReported{node.agent_stream, "10.0.0.1", node.agent});
  cluster.Measure("n1");
  EXPECT_TRUE(cluster.plans().empty()) << "the first node is to measure again";
  cluster.Measure("n0");
  EXPECT_EQ(cluster.plans().size(), 1u);
}

TEST(ControllerJobsTest, AnAgentThatGoesIsNotWaitedFor) {
  Cluster cluster;
  cluster.AddNode("n0");
  cluster.Submit(MakeSpec("gpt", 2, 2));
  cluster.DetachAgent("n0");
  EXPECT_EQ(cluster.plans().size(), 1u);
}

TEST(ControllerJobsTest, TheSlowestNodeIsPlannedFor) {
  Cluster cluster;
  cluster.AddNode("n0");
  cluster.AddNode("n1");
  HardwareProfile slow = StatedCpuProfile();
  slow.flops_per_second /= 10;
  cluster.Node("n1").agent.profile = std::make_shared<const HardwareProfile>(slow);
  cluster.Submit(MakeSpec("gpt", 4, 4));
  cluster.MeasureAll();
  ASSERT_EQ(cluster.plans().size(), 1u);
  EXPECT_EQ(cluster.plans()[0].request.cluster.groups[0].profile.flops_per_second, slow.flops_per_second);
}

TEST(ControllerJobsTest, ANodeWithSlowLinksIsPlannedForAsItIs) {
  Cluster cluster;
  cluster.AddNode("n0");
  cluster.AddNode("n1");
  HardwareProfile slow = StatedCpuProfile();
  slow.intra_node.bytes_per_second /= 10;
  cluster.Node("n1").agent.profile = std::make_shared<const HardwareProfile>(slow);
  cluster.Submit(MakeSpec("gpt", 4, 4));
  cluster.MeasureAll();
  ASSERT_EQ(cluster.plans().size(), 1u);
  const std::vector<NodeGroup>& groups = cluster.plans()[0].request.cluster.groups;
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].profile.intra_node, StatedCpuProfile().intra_node);
  EXPECT_EQ(groups[1].profile.intra_node, slow.intra_node);
  EXPECT_EQ(groups[1].devices(), 2);
}

TEST(ControllerJobsTest, CancelsInEveryState) {
  {
    Cluster cluster;  // the job is QUEUED
    const JobId job = cluster.Submit(MakeSpec("gpt", 2, 2));
    cluster.Cancel(job, "not needed");
    EXPECT_EQ(cluster.State(job), JobState::kCancelled);
    EXPECT_EQ(cluster.Record(job).reason, "cancelled: not needed");
    cluster.Cancel(job, "again");
    EXPECT_TRUE(cluster.last_reply()->status.ok());
    EXPECT_EQ(cluster.Kinds(job), "submitted cancelled");
  }
  {
    Cluster cluster;  // the job is PLANNING: first it waits for measurements, then for its plan
    cluster.AddNode("n0");
    const JobId measuring = cluster.Submit(MakeSpec("gpt", 2, 2));
    cluster.Cancel(measuring);
    EXPECT_EQ(cluster.State(measuring), JobState::kCancelled);
    EXPECT_TRUE(cluster.Node("n0").wanted.shapes.empty());
    const JobId planning = cluster.Submit(MakeSpec("gpt", 2, 2));
    cluster.MeasureAll();
    cluster.Cancel(planning);
    cluster.AnswerPlans({2, 1, 1});
    EXPECT_EQ(cluster.State(planning), JobState::kCancelled) << "a late plan changes nothing";
  }
  {
    Cluster cluster;  // the job is STARTING, then RUNNING
    cluster.AddNode("n0");
    for (const bool ready : {false, true}) {
      const JobId job = cluster.Submit(MakeSpec("gpt", 2, 2));
      cluster.MeasureAll();
      cluster.AnswerPlans({2, 1, 1});
      if (ready) cluster.AllReady(job);
      cluster.Node("n0").obedient = false;
      cluster.Cancel(job);
      EXPECT_FALSE(IsFinal(cluster.State(job))) << "its ranks have not stopped";
      EXPECT_TRUE(cluster.Stored(job).cancel_requested);
      cluster.Node("n0").obedient = true;
      cluster.Settle();
      EXPECT_EQ(cluster.State(job), JobState::kCancelled);
      EXPECT_EQ(cluster.Record(job).reason, "cancelled on request");
    }
  }
}

TEST(ControllerJobsTest, ACancelDuringAStopForRestartWins) {
  Cluster cluster;
  cluster.AddNode("n0");
  const JobId job = cluster.Run(MakeSpec("gpt", 2, 2), {2, 1, 1});
  cluster.Node("n0").obedient = false;
  cluster.Exit(job, 1, 137);
  cluster.Cancel(job);
  EXPECT_EQ(cluster.State(job), JobState::kRunning);
  cluster.Node("n0").obedient = true;
  cluster.Settle();
  EXPECT_EQ(cluster.State(job), JobState::kCancelled);
  EXPECT_EQ(cluster.Record(job).restarts, 0);
}

TEST(ControllerJobsTest, ResolvesIdsNamesAndPrefixes) {
  Cluster cluster;
  const JobId first = cluster.Submit(MakeSpec("gpt", 1, 1));
  const JobId second = cluster.Submit(MakeSpec("gpt", 1, 1));
  EXPECT_EQ(cluster.controller().Resolve(first.value, "").value(), first);
  EXPECT_EQ(cluster.controller().Resolve("gpt", "").value(), second) << "the newest of that name";
  EXPECT_EQ(cluster.controller().Resolve("j", "").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(cluster.controller().Resolve("x", "").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(cluster.controller().Resolve("", "").status().code(), absl::StatusCode::kNotFound);
  const std::vector<const JobRecord*> newest = cluster.controller().List(1, {});
  ASSERT_EQ(newest.size(), 1u);
  EXPECT_EQ(newest[0]->id, second);
  for (const std::vector<JobState>& states :
       {std::vector<JobState>{}, {JobState::kQueued}}) {  // jobs in any state, then only QUEUED jobs
    const std::vector<const JobRecord*> older = cluster.controller().List(10, states, newest[0]);
    ASSERT_EQ(older.size(), 1u);
    EXPECT_EQ(older[0]->id, first);
    EXPECT_TRUE(cluster.controller().List(10, states, older[0]).empty());
  }
  EXPECT_TRUE(cluster.controller().List(10, {JobState::kRunning}).empty());
}

TEST(ControllerJobsTest, ReportsAreAcknowledgedOnceTheyAreWritten) {
  Cluster cluster;
  cluster.AddNode("n0");
  const JobId job = cluster.Run(MakeSpec("gpt", 2, 2), {2, 1, 1});
  cluster.Advance(2);
  cluster.StepAll(job, 0);  // the step is written at once, because the last write was long ago
  EXPECT_TRUE(cluster.RankOf(job, 0)->unacknowledged.empty());
  const int64_t updates = cluster.updates();
  for (int64_t step = 1; step < 20; ++step) cluster.StepAll(job, step);
  EXPECT_EQ(cluster.updates(), updates) << "steps within a second are not written each";
  EXPECT_EQ(cluster.RankOf(job, 0)->unacknowledged.size(), 19u);
  EXPECT_EQ(cluster.Stored(job).progress.steps_done, 1);
  cluster.Advance(1.5);
  EXPECT_EQ(cluster.updates(), updates + 1);
  EXPECT_EQ(cluster.Stored(job).progress.steps_done, 20);
  EXPECT_TRUE(cluster.RankOf(job, 0)->unacknowledged.empty());
  // A checkpoint is written, and acknowledged, at once.
  cluster.Say(job, 0, CheckpointReport{20, "/c/step-20", Bytes(1)});
  EXPECT_EQ(cluster.Stored(job).checkpoint_step, 20);
  EXPECT_TRUE(cluster.RankOf(job, 0)->unacknowledged.empty());
}

// Returns a plan of two stages that both have this program.
std::shared_ptr<const Plan> PlanWithPrograms(const std::string& program) {
  Plan plan = *MakeTestPlan(MakeSpec("gpt", 2, 2), {1, 2, 1});
  for (StagePlan& stage : plan.stages) stage.program = ParseProgram(program).value();
  return std::make_shared<const Plan>(plan);
}

// Returns for each desired state of the node the number of ranks that it starts.
std::vector<int64_t> Starts(const FakeNode& node) {
  std::vector<int64_t> starts;
  for (const WorkerDesired& desired : node.wishes) {
    const auto start = [](const RankAssignment& rank) { return rank.peers != nullptr && !rank.started; };
    starts.push_back(std::count_if(desired.ranks.begin(), desired.ranks.end(), start));
  }
  return starts;
}

TEST(ControllerJobsTest, ProgramsGoToTheNodeWhenTheirRanksAreStarted) {
  Cluster cluster;
  cluster.AddNode("n0");
  const JobId job = cluster.Submit(MakeSpec("gpt", 2, 2));
  cluster.MeasureAll();
  cluster.AnswerPlansWith(PlanWithPrograms("0F0:e.embed 0OPT"));
  cluster.AllReady(job);
  EXPECT_THAT(Starts(cluster.Node("n0")), ::testing::Contains(2));
  cluster.Node("n0").wishes.clear();
  cluster.Advance(2);
  for (int64_t step = 0; step < 5; ++step) {
    cluster.StepAll(job, step);
    cluster.Advance(1.5);
  }
  ASSERT_GE(cluster.Node("n0").wishes.size(), 5u) << "acknowledgements";
  EXPECT_THAT(Starts(cluster.Node("n0")), ::testing::Each(0));
}

TEST(ControllerJobsTest, ProgramsBeyondOneMessageStartOneAfterTheOther) {
  const std::string program = "0F0:e.embed 0OPT";
  Cluster cluster({.most_program_text = Bytes(static_cast<int64_t>(program.size()) * 3 / 2)});
  cluster.AddNode("n0");
  const JobId job = cluster.Submit(MakeSpec("gpt", 2, 2));
  cluster.MeasureAll();
  cluster.AnswerPlansWith(PlanWithPrograms(program));
  EXPECT_THAT(Starts(cluster.Node("n0")), ::testing::Each(::testing::Le(1)));
  for (int32_t rank = 0; rank < 2; ++rank) EXPECT_EQ(cluster.RankOf(job, rank)->seen.phase, RankPhase::kRunning);
}

TEST(ControllerJobsTest, AProgramThatNoMessageHoldsIsRefused) {
  Cluster cluster({.most_program_text = Bytes(10)});
  cluster.AddNode("n0");
  const JobId job = cluster.Submit(MakeSpec("gpt", 2, 2));
  cluster.MeasureAll();
  cluster.AnswerPlansWith(PlanWithPrograms("0F0:e.embed 0OPT"));
  EXPECT_EQ(cluster.State(job), JobState::kFailed);
  EXPECT_THAT(cluster.Record(job).reason,
              HasSubstr("the program of stage 0 takes 17 B as text for 16 microbatches, more than the 10 B that one "
                        "message to a node may hold"));
}

TEST(ControllerJobsTest, JobsThatEndedLongAgoAreForgotten) {
  Cluster cluster({.kept_jobs = 2});
  cluster.AddNode("n0");
  const JobId running = cluster.Run(MakeSpec("running", 2, 2), {2, 1, 1});
  std::vector<JobId> jobs;
  for (int i = 0; i < 5; ++i) {
    jobs.push_back(cluster.Submit(MakeSpec("short", 1, 1), "key" + std::to_string(i)));
    cluster.Advance(1);
  }
  // The jobs end in another order than they arrived: second, first, fourth, fifth.
  for (const size_t i : {1, 0, 3, 4}) {
    cluster.Cancel(jobs[i]);
    cluster.Advance(1);
  }
  const auto known = [&](const JobId& job) { return cluster.controller().Find(job) != nullptr; };
  EXPECT_FALSE(known(jobs[0]) || known(jobs[1]));
  EXPECT_TRUE(known(jobs[2]) && known(jobs[3]) && known(jobs[4]) && known(running)) << "the newest, and what has not ended";
  EXPECT_EQ(cluster.StoredJobs(), 4u);
  EXPECT_EQ(cluster.controller().Resolve(jobs[0].value, "").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(cluster.controller().List(100, {}).size(), 4u);
  EXPECT_NE(cluster.Submit(MakeSpec("short", 1, 1), "key0"), jobs[0]) << "its key is free";
  cluster.RestartServer();
  EXPECT_EQ(cluster.StoredJobs(), 5u);
  EXPECT_TRUE(known(jobs[3]) && known(running));
}

TEST(ControllerJobsTest, RepeatedReportsCountOnce) {
  Cluster cluster;
  cluster.AddNode("n0");
  const JobId job = cluster.Run(MakeSpec("gpt", 2, 2), {2, 1, 1});
  cluster.Say(job, 0, CheckpointReport{5, "/c/step-5", Bytes(1)});
  cluster.Report("n0");
  const FakeNode& node = cluster.Node("n0");
  WorkerState again{.node = NodeId("n0"), .boot = "w", .address = "10.0.0.1"};
  for (const auto& [key, rank] : node.ranks) {
    again.ranks.push_back(rank.seen);
    again.messages.push_back({key, 1, CheckpointReport{5, "/c/step-5", Bytes(1)}});
  }
  cluster.Send(WorkerReported{node.worker_stream, "10.0.0.1", again});
  EXPECT_EQ(cluster.checkpoints().size(), 1u);
}

}  // namespace
}  // namespace lynx::server
