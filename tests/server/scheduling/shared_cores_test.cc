#include "server/scheduling/shared_cores.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/controller/controller_fixture.h"

namespace lynx::server {
namespace {

using ::lynx::server::testing::Cluster;
using ::lynx::server::testing::MakeSpec;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

TEST(SharedCores, DevicesOnCoresOfTheirOwnShareNothing) {
  EXPECT_THAT(SharedCoresOf({{"m", {0}}, {"m", {1}}, {"other", {0}}, {"other", {1}}}), IsEmpty());
  EXPECT_THAT(SharedCoresOf({{"m", {}}, {"m", {}}}), IsEmpty()) << "cores that nobody knows";
}

TEST(SharedCores, DevicesOfSeveralNodesOnOneCoreShareIt) {
  EXPECT_THAT(SharedCoresOf({{"m", {0}}, {"m", {0}}, {"m", {1}}, {"m", {0}}}), ElementsAre(SharedCores{{0, 1, 3}, 1000}));
  EXPECT_THAT(SharedCoresOf({{"m", {0}}, {"m", {0}}, {"m", {1}}, {"m", {1}}}),
              ElementsAre(SharedCores{{0, 1}, 1000}, SharedCores{{2, 3}, 1000}));
}

TEST(SharedCores, DevicesOfSeveralCoresShareThoseThatOverlap) {
  // Each device wants both of the two cores.
  EXPECT_THAT(SharedCoresOf({{"m", {0, 1}}, {"m", {0, 1}}}), ElementsAre(SharedCores{{0, 1}, 1000}));
  // Devices whose cores overlap form one group. Here two devices share three cores, and each wants two of them. So one and a
  // half devices can run at once.
  EXPECT_THAT(SharedCoresOf({{"m", {0, 1}}, {"m", {1, 2}}}), ElementsAre(SharedCores{{0, 1}, 1500}));
  EXPECT_THAT(SharedCoresOf({{"m", {2, 3}}, {"m", {0, 1}}, {"m", {1, 2}}}), ElementsAre(SharedCores{{0, 1, 2}, 2000}));
}

TEST(SharedCores, ALimitIsSharedByItsGroup) {
  // One machine has two containers with one and a half cores each. Two devices are in one container, and one device is in the
  // other.
  const auto use = [](int32_t core, const std::string& group) { return CoreUse{"m", {core}, group, 1500}; };
  EXPECT_THAT(SharedCoresOf({use(0, "a"), use(1, "a"), use(2, "b")}), ElementsAre(SharedCores{{0, 1}, 1500}));
  EXPECT_THAT(SharedCoresOf({use(0, "a"), use(0, "a"), use(1, "a")}),
              UnorderedElementsAre(SharedCores{{0, 1}, 1000}, SharedCores{{0, 1, 2}, 1500}));
  EXPECT_THAT(SharedCoresOf({{"m", {0}, "a", 400}}), ElementsAre(SharedCores{{0}, 400}));
  EXPECT_THAT(SharedCoresOf({{"m", {0}, "a", 2000}, {"m", {1}, "a", 1000}}), ElementsAre(SharedCores{{0, 1}, 1000}))
      << "the lower one";
}

TEST(SharedCores, AUseIsOfACpu) {
  AgentState node{
      .node = NodeId("n0"),
      .devices = {{.index = 3, .kind = DeviceKind::kCpu, .cores = {7}}, {.index = 4, .kind = DeviceKind::kCuda, .cores = {7}}}};
  EXPECT_EQ(CoreUseOf(node, 3).machine, "node n0");
  node.cores = {.machine = "m", .limit_group = "g", .limit_permille = 500};
  const CoreUse use = CoreUseOf(node, 3);
  EXPECT_EQ(use.machine, "m");
  EXPECT_THAT(use.cores, ElementsAre(7));
  EXPECT_EQ(use.limit_group, "g");
  EXPECT_EQ(use.limit_permille, 500);
  EXPECT_THAT(CoreUseOf(node, 4).cores, IsEmpty());
  EXPECT_THAT(CoreUseOf(node, 5).cores, IsEmpty());
}

// Returns the shared cores for a job on two nodes with two devices each. The devices of each node are on cores 0 and 1.
std::vector<SharedCores> PlannedFor(const std::string& machine_of_second) {
  Cluster cluster;
  for (const std::string name : {"n0", "n1"}) {
    cluster.AddNode(name, 2, DeviceKind::kCpu);
    cluster.Node(name).agent.cores.machine = name == "n0" ? "m" : machine_of_second;
    cluster.AttachAgent(name);
  }
  cluster.Submit(MakeSpec("gpt", 4, 4));
  cluster.MeasureAll();
  EXPECT_EQ(cluster.plans().size(), 1u);
  return cluster.plans().empty() ? std::vector<SharedCores>() : cluster.plans().front().request.cluster.shared_cores;
}

TEST(SharedCores, AJobOnTwoNodesOfOneMachineIsPlannedForTheCoresThatTheyShare) {
  EXPECT_THAT(PlannedFor("m"), ElementsAre(SharedCores{{0, 2}, 1000}, SharedCores{{1, 3}, 1000}));
  EXPECT_THAT(PlannedFor("other"), IsEmpty());
  EXPECT_THAT(PlannedFor(""), IsEmpty());
}

}  // namespace
}  // namespace lynx::server
