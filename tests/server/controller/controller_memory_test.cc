// Tests jobs that run out of memory: they get a plan that needs less memory, and fail if no plan fits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/health/memory_limits.h"
#include "tests/server/controller/controller_steps.h"

namespace lynx::server {
namespace {

using ::lynx::server::testing::Cluster;
using ::lynx::server::testing::Elastic;
using ::lynx::server::testing::kTwo;
using ::lynx::server::testing::MakeSpec;
using ::lynx::server::testing::MakeTestPlan;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kModelBytes = 100 << 20;

// Returns a plan in which every rank needs `bytes`.
std::shared_ptr<const Plan> PlanTaking(const JobSpec& spec, const ParallelLayout& layout, int64_t bytes, char digest = 'd') {
  Plan plan = *MakeTestPlan(spec, layout);
  for (StagePlan& stage : plan.stages) {
    stage.states.weights = Bytes(kModelBytes);
    stage.arena = Bytes(bytes - kModelBytes);
  }
  plan.digest = std::string(64, digest);
  return std::make_shared<const Plan>(plan);
}

const std::string& LastReason(Cluster& cluster, const JobId& job, const std::string& kind) {
  const std::string* last = nullptr;
  for (const JobEvent& event : cluster.Events(job)) {
    if (event.kind == kind) last = &event.reason;
  }
  static const std::string kNone;
  EXPECT_NE(last, nullptr) << kind;
  return last == nullptr ? kNone : *last;
}

// A job of two ranks on one node.
struct Two {
  Cluster cluster;
  JobSpec spec = MakeSpec("gpt", 2, 2);
  JobId job;

