// Tests which kind of device a job gets, and that the job keeps this kind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/server/controller/controller_fixture.h"

namespace lynx::server {
namespace {

using ::lynx::server::testing::Cluster;
using ::lynx::server::testing::FakeNode;
using ::lynx::server::testing::MakeSpec;
using ::testing::HasSubstr;
using ::testing::Not;

JobSpec SpecFor(DeviceKind kind, const std::string& name = "gpt") {
  JobSpec spec = MakeSpec(name, 2, 2);
  spec.resources.device = kind;
  return spec;
}

// The cluster has two CPUs on c0 and two GPUs on g0.
class ControllerDevicesTest : public ::testing::Test {
 protected:
  ControllerDevicesTest() {
    cluster_.AddNode("c0", 2, DeviceKind::kCpu);
    cluster_.AddNode("g0", 2, DeviceKind::kCuda);
  }
  JobId Start(const JobSpec& spec) {
    const JobId job = cluster_.Submit(spec);
    cluster_.MeasureAll();
    cluster_.AnswerPlans({2, 1, 1});
    return job;
  }
  // Adds nodes with two CPUs each. `domains`: pairs of a node's name and its network domain. c0 exists already, so it only gets
  // a domain.
  void AddNodesIn(const std::vector<std::pair<std::string, std::string>>& domains) {
    for (const auto& [name, domain] : domains) {
      if (name != "c0") cluster_.AddNode(name, 2, DeviceKind::kCpu);
      cluster_.Node(name).agent.network_domain = domain;
      cluster_.AttachAgent(name);
    }
  }

