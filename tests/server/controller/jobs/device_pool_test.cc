#include "server/controller/jobs/device_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/controller/parts_fixture.h"

namespace lynx::server {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

class DevicePoolTest : public ::testing::Test {
 protected:
  DevicePoolTest() {
    parts_.AddNode("n1", 2, 1);
    parts_.AddNode("n2", 1, 3);
  }
  // Adds a job that trains on the devices `where`.
  LiveJob& AddRunning(const std::string& id, const std::vector<DeviceRef>& where) {
    LiveJob& job = parts_.AddJob(id);
    job.record.state = JobState::kRunning;
    job.record.generation = Generation(1);
    job.record.device_kind = DeviceKind::kCpu;
    for (const DeviceRef& device : where) job.record.ranks.push_back({.where = device});
    job.generation.ranks.resize(where.size());
    parts_.jobs.SetActive(job.record.id, true);
    return job;
  }
  static std::vector<std::string> Names(const std::vector<NodeDevices>& devices) {
    std::vector<std::string> names;
    for (const NodeDevices& node : devices) {
      for (const int32_t device : node.free) names.push_back(node.node.value + ":" + std::to_string(device));
    }
    return names;
  }
  testing::PartsFixture parts_;
  DevicePool pool_{parts_.options, parts_.jobs, parts_.nodes};
};

TEST_F(DevicePoolTest, DevicesOfRanksAndReservationsAreNotFree) {
  AddRunning("a", {{NodeId("n1"), 0}});
  LiveJob& planned = parts_.AddJob("b");
  planned.planning.reservation.devices = {{NodeId("n2"), 0}};
  parts_.jobs.SetActive(planned.record.id, true);
  EXPECT_THAT(Names(pool_.FreeDevices(DeviceKind::kCpu, nullptr)), ElementsAre("n1:1"));
  EXPECT_THAT(Names(pool_.FreeDevices(DeviceKind::kCpu, &planned)), ElementsAre("n1:1", "n2:0")) << "its own count as free";
  EXPECT_THAT(Names(pool_.AttachedDevices(DeviceKind::kCpu)), ElementsAre("n1:0", "n1:1", "n2:0"));
  EXPECT_THAT(pool_.Used().by_queue, ElementsAre(Pair("default", 2)));
}

TEST_F(DevicePoolTest, ACordonedNodeGivesNoDevice) {
  parts_.nodes.SetCordon(NodeId("n1"), Cordon{.reason = "disk"});
  EXPECT_THAT(Names(pool_.FreeDevices(DeviceKind::kCpu, nullptr)), ElementsAre("n2:0"));
  EXPECT_THAT(Names(pool_.AttachedDevices(DeviceKind::kCpu, DevicePool::Cordoned::kIncluded)),
              ElementsAre("n1:0", "n1:1", "n2:0"));
  const DevicePool::AttachedCount count = pool_.CountAttached(DeviceKind::kCpu);
  EXPECT_EQ(count.all, 3);
  EXPECT_EQ(count.cordoned, 2);
  EXPECT_EQ(count.plain, 0);
  EXPECT_FALSE(pool_.MayUse(parts_.AddJob("a"), DeviceKind::kCpu, NodeId("n1")));
}

TEST_F(DevicePoolTest, AJobDoesNotGetNodesThatItExcludes) {
  LiveJob& job = parts_.AddJob("a");
  parts_.jobs.Exclude(job, NodeId("n1"), Nanos(1));
  EXPECT_THAT(Names(pool_.FreeDevices(DeviceKind::kCpu, &job)), ElementsAre("n2:0"));
  EXPECT_FALSE(pool_.MayUse(job, DeviceKind::kCpu, NodeId("n1")));
  EXPECT_TRUE(pool_.MayUse(job, DeviceKind::kCpu, NodeId("n2")));
  EXPECT_THAT(Names(pool_.StillThere({{NodeId("n1"), 0}, {NodeId("n2"), 0}}, DeviceKind::kCpu, job)), ElementsAre("n2:0"));
}

TEST_F(DevicePoolTest, ANodeWithOrphansGivesNoDevice) {
  LiveJob& job = AddRunning("a", {{NodeId("n1"), 0}});
  LiveNode& node = parts_.nodes.At(NodeId("n1"));
  const RankKey live{job.record.id, Generation(1), 0};
  node.ranks[live] = {.key = live, .phase = RankPhase::kRunning};
  EXPECT_TRUE(pool_.IsLive(live, node));
  EXPECT_FALSE(pool_.HasOrphans(node));
  const RankKey old{job.record.id, Generation(0), 0};
  node.ranks[old] = {.key = old, .phase = RankPhase::kRunning};
  EXPECT_TRUE(pool_.HasOrphans(node));
  EXPECT_THAT(Names(pool_.FreeDevices(DeviceKind::kCpu, nullptr)), ElementsAre("n2:0"));
  node.ranks[old].phase = RankPhase::kExited;
  EXPECT_FALSE(pool_.HasOrphans(node));
}

TEST_F(DevicePoolTest, AQuotaThatMayNotBorrowLimitsTheDemand) {
  pool_.SetQueue({.name = "default", .quota = 2, .may_borrow = false});
  AddRunning("a", {{NodeId("n1"), 0}});
  const LiveJob& job = parts_.AddJob("b");
  EXPECT_EQ(pool_.DemandOf(job).max_ranks, 1);
  pool_.SetQueue({.name = "default", .quota = 2, .may_borrow = true});
  EXPECT_EQ(pool_.DemandOf(job).max_ranks, 2);
}

TEST_F(DevicePoolTest, AJobThatLeavesTheKindOpenGetsGpusIfThereAreEnough) {
  const LiveJob& job = parts_.AddJob("a");
  EXPECT_EQ(pool_.KindOf(job), DeviceKind::kCpu);
  LiveNode& gpus = parts_.AddNode("n3", 1, 5);
  gpus.agent.devices[0].kind = DeviceKind::kCuda;
  parts_.nodes.NoteDevices(gpus);
  EXPECT_EQ(pool_.KindOf(job), DeviceKind::kCuda);
  LiveJob& tried = parts_.AddJob("b");
  tried.planning.min_devices = 2;
  EXPECT_EQ(pool_.KindOf(tried), DeviceKind::kCpu) << "one GPU is not enough";
}

}  // namespace
}  // namespace lynx::server
