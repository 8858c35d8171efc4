// Tests lynx-rank as real processes: what it resumes from, when it gives way, and what it does if a checkpoint cannot be
// written.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>

#include "tests/worker/rank/rank_processes.h"
#include "worker/checkpoint/checkpoint.h"

namespace lynx::worker {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr int kShards = 4;
const char* const kAnyShard = "shard-0001-0000.safetensors";

// Writes a checkpoint every four steps, and keeps all of them.
void EveryFour(RankConfig& config) {
  config.spec.checkpoint.every_steps = 4;
  config.spec.checkpoint.keep = 10;
}
void EveryTwo(RankConfig& config) { config.spec.checkpoint.every_steps = 2; }

std::string DirectoryOf(const TestFolder& folder) { return SmallConfig(folder, 1, 0).checkpoint_directory; }

void Damage(const TestFolder& folder, int64_t step, const std::string& shard = kAnyShard) {
  const std::string path = CheckpointPath("checkpoints", step) + "/" + shard;
  std::string content = folder.Read(path);
  ASSERT_FALSE(content.empty()) << path;
  content[content.size() / 2] ^= 1;
  folder.Write(path, content);
}

// Expects that every rank ends without a step, because of its own failure or because it lost a peer.
void ExpectRefused(RankProcesses& ranks, const std::string& reason) {
  int own = 0;
  for (int rank = 0; rank < RankProcesses::kRanks; ++rank) {
    const int exit_code = ranks.ExitCode(rank);
    EXPECT_TRUE(exit_code == kRankExitFailure || exit_code == kRankExitPeerLost) << exit_code;
    own += exit_code == kRankExitFailure ? 1 : 0;
    const std::vector<RankReport> reports = ranks.Reports(rank);
    EXPECT_TRUE(Only<RankReady>(reports).empty() && Only<StepReport>(reports).empty());
    ASSERT_EQ(Only<RankFailure>(reports).size(), 1u);
    EXPECT_THAT(Only<RankFailure>(reports)[0].reason, HasSubstr(reason));
  }
  EXPECT_GE(own, 1);
}

std::vector<int64_t> StepsOf(const std::vector<CheckpointReport>& reports) {
  std::vector<int64_t> steps;
  for (const CheckpointReport& report : reports) steps.push_back(report.step);
  return steps;
}

std::vector<double> TailOf(const std::vector<double>& losses, int64_t from) { return {losses.begin() + from, losses.end()}; }

// Trains ten steps with checkpoints at 4, 8 and 10. Returns all losses.
std::vector<double> TrainTen(const TestFolder& folder) {
  RankProcesses ranks(folder, Configs(folder, 10, EveryFour));
  ranks.ExpectAllExit(kRankExitOk);
  return ranks.Losses();
}

// The reports of the newest checkpoints may be lost with the machine on which rank 0 ran.
TEST(RankCheckpoint, ResumesFromTheNewestWholeOneWhateverTheServerKnows) {
  for (const int64_t known : {-1, 4, 8}) {
    const TestFolder folder;
    const std::vector<double> losses = TrainTen(folder);
    fs::remove_all(CheckpointPath(DirectoryOf(folder), 10));
    // Checkpoint 4 is missing, as if it had been removed because of a newer checkpoint.
    if (known == 4) fs::remove_all(CheckpointPath(DirectoryOf(folder), 4));
    RankProcesses next(folder,
                       Configs(folder, 10,
                               [&](RankConfig& config) {
                                 EveryFour(config);
                                 config.resume_step = known;
                               }),
                       /*generation=*/2);
    next.ExpectAllExit(kRankExitOk);
    EXPECT_EQ(next.Losses(), TailOf(losses, 8));
    for (int rank = 0; rank < RankProcesses::kRanks; ++rank) {
      EXPECT_EQ(Only<RankReady>(next.Reports(rank)).at(0).next_step, 8);
    }
    // The reports name the checkpoints that the server did not know.
    const std::vector<int64_t> reported = StepsOf(Only<CheckpointReport>(next.Reports(0)));
    EXPECT_EQ(reported, known == 8 ? std::vector<int64_t>{10} : (std::vector<int64_t>{8, 10}));
  }
}

// The server does not know the last checkpoint, as if rank 0 had been killed before it reported the checkpoint.
TEST(RankCheckpoint, AFinishedRunFinishesAgain) {
  const TestFolder folder;
  TrainTen(folder);
  RankProcesses next(folder, Configs(folder, 10, EveryFour), /*generation=*/2);
  next.ExpectAllExit(kRankExitOk);
  EXPECT_THAT(next.Losses(), IsEmpty());
  const std::vector<RankReport> reports = next.Reports(0);
  EXPECT_EQ(Only<RankReady>(reports).at(0).next_step, 10);
  EXPECT_EQ(StepsOf(Only<CheckpointReport>(reports)), std::vector<int64_t>{10});
  EXPECT_EQ(Only<RankDone>(reports).size(), 1u);
}

TEST(RankCheckpoint, ADamagedOneIsPassedOverAndReplaced) {
  const TestFolder folder;
  const std::vector<double> losses = TrainTen(folder);
  fs::remove_all(CheckpointPath(DirectoryOf(folder), 10));
  Damage(folder, 8);
  RankProcesses next(folder,
                     Configs(folder, 10,
                             [](RankConfig& config) {
                               EveryFour(config);
                               config.resume_step = 8;
                             }),
                     /*generation=*/2);
  next.ExpectAllExit(kRankExitOk);
  EXPECT_EQ(next.Losses(), TailOf(losses, 4));
  EXPECT_THAT(next.Log(0), AllOf(HasSubstr("is passed over"), HasSubstr("step-00000008"), HasSubstr(kAnyShard)));
  EXPECT_EQ(StepsOf(Only<CheckpointReport>(next.Reports(0))), (std::vector<int64_t>{8, 10}));
}

// Each run continues from a checkpoint of the previous run, with another layout. If the newest checkpoint is damaged, the run
// continues from an older one and later replaces the damaged one.
TEST(RankCheckpoint, AnotherLayoutGoesOn) {
  const TestFolder folder;
  const std::vector<double> losses = TrainTen(folder);
  const ParallelLayout layouts[] = {{.tp = 4}, {.pp = 4}, {.tp = 2, .dp = 2}, {.pp = 2, .dp = 2}};
  int64_t generation = 1;
  for (const ParallelLayout& layout : layouts) {
    SCOPED_TRACE(LayoutText(layout));
    ++generation;
    Damage(folder, 10, "shard-0000-0000.safetensors");
    fs::remove_all(CheckpointPath(DirectoryOf(folder), 8));
    RankProcesses next(folder, Configs(folder, 10, EveryFour, layout), generation);
    next.ExpectAllExit(kRankExitOk);
    EXPECT_EQ(Only<RankReady>(next.Reports(0)).at(0).next_step, 4);
    EXPECT_THAT(next.Log(0), AllOf(HasSubstr("is passed over"), HasSubstr("step-00000010")));
    EXPECT_EQ(StepsOf(Only<CheckpointReport>(next.Reports(0))), (std::vector<int64_t>{4, 8, 10}));
    const std::vector<double> continued = next.Losses();
    ASSERT_EQ(continued.size(), 6u);
    for (size_t i = 0; i < continued.size(); ++i) {
      EXPECT_NEAR(continued[i], losses[i + 4], 1e-4 * losses[i + 4]);  // relative tolerance between layouts
    }
  }
}

// Replicas hold different experts, so all of them write shards. Each run checks its nodes, and continues from the checkpoint of
// step 4 that the first run wrote.
TEST(RankCheckpoint, ExpertsGoOnInTheirLayoutAndInOthers) {
  const TestFolder folder;
  const auto change = [](RankConfig& config) {
    EveryFour(config);
    config.check = true;
  };
  const ParallelLayout first{.pp = 2, .dp = 2, .ep = 2};
  std::vector<double> losses;
  {
    RankProcesses ranks(folder, Configs(folder, 10, change, first, SmallMoe()));
    ranks.ExpectAllExit(kRankExitOk);
    losses = ranks.Losses();
  }
  ASSERT_EQ(losses.size(), 10u);
  int64_t generation = 1;
  for (const ParallelLayout& layout :
       {first, ParallelLayout{.dp = 4}, ParallelLayout{.dp = 4, .ep = 4, .zero = ZeroStage::kOptimizer},
        ParallelLayout{.tp = 2, .dp = 2, .ep = 4, .sequence_parallel = true}}) {
    SCOPED_TRACE(LayoutText(layout));
    for (const int64_t step : {8, 10}) fs::remove_all(CheckpointPath(DirectoryOf(folder), step));
    RankProcesses next(folder, Configs(folder, 10, change, layout, SmallMoe()), ++generation);
    next.ExpectAllExit(kRankExitOk);
    const std::vector<double> continued = next.Losses();
    ASSERT_EQ(continued.size(), 6u);
    if (layout == first) EXPECT_EQ(continued, TailOf(losses, 4));
    for (size_t i = 0; i < continued.size(); ++i) EXPECT_NEAR(continued[i], losses[i + 4], 1e-4 * losses[i + 4]);
  }
}

TEST(RankCheckpoint, NoneWholeIsAnErrorAndNeverAFreshStart) {
  for (const int64_t known : {-1, 10}) {
    const TestFolder folder;
    TrainTen(folder);
    for (const int64_t step : {4, 8, 10}) Damage(folder, step);
    RankProcesses next(folder,
                       Configs(folder, 10,
                               [&](RankConfig& config) {
                                 EveryFour(config);
                                 config.resume_step = known;
                               }),
                       /*generation=*/2);
    ExpectRefused(next, "is whole");
    const std::string reason = Only<RankFailure>(next.Reports(0)).at(0).reason;
    EXPECT_THAT(reason, AllOf(HasSubstr("step-00000004"), HasSubstr("step-00000010"), HasSubstr("SHA-256")));
  }
}

// An unreadable checkpoint does not tell which job wrote it. It may belong to this job, so the job must not begin at step 0.
TEST(RankCheckpoint, AnUnreadableOneIsNoReasonForAFreshStartEither) {
  const TestFolder folder;
  fs::create_directories(DirectoryOf(folder) + "/step-00000004");
  RankProcesses second(folder, Configs(folder, 2), /*generation=*/2);
  ExpectRefused(second, "index.json is missing");
  // The first generation has no predecessor, so the unreadable checkpoint is not of its job. The job begins at step 0.
  const TestFolder another;
  fs::create_directories(DirectoryOf(another) + "/step-00000004");
  RankProcesses first(another, Configs(another, 2), /*generation=*/1);
  first.ExpectAllExit(kRankExitOk);
}

TEST(RankCheckpoint, AMissingOneIsAnErrorAndNeverAFreshStart) {
  const TestFolder folder;
  RankProcesses ranks(folder, Configs(folder, 5, [](RankConfig& config) { config.resume_step = 3; }));
  ExpectRefused(ranks, "though one of step 3 was published");
}

TEST(RankCheckpoint, ChangedDataIsRefused) {
  const TestFolder folder;
  TrainTen(folder);
  fs::remove_all(CheckpointPath(DirectoryOf(folder), 10));
  const std::string other = folder.Write("other", std::string(1000, 'x'));
  RankProcesses next(folder, Configs(folder, 10, [&](RankConfig& config) { config.spec.data.path = other; }),
                     /*generation=*/2);
  ExpectRefused(next, "the data is text of");
}

// The older generation is on nodes that cannot be reached. So it continues to train when the newer generation begins.
TEST(RankCheckpoint, ASuccessorStopsAnOlderGenerationAtItsNextCheckpoint) {
  const TestFolder folder;
  RankProcesses older(folder, Configs(folder, kEndless, EveryTwo), /*generation=*/4);
  older.WaitForSteps(0, 4);
  RankProcesses newer(folder, Configs(folder, kEndless, EveryTwo), /*generation=*/5);
  newer.WaitForSteps(0, 4);
  for (int rank = 0; rank < RankProcesses::kRanks; ++rank) {
    const int exit_code = older.ExitCode(rank);
    EXPECT_TRUE(exit_code == kRankExitFailure || exit_code == kRankExitPeerLost) << exit_code << older.Log(rank);
    EXPECT_THAT(Only<RankFailure>(older.Reports(rank)).at(0).reason, HasSubstr("(generation 4) has been replaced"));
  }
  // The newer generation began with the newest checkpoint that it found. At the same time, the older one may have published one
  // more checkpoint, two steps later.
  const int64_t first = Only<RankReady>(newer.Reports(0)).at(0).next_step;
  EXPECT_GE(first, 2);
  EXPECT_GE(first + 2, StepsOf(Only<CheckpointReport>(older.Reports(0))).back());
}

TEST(RankCheckpoint, AnOlderGenerationThatComesLateTrainsNothing) {
  const TestFolder folder;
  RankProcesses newer(folder, Configs(folder, 2, EveryTwo), /*generation=*/5);
  newer.ExpectAllExit(kRankExitOk);
  RankProcesses older(folder, Configs(folder, kEndless, EveryTwo), /*generation=*/4);
  ExpectRefused(older, "(generation 4) has been replaced");
}

// The same job file, with an explicit checkpoint.directory, is submitted again.
TEST(RankCheckpoint, AnotherJobsCheckpointInTheWayIsFoundBeforeTheFirstStep) {
  const TestFolder folder;
  TrainTen(folder);
  const auto another_job = [](RankConfig& config) { config.job = JobId("again"); };
  RankProcesses again(folder, Configs(folder, 10, another_job), /*generation=*/2);
  ExpectRefused(again, "step-00000010 is a checkpoint of another run, of job small");
  EXPECT_THAT(Only<RankFailure>(again.Reports(0)).at(0).reason, HasSubstr("checkpoint.directory"));
  // If a job writes no checkpoint of the same steps, it is accepted, and it does not change the checkpoints of the other job.
  RankProcesses apart(folder, Configs(folder, 9, another_job), /*generation=*/3);
  apart.ExpectAllExit(kRankExitOk);
  for (const int64_t step : {4, 8, 9, 10}) EXPECT_TRUE(fs::exists(CheckpointPath(DirectoryOf(folder), step))) << step;
}

// Sets up a second job, which begins with a checkpoint of the first job and has a directory of its own.
void GoOnFromTheFirst(const TestFolder& folder, RankConfig& config) {
  EveryFour(config);
  config.job = JobId("second");
  config.spec.checkpoint.from = DirectoryOf(folder);
  config.checkpoint_directory += "-of-second";
}

TEST(RankCheckpoint, AnotherJobGoesOnInAnotherLayout) {
  const TestFolder folder;
  const std::vector<double> losses = TrainTen(folder);
  fs::remove_all(CheckpointPath(DirectoryOf(folder), 10));
  Damage(folder, 8);
  const ParallelLayout layout{.tp = 1, .pp = 4, .dp = 1};
  const auto configs = [&] {
    return Configs(
        folder, 10, [&](RankConfig& config) { GoOnFromTheFirst(folder, config); }, layout);
  };
  RankProcesses second(folder, configs(), /*generation=*/2);
  second.ExpectAllExit(kRankExitOk);
  ASSERT_EQ(Only<RankReady>(second.Reports(0)).size(), 1u);
  EXPECT_EQ(Only<RankReady>(second.Reports(0))[0].next_step, 4);
  EXPECT_THAT(second.Log(0), AllOf(HasSubstr("is passed over"), HasSubstr("step-00000008")));
  // The second job does not own the checkpoint with which it began, so it does not report it.
  EXPECT_EQ(StepsOf(Only<CheckpointReport>(second.Reports(0))), (std::vector<int64_t>{8, 10}));
  const std::vector<double> continued = second.Losses();
  ASSERT_EQ(continued.size(), 6u);
  for (size_t i = 0; i < continued.size(); ++i) {
    EXPECT_NEAR(continued[i], losses[i + 4], 1e-4 * losses[i + 4]);  // relative tolerance between layouts
  }
  // Later generations of the second job resume from its own checkpoints.
  fs::remove_all(DirectoryOf(folder));
  RankProcesses again(folder, configs(), /*generation=*/3);
  again.ExpectAllExit(kRankExitOk);
  EXPECT_EQ(Only<RankReady>(again.Reports(0)).at(0).next_step, 10);
}

TEST(RankCheckpoint, AnotherJobBeginsWithTheWeightsAlone) {
  const TestFolder folder;
  const std::vector<double> losses = TrainTen(folder);
  const auto begin = [&](RankConfig& config) {
    GoOnFromTheFirst(folder, config);
    config.spec.checkpoint.from += "/step-00000010";
    config.spec.checkpoint.weights_only = true;
    config.spec.train.seed = 99;  // other samples, in another order
  };
  RankProcesses second(folder, Configs(folder, 3, begin), /*generation=*/2);
  second.ExpectAllExit(kRankExitOk);
  EXPECT_EQ(Only<RankReady>(second.Reports(0)).at(0).next_step, 0);
  const std::vector<double> begun = second.Losses();
  ASSERT_EQ(begun.size(), 3u);
  EXPECT_LT(begun[0], losses[5]);  // the first run began at losses[0]
}

TEST(RankCheckpoint, WhatARunCannotBeginWithIsRefusedByName) {
  const TestFolder folder;
  TrainTen(folder);
  const auto expect_refused = [&](const std::string& part, int64_t steps, const std::function<void(RankConfig&)>& change) {
    static int64_t generation = 1;
    RankProcesses second(folder,
                         Configs(folder, steps,
                                 [&](RankConfig& config) {
                                   GoOnFromTheFirst(folder, config);
                                   change(config);
                                 }),
                         ++generation);
    ExpectRefused(second, part);
  };
  expect_refused("the seed is 1234 in the checkpoint, 4 here; with checkpoint.weightsOnly", 20,
                 [](RankConfig& config) { config.spec.train.seed = 4; });
  const std::string other = folder.Write("other", std::string(1000, 'x'));
  expect_refused("the data is text of", 20, [&](RankConfig& config) { config.spec.data.path = other; });
  expect_refused("train.steps is 10, and ", 10, [](RankConfig&) {});
  expect_refused("checkpoint.from: there is no checkpoint", 20,
                 [](RankConfig& config) { config.spec.checkpoint.from += "/step-00000011"; });
  for (const int64_t step : {4, 8, 10}) Damage(folder, step);
  expect_refused("is whole: ", 20, [](RankConfig&) {});
}

TEST(RankCheckpoint, ADirectoryThatCannotBeMadeEndsTheRunBeforeItTrains) {
  const TestFolder folder;
  const std::string blocked = folder.Write("a-file", "") + "/checkpoints";
  RankProcesses ranks(folder, Configs(folder, 6, [&](RankConfig& config) { config.checkpoint_directory = blocked; }));
  ExpectRefused(ranks, blocked);
}

// Rank 0 needs at least a second to write its shard, which is a thousand times as long as a step.
TEST(RankCheckpoint, TrainingGoesOnWhileOneIsWritten) {
  const TestFolder folder;
  const int64_t steps = 60;
  RankProcesses ranks(folder, Configs(folder, steps, [](RankConfig& config) { config.spec.checkpoint.every_steps = 40; }),
                      /*generation=*/1, /*absent=*/{}, {{0, {"slow-shard", 40}}});
  ranks.ExpectAllExit(kRankExitOk);
  int64_t steps_before = 0;
  for (const RankReport& report : ranks.Reports(0)) {
    if (std::holds_alternative<StepReport>(report)) ++steps_before;
    if (std::holds_alternative<CheckpointReport>(report)) break;
  }
  EXPECT_GT(steps_before, 41) << "of 40 steps done, published when more were";
  EXPECT_EQ(StepsOf(Only<CheckpointReport>(ranks.Reports(0))), (std::vector<int64_t>{40, 60}));
  // The checkpoint must have the states of its own step, not those of steps that ran while it was written.
  const std::vector<double> losses = ranks.Losses();
  fs::remove_all(CheckpointPath(DirectoryOf(folder), 60));
  RankProcesses next(folder, Configs(folder, steps), /*generation=*/2);
  next.ExpectAllExit(kRankExitOk);
  EXPECT_EQ(next.Losses(), TailOf(losses, 40));
}

TEST(RankCheckpoint, TrainingGoesOnWithoutTheOnesInTheMiddle) {
  const TestFolder folder;
  // Writes to the shards of step 3 fail, as on a full disk, until the folder of this attempt is removed.
  for (int shard = 0; shard < kShards; ++shard) {
    const std::string attempt = DirectoryOf(folder) + "/.step-00000003.small.g1";
    fs::create_directories(attempt);
    fs::create_symlink(
        "/dev/full", attempt + "/shard-000" + std::to_string(shard / 2) + "-000" + std::to_string(shard % 2) + ".safetensors");
  }
  RankProcesses ranks(folder, Configs(folder, 6, [](RankConfig& config) { config.spec.checkpoint.every_steps = 3; }));
  ranks.ExpectAllExit(kRankExitOk);
  const std::vector<RankReport> reports = ranks.Reports(0);
  const auto failures = Only<CheckpointFailure>(reports);
  ASSERT_EQ(failures.size(), 1u);
  EXPECT_EQ(failures[0].step, 3);
  EXPECT_THAT(failures[0].reason, AllOf(HasSubstr("rank 0"), HasSubstr("No space left")));
  EXPECT_EQ(Only<StepReport>(reports).size(), 6u);
  EXPECT_EQ(StepsOf(Only<CheckpointReport>(reports)), std::vector<int64_t>{6});
  EXPECT_THAT(ranks.Log(3), HasSubstr("cannot write this rank's shard"));
}

TEST(RankCheckpoint, TheLastOneIsTriedAgain) {
  const TestFolder folder;
  const std::string attempt = DirectoryOf(folder) + "/.step-00000002.small.g1";
  fs::create_directories(attempt);
  fs::create_symlink("/dev/full", attempt + "/" + kAnyShard);
  RankProcesses ranks(folder, Configs(folder, 2));
  ranks.ExpectAllExit(kRankExitOk);
  const std::vector<RankReport> reports = ranks.Reports(0);
  ASSERT_EQ(Only<CheckpointFailure>(reports).size(), 1u);
  EXPECT_EQ(Only<CheckpointFailure>(reports)[0].step, 2);
  EXPECT_EQ(StepsOf(Only<CheckpointReport>(reports)), std::vector<int64_t>{2});
  EXPECT_EQ(Only<RankDone>(reports).size(), 1u);
}

TEST(RankCheckpoint, ARunWithoutItsLastOneFails) {
  const TestFolder folder;
  const std::string directory = DirectoryForShortNames(folder);
  RankProcesses ranks(folder, Configs(folder, 6, [&](RankConfig& config) {
                        config.checkpoint_directory = directory;
                        config.spec.checkpoint.every_steps = 3;
                        config.last_checkpoint_patience = Nanos(1'000'000'000);
                      }));
  for (int rank = 0; rank < RankProcesses::kRanks; ++rank) {
    const int exit_code = ranks.ExitCode(rank);
    EXPECT_TRUE(exit_code == kRankExitFailure || exit_code == kRankExitPeerLost) << exit_code;
    EXPECT_TRUE(Only<RankDone>(ranks.Reports(rank)).empty());
  }
  const std::vector<RankReport> reports = ranks.Reports(0);
  EXPECT_EQ(Only<StepReport>(reports).size(), 6u);
  EXPECT_EQ(Only<CheckpointFailure>(reports).size(), 2u);  // one for step 3, and one for step 6
  ASSERT_EQ(Only<RankFailure>(reports).size(), 1u);
  // The first rank that notices the failure of step 6 reports the reason. The other ranks may notice only that this rank ended.
  std::vector<std::string> own_reasons;
  for (int rank = 0; rank < RankProcesses::kRanks; ++rank) {
    for (const RankFailure& failure : Only<RankFailure>(ranks.Reports(rank))) {
      if (!failure.peer_lost) own_reasons.push_back(failure.reason);
    }
  }
  ASSERT_FALSE(own_reasons.empty());
  for (const std::string& reason : own_reasons) {
    EXPECT_THAT(reason, AllOf(HasSubstr("all 6 steps are done"), HasSubstr("rank 0: cannot create")));
  }
}

}  // namespace
}  // namespace lynx::worker
