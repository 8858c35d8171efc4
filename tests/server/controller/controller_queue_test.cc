// Tests which job gets devices first, which job may overtake, which job must give way, and what the server says about it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/controller/controller_steps.h"

namespace lynx::server {
namespace {

using ::lynx::server::testing::Answer;
using ::lynx::server::testing::Cluster;
using ::lynx::server::testing::GiveWay;
using ::lynx::server::testing::kFour;
using ::lynx::server::testing::kOne;
using ::lynx::server::testing::kTwo;
using ::lynx::server::testing::MakeSpec;
using ::lynx::server::testing::PlanOf;
using ::lynx::server::testing::RunSteps;
using ::testing::HasSubstr;
using ::testing::Not;

JobSpec Spec(const std::string& name, int32_t ranks, int32_t priority = 0, const std::string& queue = "default") {
  JobSpec spec = MakeSpec(name, ranks, ranks);
  spec.train.steps = 10'000;
  spec.scheduling.priority = priority;
  spec.scheduling.queue = queue;
  return spec;
}

std::string Kind(const JobRecord& record) {
  std::string kinds;
  for (const PendingReason& reason : record.pending) kinds += (kinds.empty() ? "" : " ") + reason.kind;
  return kinds;
}

// Two nodes with two devices each. One job uses all of them. By default its plan says 10 ms per step, but a step takes 100 ms.
struct Full {
  Cluster cluster;
  JobId running;
  explicit Full(const JobSpec& spec = Spec("running", 4), int64_t step_millis = 10) {
    cluster.AddNode("n0");
    cluster.AddNode("n1");
    running = RunSteps(cluster, spec, kFour, 6, step_millis);
  }
};

TEST(ControllerQueue, AHigherPriorityGoesFirst) {
  Full full;
  Cluster& cluster = full.cluster;
  const JobId low = cluster.Submit(Spec("low", 4)), high = cluster.Submit(Spec("high", 4, 0));
  EXPECT_THAT(cluster.Record(high).reason, HasSubstr("1 job is ahead, the first is low (" + low.value + ")"));
  const JobId urgent = cluster.Submit([] {
    JobSpec spec = Spec("urgent", 4, 5);
    return spec;
  }());
  EXPECT_THAT(cluster.Record(low).reason, HasSubstr("ahead, the first is urgent"));
  cluster.Cancel(full.running);
  EXPECT_EQ(cluster.State(urgent), JobState::kPlanning);
  EXPECT_EQ(cluster.State(low), JobState::kQueued);
}

TEST(ControllerQueue, APendingJobSaysAllReasonsAndWhenItBegins) {
  Full full;
  Cluster& cluster = full.cluster;
  const JobId first = cluster.Submit(Spec("first", 3)), second = cluster.Submit(Spec("second", 2));
  EXPECT_EQ(Kind(cluster.Record(first)), "capacity");
  EXPECT_THAT(cluster.Record(first).reason, HasSubstr("waits for 3 devices; of 4 devices 0 are free"));
  // The running job has 9,994 steps left, each of 100 ms (as measured).
  EXPECT_EQ(cluster.Record(first).expected_start, Nanos(1'000'000'000'000) + Nanos(999'400'000'000));
  EXPECT_EQ(cluster.Record(second).expected_start, Nanos(0));
  EXPECT_EQ(Kind(cluster.Record(second)), "ahead capacity");
  const JobId large = cluster.Submit(Spec("large", 5));
  EXPECT_EQ(cluster.State(large), JobState::kQueued);
  cluster.Cancel(full.running);
  cluster.MeasureAll();
  Answer(cluster, ParallelLayout{1, 3, 1}, 10);
  EXPECT_EQ(cluster.State(first), JobState::kStarting);
  EXPECT_EQ(Kind(cluster.Record(second)), "capacity near-miss");
  EXPECT_THAT(cluster.Record(second).reason, HasSubstr("could begin now with 1 rank"));
  EXPECT_TRUE(cluster.Record(first).pending.empty());
}

TEST(ControllerQueue, AJobThatIsTooLargeForTheClusterHoldsUpNobody) {
  Cluster cluster;
  cluster.AddNode("n0");
  const JobId large = cluster.Submit(Spec("large", 5));
  EXPECT_EQ(Kind(cluster.Record(large)), "structural near-miss");
  EXPECT_THAT(cluster.Record(large).reason, HasSubstr("but the attached nodes have 2; attach more nodes"));
  const JobId small = cluster.Submit(Spec("small", 2));
  EXPECT_EQ(cluster.State(small), JobState::kPlanning);
}

TEST(ControllerQueue, AJobThatLostItsNodeKeepsItsPlaceForAWhile) {
  Full full(Spec("running", 4));
  Cluster& cluster = full.cluster;
  const JobId small = cluster.Submit(Spec("small", 2));
  cluster.DetachWorker("n1");
  cluster.Advance(61, 1);
  EXPECT_EQ(cluster.State(full.running), JobState::kQueued);
  EXPECT_EQ(cluster.State(small), JobState::kQueued) << "the node may be back soon";
  cluster.Advance(121, 1);
  EXPECT_EQ(cluster.State(small), JobState::kPlanning) << "but not for ever";
}

// Three of four devices are in use for about 100 s. The first job in the queue needs all four.
struct WithRoom {
  Cluster cluster;
  JobId running, head;
  WithRoom() {
    cluster.AddNode("n0");
    cluster.AddNode("n1");
    JobSpec spec = Spec("running", 3);
    spec.train.steps = 1'000;
    running = RunSteps(cluster, spec, ParallelLayout{1, 3, 1}, 6);
    head = cluster.Submit(Spec("head", 4));
  }
};

TEST(ControllerQueue, AJobPassesIfItsTimeLimitEndsBeforeTheFirstInLineBegins) {
  WithRoom room;
  JobSpec shorter = Spec("shorter", 1), longer = Spec("longer", 1);
  shorter.scheduling.time_limit = Nanos(60'000'000'000);
  longer.scheduling.time_limit = Nanos(600'000'000'000);
  const JobId second = room.cluster.Submit(longer);
  room.cluster.MeasureAll();
  room.cluster.AnswerPlansWith(PlanOf(longer, kOne, 100));
  EXPECT_EQ(room.cluster.State(second), JobState::kQueued) << "it would take 1,000 s, at most 600";
  const JobId third = room.cluster.Submit(shorter);
  EXPECT_EQ(room.cluster.State(third), JobState::kPlanning);
}

TEST(ControllerQueue, AJobIsPlannedToSeeWhetherItMayPass) {
  WithRoom room;
  Cluster& cluster = room.cluster;
  JobSpec spec = Spec("brief", 1);
  spec.train.steps = 100;
  const JobId brief = cluster.Submit(spec);
  EXPECT_EQ(cluster.State(brief), JobState::kPlanning);
  cluster.MeasureAll();
  cluster.AnswerPlansWith(PlanOf(spec, kOne, 100));  // the job needs 10 s
  EXPECT_EQ(cluster.State(brief), JobState::kStarting);
  EXPECT_THAT(cluster.Kinds(brief), HasSubstr("planned queued placed"));
  EXPECT_EQ(cluster.State(room.head), JobState::kQueued);
}

TEST(ControllerQueue, AJobThatWouldDelayTheFirstInLineWaitsWithItsPlan) {
  WithRoom room;
  Cluster& cluster = room.cluster;
  const JobId lengthy = cluster.Submit(Spec("lengthy", 1));
  cluster.MeasureAll();
  cluster.AnswerPlansWith(PlanOf(Spec("lengthy", 1), kOne, 100));  // the job needs 1,000 s
  EXPECT_EQ(cluster.State(lengthy), JobState::kQueued);
  EXPECT_THAT(cluster.Events(lengthy).back().reason, HasSubstr("takes about 16m40s"));
  EXPECT_THAT(cluster.Record(lengthy).reason, HasSubstr("1 job is ahead, the first is head"));
  EXPECT_THAT(cluster.Record(lengthy).reason, Not(HasSubstr("network's rate"))) << "its devices are there; it may not pass";
  EXPECT_TRUE(cluster.plans().empty()) << "it is planned once";
  cluster.Cancel(room.running);
  EXPECT_EQ(cluster.State(room.head), JobState::kPlanning);
  cluster.AddNode("n2");
  EXPECT_EQ(cluster.State(lengthy), JobState::kStarting) << "nobody is before it for these";
  EXPECT_TRUE(cluster.plans().size() == 1) << "the head's";
}

TEST(ControllerQueue, AJobPassesOnDevicesThatTheFirstInLineWillNotHave) {
  Cluster cluster;
  cluster.AddNode("n0");
  cluster.AddNode("n1", 1);
  const JobId running = RunSteps(cluster, Spec("running", 2), kTwo, 6);
  JobSpec head = Spec("head", 2);
  head.parallel.tp = 2;  // both ranks must be inside one node: on n0, when n0 is free
  const JobId first = cluster.Submit(head);
  EXPECT_EQ(cluster.State(first), JobState::kQueued);
  EXPECT_EQ(cluster.Record(running).ranks.front().where.node, NodeId("n0"));
  const JobId other = cluster.Submit(Spec("other", 1));
  EXPECT_EQ(cluster.State(other), JobState::kPlanning) << "n1 is of no use to the first";
}

TEST(ControllerQueue, PlanningToPassKeepsNobodyWaiting) {
  WithRoom room;
  Cluster& cluster = room.cluster;
  const JobId brief = cluster.Submit(Spec("brief", 1));
  EXPECT_EQ(cluster.State(brief), JobState::kPlanning);
  cluster.Cancel(room.running);
  EXPECT_EQ(cluster.State(brief), JobState::kQueued);
  EXPECT_THAT(cluster.Events(brief).back().reason, HasSubstr("makes room for head"));
  EXPECT_EQ(cluster.State(room.head), JobState::kPlanning);
}

TEST(ControllerQueue, AHigherPriorityMakesJobsGiveWay) {
  Full full;
  Cluster& cluster = full.cluster;
  const JobId urgent = cluster.Submit(Spec("urgent", 2, 10));
  EXPECT_EQ(cluster.Record(full.running).stop, StopKind::kPreempt);
  EXPECT_EQ(cluster.State(full.running), JobState::kRunning) << "with a checkpoint, so not at once";
  EXPECT_TRUE(cluster.RankOf(full.running, 0)->assignment.yield);
  EXPECT_THAT(cluster.Record(urgent).reason, HasSubstr("running (" + full.running.value + ") gives way to it"));
  cluster.Submit(Spec("later", 1));
  EXPECT_THAT(cluster.Record(urgent).reason, HasSubstr("running (" + full.running.value + ") gives way to it"));
  GiveWay(cluster, full.running, 7);
  EXPECT_EQ(cluster.State(full.running), JobState::kQueued);
  EXPECT_EQ(cluster.Record(full.running).preemptions, 1);
  EXPECT_EQ(cluster.Record(full.running).restarts, 0);
  EXPECT_EQ(cluster.State(urgent), JobState::kPlanning);
  cluster.MeasureAll();
  Answer(cluster, kTwo, 10);
  cluster.AllReady(urgent);
  EXPECT_THAT(cluster.Kinds(full.running), HasSubstr("running preempted checkpoint preempted"));
  cluster.FinishAll(urgent);
  EXPECT_EQ(cluster.State(full.running), JobState::kStarting) << "it goes on where it was";
  EXPECT_EQ(cluster.RankOf(full.running, 0)->assignment.resume_step, 7);
}

TEST(ControllerQueue, JobsThatMayNotBeAskedAreSpared) {
  JobSpec spec = Spec("running", 4);
  spec.scheduling.preemptible = false;
  Full full(spec);
  const JobId urgent = full.cluster.Submit(Spec("urgent", 2, 10));
  EXPECT_EQ(full.cluster.Record(full.running).stop, StopKind::kNone);
  EXPECT_EQ(full.cluster.State(urgent), JobState::kQueued);
}

TEST(ControllerQueue, AnEqualPriorityMakesNobodyGiveWay) {
  Full full;
  full.cluster.Submit(Spec("equal", 2));
  EXPECT_EQ(full.cluster.Record(full.running).stop, StopKind::kNone);
}

TEST(ControllerQueue, AJobThatCouldBeginSoonMakesNobodyGiveWay) {
  JobSpec spec = Spec("running", 4);
  spec.train.steps = 200;  // each step takes 100 ms
  Full full(spec);
  full.cluster.Submit(Spec("urgent", 2, 10));
  EXPECT_EQ(full.cluster.Record(full.running).stop, StopKind::kNone);
}

TEST(ControllerQueue, RanksThatDoNotGiveWayAreAskedAgainLater) {
  Full full;
  Cluster& cluster = full.cluster;
  cluster.Submit(Spec("urgent", 2, 10));
  cluster.Advance(59);
  EXPECT_EQ(cluster.Record(full.running).stop, StopKind::kPreempt);
  cluster.Advance(2);
  EXPECT_EQ(cluster.Record(full.running).stop, StopKind::kNone);
  EXPECT_FALSE(cluster.RankOf(full.running, 0)->assignment.yield);
  EXPECT_EQ(cluster.Events(full.running).back().kind, "goes-on");
  cluster.Submit(Spec("another", 1));
  EXPECT_EQ(cluster.Record(full.running).stop, StopKind::kNone) << "not at once";
  cluster.Advance(65);
  EXPECT_EQ(cluster.Record(full.running).stop, StopKind::kPreempt);
}

TEST(ControllerQueue, ThoseThatBorrowGiveWayToAQueueWithinItsQuota) {
  Cluster cluster;
  cluster.SetQueue({.name = "research", .quota = 2});
  cluster.SetQueue({.name = "product", .quota = 2});
  cluster.AddNode("n0");
  cluster.AddNode("n1");
  const JobId first = RunSteps(cluster, Spec("first", 2, 0, "research"), kTwo, 6);
  const JobId borrower = RunSteps(cluster, Spec("borrower", 2, 0, "research"), kTwo, 6);
  EXPECT_EQ(cluster.State(borrower), JobState::kRunning) << "nobody else waits";
  const JobId owner = cluster.Submit(Spec("owner", 2, 0, "product"));
  EXPECT_EQ(cluster.Record(borrower).stop, StopKind::kPreempt);
  EXPECT_EQ(cluster.Record(first).stop, StopKind::kNone) << "it is within its queue's quota";
  GiveWay(cluster, borrower, 7);
  EXPECT_EQ(cluster.State(owner), JobState::kPlanning);
  EXPECT_THAT(Kind(cluster.Record(borrower)), HasSubstr("quota"));
  EXPECT_THAT(cluster.Record(borrower).reason, HasSubstr("would borrow: queue research has a quota of 2 devices"));
}

// After the victim has given way, its queue has the smaller share. But the job for which it gave way must begin first.
TEST(ControllerQueue, ThoseForWhomOthersMadeRoomBeginBeforeThem) {
  Cluster cluster;
  cluster.AddNode("n0");
  cluster.AddNode("n1");
  RunSteps(cluster, Spec("first", 2, 10, "a"), kTwo, 6);
  const JobId victim = RunSteps(cluster, Spec("victim", 2, 0, "b"), kTwo, 6);
  const JobId head = cluster.Submit(Spec("head", 2, 10, "a"));
  EXPECT_EQ(cluster.Record(victim).stop, StopKind::kPreempt);
  GiveWay(cluster, victim, 7);
  EXPECT_EQ(cluster.State(head), JobState::kPlanning);
  EXPECT_EQ(cluster.State(victim), JobState::kQueued);
}

TEST(ControllerQueue, OnlyThoseMakeRoomWhoseDevicesAreOfUse) {
  Cluster cluster;
  cluster.AddNode("n0");
  cluster.AddNode("n1");
  const JobId low = RunSteps(cluster, Spec("low", 2), kTwo, 6);
  const JobId other = RunSteps(cluster, Spec("other", 2, 20), kTwo, 6);
  cluster.SetCordon(cluster.NodeOfRank(low, 0), Cordon{});
  cluster.Submit(Spec("head", 2, 10));
  EXPECT_EQ(cluster.Record(low).stop, StopKind::kNone) << "its node gets no new ranks";
  EXPECT_EQ(cluster.Record(other).stop, StopKind::kNone);
}

TEST(ControllerQueue, AJobSaysThatTheFreeDevicesAreOfNodesThatAreNotUsedTogether) {
  Cluster cluster;
  const auto on_gpus = [](JobSpec spec) {
    spec.resources.device = DeviceKind::kCuda;
    return spec;
  };
  for (const std::string node : {"g0", "g1"}) {
    cluster.AddNode(node, 2, DeviceKind::kCuda);
    cluster.Node(node).agent.network_rate_assumed = true;
    cluster.AttachAgent(node);
  }
  const JobId first = RunSteps(cluster, on_gpus(Spec("first", 1)), kOne, 6);
  const JobId between = RunSteps(cluster, on_gpus(Spec("between", 1)), kOne, 6);
  const JobId second = RunSteps(cluster, on_gpus(Spec("second", 1)), kOne, 6);
  cluster.Cancel(between);
  cluster.Advance(15);
  ASSERT_NE(cluster.NodeOfRank(first, 0), cluster.NodeOfRank(second, 0));
  const JobId head = cluster.Submit(on_gpus(Spec("head", 2)));
  EXPECT_THAT(cluster.Record(head).reason,
              HasSubstr("waits for 2 GPUs of one node, or of nodes whose network's rate is known; of 4 GPUs 2 are free"));
}

// Each of two nodes with GPUs has a job that could give way. The nodes must not be used together, and the first waiting job
// needs two GPUs.
TEST(ControllerQueue, NobodyGivesWayOnNodesThatAreNotUsedTogether) {
  for (const bool alone : {true, false}) {
    Cluster cluster;
    for (const std::string node : {"g0", "g1"}) {
      cluster.AddNode(node, 2, DeviceKind::kCuda);
      cluster.Node(node).agent.network_rate_assumed = alone;
      cluster.AttachAgent(node);
    }
    const auto run = [&](const std::string& name, int32_t priority) {
      JobSpec spec = Spec(name, 1, priority);
      spec.resources.device = DeviceKind::kCuda;
      return RunSteps(cluster, spec, kOne, 6);
    };
    const JobId first = run("first", 0);
    run("beside-first", 20);
    const JobId second = run("second", 0);
    run("beside-second", 20);
    ASSERT_NE(cluster.NodeOfRank(first, 0), cluster.NodeOfRank(second, 0));
    JobSpec head = Spec("head", 2, 10);
    head.resources.device = DeviceKind::kCuda;
    cluster.Submit(head);
    const StopKind stop = alone ? StopKind::kNone : StopKind::kPreempt;
    EXPECT_EQ(cluster.Record(first).stop, stop) << "alone: " << alone;
    EXPECT_EQ(cluster.Record(second).stop, stop) << "alone: " << alone;
  }
}

TEST(ControllerQueue, AJobThatBeginsIsAskedToGiveWayOnceItTrains) {
  Cluster cluster;
  cluster.AddNode("n0");
  const JobId low = cluster.Submit(Spec("low", 2));
  cluster.MeasureAll();
  const JobId high = cluster.Submit(Spec("high", 2, 10));
  Answer(cluster, kTwo, 100);
  cluster.AllReady(low);
  for (int64_t step = 0; step < 4; ++step) cluster.StepAll(low, step);
  cluster.Advance(6);
  EXPECT_EQ(cluster.Record(low).stop, StopKind::kPreempt);
  EXPECT_EQ(cluster.State(high), JobState::kQueued);
}

TEST(ControllerQueue, AnElasticJobKeepsToTheQuotaOfAQueueThatDoesNotBorrow) {
  Cluster cluster;
  cluster.SetQueue({.name = "guests", .quota = 3, .may_borrow = false});
  cluster.AddNode("n0");
  cluster.AddNode("n1");
  JobSpec spec = testing::Elastic(1, 4);
  spec.scheduling.queue = "guests";
  const JobId job = cluster.Submit(spec);
  cluster.MeasureAll();
  ASSERT_EQ(cluster.plans().size(), 1u);
  EXPECT_EQ(cluster.plans().front().request.cluster.devices(), 2) << "alike on both nodes, at most 3";
  Answer(cluster, kTwo, 100);
  cluster.AllReady(job);
  for (int64_t step = 0; step < 6; ++step) cluster.StepAll(job, step);
  cluster.Advance(10);
  cluster.MeasureAll();
  for (const PlanJob& plan : cluster.plans()) EXPECT_LE(plan.request.cluster.devices(), 3);
  const JobId large = cluster.Submit(Spec("large", 4, 0, "guests"));
  EXPECT_THAT(Kind(cluster.Record(large)), HasSubstr("structural"));
  EXPECT_THAT(cluster.Record(large).reason, HasSubstr("needs 4 devices, more than the quota of 3 of queue guests"));
}

TEST(ControllerQueue, AJobThatPassesDoesNotTakeLongerThanItsPlanSays) {
  Cluster cluster;
  cluster.AddNode("n0");
  cluster.AddNode("n1");
  const JobId elastic = RunSteps(cluster, testing::Elastic(1, 2, 500), kTwo, 6);
  cluster.Hold(elastic);
  GiveWay(cluster, elastic, 7);
  JobSpec spec = Spec("running", 3);
  spec.train.steps = 1'000;
  spec.scheduling.preemptible = false;
  RunSteps(cluster, spec, ParallelLayout{1, 3, 1}, 6);
  cluster.Submit(Spec("head", 4, 1));
  cluster.Release(elastic);
  EXPECT_EQ(cluster.State(elastic), JobState::kQueued) << "it would end before the first begins, but with two devices";
  EXPECT_TRUE(cluster.plans().empty()) << "for one it would be planned anew, and take longer";
}

TEST(ControllerQueue, AQueueThatDoesNotBorrowKeepsToItsQuota) {
  Cluster cluster;
  cluster.SetQueue({.name = "guests", .quota = 2, .may_borrow = false});
  cluster.AddNode("n0");
  cluster.AddNode("n1");
  RunSteps(cluster, Spec("first", 2, 0, "guests"), kTwo, 1);
  const JobId second = cluster.Submit(Spec("second", 1, 0, "guests"));
  EXPECT_EQ(cluster.State(second), JobState::kQueued);
  EXPECT_EQ(Kind(cluster.Record(second)), "quota");
  const JobId other = cluster.Submit(Spec("other", 2));
  EXPECT_EQ(cluster.State(other), JobState::kPlanning) << "it holds up nobody";
  cluster.SetQueue({.name = "guests", .quota = 4});
  EXPECT_EQ(cluster.State(second), JobState::kQueued) << "the devices are taken";
  const std::vector<QueueView> queues = cluster.controller().Queues();
  ASSERT_EQ(queues.size(), 2u);
  EXPECT_EQ(queues[1].config.name, "guests");
  EXPECT_EQ(queues[1].devices, 2);
  EXPECT_EQ(queues[1].running, 1);
  EXPECT_EQ(queues[1].waiting, 1);
}

TEST(ControllerQueue, AmongManyNodesJobsMayWaitForAMoment) {
  Cluster cluster;
  for (int i = 0; i < 300; ++i) cluster.AddNode("n" + std::to_string(i), 1);
  cluster.Advance(1);
  const JobId first = cluster.Submit(Spec("first", 2)), second = cluster.Submit(Spec("second", 2));
  EXPECT_EQ(cluster.State(first), JobState::kPlanning) << "nothing has been looked at for a while";
  EXPECT_EQ(cluster.State(second), JobState::kQueued);
  cluster.Advance(0.25);
  EXPECT_EQ(cluster.State(second), JobState::kPlanning);
}

TEST(ControllerQueue, QueuesOutliveTheServer) {
  Cluster cluster;
  const QueueConfig guests{
      .name = "guests", .weight = 3, .quota = 2, .may_borrow = false, .user_quota = 1, .managers = {"alice", "bob"}};
  cluster.SetQueue(guests);
  cluster.RestartServer();
  EXPECT_EQ(cluster.controller().Queues().back().config, guests);
  EXPECT_EQ(cluster.controller().ManagersOf("guests"), guests.managers);
  EXPECT_TRUE(cluster.controller().ManagersOf("default").empty());
}

TEST(ControllerQueue, AJobBeginsAfterThoseItNames) {
  Cluster cluster;
  cluster.AddNode("n0");
  cluster.AddNode("n1");
  const JobId first = RunSteps(cluster, Spec("first", 2), kTwo, 1);
  JobSpec spec = Spec("second", 2);
  spec.scheduling.after = {"first"};
  const JobId second = cluster.Submit(spec);
  EXPECT_EQ(cluster.State(second), JobState::kQueued);
  EXPECT_EQ(Kind(cluster.Record(second)), "dependency");
  EXPECT_THAT(cluster.Record(second).reason, HasSubstr("begins after first (" + first.value + ") has succeeded"));
  EXPECT_EQ(cluster.State(cluster.Submit(Spec("third", 2))), JobState::kPlanning) << "it holds up nobody";
  cluster.RestartServer();
  EXPECT_EQ(Kind(cluster.Record(second)), "dependency");
  for (const char* node : {"n0", "n1"}) {
    cluster.AttachAgent(node);
    cluster.AttachWorker(node);
  }
  cluster.FinishAll(first);
  cluster.MeasureAll();
  EXPECT_NE(cluster.State(second), JobState::kQueued);
  EXPECT_TRUE(cluster.Record(second).waits_for.empty());
}

TEST(ControllerQueue, AJobAfterOneThatFailsNeverBegins) {
  Cluster cluster;
  const JobId first = cluster.Submit(Spec("first", 2));
  JobSpec spec = Spec("second", 2);
  spec.scheduling.after = {first.value};
  const JobId second = cluster.Submit(spec);
  cluster.Cancel(first);
  EXPECT_EQ(cluster.State(second), JobState::kCancelled);
  EXPECT_THAT(cluster.Record(second).reason, HasSubstr("was to begin after first (" + first.value + "), which was cancelled"));
  EXPECT_EQ(cluster.Submit(spec), JobId());
  EXPECT_THAT(std::string(cluster.last_reply()->status.message()), HasSubstr("scheduling.after: job " + first.value));
  spec.scheduling.after = {"nobody"};
  EXPECT_EQ(cluster.Submit(spec), JobId());
  EXPECT_THAT(std::string(cluster.last_reply()->status.message()),
              HasSubstr("scheduling.after: no job has the id or name \"nobody\""));
}

TEST(ControllerQueue, AJobThatGrowsDoesNotTakeWhatAHigherPriorityWaitsFor) {
  Cluster cluster;
  cluster.AddNode("n0");
  JobSpec elastic = testing::Elastic(2, 4);
  const JobId job = RunSteps(cluster, elastic, kTwo, 6);
  const JobId held = cluster.Submit([] {
    JobSpec spec = Spec("held", 4);
    spec.scheduling.hold = true;
    return spec;
  }());
  cluster.AddNode("n1");
  cluster.Advance(10);
  cluster.MeasureAll();
  EXPECT_EQ(cluster.plans().size(), 1u) << "a held job is nobody to wait for";
  EXPECT_EQ(cluster.State(held), JobState::kQueued);
  EXPECT_EQ(cluster.State(job), JobState::kRunning);
}

}  // namespace
}  // namespace lynx::server
