// Tests lynx-rank as real processes: the validation loss, and the files with the run's figures beside its checkpoints.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/worker/rank/rank_processes.h"
#include "tests/worker/rank/records/event_records.h"
#include "worker/rank/records/event_file.h"

namespace lynx::worker {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::StartsWith;

constexpr int64_t kSteps = 8;

// The job evaluates every second step, on a separate text, and writes a checkpoint every third step.
std::vector<RankConfig> EvaluatingConfigs(const TestFolder& folder, int64_t steps = kSteps) {
  std::string text;
  for (int i = 0; i < 300; ++i) absl::StrAppend(&text, i * 7, ";");
  const std::string held_out = folder.Write("held-out", text);
  return Configs(folder, steps, [&](RankConfig& config) {
    config.spec.data.validation_path = held_out;
    config.spec.train.eval_every = 2;
    config.spec.train.eval_batches = 3;
    config.spec.checkpoint.every_steps = 3;
  });
}

std::string Csv(const TestFolder& folder) { return folder.Read("checkpoints/metrics-small/metrics.csv"); }

// Returns the names of the event files, in the order of generations.
std::vector<std::string> EventFiles(const TestFolder& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder.path() + "/checkpoints/metrics-small")) {
    const std::string name = entry.path().filename();
    if (name.find("tfevents") != std::string::npos) names.push_back("checkpoints/metrics-small/" + name);
  }
  std::sort(names.begin(), names.end(),
            [](const std::string& a, const std::string& b) { return a.substr(a.rfind(".g")) < b.substr(b.rfind(".g")); });
  return names;
}

std::string Shortest(double value) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof(text), value).ptr};
}

TEST(RankEvaluation, IsReportedAndStandsInTheFilesBesideTheRun) {
  const TestFolder folder;
  RankProcesses ranks(folder, EvaluatingConfigs(folder));
  ranks.ExpectAllExit(kRankExitOk);
  const std::vector<RankReport> reports = ranks.Reports(0);
  const auto steps = Only<StepReport>(reports);
  const auto evaluations = Only<EvaluationReport>(reports);
  ASSERT_EQ(evaluations.size(), 4u);
  for (size_t i = 0; i < evaluations.size(); ++i) {
    EXPECT_EQ(evaluations[i].step, static_cast<int64_t>(2 * (i + 1)));
    EXPECT_EQ(evaluations[i].tokens, 3 * 4 * 8);
    EXPECT_GT(evaluations[i].duration, Nanos(0));
  }
  EXPECT_LT(evaluations[3].loss, evaluations[0].loss);
  for (int rank = 1; rank < RankProcesses::kRanks; ++rank) {
    EXPECT_TRUE(Only<EvaluationReport>(ranks.Reports(rank)).empty());
  }

  std::string csv = "step,loss,learning_rate,gradient_norm,validation_loss\n";
  for (const StepReport& step : steps) {
    const int64_t done = step.step + 1;
    const bool evaluated = done % 2 == 0;
    absl::StrAppend(&csv, done, ",", Shortest(step.loss), ",", Shortest(step.lr), ",", Shortest(step.gradient_norm), ",",
                    evaluated ? Shortest(evaluations[static_cast<size_t>(done / 2 - 1)].loss) : "", "\n");
  }
  EXPECT_EQ(Csv(folder), csv);

  const std::vector<std::string> files = EventFiles(folder);
  ASSERT_EQ(files.size(), 1u);
  std::vector<std::string> events;
  ASSERT_TRUE(ReadEventRecords(folder.Read(files[0]), events));
  ASSERT_EQ(events.size(), 2u + kSteps);
  // Bytes 1 to 8 hold the time of day. All other bytes of the events must be as event_file_test expects them.
  const auto timeless = [](std::string event) { return event.replace(1, 8, 8, '\0'); };
  EXPECT_EQ(timeless(events[0]), timeless(VersionEvent(Nanos(0))));
  EXPECT_EQ(timeless(events[1]), timeless(StartEvent(Nanos(0), 1)));
  for (size_t i = 0; i < steps.size(); ++i) {
    std::vector<Scalar> scalars = {
        {"loss", steps[i].loss}, {"learning_rate", steps[i].lr}, {"gradient_norm", steps[i].gradient_norm}};
    if (i % 2 == 1) scalars.push_back({"validation_loss", evaluations[i / 2].loss});
    EXPECT_EQ(timeless(events[2 + i]), timeless(ScalarsEvent(Nanos(0), static_cast<int64_t>(i) + 1, scalars)));
  }
}

