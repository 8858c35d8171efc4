// Tests lynx-rank as real processes that are asked to give way. All ranks must give way after the same step, and the step must
// have a checkpoint.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/worker/rank/rank_processes.h"
#include "worker/checkpoint/checkpoint.h"

namespace lynx::worker {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Returns the number of steps after which the ranks gave way. It must be the same on all ranks.
int64_t ExpectYield(RankProcesses& ranks) {
  ranks.ExpectAllExit(kRankExitYielded);
  const auto first = Only<RankYielded>(ranks.Reports(0));
  EXPECT_EQ(first.size(), 1u);
  for (int rank = 0; rank < RankProcesses::kRanks; ++rank) {
    const std::vector<RankReport> reports = ranks.Reports(rank);
    EXPECT_EQ(Only<RankYielded>(reports), first);
    EXPECT_EQ(Only<RankYielded>(reports).size() + Only<RankDone>(reports).size() + Only<RankFailure>(reports).size(), 1u);
    EXPECT_TRUE(std::holds_alternative<RankYielded>(reports.back()));
  }
  return first.empty() ? 0 : first[0].steps;
}

TEST(RankYield, OneRankThatIsAskedIsEnough) {
  const TestFolder folder;
  RankProcesses ranks(folder, Configs(folder, kEndless));
  ranks.WaitForSteps(0, 5);
  ranks.AskToYield(2);
  const int64_t steps = ExpectYield(ranks);
  EXPECT_GE(steps, 5);
  EXPECT_EQ(Only<StepReport>(ranks.Reports(3)).size(), static_cast<size_t>(steps)) << "no step beyond the checkpoint's";
  EXPECT_THAT(Only<CheckpointReport>(ranks.Reports(0)), testing::SizeIs(1));
  EXPECT_EQ(Only<CheckpointReport>(ranks.Reports(0))[0].step, steps);
}

// The next generation must end like a run without the interruption: with the same bits in the same layout, and with almost the
// same losses in another layout.
TEST(RankYield, TheNextGenerationGoesOnFromThatVeryStep) {
  const TestFolder undisturbed_folder;
  RankProcesses undisturbed(undisturbed_folder, Configs(undisturbed_folder, 10));
  undisturbed.ExpectAllExit(kRankExitOk);
  const std::vector<double> expected = undisturbed.Losses();
  for (const ParallelLayout& layout : {kSmallLayout, ParallelLayout{.tp = 1, .pp = 2, .dp = 2}}) {
    const TestFolder folder;
    int64_t steps = 0;
    {
      RankProcesses ranks(folder, Configs(folder, 10), 1, {}, {}, /*yields=*/true);
      steps = ExpectYield(ranks);
      EXPECT_EQ(steps, 1) << "the request was there before the first step";
    }
    RankProcesses next(folder, Configs(folder, 10, nullptr, layout), /*generation=*/2);
    next.ExpectAllExit(kRankExitOk);
    const std::vector<double> losses = next.Losses();
    ASSERT_EQ(losses.size(), expected.size() - static_cast<size_t>(steps));
    for (size_t i = 0; i < losses.size(); ++i) {
      const double whole = expected[i + static_cast<size_t>(steps)];
      if (layout == kSmallLayout) {
        EXPECT_EQ(losses[i], whole);
      } else {
        EXPECT_NEAR(losses[i], whole, 1e-4);
      }
    }
  }
}

TEST(RankYield, ACheckpointThatIsUnderWayComesFirst) {
  const TestFolder folder;
  RankProcesses ranks(folder, Configs(folder, kEndless, [](RankConfig& config) {
                        config.spec.checkpoint.every_steps = 5;
                        config.spec.checkpoint.keep = 100'000;
                      }));
  ranks.WaitForSteps(0, 21);
  ranks.AskToYield(0);
  const int64_t steps = ExpectYield(ranks);
  const auto checkpoints = Only<CheckpointReport>(ranks.Reports(0));
  for (size_t i = 1; i < checkpoints.size(); ++i) EXPECT_LT(checkpoints[i - 1].step, checkpoints[i].step);
  EXPECT_EQ(checkpoints.back().step, steps);
}

TEST(RankYield, WithoutACheckpointTrainingGoesOn) {
  const TestFolder folder;
  RankProcesses ranks(folder,
                      Configs(folder, 30,
                              [&](RankConfig& config) {
                                config.checkpoint_directory = DirectoryForShortNames(folder);
                                config.last_checkpoint_patience = Nanos(1'000'000);
                              }),
                      1, {}, {}, /*yields=*/true);
  for (int rank = 0; rank < RankProcesses::kRanks; ++rank) EXPECT_NE(ranks.ExitCode(rank), kRankExitYielded);
  const std::vector<RankReport> reports = ranks.Reports(0);
  EXPECT_THAT(Only<RankYielded>(reports), IsEmpty());
  EXPECT_EQ(Only<StepReport>(reports).size(), 30u);
  std::vector<int64_t> failures;
  for (const CheckpointFailure& failure : Only<CheckpointFailure>(reports)) failures.push_back(failure.step);
  EXPECT_THAT(failures, ElementsAre(1, 22, 30)) << "twice for the request, and the last one";
}

TEST(RankYield, ARunThatIsAtItsEndIsDone) {
  const TestFolder folder;
  RankProcesses ranks(folder, Configs(folder, 1), 1, {}, {}, /*yields=*/true);
  ranks.ExpectAllExit(kRankExitOk);
  EXPECT_EQ(Only<RankDone>(ranks.Reports(1)).size(), 1u);
}

}  // namespace
}  // namespace lynx::worker
