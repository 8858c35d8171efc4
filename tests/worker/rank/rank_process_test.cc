// Tests lynx-rank as real processes: a complete run, resuming, and every way to end early.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/worker/rank/rank_processes.h"
#include "worker/checkpoint/checkpoint.h"

namespace lynx::worker {
namespace {

using ::testing::HasSubstr;

TEST(RankProcess, TrainsReportsAndResumes) {
  const TestFolder folder;
  const auto checkpoints = [](RankConfig& config) {
    config.spec.checkpoint.every_steps = 4;
    config.spec.checkpoint.keep = 10;
  };
  RankProcesses first(folder, Configs(folder, 10, checkpoints));
  first.ExpectAllExit(kRankExitOk);
  const std::vector<double> losses = first.Losses();
  ASSERT_EQ(losses.size(), 10u);
  for (int rank = 0; rank < RankProcesses::kRanks; ++rank) {
    const std::vector<RankReport> reports = first.Reports(rank);
    ASSERT_TRUE(std::holds_alternative<RankReady>(reports.front()));
    const RankReady ready = std::get<RankReady>(reports.front());
    EXPECT_EQ(ready.next_step, 0);
    EXPECT_EQ(ready.arena, SmallConfig(folder, 10, rank / 2).arena);
    EXPECT_EQ(reports.back(), RankReport(RankDone{.steps = 10}));
    for (const StepReport& step : Only<StepReport>(reports)) {
      EXPECT_EQ(step.arena_peak, ready.arena);
      EXPECT_GT(step.resident, ready.arena) << "the arena is a part of it";
    }
    EXPECT_EQ(Only<CheckpointReport>(reports).size(), rank == 0 ? 3u : 0u);  // for the steps 4, 8 and 10
  }

  // Without the later checkpoints, the folder looks as if the run had ended after step 4.
  std::filesystem::remove_all(CheckpointPath(SmallConfig(folder, 10, 0).checkpoint_directory, 8));
  std::filesystem::remove_all(CheckpointPath(SmallConfig(folder, 10, 0).checkpoint_directory, 10));
  RankProcesses second(folder,
                       Configs(folder, 10,
                               [&](RankConfig& config) {
                                 checkpoints(config);
                                 config.resume_step = 4;
                               }),
                       /*generation=*/2);
  second.ExpectAllExit(kRankExitOk);
  EXPECT_EQ(second.Losses(), std::vector<double>(losses.begin() + 4, losses.end()));
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

// Returns the Cpus_allowed_list of every thread of the process.
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
  EXPECT_GE(cores.size(), 3u);  // threads for compute, communication and cancellation; the BLAS may have one more
  EXPECT_THAT(cores, testing::Each(std::to_string(core)));
}

TEST(RankProcess, TerminatedRanksEndSoon) {
  const TestFolder folder;
  RankProcesses ranks(folder, Configs(folder, kEndless));
  ranks.WaitForSteps(0, 2);
  for (int rank = 0; rank < RankProcesses::kRanks; ++rank) ranks.Signal(rank, SIGTERM);
  for (int rank = 0; rank < RankProcesses::kRanks; ++rank) {
    const int exit_code = ranks.ExitCode(rank);
    // A rank may hear that a peer has ended before it gets its own signal.
    EXPECT_TRUE(exit_code == kRankExitCancelled || exit_code == kRankExitPeerLost) << exit_code << ranks.Log(rank);
  }
}

// The test also runs with two BLAS threads. The BLAS starts its threads before the program begins.
TEST(RankProcess, OneTerminatedRankIsCancelledAndTheOthersLoseIt) {
  for (const int threads : {1, 2}) {
    const TestFolder folder;
    RankProcesses ranks(folder, Configs(folder, kEndless, [&](RankConfig& config) { config.threads = threads; }));
    ranks.WaitForSteps(0, 2);
    ranks.Signal(1, SIGTERM);
    EXPECT_EQ(ranks.ExitCode(1), kRankExitCancelled) << threads << " threads: " << ranks.Log(1);
    EXPECT_TRUE(Only<RankFailure>(ranks.Reports(1)).empty());
    for (int rank : {0, 2, 3}) EXPECT_EQ(ranks.ExitCode(rank), kRankExitPeerLost) << ranks.Log(rank);
  }
}

// True if a thread blocks SIGTERM but not all signals. (Every thread blocks all signals for a moment when it starts another
// thread.)
bool BlocksTerm(const std::filesystem::path& task) {
  std::ifstream status(task / "status");
  for (std::string line; std::getline(status, line);) {
    if (!line.starts_with("SigBlk:")) continue;
    const uint64_t blocked = std::stoull(line.substr(7), nullptr, 16);
    return (blocked >> (SIGTERM - 1) & 1) == 1 && (blocked >> (SIGHUP - 1) & 1) == 0;
  }
  return false;
}

// Waits until every thread of the process blocks SIGTERM. Then only the thread that waits for SIGTERM receives it.
void AwaitCancellation(pid_t pid) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (std::chrono::steady_clock::now() < deadline) {
    int threads = 0, blocking = 0;
    for (const auto& task : std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/task")) {
      ++threads;
      blocking += BlocksTerm(task.path()) ? 1 : 0;
    }
    if (threads >= 2 && blocking == threads) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  ADD_FAILURE() << "process " << pid << " does not block SIGTERM";
}

// Rank 3 does not run. Rank 0 has not connected to it, and would wait for it for a long time.
TEST(RankProcess, ATerminatedRankDoesNotWaitForItsPeers) {
  const TestFolder folder;
  RankProcesses ranks(folder, Configs(folder, kEndless), /*generation=*/1, /*absent=*/{3});
  AwaitCancellation(ranks.pid(0));
  ranks.Signal(0, SIGTERM);
  EXPECT_EQ(ranks.ExitCode(0), kRankExitCancelled) << ranks.Log(0);
}

TEST(RankProcess, AMissingDataFileIsNamed) {
  const TestFolder folder;
  const std::string missing = folder.path() + "/no-such-text";
  RankProcesses ranks(folder, Configs(folder, 5, [&](RankConfig& config) { config.spec.data.path = missing; }));
  ranks.ExpectAllExit(kRankExitFailure);
  for (int rank = 0; rank < RankProcesses::kRanks; ++rank) {
    const auto failures = Only<RankFailure>(ranks.Reports(rank));
    ASSERT_EQ(failures.size(), 1u);
    EXPECT_FALSE(failures[0].peer_lost);
    EXPECT_THAT(failures[0].reason, HasSubstr(missing));
  }
}

// A rank connects to its peers before it opens its data. So it can tell them at once why it ends, and they do not wait for it.
TEST(RankProcess, PeersHearWhyARankCannotReadItsData) {
  const TestFolder folder;
  const std::string missing = folder.path() + "/no-such-text";
  std::vector<RankConfig> configs = Configs(folder, kEndless);
  configs[1].spec.data.path = missing;
  RankProcesses ranks(folder, configs);
  for (int rank : {2, 3}) EXPECT_EQ(ranks.ExitCode(rank), kRankExitFailure) << ranks.Log(rank);
  for (int rank : {0, 1}) {
    EXPECT_EQ(ranks.ExitCode(rank), kRankExitPeerLost) << ranks.Log(rank);
    const auto failures = Only<RankFailure>(ranks.Reports(rank));
    ASSERT_EQ(failures.size(), 1u);
    EXPECT_THAT(failures[0].reason, HasSubstr(missing));
  }
}

TEST(RankProcess, RanksOnDifferentDataDoNotTrain) {
  const TestFolder folder;
  std::vector<RankConfig> configs = Configs(folder, kEndless);
  configs[1].spec.data.path = folder.Write("other", std::string(1000, 'x'));
  RankProcesses ranks(folder, configs);
  for (int rank = 0; rank < RankProcesses::kRanks; ++rank) {
    // The first rank that notices the different data ends. The other ranks may hear of this end before they notice the
    // difference themselves.
    const int exit_code = ranks.ExitCode(rank);
    EXPECT_TRUE(exit_code == kRankExitFailure || exit_code == kRankExitPeerLost) << exit_code;
    const std::vector<RankReport> reports = ranks.Reports(rank);
    EXPECT_TRUE(Only<RankReady>(reports).empty() && Only<StepReport>(reports).empty());
    ASSERT_EQ(Only<RankFailure>(reports).size(), 1u);
    EXPECT_THAT(Only<RankFailure>(reports)[0].reason, HasSubstr("the ranks read different data: rank 0 has text of"));
  }
  EXPECT_FALSE(std::filesystem::exists(configs[0].checkpoint_directory));
}

// One arena is too small for the program's buffers. The other one is larger than the program needs.
TEST(RankProcess, AnArenaThatDiffersFromThePlanIsReported) {
  for (const Bytes difference : {Bytes(-256), Bytes(1 << 20)}) {
    const TestFolder folder;
    RankProcesses ranks(folder, Configs(folder, 5, [&](RankConfig& config) { config.arena += difference; }));
    for (int rank = 0; rank < RankProcesses::kRanks; ++rank) {
      const int exit_code = ranks.ExitCode(rank);
      EXPECT_TRUE(exit_code == kRankExitFailure || exit_code == kRankExitPeerLost) << exit_code;
      EXPECT_EQ(Only<RankFailure>(ranks.Reports(rank)).size(), 1u);
      EXPECT_TRUE(Only<StepReport>(ranks.Reports(rank)).empty());
    }
  }
}

TEST(RankProcess, APlanThatTheEngineDoesNotRunIsReported) {
  const TestFolder folder;
  RankProcesses ranks(folder,
                      Configs(folder, 5, [](RankConfig& config) { config.context.layout.zero = ZeroStage::kGradients; }));
  std::string reasons;  // a rank may only notice that another rank has ended
  for (int rank = 0; rank < RankProcesses::kRanks; ++rank) {
    const int exit_code = ranks.ExitCode(rank);
    EXPECT_TRUE(exit_code == kRankExitFailure || exit_code == kRankExitPeerLost) << exit_code;
    ASSERT_EQ(Only<RankFailure>(ranks.Reports(rank)).size(), 1u);
    reasons += Only<RankFailure>(ranks.Reports(rank))[0].reason + "\n";
  }
  EXPECT_THAT(reasons, HasSubstr("parallel.zero gradients can be planned"));
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
}  // namespace lynx::worker
