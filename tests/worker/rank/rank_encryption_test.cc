// Tests lynx-rank as real processes that encrypt their connections: they train the same run, with checks of their links and
// with copies in memory, and ranks that do not agree do not train.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/worker/rank/rank_processes.h"

namespace lynx::worker {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

constexpr int64_t kSteps = 8;

std::vector<RankConfig> With(const TestFolder& folder, RankEncryption encryption, const ParallelLayout& layout = kSmallLayout,
                             const ModelSpec& model = SmallGpt()) {
  return Configs(
      folder, kSteps,
      [&](RankConfig& config) {
        config.encryption = encryption;
        config.check = true;
        config.spec.checkpoint.copy_every_steps = 1;
        config.copies_directory = folder.Path(absl::StrCat("node", config.context.pipeline_rank % 2));
      },
      layout, model);
}

TEST(RankEncryptionTest, TrainsTheSameRunToTheBit) {
  std::vector<double> losses[2];
  for (const bool encrypted : {false, true}) {
    const TestFolder folder;
    RankProcesses ranks(folder, With(folder, encrypted ? RankEncryption::kOn : RankEncryption::kOff));
    ranks.ExpectAllExit(kRankExitOk);
    losses[encrypted] = ranks.Losses();
    int64_t copied = 0;
    for (int rank = 0; rank < RankProcesses::kRanks; ++rank) {
      EXPECT_THAT(Only<CopiesNotice>(ranks.Reports(rank)), IsEmpty()) << ranks.Log(rank);
      for (const StepReport& step : Only<StepReport>(ranks.Reports(rank))) copied = std::max(copied, step.copied_steps);
    }
    EXPECT_FALSE(Only<NodeCheckReport>(ranks.Reports(0)).empty()) << "the links were checked";
    EXPECT_GT(copied, 0) << "the ranks keep copies of their states";
  }
  EXPECT_EQ(losses[0].size(), static_cast<size_t>(kSteps));
  EXPECT_EQ(losses[0], losses[1]);
}

TEST(RankEncryptionTest, ExpertsTrainTheSameRunToTheBit) {
  const ParallelLayout layout{.pp = 2, .dp = 2, .ep = 2};
  std::vector<double> losses[2];
  for (const bool encrypted : {false, true}) {
    const TestFolder folder;
    RankProcesses ranks(folder,
                        With(folder, encrypted ? RankEncryption::kExceptNccl : RankEncryption::kOff, layout, SmallMoe()));
    ranks.ExpectAllExit(kRankExitOk);
    losses[encrypted] = ranks.Losses();
  }
  EXPECT_EQ(losses[0].size(), static_cast<size_t>(kSteps));
  EXPECT_EQ(losses[0], losses[1]);
}

}  // namespace
}  // namespace lynx::worker
