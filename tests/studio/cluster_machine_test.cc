#include "studio/cluster_machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "common/clock.h"
#include "studio/answers.h"

namespace lynx {
namespace {

using Json = nlohmann::json;
using ::testing::HasSubstr;

ClusterTopology Cluster() {
  ClusterTopology cluster = UniformCluster(2, 4, StatedCpuProfile(), kGiB * 16);
  cluster.groups.front().name = "kind 1";
  return cluster;
}

Json Answer(const StudioCluster& cluster, Json question) {
  question["machines"] = Json::parse(cluster.machines);
  const RealClock clock;
  const std::string answer = AnswerQuestion(question.dump(), {.clock = &clock});
  return Json::parse(answer.substr(answer.find('\n') + 1));
}

TEST(ClusterMachine, SaysHowManyNodesAreLeftOut) {
  EXPECT_THAT(ClusterMachine(Cluster(), 1).note, HasSubstr("Left out of this cluster: 1 node without measurements"));
  EXPECT_THAT(ClusterMachine(Cluster(), 12).note, HasSubstr("12 nodes"));
  EXPECT_EQ(ClusterMachine(Cluster(), 12).machine, kThisCluster);
}

// A text that cannot be read would take the ready-made machines from the page, too.
TEST(ClusterMachine, IsLeftOutIfItsTextCouldNotBeRead) {
  ClusterTopology cluster = Cluster();
  cluster.groups.front().profile.device_kind = "";
  const StudioCluster made = ClusterMachine(cluster);
  EXPECT_EQ(made.machine, "");
  EXPECT_EQ(made.machines, "[]");
  EXPECT_THAT(made.note, HasSubstr("cannot be planned for: the kind of the devices of kind 1 is unknown"));
}

TEST(ClusterMachine, IsTheMachineToBeginWithAndIsPlannedFor) {
  const StudioCluster cluster = ClusterMachine(Cluster());
  EXPECT_EQ(cluster.machine, kThisCluster);
  EXPECT_EQ(cluster.note, "");
  const Json choices = Answer(cluster, {{"ask", "choices"}});
  const Json& machine = choices["machines"][0];
  EXPECT_EQ(machine["name"], kThisCluster);
  EXPECT_EQ(machine["title"], "This cluster: 2 nodes of 4 devices, as measured");
  EXPECT_EQ(machine["nodes"], 2);
  EXPECT_EQ(machine["devicesPerNode"], 4);
  EXPECT_EQ(machine["memoryBytes"], (kGiB * 16).value);
  EXPECT_EQ(choices["state"]["machine"]["name"], kThisCluster);
  EXPECT_GT(choices["machines"].size(), 5u) << "ready-made machines come after it";

  const Json state{{"model", {{"preset", "gpt-1.3b"}}}, {"machine", {{"name", kThisCluster}}}, {"job", Json::object()}};
  const Json by_name = Answer(cluster, {{"ask", "plan"}, {"request", {{"state", state}}}});
  ASSERT_TRUE(by_name.contains("summary")) << by_name.dump().substr(0, 500);
  // The text says as much as the name, so a link or a file that holds it gives the same plan.
  Json with_text = state;
  with_text["machine"] = {{"text", machine["text"]}};
  const Json by_text = Answer({}, {{"ask", "plan"}, {"request", {{"state", with_text}}}});
  EXPECT_EQ(by_text["summary"]["stepNs"], by_name["summary"]["stepNs"]);
  EXPECT_EQ(by_text["parts"], by_name["parts"]);
}

TEST(ClusterMachine, WithoutNodesSaysSo) {
  const StudioCluster none = ClusterMachine({});
  EXPECT_EQ(none.machine, "");
  EXPECT_EQ(none.machines, "[]");
  EXPECT_THAT(none.note, HasSubstr("No node of this cluster takes ranks now"));
  EXPECT_NE(Answer(none, {{"ask", "choices"}})["state"]["machine"]["name"], kThisCluster);
}

TEST(ClusterMachine, ThatNoFileCanDescribeSaysWhy) {
  ClusterTopology cluster = Cluster();
  cluster.groups.front().memory_per_device = Bytes(0);
  const StudioCluster unknown = ClusterMachine(cluster);
  EXPECT_EQ(unknown.machine, "");
  EXPECT_THAT(unknown.note, HasSubstr("the memory of the devices of kind 1 is unknown"));
}

}  // namespace
}  // namespace lynx
