// lynx-rank as real processes: a whole run, resuming, and every way to end early.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>

#include <filesystem>
#include <fstream>

#include "tests/worker/rank/rank_processes.h"
#include "worker/checkpoint/checkpoint.h"

namespace lynx {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kEndless = 1'000'000;

std::vector<RankConfig> Configs(const TestFolder& folder, int64_t steps, const auto& change) {
  std::vector<RankConfig> configs;
  for (int32_t stage : {0, 1}) {
    configs.push_back(SmallConfig(folder, steps, stage));
    change(configs.back());
  }
  return configs;
}
std::vector<RankConfig> Configs(const TestFolder& folder, int64_t steps) {
  return Configs(folder, steps, [](RankConfig&) {});
}

void ExpectAllExit(RankProcesses& ranks, int expected) {
  for (int rank = 0; rank < RankProcesses::kRanks; ++rank) {
    EXPECT_EQ(ranks.ExitCode(rank), expected) << "rank " << rank << ": " << ranks.Log(rank);
  }
}

// All ranks' losses, which must be the same.
std::vector<double> Losses(const RankProcesses& ranks) {
  std::vector<double> losses;
  for (int rank = 0; rank < RankProcesses::kRanks; ++rank) {
    std::vector<double> own;
    for (const StepReport& report : Only<StepReport>(ranks.Reports(rank))) own.push_back(report.loss);
    if (rank == 0) losses = own;
    EXPECT_EQ(own, losses) << "rank " << rank;
  }
  return losses;
}

TEST(RankProcess, TrainsReportsAndResumes) {
  const TestFolder folder;
  const auto checkpoints = [](RankConfig& config) {
    config.spec.checkpoint.every_steps = 4;
    config.spec.checkpoint.keep = 10;
  };
  RankProcesses first(folder, Configs(folder, 10, checkpoints));
  ExpectAllExit(first, kRankExitOk);
  const std::vector<double> losses = Losses(first);
  ASSERT_EQ(losses.size(), 10u);
  for (int rank = 0; rank < RankProcesses::kRanks; ++rank) {
    const std::vector<RankReport> reports = first.Reports(rank);
    ASSERT_TRUE(std::holds_alternative<RankReady>(reports.front()));
    const RankReady ready = std::get<RankReady>(reports.front());
    EXPECT_EQ(ready.next_step, 0);
    EXPECT_EQ(ready.arena, SmallConfig(folder, 10, rank / 2).arena);
    EXPECT_EQ(reports.back(), RankReport(RankDone{.steps = 10}));
    for (const StepReport& step : Only<StepReport>(reports)) EXPECT_EQ(step.arena_peak, ready.arena);
    EXPECT_EQ(Only<CheckpointReport>(reports).size(), rank == 0 ? 3u : 0u);  // of steps 4, 8 and 10
  }

  RankProcesses second(folder,
                       Configs(folder, 10,
                               [&](RankConfig& config) {
                                 checkpoints(config);
                                 config.resume_step = 4;
                               }),
                       /*generation=*/2);
  ExpectAllExit(second, kRankExitOk);
  EXPECT_EQ(Losses(second), std::vector<double>(losses.begin() + 4, losses.end()));
  EXPECT_EQ(std::get<RankReady>(second.Reports(0).front()).next_step, 4);
}

TEST(RankProcess, SurvivorsOfAKilledRankEndSoon) {
  const TestFolder folder;
  RankProcesses ranks(folder, Configs(folder, kEndless));
  ranks.WaitForSteps(0, 2);
  ranks.Signal(3, SIGKILL);
  EXPECT_EQ(ranks.ExitCode(3), RankProcesses::kKilled);
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(ranks.ExitCode(rank), kRankExitPeerLost) << ranks.Log(rank);
    const auto failures = Only<RankFailure>(ranks.Reports(rank));
    ASSERT_EQ(failures.size(), 1u);
    EXPECT_TRUE(failures[0].peer_lost);
    EXPECT_THAT(failures[0].reason, HasSubstr("rank 3"));
  }
}