  Cluster cluster_;
};

TEST_F(ControllerDevicesTest, AnyMeansGpusWhereThereAreEnough) {
  const JobId job = cluster_.Submit(SpecFor(DeviceKind::kAny));
  cluster_.MeasureAll();
  ASSERT_EQ(cluster_.plans().size(), 1u);
  EXPECT_FALSE(cluster_.plans().front().request.cluster.groups.front().host_is_device);
  cluster_.AnswerPlans({2, 1, 1});
  EXPECT_EQ(cluster_.Record(job).device_kind, DeviceKind::kCuda);
  EXPECT_EQ(cluster_.Stored(job).device_kind, DeviceKind::kCuda);
  for (int32_t r = 0; r < 2; ++r) {
    EXPECT_EQ(cluster_.NodeOfRank(job, r), "g0");
    const RankAssignment& assignment = cluster_.RankOf(job, r)->assignment;
    EXPECT_EQ(assignment.device_kind, DeviceKind::kCuda);
    EXPECT_EQ(assignment.device_uuid, "GPU-g0-" + std::to_string(r));
  }
}

TEST_F(ControllerDevicesTest, AnEventSaysThatFloat32IsSlowOnGpus) {
  HardwareProfile profile = StatedCpuProfile();
  profile.bfloat16_flops_per_second = 15 * profile.flops_per_second;
  cluster_.Node("g0").agent.profile = std::make_shared<const HardwareProfile>(profile);
  cluster_.AttachAgent("g0");
  const auto planned = [&](const JobId& job) {
    std::string texts;
    for (const JobEvent& event : cluster_.Events(job)) texts += event.kind == "planned" ? event.reason : "";
    return texts;
  };
  EXPECT_THAT(
      planned(Start(SpecFor(DeviceKind::kCuda))),
      HasSubstr("; computes float32, although the devices compute bfloat16 15.0 times as fast: set model.dtype: bfloat16"));
  EXPECT_THAT(planned(Start(SpecFor(DeviceKind::kCpu, "on-cpus"))), Not(HasSubstr("float32")));
}

TEST_F(ControllerDevicesTest, AnyWaitsForGpusThatOthersHold) {
  Start(SpecFor(DeviceKind::kCuda, "first"));
  const JobId second = cluster_.Submit(SpecFor(DeviceKind::kAny, "second"));
  EXPECT_EQ(cluster_.State(second), JobState::kQueued);
  EXPECT_THAT(cluster_.Record(second).reason, HasSubstr("waits for 2 GPUs; of 2 GPUs 0 are free"));
}

TEST_F(ControllerDevicesTest, AnyMeansCpusWhereGpusAreTooFewAndKindsAreNeverMixed) {
  FakeNode& node = cluster_.Node("g0");
  node.agent.devices.pop_back();
  cluster_.AttachAgent("g0");
  const JobId job = Start(SpecFor(DeviceKind::kAny));
  EXPECT_EQ(cluster_.Record(job).device_kind, DeviceKind::kCpu);
  for (int32_t r = 0; r < 2; ++r) {
    EXPECT_EQ(cluster_.NodeOfRank(job, r), "c0");
    EXPECT_EQ(cluster_.RankOf(job, r)->assignment.device_kind, DeviceKind::kCpu);
    EXPECT_EQ(cluster_.RankOf(job, r)->assignment.device_uuid, "");
  }
  const JobId more = cluster_.Submit(MakeSpec("three", 3, 3));
  EXPECT_THAT(cluster_.Record(more).reason, HasSubstr("waits for 3 devices, but the attached nodes have 2"));
}

TEST_F(ControllerDevicesTest, AJobThatAsksForAKindGetsItOrWaits) {
  const JobId on_cpus = Start(SpecFor(DeviceKind::kCpu));
  EXPECT_EQ(cluster_.NodeOfRank(on_cpus, 0), "c0");
  JobSpec spec = MakeSpec("three", 3, 3);
  spec.resources.device = DeviceKind::kCuda;
  const JobId three = cluster_.Submit(spec);
  EXPECT_THAT(cluster_.Record(three).reason, HasSubstr("waits for 3 GPUs, but the attached nodes have 2"));
}

// A plan for GPUs of several nodes needs the rate of the network between them.
TEST_F(ControllerDevicesTest, GpusOfSeveralNodesWaitUntilTheRateOfTheirNetworkIsKnown) {
  cluster_.AddNode("g1", 2, DeviceKind::kCuda);
  const auto assume = [&](bool assumed) {
    for (const std::string name : {"g0", "g1"}) {
      cluster_.Node(name).agent.network_rate_assumed = assumed;
      cluster_.AttachAgent(name);
    }
  };
  assume(true);
  JobSpec spec = MakeSpec("four", 4, 4);
  const JobId four = cluster_.Submit(spec);
  EXPECT_THAT(cluster_.Record(four).reason,
              HasSubstr("waits for 4 GPUs; the rate of the network is not known for g0, g1; start their agents with "
                        "--inter-node-rate"));
  const JobId two = Start(SpecFor(DeviceKind::kCuda, "two"));
  EXPECT_EQ(cluster_.NodeOfRank(two, 0), cluster_.NodeOfRank(two, 1));
  const JobId on_cpus = Start(SpecFor(DeviceKind::kCpu, "on-cpus"));
  EXPECT_EQ(cluster_.NodeOfRank(on_cpus, 0), "c0") << "CPUs are not asked for it";
  cluster_.Cancel(two);
  cluster_.Advance(15);
  assume(false);
  cluster_.MeasureAll();
  cluster_.AnswerPlans({2, 2, 1});
  std::set<std::string> used;
  for (int32_t r = 0; r < 4; ++r) used.insert(cluster_.NodeOfRank(four, r));
  EXPECT_EQ(used, (std::set<std::string>{"g0", "g1"}));
}

// The GPUs of one node are too few for the model. On the GPUs of both nodes it might fit, so the job must not fail.
TEST_F(ControllerDevicesTest, AJobThatDoesNotFitOnANodeThatMustBeAloneWaits) {
  cluster_.AddNode("g1", 2, DeviceKind::kCuda);
  for (const std::string name : {"g0", "g1"}) {
    cluster_.Node(name).agent.network_rate_assumed = true;
    cluster_.AttachAgent(name);
  }
  JobSpec spec = MakeSpec("large", 1, 4);
  spec.resources.device = DeviceKind::kCuda;
  const JobId job = cluster_.Submit(spec);
  cluster_.MeasureAll();
  ASSERT_EQ(cluster_.plans().size(), 1u);
  EXPECT_EQ(cluster_.plans().front().request.cluster.nodes(), 1);
  cluster_.AnswerPlansWith(Infeasible{.reason = "stage 0 needs 9 GiB more"});
  EXPECT_EQ(cluster_.State(job), JobState::kQueued);
  EXPECT_THAT(cluster_.Record(job).reason, HasSubstr("start their agents with --inter-node-rate"));
}

TEST_F(ControllerDevicesTest, ARestartStaysOnItsKind) {
  const JobId job = Start(SpecFor(DeviceKind::kAny));
  cluster_.AllReady(job);
  // The node comes back with CPUs only. So its device number 0 is another device now.
  for (Device& device : cluster_.Node("g0").agent.devices) device = {.index = device.index, .cores = {0}};
  cluster_.AttachAgent("g0");
  cluster_.Exit(job, 0, 1, "its GPU is gone");
  cluster_.Advance(15);
  EXPECT_EQ(cluster_.State(job), JobState::kQueued);
  EXPECT_THAT(cluster_.Record(job).reason, HasSubstr("waits for 2 GPUs, but the attached nodes have 0"));
  cluster_.AddNode("g1", 2, DeviceKind::kCuda);
  EXPECT_EQ(cluster_.NodeOfRank(job, 0), "g1");
  EXPECT_EQ(cluster_.RankOf(job, 0)->assignment.device_uuid, "GPU-g1-0");
}

TEST_F(ControllerDevicesTest, JobsGetNodesThatLieCloseTogether) {
  AddNodesIn({{"c1", "row1/b"}, {"c2", "row0/b"}, {"c3", "row1/b"}, {"c0", "row0/a"}});
  JobSpec spec = MakeSpec("four", 4, 4);
  spec.resources.device = DeviceKind::kCpu;
  const JobId job = cluster_.Submit(spec);
  cluster_.MeasureAll();
  cluster_.AnswerPlans({2, 2, 1});
  const std::vector<std::string> expected = {"c1", "c1", "c3", "c3"};
  for (int32_t r = 0; r < 4; ++r) EXPECT_EQ(cluster_.NodeOfRank(job, r), expected[static_cast<size_t>(r)]) << r;
  // Only c0 and c2 are still free. Both are in row0.
  const JobId second = cluster_.Submit(spec);
  cluster_.MeasureAll();
  cluster_.AnswerPlans({2, 2, 1});
  EXPECT_EQ(cluster_.NodeOfRank(second, 0), "c0");
  EXPECT_EQ(cluster_.NodeOfRank(second, 2), "c2");
}

// The server considers nodes in the order of their network domains, which is not the order of their names.
TEST_F(ControllerDevicesTest, JobsThatBeginTogetherShareNoDevice) {
  AddNodesIn({{"c0", "row3"}, {"c1", "row2"}, {"c2", "row1"}, {"c3", "row0"}});
  JobSpec spec = MakeSpec("all", 8, 8);
  spec.resources.device = DeviceKind::kCpu;
  const JobId all = cluster_.Submit(spec);
  cluster_.MeasureAll();
  cluster_.AnswerPlans({2, 2, 2});
  std::vector<JobId> waiting;
  for (int i = 0; i < 4; ++i) {
    spec = MakeSpec(absl::StrCat("two-", i), 2, 2);
    spec.resources.device = DeviceKind::kCpu;
    waiting.push_back(cluster_.Submit(spec));
  }
  cluster_.Cancel(all);  // now all four jobs begin in the same round of the queue
  cluster_.MeasureAll();
  cluster_.AnswerPlans({1, 2, 1});
  std::set<DeviceRef> had;
  for (const JobId& job : waiting) {
    ASSERT_EQ(cluster_.Record(job).ranks.size(), 2u) << cluster_.Record(job).reason;
    for (const RankRecord& rank : cluster_.Record(job).ranks)
      EXPECT_TRUE(had.insert(rank.where).second) << rank.where.node.value;
  }
}

TEST_F(ControllerDevicesTest, PlansForGpusHaveTheirShareOfTheNode) {
  AgentState& agent = cluster_.Node("g0").agent;
  for (int32_t i : {2, 3}) {
    agent.devices.push_back(agent.devices.front());
    agent.devices.back().index = i;
    agent.devices.back().uuid = "GPU-g0-" + std::to_string(i);
  }
  agent.host_memory = kGiB * 100;
  HardwareProfile profile = StatedCpuProfile();
  profile.inner_links = {{2, {Nanos(5), 1000}}, {4, {Nanos(6), 900}}};
  agent.profile = std::make_shared<const HardwareProfile>(profile);
  cluster_.AttachAgent("g0");
  cluster_.Submit(SpecFor(DeviceKind::kCuda));
  cluster_.Advance(1000);  // no further measurement arrives in this time
  ASSERT_EQ(cluster_.plans().size(), 1u);
  const NodeGroup& group = cluster_.plans().front().request.cluster.groups.front();
  EXPECT_EQ(group.devices_per_node, 2);
  EXPECT_EQ(group.host_memory, kGiB * 50) << "of two of its four GPUs";
  EXPECT_EQ(group.profile.inner_links, std::vector<LinkLevel>{profile.inner_links.front()});
}

TEST_F(ControllerDevicesTest, EveryGroupOfNodesHasItsOwnShare) {
  cluster_.AddNode("g1", 2, DeviceKind::kCuda);
  for (const auto& [name, gib, speed] : {std::tuple("g0", 100, 1), std::tuple("g1", 60, 4)}) {
    AgentState& agent = cluster_.Node(name).agent;
    agent.host_memory = kGiB * gib;
    HardwareProfile profile = StatedCpuProfile();
    profile.flops_per_second *= speed;
    agent.profile = std::make_shared<const HardwareProfile>(profile);
    cluster_.AttachAgent(name);
  }
  JobSpec spec = MakeSpec("four", 4, 4);
  spec.resources.device = DeviceKind::kCuda;
  cluster_.Submit(spec);
  cluster_.Advance(1000);  // no further measurement arrives in this time
  ASSERT_EQ(cluster_.plans().size(), 1u);
  const std::vector<NodeGroup>& groups = cluster_.plans().front().request.cluster.groups;
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].host_memory, kGiB * 60) << "g1, the faster node, comes first";
  EXPECT_EQ(groups[1].host_memory, kGiB * 100);
}