  explicit Two(int32_t max_restarts = 3, int64_t taken = 800 << 20) {
    spec.max_restarts = max_restarts;
    cluster.AddNode("n0");
    job = cluster.Submit(spec);
    cluster.MeasureAll();
    cluster.AnswerPlansWith(PlanTaking(spec, kTwo, taken));
  }
  void RunOut(int32_t rank = 1) {
    cluster.Say(job, rank, RankFailure{"cannot allocate 700.0 MiB for activation arena", false, FaultCause::kMemory});
  }
  Bytes Asked() {
    EXPECT_EQ(cluster.plans().size(), 1u);
    return cluster.plans().empty() ? Bytes(0) : cluster.plans().front().request.cluster.groups.front().memory_per_device;
  }
};

TEST(ControllerMemory, AJobThatRunsOutIsPlannedAgainWithLess) {
  Two two;
  Cluster& cluster = two.cluster;
  two.RunOut();  // the job has done no step yet: most other faults of its own would end it now
  EXPECT_EQ(cluster.State(two.job), JobState::kPlanning);
  EXPECT_EQ(two.Asked(), Bytes((800 << 20) / 100 * 90));
  EXPECT_THAT(
      LastReason(cluster, two.job, "replan-forced"),
      AllOf(HasSubstr(
                "out_of_memory: rank 1 on node n0: cannot allocate 700.0 MiB for activation arena; a device of model test "
                "counts as having 720.0 MiB for this job, 10% less than the 800.0 MiB that the plan took there; plans for 2 "
                "devices in place of tp1 pp2 dp1 on 2 devices (dddddddddddd"),
            Not(HasSubstr("onFailure"))));
  cluster.AnswerPlansWith(PlanTaking(two.spec, kTwo, 700 << 20, 'e'));
  EXPECT_THAT(LastReason(cluster, two.job, "replanned"),
              AllOf(HasSubstr("out_of_memory: tp1 pp2 dp1 on 2 devices (eeeeeeeeeeee"),
                    HasSubstr("replaces tp1 pp2 dp1 on 2 devices (dddddddddddd"), HasSubstr("a change takes about")));
  EXPECT_EQ(cluster.State(two.job), JobState::kStarting);
  EXPECT_EQ(cluster.Record(two.job).restarts, 1);
  EXPECT_EQ(cluster.Stored(two.job).memory_limits,
            (std::vector<MemoryLimit>{{.device_model = "test", .limit = Bytes((800 << 20) / 100 * 90), .times = 1}}));
  cluster.AllReady(two.job);
  cluster.StepAll(two.job, 0);
  cluster.FinishAll(two.job);
  EXPECT_EQ(cluster.State(two.job), JobState::kSucceeded);
}

TEST(ControllerMemory, TheMarginGrows) {
  Two two;
  two.RunOut();
  two.cluster.AnswerPlansWith(PlanTaking(two.spec, kTwo, 700 << 20));
  two.RunOut();
  EXPECT_EQ(two.Asked(), Bytes((700 << 20) / 100 * 80));
  two.cluster.AnswerPlansWith(PlanTaking(two.spec, kTwo, 500 << 20));
  two.RunOut();
  EXPECT_EQ(two.Asked(), Bytes((500 << 20) / 100 * 60));
  EXPECT_THAT(LastReason(two.cluster, two.job, "replan-forced"), HasSubstr("40% less than the 500.0 MiB"));
}

// Each generation has a new plan. So its restart is charged once, although the generation before did no step.
TEST(ControllerMemory, TheRestartBudgetBoundsIt) {
  Two two(2);
  for (const int64_t taken : {700, 500}) {
    two.RunOut();
    ASSERT_EQ(two.cluster.State(two.job), JobState::kPlanning);
    two.cluster.AnswerPlansWith(PlanTaking(two.spec, kTwo, taken << 20));
  }
  two.RunOut();
  EXPECT_EQ(two.cluster.State(two.job), JobState::kFailed);
  EXPECT_THAT(two.cluster.Record(two.job).reason, HasSubstr("after 2 restarts the budget"));
}

constexpr char kTooMuch[] = "stage 0 needs 80.0 MiB more with everything recomputed";

// With one memory limit the ranks ran out of memory, and with a lower limit no plan fits. A limit between the two may work. No
// restart is spent to search for it.
TEST(ControllerMemory, WhatNoPlanFitsIsGivenBackByHalves) {
  Two two(1);
  two.RunOut();
  EXPECT_EQ(two.Asked(), Bytes((800 << 20) / 100 * 90));
  two.cluster.AnswerPlansWith(Infeasible{.reason = kTooMuch});
  ASSERT_EQ(two.cluster.State(two.job), JobState::kPlanning);
  EXPECT_EQ(two.Asked(), Bytes((800 << 20) / 100 * 95));
  EXPECT_THAT(LastReason(two.cluster, two.job, "replan-forced"),
              AllOf(HasSubstr("no plan fits: stage 0 needs 80.0 MiB more"),
                    HasSubstr("counts as having 760.0 MiB again, the plan that did not fit took 800.0 MiB")));
  two.cluster.AnswerPlansWith(PlanTaking(two.spec, kTwo, 750 << 20));
  two.cluster.AllReady(two.job);
  EXPECT_EQ(two.cluster.State(two.job), JobState::kRunning);
  EXPECT_EQ(two.cluster.Record(two.job).restarts, 1);
}

TEST(ControllerMemory, WithoutAPlanThatFitsTheJobFails) {
  Two two;
  two.RunOut();
  const Infeasible infeasible{.reason = kTooMuch, .suggestion = "parallel.tp: 2"};
  two.cluster.AnswerPlansWith(infeasible);
  ASSERT_EQ(two.cluster.State(two.job), JobState::kPlanning) << "with half of what was taken off";
  two.cluster.AnswerPlansWith(infeasible);
  EXPECT_EQ(two.cluster.State(two.job), JobState::kFailed) << "less would hardly differ from what did not fit";
  EXPECT_EQ(two.cluster.Record(two.job).reason,
            "ran out of memory 1 time on devices of model test, which count as having 760.0 MiB, and no plan fits that: stage "
            "0 needs 80.0 "
            "MiB more with everything recomputed; the smallest change that fits: parallel.tp: 2; free memory on these nodes, "
            "or give the "
            "job more ranks, a smaller train.microBatch or model.seq");
}

// If the kernel kills a rank, the rank cannot report that it ran out of memory. So the daemon may report this.
TEST(ControllerMemory, TheDaemonMayTell) {
  Two two;
  two.cluster.AllReady(two.job);
  two.cluster.StepAll(two.job, 0);
  two.cluster.RankOf(two.job, 0)->seen.cause = FaultCause::kMemory;
  two.cluster.Exit(two.job, 0, 137,
                   "killed by signal 9 (Killed): the kernel's out-of-memory killer ended a process of this node");
  EXPECT_EQ(two.Asked(), Bytes((800 << 20) / 100 * 90));
}

TEST(ControllerMemory, OtherFaultsAreNoReason) {
  Two two;
  two.cluster.AllReady(two.job);
  two.cluster.StepAll(two.job, 0);
  two.cluster.Exit(two.job, 0, 137);
  EXPECT_EQ(two.cluster.State(two.job), JobState::kStarting) << "with the plan that it has";
}

// With more ranks, each rank needs less memory. So an elastic job gets all free devices.
TEST(ControllerMemory, AnElasticJobIsPlannedForAllThatIsFree) {
  Cluster cluster;
  cluster.AddNode("n0");
  const JobSpec spec = Elastic(2, 4);
  const JobId job = cluster.Submit(spec);
  cluster.MeasureAll();
  cluster.AnswerPlansWith(PlanTaking(spec, kTwo, 800 << 20));
  cluster.AddNode("n1");
  cluster.Say(job, 0, RankFailure{"no memory", false, FaultCause::kMemory});
  cluster.MeasureAll();
  ASSERT_EQ(cluster.plans().size(), 1u);
  EXPECT_EQ(cluster.plans().front().request.cluster.devices(), 4);
}

// If a server restarts while a job is planned, it must not use the plan that did not fit.
TEST(ControllerMemory, ARestartOfTheServerForgetsNothing) {
  Two two;
  Cluster& cluster = two.cluster;
  two.RunOut();
  ASSERT_EQ(cluster.State(two.job), JobState::kPlanning);
  cluster.RestartServer();
  cluster.AttachAgent("n0");
  cluster.AttachWorker("n0");
  cluster.Settle();
  EXPECT_EQ(cluster.State(two.job), JobState::kPlanning);
  EXPECT_EQ(two.Asked(), Bytes((800 << 20) / 100 * 90));
  cluster.AnswerPlansWith(PlanTaking(two.spec, kTwo, 700 << 20));
  EXPECT_EQ(cluster.State(two.job), JobState::kStarting);
}

// If there are too few free devices at this time, the job waits for them and is then planned again.
TEST(ControllerMemory, AJobThatWaitsForDevicesIsPlannedWhenItHasThem) {
  Two two;
  Cluster& cluster = two.cluster;
  cluster.SetCordon("n0", Cordon{.reason = "work"});
  two.RunOut();
  EXPECT_EQ(cluster.State(two.job), JobState::kQueued);
  EXPECT_TRUE(cluster.plans().empty());
  cluster.SetCordon("n0", std::nullopt);
  EXPECT_EQ(cluster.State(two.job), JobState::kPlanning);
  EXPECT_THAT(LastReason(cluster, two.job, "replan-forced"),
              HasSubstr("the plan that it has takes more than there is; a device of model test"));
}

// The limit applies only to the model of device that ran out of memory. Devices of another model keep their full memory.
TEST(ControllerMemory, ALimitHoldsForTheModelAlone) {
  std::vector<MemoryLimit> limits;
  EXPECT_EQ(RunOutOfMemory(limits, "A", Bytes(1000)).limit, Bytes(900));
  EXPECT_EQ(RunOutOfMemory(limits, "B", Bytes(500)).limit, Bytes(450));
  EXPECT_EQ(RunOutOfMemory(limits, "A", Bytes(800)), (MemoryLimit{"A", Bytes(640), 2}));
  EXPECT_EQ(RunOutOfMemory(limits, "A", Bytes(2000)).limit, Bytes(640)) << "never more than before";
  EXPECT_EQ(MemoryLimitOf(limits, "B"), Bytes(450));
  EXPECT_EQ(MemoryLimitOf(limits, "C"), Bytes(0));
}

TEST(ControllerMemory, WhatIsOffloadedCountsWhereTheDeviceIsTheHost) {
  Plan plan = *PlanTaking(MakeSpec("gpt", 2, 2), kTwo, 300 << 20);
  plan.stages[1].host = Bytes(1 << 20);
  EXPECT_EQ(TakenByPlan(plan, 1, DeviceKind::kCpu), Bytes(301 << 20));
  EXPECT_EQ(TakenByPlan(plan, 1, DeviceKind::kCuda), Bytes(300 << 20));
}

}  // namespace
}  // namespace lynx::server