TEST(RankEvaluation, AResumedRunsFilesHaveEveryStepOnce) {
  const TestFolder undisturbed;
  {
    RankProcesses ranks(undisturbed, EvaluatingConfigs(undisturbed));
    ranks.ExpectAllExit(kRankExitOk);
  }
  const std::string expected = Csv(undisturbed);
  const TestFolder folder;
  {
    RankProcesses first(folder, EvaluatingConfigs(folder), /*generation=*/1, /*absent=*/{}, {{3, {"kill-backward", 6}}});
    for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(first.ExitCode(rank), kRankExitPeerLost) << first.Log(rank);
    EXPECT_THAT(expected, StartsWith(Csv(folder)));
    EXPECT_THAT(Csv(folder), HasSubstr("\n6,"));
  }
  RankProcesses second(folder, EvaluatingConfigs(folder), /*generation=*/2);
  second.ExpectAllExit(kRankExitOk);
  // The checkpoint of step 6 was written after that of step 3. So it may not have been visible yet when rank 3 was killed.
  const int64_t resumed = Only<RankReady>(second.Reports(0)).at(0).next_step;
  ASSERT_TRUE(resumed == 3 || resumed == 6) << resumed;
  EXPECT_EQ(Csv(folder), expected);
  const std::vector<std::string> files = EventFiles(folder);
  ASSERT_EQ(files.size(), 2u);
  std::vector<std::string> events;
  ASSERT_TRUE(ReadEventRecords(folder.Read(files[1]), events));
  ASSERT_EQ(events.size(), 2u + kSteps - static_cast<size_t>(resumed));
  EXPECT_EQ(events[1].substr(9), StartEvent(Nanos(0), resumed + 1).substr(9));
}

TEST(RankEvaluation, FilesThatCannotBeWrittenEndNothing) {
  const TestFolder folder;
  fs::create_directories(folder.path() + "/checkpoints");
  folder.Write("checkpoints/metrics-small", "in the way");
  RankProcesses ranks(folder, EvaluatingConfigs(folder, 2));
  ranks.ExpectAllExit(kRankExitOk);
  EXPECT_THAT(ranks.Log(0), HasSubstr("the run's metrics are no longer written: cannot create "));
}

TEST(RankEvaluation, HeldOutDataIsLookedAtBeforeTheFirstStep) {
  const TestFolder folder;
  std::vector<RankConfig> missing = EvaluatingConfigs(folder), different = missing;
  for (RankConfig& config : missing) config.spec.data.validation_path = folder.path() + "/no-such-text";
  different[1].spec.data.validation_path = folder.Write("other", std::string(1000, 'x'));
  int64_t generation = 0;
  for (const auto& [configs, reason] : {std::pair(missing, "no-such-text"), std::pair(different, "different data")}) {
    RankProcesses ranks(folder, configs, ++generation);
    for (int rank = 0; rank < RankProcesses::kRanks; ++rank) {
      const int exit_code = ranks.ExitCode(rank);
      EXPECT_TRUE(exit_code == kRankExitFailure || exit_code == kRankExitPeerLost) << exit_code;
      EXPECT_TRUE(Only<StepReport>(ranks.Reports(rank)).empty());
      ASSERT_EQ(Only<RankFailure>(ranks.Reports(rank)).size(), 1u);
      EXPECT_THAT(Only<RankFailure>(ranks.Reports(rank))[0].reason, HasSubstr(reason));
    }
  }
}

}  // namespace
}  // namespace lynx::worker
