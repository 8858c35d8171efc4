// Tests the operator's policy that ranks must encrypt their connections: ranks are told so, and nodes whose ranks cannot
// encrypt get no ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/controller/controller_steps.h"

namespace lynx::server {
namespace {

using ::lynx::server::testing::Cluster;
using ::lynx::server::testing::kTwo;
using ::lynx::server::testing::MakeSpec;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

ControllerOptions With(RankEncryption encryption) {
  ControllerOptions options;
  options.encryption = encryption;
  return options;
}

std::string ReasonOf(Cluster& cluster, const JobId& job, const std::string& kind) {
  std::string reason;
  for (const JobEvent& event : cluster.Events(job)) {
    if (event.kind == kind) reason = event.reason;
  }
  return reason;
}

// Says in its last report whether the node's ranks can encrypt.
void Become(Cluster& cluster, const std::string& node, bool encrypts) {
  cluster.Node(node).encrypts = encrypts;
  cluster.Report(node);
  cluster.Settle();
}

TEST(ControllerEncryption, RanksAreToldAndTheEventSaysIt) {
  for (const RankEncryption encryption : {RankEncryption::kOff, RankEncryption::kOn, RankEncryption::kExceptNccl}) {
    Cluster cluster(With(encryption));
    cluster.AddNode("n0");
    Become(cluster, "n0", true);
    const JobId job = cluster.Run(MakeSpec("gpt", 2, 2), kTwo);
    for (int32_t rank = 0; rank < 2; ++rank) EXPECT_EQ(cluster.RankOf(job, rank)->assignment.encryption, encryption);
    EXPECT_EQ(ReasonOf(cluster, job, "running"), encryption == RankEncryption::kOff
                                                     ? "all ranks run, from initial weights"
                                                     : "all ranks run, from initial weights; their connections are encrypted");
  }
}

// A worker daemon of an earlier release would start ranks that send everything in plain text.
TEST(ControllerEncryption, NodesThatCannotGetNoRanks) {
  Cluster cluster(With(RankEncryption::kOn));
  cluster.AddNode("n0");
  cluster.AddNode("n1");
  Become(cluster, "n1", true);
  const auto conditions = [&](const std::string& node) { return cluster.controller().ViewOf(NodeId(node)).conditions; };
  ASSERT_EQ(conditions("n0").size(), 1u);
  EXPECT_EQ(conditions("n0")[0].kind, "plain");
  EXPECT_THAT(conditions("n0")[0].message, AllOf(HasSubstr("cannot encrypt"), HasSubstr("install the server's release")));
  EXPECT_THAT(conditions("n1"), IsEmpty());

  const JobId job = cluster.Run(MakeSpec("gpt", 2, 2), kTwo);
  EXPECT_EQ(cluster.NodeOfRank(job, 0), "n1");
  EXPECT_EQ(cluster.NodeOfRank(job, 1), "n1");
  const JobId waiting = cluster.Submit(MakeSpec("gpt", 2, 2));
  cluster.Settle();
  EXPECT_EQ(cluster.State(waiting), JobState::kQueued);
  ASSERT_FALSE(cluster.Record(waiting).pending.empty());
  EXPECT_THAT(cluster.Record(waiting).pending[0].text, HasSubstr("2 of nodes that cannot encrypt"));

  Become(cluster, "n0", true);  // its daemon is updated
  EXPECT_THAT(conditions("n0"), IsEmpty());
  cluster.MeasureAll();
  cluster.AnswerPlans(kTwo);
  EXPECT_EQ(cluster.NodeOfRank(waiting, 0), "n0");
}

TEST(ControllerEncryption, WithoutThePolicyEveryNodeServes) {
  Cluster cluster;
  cluster.AddNode("n0");
  const JobId job = cluster.Run(MakeSpec("gpt", 2, 2), kTwo);
  EXPECT_EQ(cluster.NodeOfRank(job, 0), "n0");
  EXPECT_THAT(cluster.controller().ViewOf(NodeId("n0")).conditions, IsEmpty());
}

}  // namespace
}  // namespace lynx::server
