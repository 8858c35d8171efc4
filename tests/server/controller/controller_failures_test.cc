// Tests ranks, nodes and streams that fail.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/controller/controller_fixture.h"

namespace lynx::server {
namespace {

using ::lynx::server::testing::Cluster;
using ::lynx::server::testing::FakeNode;
using ::lynx::server::testing::MakeSpec;
using ::testing::HasSubstr;

const ParallelLayout kFour{2, 2, 1};

Cluster& FourRanks(Cluster& cluster, JobId& job, int32_t max_restarts = 3) {
  cluster.AddNode("n0");
  cluster.AddNode("n1");
  JobSpec spec = MakeSpec("gpt", 4, 4);
  spec.max_restarts = max_restarts;
  job = cluster.Run(spec, kFour);
  return cluster;
}

TEST(ControllerFailuresTest, AKilledRankRestartsTheJobFromItsCheckpoint) {
  Cluster cluster;
  JobId job;
  FourRanks(cluster, job);
  for (int64_t step = 0; step < 8; ++step) cluster.StepAll(job, step);
  cluster.Say(job, 0, CheckpointReport{5, "/c/step-5", Bytes(1)});
  const std::vector<RankRecord> before = cluster.Record(job).ranks;
  cluster.Exit(job, 2, 137);
  EXPECT_EQ(cluster.State(job), JobState::kStarting);
  EXPECT_EQ(cluster.Record(job).generation, Generation(2));
  EXPECT_EQ(cluster.Record(job).restarts, 1);
  EXPECT_EQ(cluster.Record(job).reason, "rank 2 on node n1 was killed by signal 9");
  for (int32_t r = 0; r < 4; ++r) {
    ASSERT_NE(cluster.RankOf(job, r), nullptr);
    EXPECT_EQ(cluster.RankOf(job, r)->assignment.key.generation, Generation(2));
    EXPECT_EQ(cluster.RankOf(job, r)->assignment.resume_step, 5);
    EXPECT_EQ(cluster.Record(job).ranks[static_cast<size_t>(r)].where, before[static_cast<size_t>(r)].where);
  }
  cluster.AllReady(job, 5);
  EXPECT_EQ(cluster.State(job), JobState::kRunning);
  for (int64_t step = 5; step < 10; ++step) cluster.StepAll(job, step);
  EXPECT_EQ(cluster.Record(job).progress.steps_done, 10);
  cluster.FinishAll(job);
  EXPECT_EQ(cluster.State(job), JobState::kSucceeded);
  EXPECT_THAT(cluster.Kinds(job), HasSubstr("checkpoint rank-lost restarting running succeeded"));
}

// The reports of the newest checkpoints were lost with a machine, but the ranks found these checkpoints on the disk.
TEST(ControllerFailuresTest, RanksMayResumeFromANewerCheckpointThanTheServerKnew) {
  Cluster cluster;
  JobId job;
  FourRanks(cluster, job);
  for (int64_t step = 0; step < 4; ++step) cluster.StepAll(job, step);
  cluster.Exit(job, 2, 137);
  EXPECT_EQ(cluster.RankOf(job, 0)->assignment.resume_step, -1);
  cluster.Say(job, 0, CheckpointReport{60, "/c/step-60", Bytes(1)});
  cluster.AllReady(job, 60);
  EXPECT_EQ(cluster.State(job), JobState::kRunning);
  EXPECT_EQ(cluster.Events(job).back().reason, "all ranks run, from the checkpoint of step 60");
  EXPECT_EQ(cluster.Record(job).progress.steps_done, 60);
  EXPECT_EQ(cluster.Record(job).checkpoint_path, "/c/step-60");
  // The generation began at step 60 and did no new step. So its failure is charged twice: the charge is 1 + 2.
  cluster.Exit(job, 1, 137);
  cluster.Advance(3);
  EXPECT_EQ(cluster.Record(job).restart_charge, 3);
  EXPECT_EQ(cluster.RankOf(job, 0)->assignment.resume_step, 60);
  // If the ranks resume after the last step, they only have to report that they are done.
  cluster.AllReady(job, 100);
  cluster.FinishAll(job);
  EXPECT_EQ(cluster.State(job), JobState::kSucceeded);
  EXPECT_THAT(cluster.Record(job).reason, HasSubstr("100 steps done"));
}

// A node with a full disk refuses every rank at once.
TEST(ControllerFailuresTest, GenerationsThatTrainNothingFollowEachOtherEverMoreSlowly) {
  Cluster cluster({.restart_pause = Nanos(2'000'000'000), .most_restart_pause = Nanos(5'000'000'000)});
  JobId job;
  FourRanks(cluster, job, 1000);
  cluster.StepAll(job, 0);
  const auto fail = [&] { cluster.Exit(job, 2, 1, "cannot write config.json: No space left on device"); };
  fail();
  EXPECT_EQ(cluster.Record(job).generation, Generation(2)) << "it had trained";
  int64_t generation = 2;
  for (const double pause : {2.0, 4.0, 5.0, 5.0}) {
    fail();
    EXPECT_THAT(cluster.Record(job).reason, HasSubstr("No space left on device"));
    cluster.Advance(pause - 0.5);
    EXPECT_EQ(cluster.Record(job).generation, Generation(generation));
    cluster.Advance(1);
    EXPECT_EQ(cluster.Record(job).generation, Generation(++generation));
  }
  // If a generation trains, the pause before the next generation is short again.
  cluster.AllReady(job, 0);
  for (int64_t step = 0; step < 3; ++step) cluster.StepAll(job, step);
  fail();
  EXPECT_EQ(cluster.Record(job).generation, Generation(generation + 1));
  fail();
  cluster.Advance(3);
  EXPECT_EQ(cluster.Record(job).generation, Generation(generation + 2)) << "the first pause again";
  // A job that waits in such a pause can be cancelled.
  fail();
  cluster.Cancel(job);
  cluster.Advance(0.25);
  EXPECT_EQ(cluster.State(job), JobState::kCancelled);
}

TEST(ControllerFailuresTest, NoRankStartsWhileAnOldOneLives) {
  Cluster cluster;
  JobId job;
  FourRanks(cluster, job);
  cluster.Node("n0").obedient = false;
  cluster.Exit(job, 2, 137);
  EXPECT_EQ(cluster.State(job), JobState::kRunning);
  EXPECT_EQ(cluster.Record(job).generation, Generation(1));
  EXPECT_THAT(cluster.Record(job).reason, HasSubstr("stopping: rank 2 on node n1 was killed by signal 9"));
  cluster.Node("n0").obedient = true;
  cluster.Settle();
  EXPECT_EQ(cluster.Record(job).generation, Generation(2));
}

TEST(ControllerFailuresTest, TheCulpritIsNamedNotItsVictims) {
  Cluster cluster;
  JobId job;
  FourRanks(cluster, job);
  cluster.Say(job, 0, RankFailure{"rank 3 closed the connection", true});
  cluster.Exit(job, 0, 3, "rank 3 closed the connection", true);
  EXPECT_EQ(cluster.Record(job).stop, StopKind::kNone) << "the one at fault may still report";
  cluster.Say(job, 3, RankFailure{"out of memory", false});
  EXPECT_EQ(cluster.Record(job).generation, Generation(2));
  EXPECT_EQ(cluster.Record(job).reason, "rank 3 on node n1: out of memory");
}

TEST(ControllerFailuresTest, VictimsAloneRestartAfterAGrace) {
  Cluster cluster({.culprit_grace = Nanos(2'000'000'000)});
  JobId job;
  FourRanks(cluster, job);
  cluster.Say(job, 1, RankFailure{"rank 2 closed the connection", true});
  cluster.Advance(1.5);
  EXPECT_EQ(cluster.Record(job).generation, Generation(1));
  cluster.Advance(1);
  EXPECT_EQ(cluster.Record(job).generation, Generation(2));
  EXPECT_EQ(cluster.Record(job).reason, "rank 1 on node n0: rank 2 closed the connection");
}

// All other ranks ended because rank 2 sent them nothing. The process of rank 2 still lives, but reports nothing.
TEST(ControllerFailuresTest, ARankThatHangsIsNamed) {
  Cluster cluster({.culprit_grace = Nanos(2'000'000'000)});
  JobId job;
  FourRanks(cluster, job);
  for (const int32_t rank : {0, 1, 3}) {
    cluster.Say(job, rank, RankFailure{"not a byte moved between rank 0 and rank 1 for 10.0 s", true});
    cluster.Exit(job, rank, 3, "", true);
  }
  cluster.Advance(2.5);
  EXPECT_EQ(cluster.Record(job).generation, Generation(2));
  EXPECT_EQ(cluster.Record(job).reason,
            "rank 2 on node n1 neither went on nor ended when others gave up: rank 0 on node n0: not a byte moved "
            "between rank 0 and rank 1 for 10.0 s");
}

TEST(ControllerFailuresTest, RanksThatWereToldToStopAreNotBlamed) {
  Cluster cluster;
  JobId job;
  FourRanks(cluster, job);
  cluster.Node("n0").obedient = cluster.Node("n1").obedient = false;
  cluster.Exit(job, 3, 1, "cannot write");
  cluster.Exit(job, 0, 143);
  cluster.Exit(job, 1, 4);
  cluster.Exit(job, 2, 137);
  EXPECT_EQ(cluster.Record(job).generation, Generation(2));
  EXPECT_EQ(cluster.Record(job).reason, "rank 3 on node n1: cannot write");
}

TEST(ControllerFailuresTest, TheReasonHoldsTheLastLines) {
  Cluster cluster;
  JobId job;
  FourRanks(cluster, job);
  const RankKey key{job, Generation(1), 2};
  cluster.Node("n1").logs = {{key, {"one", "two", "three", "four"}}};
  cluster.Exit(job, 2, 134);
  EXPECT_EQ(cluster.Record(job).reason, "rank 2 on node n1 was killed by signal 6; its last lines: two | three | four");
  EXPECT_EQ(cluster.controller().logs().Last(job, {.limit = 2}).size(), 2u);
  EXPECT_EQ(cluster.controller().logs().Last(job, {.rank = 1, .limit = 2}).size(), 0u);
  ASSERT_TRUE(cluster.controller().logs().FirstFailure(job).has_value());
  EXPECT_EQ(cluster.controller().logs().FirstFailure(job)->rank, 2);
  EXPECT_EQ(cluster.controller().logs().FirstFailure(job)->generation, Generation(1));
}

TEST(ControllerFailuresTest, AFirstFaultBeforeTrainingFailsAtOnce) {
  Cluster cluster;
  cluster.AddNode("n0");
  const JobId job = cluster.Submit(MakeSpec("gpt", 2, 2));
  cluster.MeasureAll();
  cluster.AnswerPlans({2, 1, 1});
  cluster.Say(job, 1, RankFailure{"cannot read /data/text: No such file or directory", false});
  EXPECT_EQ(cluster.State(job), JobState::kFailed);
  EXPECT_EQ(cluster.Record(job).reason, "rank 1 on node n0: cannot read /data/text: No such file or directory");
  EXPECT_EQ(cluster.Record(job).restarts, 0);
  EXPECT_EQ(cluster.RankOf(job, 0), nullptr);
}

TEST(ControllerFailuresTest, TheRestartBudgetIsBounded) {
  Cluster cluster;
  JobId job;
  FourRanks(cluster, job, 3);
  int64_t step = 0;
  for (int failure = 0; failure < 3; ++failure) {
    cluster.StepAll(job, step++);
    cluster.Exit(job, 1, 137);
    ASSERT_EQ(cluster.State(job), JobState::kStarting) << failure;
    cluster.AllReady(job);
  }
  cluster.StepAll(job, step++);
  cluster.Exit(job, 1, 137);
  EXPECT_EQ(cluster.State(job), JobState::kFailed);
  EXPECT_EQ(cluster.Record(job).restarts, 3);
  EXPECT_THAT(cluster.Record(job).reason, HasSubstr("killed by signal 9; after 3 restarts the budget, max_restarts 3"));
}

TEST(ControllerFailuresTest, RestartsWithoutANewStepCountTwice) {
  Cluster cluster;
  JobId job;
  FourRanks(cluster, job, 3);
  cluster.StepAll(job, 0);
  cluster.Exit(job, 1, 137);  // the restart charge is now 1
  ASSERT_EQ(cluster.State(job), JobState::kStarting);
  cluster.Exit(job, 1, 137);  // no new step, so the charge grows by 2 to 3
  cluster.Advance(3);
  ASSERT_EQ(cluster.State(job), JobState::kStarting);
  cluster.StepAll(job, 0);    // step 0 was done before, so it is no new step
  cluster.Exit(job, 1, 137);  // the charge is now 5, more than the budget of 3
  EXPECT_EQ(cluster.State(job), JobState::kFailed);
  EXPECT_EQ(cluster.Record(job).restarts, 2);
}

TEST(ControllerFailuresTest, WithoutRestartsTheFirstLossFails) {
  Cluster cluster;
  JobId job;
  FourRanks(cluster, job, 0);
  cluster.StepAll(job, 0);
  cluster.Exit(job, 3, 137);
  EXPECT_EQ(cluster.State(job), JobState::kFailed);
  EXPECT_EQ(cluster.RankOf(job, 0), nullptr) << "no survivor";
}

TEST(ControllerFailuresTest, ARankThatDoesNotListenIsARestart) {
  Cluster cluster({.listen_timeout = Nanos(10'000'000'000)});
  cluster.AddNode("n0");
  cluster.AddNode("n1");
  cluster.Node("n1").obedient = false;
  const JobId job = cluster.Submit(MakeSpec("gpt", 4, 4));
  cluster.MeasureAll();
  cluster.AnswerPlans(kFour);
  cluster.Advance(9);
  EXPECT_EQ(cluster.Record(job).generation, Generation(1));
  cluster.Advance(2);
  EXPECT_EQ(cluster.Record(job).generation, Generation(2));
  EXPECT_EQ(cluster.Record(job).reason, "rank 2 on node n1 did not come up within 10.00 s");
}

TEST(ControllerFailuresTest, ALostStreamIsNotALostNode) {
  Cluster cluster({.node_timeout = Nanos(60'000'000'000)});
  JobId job;
  FourRanks(cluster, job);
  cluster.DetachWorker("n1");
  cluster.Advance(50, 1);
  EXPECT_EQ(cluster.State(job), JobState::kRunning);
  cluster.Node("n1").worker_boot = "another";  // the daemon restarted, and its ranks continue
  cluster.AttachWorker("n1");
  cluster.Settle();
  cluster.StepAll(job, 0);
  cluster.Advance(60, 1);
  EXPECT_EQ(cluster.State(job), JobState::kRunning);
  EXPECT_EQ(cluster.Record(job).generation, Generation(1));
  EXPECT_EQ(cluster.RankOf(job, 3)->seen.phase, RankPhase::kRunning);
}

TEST(ControllerFailuresTest, ALostNodesJobMovesElsewhere) {
  Cluster cluster;
  JobId job;
  FourRanks(cluster, job);
  cluster.StepAll(job, 0);
  cluster.Say(job, 0, CheckpointReport{1, "/c/step-1", Bytes(1)});
  cluster.AddNode("n2");
  cluster.DetachWorker("n1");
  cluster.Advance(61, 1);
  EXPECT_EQ(cluster.Record(job).generation, Generation(2));
  EXPECT_EQ(cluster.NodeOfRank(job, 0), "n0");
  EXPECT_EQ(cluster.NodeOfRank(job, 3), "n2");
  EXPECT_EQ(cluster.RankOf(job, 0)->assignment.resume_step, 1);
  EXPECT_THAT(cluster.Kinds(job), HasSubstr("node-lost restarting"));
  // The node comes back with its old ranks. They are not in its desired state, so they end.
  cluster.AttachWorker("n1");
  cluster.Settle();
  EXPECT_TRUE(cluster.Node("n1").ranks.empty());
  EXPECT_EQ(cluster.Record(job).generation, Generation(2));
}

TEST(ControllerFailuresTest, ALostNodesJobWaitsForDevices) {
  Cluster cluster;
  JobId job;
  FourRanks(cluster, job);
  const JobId later = cluster.Submit(MakeSpec("later", 1, 1));
  cluster.DetachWorker("n1");
  cluster.Advance(61, 1);
  EXPECT_EQ(cluster.State(job), JobState::kQueued);
  EXPECT_EQ(cluster.Record(job).restarts, 1);
  EXPECT_EQ(cluster.State(later), JobState::kQueued) << "the older job comes first";
  EXPECT_THAT(cluster.Record(job).reason, HasSubstr("waits for 4 devices"));
  EXPECT_THAT(cluster.Events(job).back().reason, HasSubstr("node n1 has not been heard of for 1m00s"));
  cluster.RestartServer();
  EXPECT_EQ(cluster.State(job), JobState::kQueued);
  for (const char* node : {"n0", "n1"}) {
    cluster.AttachAgent(node);
    cluster.AttachWorker(node);
  }
  cluster.Settle();
  EXPECT_EQ(cluster.State(job), JobState::kStarting) << "its plan is kept";
  EXPECT_EQ(cluster.Record(job).generation, Generation(2));
  EXPECT_TRUE(cluster.plans().empty());
}

TEST(ControllerFailuresTest, ANodeThatNeverComesBackAfterARestartIsLost) {
  Cluster cluster;
  JobId job;
  FourRanks(cluster, job);
  cluster.RestartServer();
  cluster.AttachAgent("n0");
  cluster.AttachWorker("n0");
  cluster.Advance(59, 1);
  EXPECT_EQ(cluster.State(job), JobState::kRunning);
  cluster.Advance(2, 1);
  EXPECT_EQ(cluster.State(job), JobState::kQueued);
  EXPECT_THAT(cluster.Kinds(job), HasSubstr("server-restarted node-lost restarting"));
}

TEST(ControllerFailuresTest, AMachineThatRebootedLostItsRanks) {
  Cluster cluster;
  JobId job;
  FourRanks(cluster, job);
  cluster.StepAll(job, 0);
  cluster.DetachWorker("n1");
  cluster.Node("n1").ranks.clear();
  cluster.Node("n1").worker_boot = "another";
  cluster.AttachWorker("n1");  // it binds new sockets for the ranks that it must run
  cluster.Settle();
  EXPECT_EQ(cluster.Record(job).generation, Generation(2));
  EXPECT_THAT(cluster.Record(job).reason, HasSubstr("the worker daemon or the machine restarted without it"));
  cluster.AllReady(job);
  EXPECT_EQ(cluster.State(job), JobState::kRunning);
}

TEST(ControllerFailuresTest, ADaemonThatRestartsWhileRanksStartIsARestart) {
  Cluster cluster;
  cluster.AddNode("n0");
  cluster.AddNode("n1");
  const JobId job = cluster.Submit(MakeSpec("gpt", 4, 4));
  cluster.MeasureAll();
  cluster.Node("n1").obedient = false;
  cluster.AnswerPlans(kFour);
  // n1 listens and receives the addresses of the peers. But it loses its sockets before it starts the processes.
  FakeNode& node = cluster.Node("n1");
  WorkerState listening{.node = NodeId("n1"), .boot = "w", .address = "10.0.0.1"};
  for (int32_t r = 2; r < 4; ++r) {
    listening.ranks.push_back({.key = {job, Generation(1), r}, .host = "10.0.0.1", .port = 9000 + r});
  }
  cluster.Send(WorkerReported{node.worker_stream, "10.0.0.1", listening});
  EXPECT_EQ(cluster.Record(job).ranks[2].port, 9002);
  listening.ranks[0].port = 9100;
  cluster.Send(WorkerReported{node.worker_stream, "10.0.0.1", listening});
  EXPECT_EQ(cluster.Record(job).stop, StopKind::kRestart);
  node.obedient = true;
  cluster.Settle();
  cluster.ReportAll();
  EXPECT_EQ(cluster.Record(job).generation, Generation(2));
}

TEST(ControllerFailuresTest, OldGenerationsAreRefusedAndAcknowledged) {
  Cluster cluster;
  JobId job;
  FourRanks(cluster, job);
  cluster.StepAll(job, 0);
  cluster.Exit(job, 1, 137);
  ASSERT_EQ(cluster.Record(job).generation, Generation(2));
  cluster.AddOrphan("n0", {{job, Generation(1), 0}, 99, CheckpointReport{50, "/old", Bytes(1)}});
  cluster.AddOrphan("n0", {{JobId("unknown"), Generation(1), 0}, 3, RankDone{1}});
  cluster.Report("n0");
  EXPECT_EQ(cluster.Record(job).checkpoint_step, -1);
  EXPECT_TRUE(cluster.Strays("n0").empty()) << "acknowledged, so that they are not sent for ever";
}

TEST(ControllerFailuresTest, AGenerationThatIsStoppedResumesFromTheCheckpointOfItsLastMoment) {
  Cluster cluster;
  JobId job;
  FourRanks(cluster, job);
  cluster.StepAll(job, 0);
  cluster.RankOf(job, 0)->last_words = RankMessage{.report = CheckpointReport{1, "/c/step-1", Bytes(1)}};
  cluster.Exit(job, 3, 137);
  ASSERT_EQ(cluster.Record(job).generation, Generation(2));
  EXPECT_EQ(cluster.Record(job).resume_step, 1);
}

TEST(ControllerFailuresTest, EndedRanksAreReleasedWhenTheirGenerationIsOverAndNotBefore) {
  Cluster cluster;
  JobId job;
  FourRanks(cluster, job);
  cluster.Node("n0").obedient = false;
  cluster.Exit(job, 2, 137);
  ASSERT_EQ(cluster.Record(job).generation, Generation(1));
  EXPECT_FALSE(cluster.RankOf(job, 2)->released) << "what it said is still of use";
  cluster.Node("n0").obedient = true;
  cluster.Settle();
  ASSERT_EQ(cluster.Record(job).generation, Generation(2));
  for (const char* name : {"n0", "n1"}) {
    EXPECT_EQ(cluster.Node(name).ranks.size(), 2u) << name << ": only the new generation";
  }
  // The server also releases a rank of a job that it does not know, so the node forgets this rank.
  const RankKey unknown{JobId("unknown"), Generation(1), 0};
  cluster.Node("n0").ranks[unknown].seen = {.key = unknown, .phase = RankPhase::kExited};
  cluster.ReportAll();
  EXPECT_FALSE(cluster.Node("n0").ranks.contains(unknown));
}

TEST(ControllerFailuresTest, ACheckpointFailureIsAnEvent) {
  Cluster cluster;
  JobId job;
  FourRanks(cluster, job);
  cluster.Say(job, 0, CheckpointFailure{100, "No space left on device"});
  EXPECT_THAT(cluster.Events(job).back().reason, HasSubstr("the last one, so the ranks keep what they have and try"));
  cluster.Say(job, 0, CheckpointFailure{10, "No space left on device"});
  EXPECT_EQ(cluster.State(job), JobState::kRunning);
  EXPECT_EQ(cluster.Events(job).back().kind, "checkpoint-failed");
  EXPECT_THAT(cluster.Events(job).back().reason, HasSubstr("No space left on device"));
}

TEST(ControllerFailuresTest, ResumingFromCopiesInMemoryIsAnEventAndSoAreTheirTroubles) {
  Cluster cluster;
  JobId job;
  FourRanks(cluster, job);
  cluster.Exit(job, 3, 137);
  cluster.ReportAll();
  cluster.SayAll(job, [](int32_t) { return RankMessage{.report = RankReady{.next_step = 17, .from_copies = true}}; });
  EXPECT_EQ(cluster.State(job), JobState::kRunning);
  const auto events = cluster.Events(job);
  EXPECT_EQ(events.back().reason, "all ranks run, from copies of step 17 in memory");
  EXPECT_EQ(events[events.size() - 2].kind, "resumed");
  EXPECT_EQ(events[events.size() - 2].reason, "goes on at step 17, from copies of the states in the memory of nodes");
  cluster.Say(job, 0, CopiesNotice{"a node has no room for them"});
  EXPECT_EQ(cluster.Events(job).back().kind, "copies");
  EXPECT_EQ(cluster.Events(job).back().reason, "a node has no room for them");
}

// Between generations, a job's copies stay. If a job has ended, or if the server does not know it, its copies must be deleted.
TEST(ControllerFailuresTest, CopiesOfEndedAndUnknownJobsAreToGo) {
  Cluster cluster;
  JobId job;
  FourRanks(cluster, job);
  const std::string node = cluster.NodeOfRank(job, 0);
  cluster.Node(node).copies = {job};
  cluster.ReportAll();
  cluster.Exit(job, 3, 137);
  cluster.ReportAll();
  for (const WorkerDesired& desired : cluster.Node(node).wishes) EXPECT_TRUE(desired.ended.empty());
  cluster.Node(node).copies = {job, JobId("unknown")};
  cluster.ReportAll();
  EXPECT_EQ(cluster.Node(node).wishes.back().ended, std::vector<JobId>{JobId("unknown")});
  cluster.AllReady(job);
  cluster.Send(CancelRequested{0, job});
  cluster.ReportAll();
  EXPECT_EQ(cluster.State(job), JobState::kCancelled);
  EXPECT_THAT(cluster.Node(node).wishes.back().ended, ::testing::UnorderedElementsAre(job, JobId("unknown")));
}

TEST(ControllerFailuresTest, AStepWithoutItsUpdateIsAnEvent) {
  Cluster cluster;
  JobId job;
  FourRanks(cluster, job);
  cluster.Say(job, 0, StepSkipped{10, "the loss is nan, by what rank 2 adds to it"});
  EXPECT_EQ(cluster.State(job), JobState::kRunning);
  EXPECT_EQ(cluster.Events(job).back().kind, "step-skipped");
  EXPECT_EQ(cluster.Events(job).back().reason, "step 10 changed no weight: the loss is nan, by what rank 2 adds to it");
}

TEST(ControllerFailuresTest, TheNewestEvaluationIsPartOfTheProgress) {
  Cluster cluster;
  JobId job;
  FourRanks(cluster, job);
  cluster.Say(job, 0, EvaluationReport{20, 3.5});
  EXPECT_EQ(cluster.Record(job).progress.validation_step, 20);
  EXPECT_EQ(cluster.Record(job).progress.validation_loss, 3.5);
  cluster.Say(job, 0, EvaluationReport{40, 3.25});
  EXPECT_EQ(cluster.Record(job).progress.validation_step, 40);
  EXPECT_EQ(cluster.Record(job).progress.validation_loss, 3.25);
}

TEST(ControllerFailuresTest, ADoneRankThatDoesNotExitDoesNotHoldTheJob) {
  Cluster cluster({.exit_grace = Nanos(10'000'000'000)});
  JobId job;
  FourRanks(cluster, job);
  for (int32_t r = 0; r < 4; ++r) cluster.Say(job, r, RankDone{100});
  EXPECT_EQ(cluster.State(job), JobState::kRunning);
  cluster.Advance(11);
  EXPECT_EQ(cluster.State(job), JobState::kSucceeded);
}

TEST(ControllerFailuresTest, AnExitWithoutALastReportCountsAfterAGrace) {
  Cluster cluster({.exit_grace = Nanos(10'000'000'000)});
  JobId job;
  FourRanks(cluster, job);
  for (int32_t r = 0; r < 4; ++r) cluster.Exit(job, r, 0);
  EXPECT_EQ(cluster.State(job), JobState::kRunning) << "reports may be on their way";
  cluster.Advance(11);
  EXPECT_EQ(cluster.State(job), JobState::kSucceeded);
}

TEST(ControllerFailuresTest, AWorkDoneBeforeItsNodeIsLostIsDone) {
  Cluster cluster;
  JobId job;
  FourRanks(cluster, job);
  cluster.Say(job, 2, RankDone{100});
  cluster.Say(job, 3, RankDone{100});
  cluster.DetachWorker("n1");
  for (int32_t r : {0, 1}) {
    cluster.Say(job, r, RankDone{100});
    cluster.Exit(job, r, 0);
  }
  cluster.Advance(61, 1);
  EXPECT_EQ(cluster.State(job), JobState::kSucceeded);
}

TEST(ControllerFailuresTest, CancelOfAJobOnALostNodeEnds) {
  Cluster cluster;
  JobId job;
  FourRanks(cluster, job);
  cluster.DetachWorker("n1");
  cluster.Cancel(job);
  EXPECT_EQ(cluster.State(job), JobState::kRunning);
  cluster.Advance(61, 1);
  EXPECT_EQ(cluster.State(job), JobState::kCancelled);
}

TEST(ControllerStreamsTest, OneLiveStreamPerNode) {
  Cluster cluster;
  cluster.AddNode("n0");
  const FakeNode& node = cluster.Node("n0");
  AgentState state = node.agent;
  state.boot = "someone else";
  cluster.Send(AgentReported{100, "10.0.0.1", state});
  ASSERT_TRUE(cluster.closed().contains(100));
  EXPECT_EQ(cluster.closed().at(100).code(), absl::StatusCode::kAlreadyExists);
  cluster.Send(AgentReported{101, "10.0.0.2", node.agent});
  EXPECT_EQ(cluster.closed().at(101).code(), absl::StatusCode::kAlreadyExists);
  // The process of the node's present agent opens a second stream. The newer stream is used.
  cluster.Send(AgentReported{102, "10.0.0.1", node.agent});
  EXPECT_FALSE(cluster.closed().contains(102));
  EXPECT_EQ(cluster.closed().at(node.agent_stream).code(), absl::StatusCode::kAborted);
  cluster.Send(AgentGone{node.agent_stream});  // the old stream ends, which changes nothing
  EXPECT_TRUE(cluster.controller().Nodes().at(0).agent_attached);
  cluster.Send(AgentGone{102});
  EXPECT_FALSE(cluster.controller().Nodes().at(0).agent_attached);
}

TEST(ControllerStreamsTest, AStreamKeepsItsNode) {
  Cluster cluster;
  cluster.AddNode("n0");
  AgentState state = cluster.Node("n0").agent;
  state.node = NodeId("n7");
  cluster.Send(AgentReported{cluster.Node("n0").agent_stream, "10.0.0.1", state});
  EXPECT_EQ(cluster.closed().at(cluster.Node("n0").agent_stream).code(), absl::StatusCode::kInvalidArgument);
}

TEST(ControllerStreamsTest, NodesAreBoundedAndIdleOnesForgotten) {
  Cluster cluster({.max_nodes = 1});
  cluster.AddNode("n0");
  AgentState state = cluster.Node("n0").agent;
  state.node = NodeId("n1");
  cluster.Send(AgentReported{100, "10.0.0.1", state});
  EXPECT_EQ(cluster.closed().at(100).code(), absl::StatusCode::kResourceExhausted);
  cluster.DetachAgent("n0");
  cluster.DetachWorker("n0");
  cluster.Advance(500, 50);
  EXPECT_EQ(cluster.controller().Nodes().size(), 1u);
  cluster.Advance(200, 50);
  EXPECT_TRUE(cluster.controller().Nodes().empty());
}

}  // namespace
}  // namespace lynx::server
