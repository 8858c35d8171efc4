// Tests lynx-rank as real processes: copies of the states in the memory of nodes, and what a generation resumes from if ranks
// or whole nodes are lost. The ranks of a stage share a node. A node is a directory of copies.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <set>

#include "absl/strings/str_cat.h"
#include "tests/worker/rank/rank_processes.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/copies/copy_store.h"

namespace lynx::worker {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::Each;
using testing::Gt;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Le;

constexpr int64_t kSteps = 24;
constexpr int64_t kFaultStep = 15;  // counted from 0; so this number of steps is done before the fault
const JobId kJob("small");
const std::vector<std::string> kAllShards = {"shard-0000-0000.safetensors", "shard-0000-0001.safetensors",
                                             "shard-0001-0000.safetensors", "shard-0001-0001.safetensors"};

std::string NodeDirectory(const TestFolder& folder, int32_t node) { return folder.Path(absl::StrCat("node", node)); }

// Ranks 0 and 1 are on node 0, ranks 2 and 3 on node 1. Only the last checkpoint is written to disk.
std::vector<RankConfig> OnTwoNodes(const TestFolder& folder, int64_t steps = kSteps, int64_t every = 1,
                                   const ParallelLayout& layout = kSmallLayout, const ModelSpec& model = SmallGpt()) {
  return Configs(
      folder, steps,
      [&](RankConfig& config) {
        config.spec.checkpoint.copy_every_steps = every;
        config.copies_directory = NodeDirectory(folder, config.context.pipeline_rank % 2);
      },
      layout, model);
}

std::vector<RankConfig> OnOneNode(const TestFolder& folder, int32_t node, const ParallelLayout& layout = kSmallLayout,
                                  const ModelSpec& model = SmallGpt()) {
  return Configs(
      folder, kSteps,
      [&](RankConfig& config) {
        config.spec.checkpoint.copy_every_steps = 1;
        config.copies_directory = NodeDirectory(folder, node);
      },
      layout, model);
}

// Returns the weights and moments in the shards of the last checkpoint. It leaves out the headers, because they name the
// generation.
std::string LastStates(const TestFolder& folder) {
  std::string states;
  for (const std::string& shard : kAllShards) {
    const std::string file = folder.Read(CheckpointPath("checkpoints", kSteps) + "/" + shard);
    uint64_t header_bytes = 0;
    std::memcpy(&header_bytes, file.data(), sizeof(header_bytes));
    states += file.substr(sizeof(header_bytes) + header_bytes);
  }
  return states;
}

// The result of a run without faults.
struct Undisturbed {
  std::vector<double> losses;
  std::string states;
};
Undisturbed RunUndisturbed(const TestFolder& folder) {
  RankProcesses ranks(folder, Configs(folder, kSteps));
  ranks.ExpectAllExit(kRankExitOk);
  Undisturbed run{ranks.Losses(), LastStates(folder)};
  fs::remove_all(folder.Path("checkpoints"));
  return run;
}

// Runs a first generation from the beginning until rank 3 is killed (see LoseRank3). Returns 0 if there were no copies.
int64_t TryToLoseRank3(const TestFolder& folder, const std::vector<RankConfig>& configs) {
  for (const int32_t node : {0, 1}) fs::remove_all(NodeDirectory(folder, node));
  fs::remove_all(folder.Path("checkpoints"));
  RankProcesses first(folder, configs, /*generation=*/1, {}, {{3, {"kill-forward", kFaultStep}}});
  int64_t known = 0;
  for (int rank = 0; rank < RankProcesses::kRanks; ++rank) {
    EXPECT_EQ(first.ExitCode(rank), rank == 3 ? RankProcesses::kKilled : kRankExitPeerLost) << first.Log(rank);
    for (const StepReport& step : Only<StepReport>(first.Reports(rank))) known = std::max(known, step.copied_steps);
    EXPECT_THAT(Only<CopiesNotice>(first.Reports(rank)), IsEmpty());
  }
  return known;
}

// Runs a first generation in which rank 3 is killed in the middle of a step. Returns the step of the newest copies that a rank
// knew to be complete. On a busy machine rank 3 may be killed before there are copies. Then the run is repeated.
int64_t LoseRank3(const TestFolder& folder, const std::vector<RankConfig>& configs) {
  int64_t known = 0;
  for (int i = 0; i < 20 && known == 0; ++i) known = TryToLoseRank3(folder, configs);
  EXPECT_GT(known, 0);
  return known;
}

std::vector<double> TailOf(const Undisturbed& run, int64_t from) { return {run.losses.begin() + from, run.losses.end()}; }

// Expects that the next generation continues from copies of step `at_least` or later, and ends like the run without faults. In
// the same layout the results must have the same bits.
void ExpectResumed(const TestFolder& folder, const std::vector<RankConfig>& configs, int64_t at_least,
                   const Undisturbed& undisturbed) {
  RankProcesses next(folder, configs, /*generation=*/2);
  next.ExpectAllExit(kRankExitOk);
  const RankReady ready = Only<RankReady>(next.Reports(0)).at(0);
  EXPECT_TRUE(ready.from_copies) << next.Log(0);
  EXPECT_GE(ready.next_step, at_least);
  EXPECT_LE(ready.next_step, kFaultStep);
  const std::vector<double> resumed = next.Losses(), expected = TailOf(undisturbed, ready.next_step);
  if (configs[0].context.layout == kSmallLayout) {
    EXPECT_EQ(resumed, expected);
    EXPECT_TRUE(LastStates(folder) == undisturbed.states);
  } else {
    EXPECT_THAT(resumed, testing::Pointwise(testing::DoubleNear(1e-4), expected));
  }
}

std::vector<std::string> ShardsIn(const TestFolder& folder, int32_t node) {
  std::vector<std::string> files;
  for (const CopyRecord& copy : CopyStore(NodeDirectory(folder, node), kJob).List().copies) files.push_back(copy.shard.file);
  std::sort(files.begin(), files.end());
  files.erase(std::unique(files.begin(), files.end()), files.end());
  return files;
}

TEST(RankCopies, AKilledRankCostsTheStepsSinceTheNewestCopy) {
  const TestFolder folder;
  const Undisturbed undisturbed = RunUndisturbed(folder);
  const int64_t known = LoseRank3(folder, OnTwoNodes(folder));
  EXPECT_GT(known, 0);
  for (const int32_t node : {0, 1}) EXPECT_EQ(ShardsIn(folder, node), kAllShards);
  ExpectResumed(folder, OnTwoNodes(folder), known, undisturbed);
  // After the last checkpoint the copies are not needed.
  for (const int32_t node : {0, 1}) EXPECT_THAT(ShardsIn(folder, node), IsEmpty());
}

// The node of ranks 2 and 3 is lost together with its memory. The copies on the other node have all states.
TEST(RankCopies, ALostNodesStatesAreInTheMemoryOfAnother) {
  const TestFolder folder;
  const Undisturbed undisturbed = RunUndisturbed(folder);
  const int64_t known = LoseRank3(folder, OnTwoNodes(folder));
  fs::remove_all(NodeDirectory(folder, 1));
  ExpectResumed(folder, OnOneNode(folder, 0), known, undisturbed);
}

// The two replicas hold different experts, so each rank sends its own shard to the other node.
TEST(RankCopies, ExpertsOfALostNodeAreInTheMemoryOfAnother) {
  const ParallelLayout layout{.pp = 2, .dp = 2, .ep = 2};
  const TestFolder folder;
  std::vector<double> losses;
  {
    RankProcesses undisturbed(folder, Configs(folder, kSteps, nullptr, layout, SmallMoe()));
    undisturbed.ExpectAllExit(kRankExitOk);
    losses = undisturbed.Losses();
  }
  LoseRank3(folder, OnTwoNodes(folder, kSteps, 1, layout, SmallMoe()));
  for (const int32_t node : {0, 1}) EXPECT_EQ(ShardsIn(folder, node).size(), 4u);
  fs::remove_all(NodeDirectory(folder, 1));
  RankProcesses next(folder, OnOneNode(folder, 0, layout, SmallMoe()), /*generation=*/2);
  next.ExpectAllExit(kRankExitOk);
  const RankReady ready = Only<RankReady>(next.Reports(0)).at(0);
  EXPECT_TRUE(ready.from_copies) << next.Log(0);
  EXPECT_EQ(next.Losses(), (std::vector<double>{losses.begin() + ready.next_step, losses.end()}));
}

TEST(RankCopies, AnotherLayoutGoesOnFromCopies) {
  for (const ParallelLayout& layout : {ParallelLayout{1, 4, 1}, ParallelLayout{4, 1, 1}, ParallelLayout{1, 2, 2}}) {
    const TestFolder folder;
    const Undisturbed undisturbed = RunUndisturbed(folder);
    const int64_t known = LoseRank3(folder, OnTwoNodes(folder));
    fs::remove_all(NodeDirectory(folder, 0));
    ExpectResumed(folder, OnOneNode(folder, 1, layout), known, undisturbed);
  }
}

// Node 0 has lost its copies. Its ranks read everything that they need from node 1.
TEST(RankCopies, StatesAreReadFromTheNodeThatHasThem) {
  const TestFolder folder;
  const Undisturbed undisturbed = RunUndisturbed(folder);
  const int64_t known = LoseRank3(folder, OnTwoNodes(folder));
  fs::remove_all(NodeDirectory(folder, 0));
  ExpectResumed(folder, OnTwoNodes(folder), known, undisturbed);
}

// Damages all copies of the shard that the nodes keep. Returns the steps of these copies.
std::set<int64_t> DamageNewest(const TestFolder& folder, const std::vector<int32_t>& nodes, const std::string& shard) {
  std::set<int64_t> steps;
  for (const int32_t node : nodes) {
    const CopyStore store(NodeDirectory(folder, node), kJob);
    for (const CopyRecord& copy : store.List().copies) {
      if (copy.shard.file != shard) continue;
      const std::string path = fs::path(store.ShardPath(copy.key())).lexically_relative(folder.path());
      std::string content = folder.Read(path);
      content[content.size() / 2] ^= 1;
      folder.Write(path, content);
      steps.insert(copy.key().step);
    }
  }
  return steps;
}

// True if a damaged copy belongs to the step from which the next generation resumes. False if no copy of the shard for this
// step has reached node 0, where the copies are damaged.
bool ResumesBesideADamagedCopy() {
  const TestFolder folder;
  const Undisturbed undisturbed = RunUndisturbed(folder);
  const int64_t known = LoseRank3(folder, OnTwoNodes(folder));
  const std::set<int64_t> damaged = DamageNewest(folder, {0}, kAllShards[2]);
  RankProcesses next(folder, OnTwoNodes(folder), /*generation=*/2);
  next.ExpectAllExit(kRankExitOk);
  const RankReady ready = Only<RankReady>(next.Reports(0)).at(0);
  EXPECT_TRUE(ready.from_copies);
  EXPECT_GE(ready.next_step, known);
  EXPECT_EQ(next.Losses(), TailOf(undisturbed, ready.next_step));
  if (!damaged.contains(ready.next_step)) return false;
  std::string told;
  for (int rank = 0; rank < RankProcesses::kRanks; ++rank) {
    for (const CopiesNotice& notice : Only<CopiesNotice>(next.Reports(rank))) told += notice.reason + "\n";
  }
  EXPECT_THAT(told, AllOf(HasSubstr("passed over: "), HasSubstr(kAllShards[2]), HasSubstr("is damaged")));
  return true;
}

TEST(RankCopies, ADamagedCopyIsToldAndTheOtherPlaceIsRead) {
  bool seen = false;
  for (int i = 0; i < 20 && !seen; ++i) seen = ResumesBesideADamagedCopy();
  EXPECT_TRUE(seen);
}

// All copies of one shard are damaged. So the run continues from the checkpoint on disk.
TEST(RankCopies, WithoutWholeCopiesTheCheckpointCounts) {
  const TestFolder folder;
  const Undisturbed undisturbed = RunUndisturbed(folder);
  const auto with_checkpoints = [&](std::vector<RankConfig> configs) {
    for (RankConfig& config : configs) config.spec.checkpoint.every_steps = 6;
    return configs;
  };
  LoseRank3(folder, with_checkpoints(OnTwoNodes(folder)));
  DamageNewest(folder, {0, 1}, kAllShards[0]);
  RankProcesses next(folder, with_checkpoints(OnTwoNodes(folder)), /*generation=*/2);
  next.ExpectAllExit(kRankExitOk);
  const RankReady ready = Only<RankReady>(next.Reports(0)).at(0);
  EXPECT_FALSE(ready.from_copies);
  EXPECT_THAT(ready.next_step, testing::AnyOf(6, 12));
  EXPECT_EQ(next.Losses(), TailOf(undisturbed, ready.next_step));
}

// If the job's only checkpoint is damaged, copies can replace it.
TEST(RankCopies, CopiesStandInForADamagedCheckpoint) {
  const TestFolder folder;
  const Undisturbed undisturbed = RunUndisturbed(folder);
  std::vector<RankConfig> configs = OnTwoNodes(folder);
  for (RankConfig& config : configs) {
    config.spec.checkpoint.every_steps = 12;
    config.resume_step = 12;
  }
  std::vector<RankConfig> first = configs;
  for (RankConfig& config : first) config.resume_step = -1;
  const int64_t known = LoseRank3(folder, first);
  for (const auto& entry : fs::directory_iterator(folder.Path("checkpoints"))) {
    if (entry.path().filename().string().starts_with("step-")) fs::remove(entry.path() / "index.json");
  }
  ExpectResumed(folder, configs, known, undisturbed);
}

// Generation 2 began again at step 0. So the copies of later steps, which generation 1 made, must not be used.
TEST(RankCopies, WhatAnOlderGenerationDidAfterwardsIsNotTaken) {
  const TestFolder folder;
  LoseRank3(folder, OnTwoNodes(folder));
  for (const int32_t node : {0, 1})
    ASSERT_TRUE(CopyStore(NodeDirectory(folder, node), kJob).MarkResumed({Generation(2), 0}).ok());
  RankProcesses next(folder, OnTwoNodes(folder), /*generation=*/3);
  next.ExpectAllExit(kRankExitOk);
  EXPECT_EQ(Only<RankReady>(next.Reports(0)).at(0).next_step, 0);
  EXPECT_FALSE(Only<RankReady>(next.Reports(0)).at(0).from_copies);
}

// When generation 2 begins, generation 1 continues to train. Each rank reports at most once that it makes no more copies.
TEST(RankCopies, AGenerationThatIsReplacedMakesNoCopies) {
  const TestFolder folder;
  RankProcesses ranks(folder, OnTwoNodes(folder, kEndless));
  ranks.WaitForSteps(0, 3);
  for (const int32_t node : {0, 1})
    ASSERT_TRUE(CopyStore(NodeDirectory(folder, node), kJob).MarkResumed({Generation(2), 0}).ok());
  const auto told = [&] {
    std::vector<std::string> reasons;
    for (int rank = 0; rank < RankProcesses::kRanks; ++rank) {
      for (const CopiesNotice& notice : Only<CopiesNotice>(ranks.Reports(rank))) reasons.push_back(notice.reason);
    }
    return reasons;
  };
  const int64_t before = static_cast<int64_t>(Only<StepReport>(ranks.Reports(0)).size());
  ranks.WaitForSteps(0, before + 40);
  EXPECT_THAT(told(), Each(HasSubstr("generation 2 of the job has begun")));
  EXPECT_THAT(told().size(), AllOf(Gt(0u), Le(4u)));
  const int64_t copied = Only<StepReport>(ranks.Reports(0)).back().copied_steps;
  ranks.WaitForSteps(0, before + 80);
  EXPECT_EQ(Only<StepReport>(ranks.Reports(0)).back().copied_steps, copied);
}

TEST(RankCopies, WithoutRoomNoneAreMadeAndTheReasonIsReported) {
  const TestFolder folder;
  std::vector<RankConfig> configs = OnTwoNodes(folder, 4);
  for (RankConfig& config : configs) config.copies_limit = Bytes(100'000);
  RankProcesses ranks(folder, configs);
  ranks.ExpectAllExit(kRankExitOk);
  const auto notices = Only<CopiesNotice>(ranks.Reports(0));
  ASSERT_EQ(notices.size(), 1u);
  EXPECT_THAT(notices[0].reason, AllOf(HasSubstr("none are made: two of them take"), HasSubstr("--copies-limit-mib")));
  EXPECT_EQ(Only<StepReport>(ranks.Reports(0)).back().copied_steps, 0);
  for (const int32_t node : {0, 1}) EXPECT_THAT(ShardsIn(folder, node), IsEmpty());
}

TEST(RankCopies, ANodeThatCannotKeepThemIsNamed) {
  const TestFolder folder;
  folder.Write("node1", "not a directory");
  RankProcesses ranks(folder, OnTwoNodes(folder, 4));
  ranks.ExpectAllExit(kRankExitOk);
  const auto notices = Only<CopiesNotice>(ranks.Reports(0));
  ASSERT_EQ(notices.size(), 1u);
  EXPECT_THAT(notices[0].reason, AllOf(HasSubstr("rank 2"), HasSubstr("is not a directory of this user")));
}

// Ranks that give way write a checkpoint of the step after which they end, so the copies are deleted.
TEST(RankCopies, RanksThatGiveWayLeaveNoCopies) {
  const TestFolder folder;
  RankProcesses ranks(folder, OnTwoNodes(folder, kEndless));
  ranks.WaitForSteps(0, 5);
  ranks.AskToYield(1);
  ranks.ExpectAllExit(kRankExitYielded);
  for (const int32_t node : {0, 1}) EXPECT_THAT(ShardsIn(folder, node), IsEmpty());
}

TEST(RankCopies, EverySoManySteps) {
  const TestFolder folder;
  RankProcesses ranks(folder, OnTwoNodes(folder, 21, /*every=*/10));
  ranks.ExpectAllExit(kRankExitOk);
  for (const StepReport& step : Only<StepReport>(ranks.Reports(2))) {
    EXPECT_EQ(step.copied_steps % 10, 0);
    EXPECT_LE(step.copied_steps, step.step);
  }
}

}  // namespace
}  // namespace lynx::worker