// The GPUs of g0 compute float32 faster, and those of g1 bfloat16, which jobs on GPUs use.
TEST_F(ControllerDevicesTest, GpusAreComparedByTheirTensorCores) {
  cluster_.AddNode("g1", 2, DeviceKind::kCuda);
  for (const auto& [name, float32, bfloat16] : {std::tuple("g0", 37, 150), std::tuple("g1", 19, 312)}) {
    HardwareProfile profile = StatedCpuProfile();
    profile.flops_per_second = float32 * int64_t{1'000'000'000'000};
    profile.bfloat16_flops_per_second = bfloat16 * int64_t{1'000'000'000'000};
    cluster_.Node(name).agent.profile = std::make_shared<const HardwareProfile>(profile);
    cluster_.AttachAgent(name);
  }
  cluster_.Submit(SpecFor(DeviceKind::kCuda));
  cluster_.Advance(1000);  // no further measurement arrives in this time
  ASSERT_EQ(cluster_.plans().size(), 1u);
  const HardwareProfile& profile = cluster_.plans().front().request.cluster.groups.front().profile;
  EXPECT_EQ(profile.bfloat16_flops_per_second, 312'000'000'000'000);
}

// When the server restarts, a job's ranks are about to start on the GPUs of g0. The agent of g0 does not come back.
class GpuRestartTest : public ControllerDevicesTest {
 protected:
  JobId BeginAndLoseAgent() {
    const JobId job = cluster_.Submit(SpecFor(DeviceKind::kCuda));
    cluster_.MeasureAll();
    cluster_.Node("g0").obedient = false;
    cluster_.AnswerPlans({2, 1, 1});
    cluster_.RestartServer();
    cluster_.Node("g0").agent_stream = 0;
    return job;
  }
  void AttachWorker() {
    cluster_.AttachWorker("g0");
    cluster_.Node("g0").obedient = true;
    cluster_.Settle();
  }
};

TEST_F(GpuRestartTest, RanksStartOnTheGpusThatTheyWereGivenWithoutTheirAgent) {
  const JobId job = BeginAndLoseAgent();
  AttachWorker();
  for (int32_t r = 0; r < 2; ++r) {
    ASSERT_NE(cluster_.RankOf(job, r), nullptr);
    EXPECT_EQ(cluster_.RankOf(job, r)->seen.phase, RankPhase::kRunning);
    EXPECT_EQ(cluster_.RankOf(job, r)->assignment.device_uuid, "GPU-g0-" + std::to_string(r));
  }
  cluster_.Exit(job, 0, 1, "it fell");
  cluster_.Advance(15);
  cluster_.Settle();
  ASSERT_NE(cluster_.RankOf(job, 0), nullptr);
  EXPECT_EQ(cluster_.RankOf(job, 0)->assignment.key.generation, Generation(2)) << "nor does a restart wait for it";
  EXPECT_EQ(cluster_.RankOf(job, 0)->assignment.device_uuid, "GPU-g0-0");
}

}  // namespace
}  // namespace lynx::server
