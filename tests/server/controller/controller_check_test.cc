// Tests the check of nodes before a job trains on them again: when ranks make the check, and what happens if it fails.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/controller/controller_steps.h"

namespace lynx::server {
namespace {

using ::lynx::server::testing::Cluster;
using ::lynx::server::testing::kFour;
using ::lynx::server::testing::kTwo;
using ::lynx::server::testing::MakeSpec;
using ::testing::HasSubstr;

bool Checks(Cluster& cluster, const JobId& job) {
  bool all = true, any = false;
  for (int32_t rank = 0; rank < cluster.Ranks(job); ++rank) {
    const bool one = cluster.RankOf(job, rank)->assignment.check;
    all = all && one;
    any = any || one;
  }
  EXPECT_EQ(all, any) << "all ranks of a generation check, or none";
  return any;
}

// Runs a job of four ranks on n0 and n1 until it has done a step. The cluster has `nodes` nodes.
JobId FourRanks(
    Cluster& cluster, int nodes, const std::function<void(JobSpec&)>& change = [](JobSpec&) {}) {
  for (int i = 0; i < nodes; ++i) cluster.AddNode("n" + std::to_string(i));
  JobSpec spec = MakeSpec("gpt", 4, 4);
  spec.max_restarts = 3;
  change(spec);
  const JobId job = cluster.Run(spec, kFour);
  EXPECT_EQ(cluster.NodeOfRank(job, 0), "n0");
  EXPECT_EQ(cluster.NodeOfRank(job, 3), "n1");
  cluster.StepAll(job, 0);
  return job;
}

std::string LastOf(Cluster& cluster, const JobId& job, const std::string& kind) {
  std::string reason;
  for (const JobEvent& event : cluster.Events(job)) {
    if (event.kind == kind) reason = event.reason;
  }
  return reason;
}

// Simulates that the device of rank `bad` fails the check. This rank reports a wrong result. When the other ranks are asked to
// end, they report that a rank failed its check.
void FailCheck(Cluster& cluster, const JobId& job, int32_t bad) {
  for (int32_t rank = 0; rank < cluster.Ranks(job); ++rank) {
    if (rank != bad) cluster.RankOf(job, rank)->last_words = RankMessage{.report = RankFailure{"rank failed its check", true}};
  }
  cluster.Say(job, bad, RankFailure{"node check: the product of 256 x 256 is wrong", false, FaultCause::kCheck});
}

TEST(ControllerCheck, RanksCheckAfterAFailureThatMayBeANodes) {
  Cluster cluster;
  const JobId job = FourRanks(cluster, 2);
  EXPECT_FALSE(Checks(cluster, job)) << "nothing has failed";
  cluster.Exit(job, 1, 137);
  ASSERT_EQ(cluster.State(job), JobState::kStarting);
  EXPECT_TRUE(Checks(cluster, job));
  EXPECT_TRUE(cluster.Stored(job).check_due);
  cluster.Say(job, 0, NodeCheckReport{Nanos(200'000'000), 4, 6, 900'000'000});
  EXPECT_FALSE(cluster.Stored(job).check_due);
  EXPECT_EQ(LastOf(cluster, job, "node-check"), "the check passed in 200.0 ms: 4 devices, 6 links, the slowest 858.3 MiB/s");
  cluster.AllReady(job);
  EXPECT_EQ(cluster.Record(job).restart_charge, 1) << "a check that has passed costs nothing";
}

TEST(ControllerCheck, TheJobFileMayAskForOneAtEveryStart) {
  Cluster cluster;
  const JobId job = FourRanks(cluster, 2, [](JobSpec& spec) { spec.node_check = NodeCheckPolicy::kAlways; });
  EXPECT_EQ(cluster.Record(job).generation, Generation(1));
  EXPECT_TRUE(Checks(cluster, job));
  cluster.Say(job, 0, NodeCheckReport{Nanos(200'000'000), 4, 6, 900'000'000});
  cluster.Say(job, 1, RankFailure{"no", false, FaultCause::kProgram});
  ASSERT_EQ(cluster.State(job), JobState::kStarting);
  EXPECT_TRUE(Checks(cluster, job)) << "whatever it was";
}

TEST(ControllerCheck, TheJobFileMayAskForNone) {
  Cluster cluster;
  const JobId job = FourRanks(cluster, 2, [](JobSpec& spec) { spec.node_check = NodeCheckPolicy::kNever; });
  cluster.Exit(job, 1, 137);
  ASSERT_EQ(cluster.State(job), JobState::kStarting);
  EXPECT_FALSE(Checks(cluster, job));
}

TEST(ControllerCheck, ThatACheckIsDueSurvivesTheServer) {
  Cluster cluster;
  const JobId job = FourRanks(cluster, 2);
  cluster.Node("n1").obedient = false;  // so that the generation is still ending when the server restarts
  cluster.Exit(job, 0, 137);
  cluster.RestartServer();
  for (const char* node : {"n0", "n1"}) {
    cluster.Node(node).obedient = true;
    cluster.AttachAgent(node);
    cluster.AttachWorker(node);
  }
  cluster.Settle();
  cluster.Advance(3);
  ASSERT_EQ(cluster.State(job), JobState::kStarting);
  EXPECT_TRUE(Checks(cluster, job));
  cluster.RestartServer();
  for (const char* node : {"n0", "n1"}) {
    cluster.AttachAgent(node);
    cluster.AttachWorker(node);
  }
  cluster.Settle();
  EXPECT_TRUE(Checks(cluster, job));
}

TEST(ControllerCheck, RanksDoNotCheckAfterOtherFailures) {
  for (const FaultCause cause : {FaultCause::kMemory, FaultCause::kData, FaultCause::kProgram}) {
    Cluster cluster;
    const JobId job = FourRanks(cluster, 2);
    cluster.Say(job, 1, RankFailure{"no", false, cause});
    cluster.AnswerPlans(kFour);
    ASSERT_EQ(cluster.State(job), JobState::kStarting) << EnumName(cause);
    EXPECT_FALSE(Checks(cluster, job)) << EnumName(cause);
  }
  for (const FaultCause cause : {FaultCause::kDisk, FaultCause::kDevice, FaultCause::kUnknown}) {
    Cluster cluster;
    const JobId job = FourRanks(cluster, 2);
    cluster.Say(job, 1, RankFailure{"no", false, cause});
    ASSERT_EQ(cluster.State(job), JobState::kStarting) << EnumName(cause);
    EXPECT_TRUE(Checks(cluster, job)) << EnumName(cause);
  }
}

TEST(ControllerCheck, ANodeThatFailsIsLeftOutAndCostsNothing) {
  Cluster cluster;
  const JobId job = FourRanks(cluster, 3);
  cluster.Exit(job, 1, 137);
  ASSERT_EQ(cluster.State(job), JobState::kStarting);
  FailCheck(cluster, job, 2);
  ASSERT_EQ(cluster.State(job), JobState::kStarting) << cluster.Record(job).reason;
  EXPECT_EQ(cluster.Record(job).excluded, std::vector<NodeId>{NodeId("n1")});
  EXPECT_EQ(cluster.Record(job).restart_charge, 1) << "what was spent before";
  EXPECT_EQ(LastOf(cluster, job, "fault"),
            "the failure of rank 2 is attributed to node n1: the check of a device there has failed");
  EXPECT_EQ(LastOf(cluster, job, "node-excluded"),
            "node n1 is not used for this job any more: the check of a device there has failed");
  for (int32_t rank = 0; rank < 4; ++rank) EXPECT_NE(cluster.NodeOfRank(job, rank), "n1");
  EXPECT_TRUE(Checks(cluster, job)) << "the others have not passed yet";
  EXPECT_EQ(cluster.controller().ViewOf(NodeId("n1")).conditions.front().kind, "excluded");
}

TEST(ControllerCheck, ABadLinkIsTheNodesThatHasSeveral) {
  Cluster cluster;
  for (int i = 0; i < 5; ++i) cluster.AddNode("n" + std::to_string(i), 1);
  JobSpec spec = MakeSpec("gpt", 4, 4);
  const JobId job = cluster.Run(spec, ParallelLayout{1, 4, 1});
  cluster.StepAll(job, 0);
  cluster.Exit(job, 3, 137);
  const std::string bad = cluster.NodeOfRank(job, 1);
  cluster.RankOf(job, 1)->last_words = RankMessage{.report = RankFailure{"a peer gave up", true}};
  cluster.RankOf(job, 3)->last_words =
      RankMessage{.report = RankFailure{"the link to rank 1 is slow", false, FaultCause::kLink, {1}}};
  cluster.Say(job, 0, RankFailure{"the link to rank 1 is slow", false, FaultCause::kLink, {1}});
  ASSERT_EQ(cluster.State(job), JobState::kStarting) << cluster.Record(job).reason;
  EXPECT_EQ(cluster.Record(job).excluded, std::vector<NodeId>{NodeId(bad)});
  EXPECT_THAT(LastOf(cluster, job, "fault"), HasSubstr("its links to nodes"));
}

TEST(ControllerCheck, OfALinkThatIsAloneTheNodeThatFailedBeforeIsLeftOut) {
  Cluster cluster;
  const JobId job = FourRanks(cluster, 3);
  cluster.Exit(job, 1, 137);  // the rank is on n0
  cluster.RankOf(job, 2)->last_words = RankMessage{.report = RankFailure{"a peer gave up", true}};
  cluster.Say(job, 0, RankFailure{"the link to rank 2 is slow", false, FaultCause::kLink, {2}});
  EXPECT_EQ(cluster.Record(job).excluded, std::vector<NodeId>{NodeId("n0")});
  EXPECT_THAT(LastOf(cluster, job, "node-excluded"), HasSubstr("of the two it has failed more often within the hour"));
}

TEST(ControllerCheck, ARankThatSaysNothingIsToBlameForItsLink) {
  Cluster cluster;
  const JobId job = FourRanks(cluster, 3);
  cluster.Exit(job, 1, 137);  // the rank is on n0
  cluster.Node("n1").obedient = false;
  cluster.Say(job, 0, RankFailure{"rank 2 does not answer", false, FaultCause::kLink, {2}});
  for (const int32_t rank : {2, 3}) cluster.Exit(job, rank, 137);  // the ranks were frozen, so they had to be killed
  cluster.Node("n1").obedient = true;
  cluster.Settle();
  cluster.ReportAll();
  EXPECT_EQ(cluster.Record(job).excluded, std::vector<NodeId>{NodeId("n1")}) << cluster.Kinds(job);
}

TEST(ControllerCheck, WhereNoNodeIsLeftTheBadOneIsUsedFurther) {
  Cluster cluster;
  cluster.AddNode("n0", 4);
  JobSpec spec = MakeSpec("gpt", 4, 4);
  spec.max_restarts = 3;
  const JobId job = cluster.Run(spec, kFour);
  cluster.StepAll(job, 0);
  cluster.Exit(job, 1, 137);
  ASSERT_EQ(cluster.State(job), JobState::kStarting);
  FailCheck(cluster, job, 2);
  EXPECT_THAT(LastOf(cluster, job, "node-kept"), HasSubstr("node n0 is used further, though the check of a device there has "
                                                           "failed: there is no other that the job could run on"));
  EXPECT_TRUE(cluster.Record(job).excluded.empty());
  cluster.Advance(5);
  ASSERT_EQ(cluster.State(job), JobState::kStarting) << cluster.Record(job).reason;
  EXPECT_EQ(cluster.Record(job).restart_charge, 3) << "it trained no step: two, as any";
  FailCheck(cluster, job, 2);
  cluster.Advance(5);
  EXPECT_EQ(cluster.State(job), JobState::kFailed) << "the budget ends it";
  EXPECT_THAT(cluster.Record(job).reason, HasSubstr("node check: the product"));
}

TEST(ControllerCheck, WithTooFewNodesLeftTheJobWaitsAndSaysWhy) {
  Cluster cluster;
  const JobId job = FourRanks(cluster, 2);
  cluster.Exit(job, 1, 137);
  FailCheck(cluster, job, 3);
  EXPECT_EQ(cluster.State(job), JobState::kQueued);
  cluster.Advance(1);
  EXPECT_THAT(cluster.Record(job).reason, HasSubstr("without its excluded nodes n1"));
  cluster.AddNode("n2");
  cluster.Advance(1);
  EXPECT_EQ(cluster.State(job), JobState::kStarting);
  EXPECT_TRUE(Checks(cluster, job));
}

TEST(ControllerCheck, AnElasticJobShrinksOntoTheOthers) {
  Cluster cluster;
  const JobId job = FourRanks(cluster, 2, [](JobSpec& spec) { spec.resources.min_ranks = 2; });
  cluster.Exit(job, 1, 137);
  FailCheck(cluster, job, 3);
  cluster.AnswerPlans(kTwo);
  ASSERT_EQ(cluster.State(job), JobState::kStarting) << cluster.Record(job).reason;
  ASSERT_EQ(cluster.Ranks(job), 2);
  for (const int32_t rank : {0, 1}) EXPECT_EQ(cluster.NodeOfRank(job, rank), "n0");
  EXPECT_TRUE(Checks(cluster, job));
}

TEST(ControllerCheck, ARuleThatFailsTheJobComesFirst) {
  Cluster cluster;
  const JobId job =
      FourRanks(cluster, 3, [](JobSpec& spec) { spec.on_failure = {{.log = "node check", .action = FailureAction::kFail}}; });
  cluster.Exit(job, 1, 137);
  FailCheck(cluster, job, 2);
  EXPECT_EQ(cluster.State(job), JobState::kFailed);
  EXPECT_TRUE(cluster.Record(job).excluded.empty());
}

}  // namespace
}  // namespace lynx::server