// Cpus_allowed_list of every thread of a process.
std::vector<std::string> CoresOfThreads(pid_t pid) {
  std::vector<std::string> cores;
  for (const auto& task : std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/task")) {
    std::ifstream status(task.path() / "status");
    for (std::string line; std::getline(status, line);) {
      if (line.starts_with("Cpus_allowed_list:\t")) cores.push_back(line.substr(19));
    }
  }
  return cores;
}

TEST(RankProcess, KeepsEveryThreadToItsCores) {
  cpu_set_t allowed;
  ASSERT_EQ(sched_getaffinity(0, sizeof(allowed), &allowed), 0);
  int32_t core = 0;
  while (!CPU_ISSET(core, &allowed)) ++core;
  const TestFolder folder;
  RankProcesses ranks(folder, Configs(folder, kEndless, [&](RankConfig& config) {
                        config.cores = {core};
                        config.threads = 2;  // so that the BLAS has threads of its own
                      }));
  ranks.WaitForSteps(2, 1);
  const std::vector<std::string> cores = CoresOfThreads(ranks.pid(2));
  EXPECT_GE(cores.size(), 3u);  // compute, communication, cancellation; the BLAS may have one more
  EXPECT_THAT(cores, testing::Each(std::to_string(core)));
}

TEST(RankProcess, TerminatedRanksEndSoon) {
  const TestFolder folder;
  RankProcesses ranks(folder, Configs(folder, kEndless));
  ranks.WaitForSteps(0, 2);
  for (int rank = 0; rank < RankProcesses::kRanks; ++rank) ranks.Signal(rank, SIGTERM);
  for (int rank = 0; rank < RankProcesses::kRanks; ++rank) {
    const int exit_code = ranks.ExitCode(rank);
    // A rank may hear of a peer's end before its own signal.
    EXPECT_TRUE(exit_code == kRankExitCancelled || exit_code == kRankExitPeerLost) << exit_code << ranks.Log(rank);
  }
}

TEST(RankProcess, OneTerminatedRankIsCancelledAndTheOthersLoseIt) {
  const TestFolder folder;
  RankProcesses ranks(folder, Configs(folder, kEndless));
  ranks.WaitForSteps(0, 2);
  ranks.Signal(1, SIGTERM);
  EXPECT_EQ(ranks.ExitCode(1), kRankExitCancelled);
  EXPECT_TRUE(Only<RankFailure>(ranks.Reports(1)).empty());
  for (int rank : {0, 2, 3}) EXPECT_EQ(ranks.ExitCode(rank), kRankExitPeerLost) << ranks.Log(rank);
}

// Rank 3 stops before it has met its peers, which would wait for it for long.
TEST(RankProcess, ATerminatedRankDoesNotWaitForItsPeers) {
  const TestFolder folder;
  std::vector<RankConfig> configs = Configs(folder, kEndless);
  configs[1].spec.data.path = folder.path() + "/nowhere";
  RankProcesses ranks(folder, configs);
  EXPECT_EQ(ranks.ExitCode(3), kRankExitFailure);
  EXPECT_EQ(ranks.ExitCode(2), kRankExitFailure);
  ranks.Signal(0, SIGTERM);
  EXPECT_EQ(ranks.ExitCode(0), kRankExitCancelled);
}

TEST(RankProcess, AMissingDataFileIsNamed) {
  const TestFolder folder;
  const std::string missing = folder.path() + "/no-such-text";
  RankProcesses ranks(folder, Configs(folder, 5, [&](RankConfig& config) { config.spec.data.path = missing; }));
  ExpectAllExit(ranks, kRankExitFailure);
  for (int rank = 0; rank < RankProcesses::kRanks; ++rank) {
    const auto failures = Only<RankFailure>(ranks.Reports(rank));
    ASSERT_EQ(failures.size(), 1u);
    EXPECT_FALSE(failures[0].peer_lost);
    EXPECT_THAT(failures[0].reason, HasSubstr(missing));
  }
}

