// Tests the numbers that a controller counts about itself, and the reasons that it gives when it asks for plans.
#include <gtest/gtest.h>

#include "tests/server/controller/controller_steps.h"

namespace lynx::server {
namespace {

using ::lynx::server::testing::Cluster;
using ::lynx::server::testing::Elastic;
using ::lynx::server::testing::kFour;
using ::lynx::server::testing::kTwo;
using ::lynx::server::testing::MakeSpec;
using ::lynx::server::testing::RunSteps;

int64_t Jobs(const ClusterStats& stats, JobState state) { return stats.jobs[static_cast<size_t>(state)]; }
int64_t Nodes(const ClusterStats& stats, NodePresence presence) { return stats.nodes[static_cast<size_t>(presence)]; }

TEST(ControllerStats, CountsJobsReasonsNodesAndDevices) {
  Cluster cluster;
  EXPECT_EQ(Nodes(cluster.controller().TakeClusterStats(), NodePresence::kAttached), 0);
  cluster.AddNode("n0");
  cluster.AddNode("n1");
  cluster.AddNode("g0", 3, DeviceKind::kCuda);
  const auto on_cpus = [](const std::string& name, int32_t ranks) {
    JobSpec spec = MakeSpec(name, ranks, ranks);
    spec.resources.device = DeviceKind::kCpu;
    return spec;
  };
  const JobId job = cluster.Run(on_cpus("a", 4), kFour);
  cluster.Submit(on_cpus("too-large", 16));
  cluster.Submit(on_cpus("waits", 2));
  cluster.DetachAgent("n1");
  cluster.SetCordon("n1", Cordon{.reason = "work"});
  cluster.Advance(2);
  const ClusterStats stats = cluster.controller().TakeClusterStats();
  EXPECT_EQ(Jobs(stats, JobState::kRunning), 1);
  EXPECT_EQ(Jobs(stats, JobState::kQueued), 2);
  EXPECT_EQ(stats.pending, (std::map<std::string, int64_t>{{"structural", 1}, {"capacity", 1}}));
  EXPECT_EQ(Nodes(stats, NodePresence::kAttached), 2);
  EXPECT_EQ(Nodes(stats, NodePresence::kPartial), 1);
  EXPECT_EQ(stats.agents, 2);
  EXPECT_EQ(stats.workers, 3);
  EXPECT_EQ(stats.cordoned, 1);
  EXPECT_EQ(stats.cpu.all, 4);
  EXPECT_EQ(stats.cpu.used, 4);
  EXPECT_EQ(stats.cuda.all, 3);
  EXPECT_EQ(cluster.controller().DevicesHeld(job), 4);
  EXPECT_EQ(cluster.controller().DevicesHeld(JobId("nobody's")), 0);
  cluster.FinishAll(job);
  EXPECT_EQ(cluster.controller().DevicesHeld(job), 0);
}

TEST(ControllerStats, GlancesTellOfEachNode) {
  Cluster cluster;
  EXPECT_TRUE(cluster.controller().Summaries().empty());
  cluster.AddNode("n1");
  cluster.AddNode("n0");
  cluster.AddNode("n2");
  cluster.Run(MakeSpec("a", 2, 2), kTwo);
  cluster.DetachAgent("n2");
  cluster.SetCordon("n2", Cordon{.reason = "work"});
  cluster.SetCordon("never-seen", Cordon{.reason = "to come"});
  cluster.Advance(2);
  const std::vector<NodeSummary> glances = cluster.controller().Summaries();
  const std::vector<NodeView> views = cluster.controller().Nodes();
  ASSERT_EQ(glances.size(), 4u);
  ASSERT_EQ(views.size(), glances.size());
  int32_t used = 0;
  for (size_t i = 0; i < glances.size(); ++i) {
    EXPECT_EQ(glances[i].name, views[i].name);
    EXPECT_EQ(glances[i].used, views[i].devices_used) << views[i].name.value;
    EXPECT_EQ(glances[i].devices, static_cast<int32_t>(views[i].devices.size()));
    EXPECT_EQ(glances[i].cordoned, views[i].cordon.has_value());
    EXPECT_EQ(glances[i].warned, !views[i].conditions.empty());
    used += glances[i].used;
  }
  EXPECT_EQ(used, 2);
  EXPECT_EQ(glances[0].presence, NodePresence::kAttached);
  EXPECT_EQ(glances[2].presence, NodePresence::kPartial);
  EXPECT_EQ(glances[3].presence, NodePresence::kAbsent);
}

TEST(ControllerStats, CountsLostNodesAndReportsThatCameTooLate) {
  Cluster cluster;
  cluster.AddNode("n0");
  const JobId job = cluster.Run(MakeSpec("a", 2, 2), kTwo);
  EXPECT_EQ(cluster.controller().TakeClusterStats().fenced_reports, 0);
  const RankKey old{job, Generation(99), 0};
  cluster.AddOrphan("n0", {.key = old, .sequence = 1, .report = StepReport{}});
  cluster.Report("n0");
  EXPECT_EQ(cluster.controller().TakeClusterStats().fenced_reports, 1);
  cluster.DetachAgent("n0");
  cluster.DetachWorker("n0");
  cluster.Advance(1);
  EXPECT_EQ(Nodes(cluster.controller().TakeClusterStats(), NodePresence::kAbsent), 1);
  cluster.Advance(150, 1);
  EXPECT_EQ(Nodes(cluster.controller().TakeClusterStats(), NodePresence::kLost), 1);
}

TEST(ControllerStats, PlansSayWhatTheyAreFor) {
  Cluster cluster;
  cluster.AddNode("n0");
  const JobId job = cluster.Submit(Elastic(2, 4));
  cluster.MeasureAll();
  ASSERT_EQ(cluster.plans().size(), 1u);
  EXPECT_EQ(cluster.plans().front().trigger, PlanTrigger::kFirst);
  cluster.AnswerPlans(kTwo);
  cluster.AllReady(job);
  for (int64_t step = 0; step < 6; ++step) cluster.StepAll(job, step);
  cluster.AddNode("n1");
  cluster.Advance(10);
  cluster.MeasureAll();
  ASSERT_EQ(cluster.plans().size(), 1u);
  EXPECT_EQ(cluster.plans().front().trigger, PlanTrigger::kGrowth);
}

}  // namespace
}  // namespace lynx::server
