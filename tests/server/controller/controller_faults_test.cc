// Tests attribution: what the server says about the cause of a failure, and what it does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/controller/controller_steps.h"

namespace lynx::server {
namespace {

using ::lynx::server::testing::Cluster;
using ::lynx::server::testing::kFour;
using ::lynx::server::testing::kOne;
using ::lynx::server::testing::MakeSpec;
using ::testing::EndsWith;
using ::testing::HasSubstr;

// Runs a job of four ranks on two nodes, n0 and n1.
void FourRanks(Cluster& cluster, JobId& job, std::vector<FailureRule> rules = {}) {
  cluster.AddNode("n0");
  cluster.AddNode("n1");
  JobSpec spec = MakeSpec("gpt", 4, 4);
  spec.max_restarts = 9;
  spec.on_failure = std::move(rules);
  job = cluster.Run(spec, kFour);
}

TEST(ControllerFaults, AFaultThatIsAttributedIsAnEvent) {
  Cluster cluster;
  JobId job;
  FourRanks(cluster, job);
  cluster.StepAll(job, 0);
  cluster.Say(job, 2, RankFailure{"CUDA: an op: cudaErrorECCUncorrectable", false, FaultCause::kDevice});
  EXPECT_THAT(cluster.Kinds(job), HasSubstr("rank-lost fault restarting"));
  EXPECT_EQ(cluster.Events(job)[cluster.Events(job).size() - 2].reason,
            "the failure of rank 2 is attributed to node n1: its device has failed");
  cluster.AllReady(job);
  cluster.StepAll(job, 1);
  cluster.Exit(job, 2, 137);
  EXPECT_THAT(cluster.Kinds(job), EndsWith("running rank-lost restarting")) << "nobody knows who killed it";
}

TEST(ControllerFaults, ACrashThatFollowsTheJobToAnotherNodeFailsIt) {
  Cluster cluster;
  JobId job;
  FourRanks(cluster, job);
  cluster.StepAll(job, 0);
  cluster.Exit(job, 0, 139);
  ASSERT_EQ(cluster.State(job), JobState::kStarting);
  cluster.AllReady(job);
  cluster.StepAll(job, 0);
  cluster.Exit(job, 1, 139);  // rank 1 is on n0 like rank 0, so n0 may be the cause
  cluster.Advance(3);         // the generation did no new step
  ASSERT_EQ(cluster.State(job), JobState::kStarting) << cluster.Record(job).reason;
  cluster.AllReady(job);
  cluster.StepAll(job, 0);
  cluster.Exit(job, 3, 139);
  EXPECT_EQ(cluster.State(job), JobState::kFailed);
  EXPECT_THAT(cluster.Record(job).reason, HasSubstr("rank 3 on node n1 was killed by signal 11; attributed to code: it has "
                                                    "ended so before, in step 1, on another node; no "
                                                    "restart helps"));
}

TEST(ControllerFaults, ARuleOfTheJobComesBeforeAttribution) {
  Cluster cluster;
  JobId job;
  FourRanks(cluster, job, {{.exit_code = 139, .action = FailureAction::kRetry}});
  for (const int32_t rank : {0, 3}) {
    cluster.StepAll(job, 0);
    cluster.Exit(job, rank, 139);
    cluster.Advance(3);
    ASSERT_EQ(cluster.State(job), JobState::kStarting);
    cluster.AllReady(job);
  }
}

constexpr char kBeyond[] =
    "step 1: /data/corpus.bin: token 50256 at position 81923 is outside the vocabulary of 256 (model.vocab)";

TEST(ControllerFaults, ATokenBeyondTheVocabularyFailsTheJobAtOnce) {
  for (const int64_t steps : {0, 1, 6}) {  // number of steps trained before the failure
    SCOPED_TRACE(steps);
    Cluster cluster;
    JobId job;
    FourRanks(cluster, job);
    for (int64_t step = 0; step < steps; ++step) cluster.StepAll(job, step);
    cluster.Say(job, 0, RankFailure{"rank 2 (stage 1, tp 0) gave up", true});
    cluster.Say(job, 2, RankFailure{kBeyond, false, FaultCause::kToken});
    EXPECT_EQ(cluster.State(job), JobState::kFailed);
    EXPECT_EQ(cluster.Record(job).restarts, 0);
    EXPECT_EQ(cluster.Record(job).reason,
              absl::StrCat("rank 2 on node n1: ", kBeyond,
                           "; attributed to data: they have a token that is no word of the model's vocabulary, "
                           "and every run would meet it; no restart helps"));
    EXPECT_THAT(cluster.Kinds(job), EndsWith("running rank-lost fault failed"));
    // The fault was not attributed to the node. So it has no effect when the next job fails on this node.
    const JobId next = cluster.Run(MakeSpec("next", 4, 4), kFour);
    cluster.StepAll(next, 0);
    cluster.Exit(next, 2, 137);
    EXPECT_THAT(cluster.Kinds(next), EndsWith("running rank-lost restarting"));
  }
}

// The rank's own report is lost, so the daemon tells the server how the rank ended.
TEST(ControllerFaults, ATokenBeyondTheVocabularyFailsAJobOfALaterGenerationByItsExitAlone) {
  Cluster cluster;
  JobId job;
  FourRanks(cluster, job);
  cluster.StepAll(job, 0);
  cluster.Exit(job, 0, 137);
  ASSERT_EQ(cluster.Record(job).generation, Generation(2));
  cluster.AllReady(job);
  cluster.RankOf(job, 2)->seen.cause = FaultCause::kToken;
  cluster.Exit(job, 2, 1, kBeyond);
  EXPECT_EQ(cluster.State(job), JobState::kFailed);
  EXPECT_EQ(cluster.Record(job).restarts, 1) << "that of the rank that was killed";
  EXPECT_THAT(cluster.Record(job).reason, HasSubstr(kBeyond));
}

constexpr char kRefused[] =
    "data.path /etc/hostname is not allowed on this node: jobs may use /data (lynx-worker --data-root, --checkpoint-root)";

// Ends a rank as the daemon of its node does when it refuses a path. The nodes may have different roots (the folders that jobs
// may use).
void RefusePath(Cluster& cluster, const JobId& job, int32_t rank) {
  cluster.RankOf(job, rank)->seen.cause = FaultCause::kPath;
  cluster.Exit(job, rank, 1, kRefused);
}

TEST(ControllerFaults, APathThatANodeRefusesFailsTheJobAtOnceWhereNoOthersCouldServe) {
  Cluster cluster;
  for (const char* node : {"n0", "n1"}) cluster.AddNode(node);
  for (int i = 0; i < 2; ++i) {
    const JobId job = cluster.Submit(MakeSpec("wrong", 4, 4));
    cluster.MeasureAll();
    cluster.AnswerPlans(kFour);
    ASSERT_EQ(cluster.NodeOfRank(job, 2), "n1");
    RefusePath(cluster, job, 2);
    EXPECT_EQ(cluster.State(job), JobState::kFailed);
    EXPECT_EQ(cluster.Record(job).restarts, 0);
    EXPECT_EQ(cluster.Record(job).reason, std::string("rank 2 on node n1: ") + kRefused);
    EXPECT_THAT(cluster.Kinds(job), EndsWith("rank-lost fault failed"));
    EXPECT_EQ(cluster.Events(job)[cluster.Events(job).size() - 2].reason,
              "the failure of rank 2 is attributed to the job: it needs a path that the node does not let jobs use");
  }
  // An earlier refused path says nothing about the node. So the next job that fails there restarts as usual.
  JobSpec spec = MakeSpec("gpt", 4, 4);
  const JobId job = cluster.Run(spec, kFour);
  cluster.StepAll(job, 0);
  cluster.Exit(job, 2, 137);
  EXPECT_THAT(cluster.Kinds(job), EndsWith("running rank-lost restarting"));
}

TEST(ControllerFaults, APathThatIsRefusedBeforeAnyStepFailsAJobOfALaterGenerationToo) {
  Cluster cluster;
  JobId job;
  FourRanks(cluster, job);
  cluster.Exit(job, 0, 137);
  ASSERT_EQ(cluster.Record(job).generation, Generation(2));
  RefusePath(cluster, job, 2);
  EXPECT_EQ(cluster.State(job), JobState::kFailed);
  EXPECT_EQ(cluster.Record(job).restarts, 1);
}

// If one node has wrong roots, it must not make all jobs fail that are placed on it.
TEST(ControllerFaults, AJobWhosePathIsRefusedTriesOtherNodesOnce) {
  Cluster cluster;
  for (const char* node : {"n0", "n1", "n2"}) cluster.AddNode(node);
  const JobId job = cluster.Submit(MakeSpec("gpt", 2, 2));
  cluster.MeasureAll();
  cluster.AnswerPlans({.pp = 2});
  const std::string first = cluster.NodeOfRank(job, 0);
  RefusePath(cluster, job, 0);
  EXPECT_THAT(cluster.Kinds(job), EndsWith("rank-lost fault node-excluded restarting"));
  ASSERT_EQ(cluster.State(job), JobState::kStarting);
  const std::string second = cluster.NodeOfRank(job, 0);
  EXPECT_NE(second, first);
  RefusePath(cluster, job, 0);
  EXPECT_EQ(cluster.State(job), JobState::kFailed) << "two of two: the path is wrong";
  EXPECT_EQ(cluster.Record(job).restarts, 1);
  EXPECT_THAT(cluster.Record(job).reason, HasSubstr(std::string("rank 0 on node ") + second + ": " + kRefused));
}

// The node's roots were changed while the job trained, or the job was moved to a node with other roots.
TEST(ControllerFaults, APathThatIsRefusedAfterTrainingIsARestart) {
  for (const int nodes : {2, 3}) {
    Cluster cluster;
    JobId job;
    FourRanks(cluster, job);
    if (nodes == 3) cluster.AddNode("n2");
    cluster.StepAll(job, 0);
    cluster.Exit(job, 0, 137);
    ASSERT_EQ(cluster.Record(job).generation, Generation(2));
    RefusePath(cluster, job, 2);
    cluster.Advance(3);
    EXPECT_EQ(cluster.State(job), JobState::kStarting);
    EXPECT_EQ(cluster.Record(job).generation, Generation(3));
    EXPECT_THAT(cluster.Record(job).reason, HasSubstr("is not allowed on this node"));
    EXPECT_EQ(cluster.NodeOfRank(job, 2), nodes == 3 ? "n2" : "n1");
  }
}

// While a job excludes a node, the node shows this as a condition. A job can exclude at most 16 nodes.
TEST(ControllerFaults, ExcludedNodesAreSeenAndAreNotMoreThanAFew) {
  Cluster cluster;
  for (int i = 0; i < 18; ++i) cluster.AddNode("n" + std::to_string(i), 1);
  JobSpec spec = MakeSpec("gpt", 1, 1);
  spec.max_restarts = 40;
  spec.on_failure = {{.exit_code = 9, .action = FailureAction::kExcludeNode}};
  const JobId job = cluster.Run(spec, kOne);
  std::string first = cluster.NodeOfRank(job, 0), last;
  for (int i = 0; i < 17; ++i) {
    cluster.StepAll(job, i);
    last = cluster.NodeOfRank(job, 0);
    cluster.Exit(job, 0, 9);
    ASSERT_EQ(cluster.State(job), JobState::kStarting) << i;
    cluster.AllReady(job);
  }
  EXPECT_EQ(cluster.Record(job).excluded.size(), 16u);
  EXPECT_EQ(cluster.NodeOfRank(job, 0), last);
  EXPECT_THAT(cluster.Kinds(job), HasSubstr("node-kept"));
  const auto excluded = [&] {
    const std::vector<ReportedCondition> conditions = cluster.controller().ViewOf(NodeId(first)).conditions;
    return conditions.empty() ? std::string() : conditions.front().kind + ": " + conditions.front().message;
  };
  EXPECT_EQ(excluded(), "excluded: job gpt (" + job.value + ") does not use this node, for a failure there");
  cluster.RestartServer();
  cluster.AttachAgent(first);
  EXPECT_THAT(excluded(), HasSubstr("does not use this node"));
  cluster.Cancel(job);
  for (int i = 0; i < 18; ++i) cluster.AttachWorker("n" + std::to_string(i));
  cluster.Settle();
  cluster.ReportAll();
  EXPECT_EQ(cluster.State(job), JobState::kCancelled);
  EXPECT_EQ(excluded(), "");
}

}  // namespace
}  // namespace lynx::server