TEST(RankProcess, AMissingCheckpointIsAnErrorAndNeverAFreshStart) {
  const TestFolder folder;
  RankProcesses ranks(folder, Configs(folder, 5, [](RankConfig& config) { config.resume_step = 3; }));
  int own_failures = 0;
  for (int rank = 0; rank < RankProcesses::kRanks; ++rank) {
    const int exit_code = ranks.ExitCode(rank);
    EXPECT_TRUE(exit_code == kRankExitFailure || exit_code == kRankExitPeerLost) << exit_code;
    const std::vector<RankReport> reports = ranks.Reports(rank);
    EXPECT_TRUE(Only<RankReady>(reports).empty() && Only<StepReport>(reports).empty());
    own_failures += exit_code == kRankExitFailure ? 1 : 0;
  }
  EXPECT_GE(own_failures, 1);
}

// The checkpoint's folder cannot be made: a file is in its way.
TEST(RankProcess, TrainingGoesOnWithoutCheckpoints) {
  const TestFolder folder;
  const std::string blocked = folder.Write("a-file", "") + "/checkpoints";
  RankProcesses ranks(folder, Configs(folder, 6, [&](RankConfig& config) {
                        config.checkpoint_directory = blocked;
                        config.spec.checkpoint.every_steps = 3;
                      }));
  ExpectAllExit(ranks, kRankExitOk);
  const std::vector<RankReport> reports = ranks.Reports(0);
  const auto failures = Only<CheckpointFailure>(reports);
  ASSERT_EQ(failures.size(), 2u);
  EXPECT_EQ(failures[0].step, 3);
  EXPECT_EQ(failures[1].step, 6);
  EXPECT_THAT(failures[0].reason, HasSubstr("rank 0"));
  EXPECT_THAT(failures[0].reason, HasSubstr(blocked));
  EXPECT_EQ(Only<StepReport>(reports).size(), 6u);
  EXPECT_EQ(Only<RankDone>(reports).size(), 1u);
  EXPECT_THAT(ranks.Log(3), HasSubstr("cannot write this rank's shard"));
}

TEST(RankProcess, ARunThatHasBeenReplacedStops) {
  const TestFolder folder;
  const auto checkpoints = [](RankConfig& config) { config.spec.checkpoint.every_steps = 2; };
  RankProcesses newer(folder, Configs(folder, 2, checkpoints), /*generation=*/5);
  ExpectAllExit(newer, kRankExitOk);
  RankProcesses older(folder, Configs(folder, kEndless, checkpoints), /*generation=*/4);
  for (int rank = 0; rank < RankProcesses::kRanks; ++rank) {
    const int exit_code = older.ExitCode(rank);
    EXPECT_TRUE(exit_code == kRankExitFailure || exit_code == kRankExitPeerLost) << exit_code;
  }
  EXPECT_EQ(Only<StepReport>(older.Reports(0)).size(), 2u);
  EXPECT_TRUE(Only<CheckpointReport>(older.Reports(0)).empty());
}

TEST(RankProcess, AnArenaThatDiffersFromThePlanIsReported) {
  const TestFolder folder;
  RankProcesses ranks(folder, Configs(folder, 5, [](RankConfig& config) { config.arena += Bytes(256); }));
  for (int rank = 0; rank < RankProcesses::kRanks; ++rank) {
    const int exit_code = ranks.ExitCode(rank);
    EXPECT_TRUE(exit_code == kRankExitFailure || exit_code == kRankExitPeerLost) << exit_code;
    EXPECT_EQ(Only<RankFailure>(ranks.Reports(rank)).size(), 1u);
    EXPECT_TRUE(Only<StepReport>(ranks.Reports(rank)).empty());
  }
}

TEST(RankProcess, ABrokenConfigurationIsReported) {
  const TestFolder folder;
  const std::string config = folder.Write("config", "{\"job\":");
  const Output output =
      RunLynxRank(folder, {"--config", config, "--listen-fd", "0", "--report-file", folder.path() + "/reports"});
  EXPECT_EQ(output.exit_code, kRankExitFailure);
  EXPECT_THAT(output.err, HasSubstr(config));
  EXPECT_TRUE(std::filesystem::file_size(folder.path() + "/reports") > 0);
}

TEST(RankProcess, WrongUsageSaysWhatIsNeeded) {
  const TestFolder folder;
  const Output none = RunLynxRank(folder, {});
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_THAT(none.err, HasSubstr("--report-file"));
  EXPECT_EQ(RunLynxRank(folder, {"--no-such-option"}).exit_code, 2);
}

}  // namespace
}  // namespace lynx
