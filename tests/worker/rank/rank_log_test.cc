// lynx-rank as real processes: the run's figures as files beside its checkpoints.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/worker/rank/event_records.h"
#include "tests/worker/rank/rank_processes.h"
#include "worker/rank/event_file.h"

namespace lynx {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::StartsWith;

constexpr int64_t kSteps = 8;

// With a checkpoint every third step.
std::vector<RankConfig> SomeConfigs(const TestFolder& folder, int64_t steps = kSteps) {
  return Configs(folder, steps, [&](RankConfig& config) { config.spec.checkpoint.every_steps = 3; });
}

std::string Csv(const TestFolder& folder) { return folder.Read("checkpoints/metrics-small/metrics.csv"); }

// Names of the event files, in the order of generations.
std::vector<std::string> EventFiles(const TestFolder& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder.path() + "/checkpoints/metrics-small")) {
    const std::string name = entry.path().filename();
    if (name.find("tfevents") != std::string::npos) names.push_back("checkpoints/metrics-small/" + name);
  }
  std::sort(names.begin(), names.end(), [](const std::string& a, const std::string& b) {
    return a.substr(a.rfind(".g")) < b.substr(b.rfind(".g"));
  });
  return names;
}

std::string Shortest(double value) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof(text), value).ptr};
}

TEST(RankLog, HasTheFiguresOfEveryStep) {
  const TestFolder folder;
  RankProcesses ranks(folder, SomeConfigs(folder));
  ranks.ExpectAllExit(kRankExitOk);
  const std::vector<RankReport> reports = ranks.Reports(0);
  const auto steps = Only<StepReport>(reports);
  ASSERT_EQ(steps.size(), static_cast<size_t>(kSteps));
  std::string csv = "step,loss,learning_rate,gradient_norm\n";
  for (const StepReport& step : steps) {
    absl::StrAppend(&csv, step.step + 1, ",", Shortest(step.loss), ",", Shortest(step.lr), ",",
                    Shortest(step.gradient_norm), "\n");
  }
  EXPECT_EQ(Csv(folder), csv);

  const std::vector<std::string> files = EventFiles(folder);
  ASSERT_EQ(files.size(), 1u);
  std::vector<std::string> events;
  ASSERT_TRUE(ReadEventRecords(folder.Read(files[0]), events));
  ASSERT_EQ(events.size(), 2u + kSteps);
  // But for the time of day, at bytes 1 to 8, the events are as event_file_test reads them.
  const auto timeless = [](std::string event) { return event.replace(1, 8, 8, '\0'); };
  EXPECT_EQ(timeless(events[0]), timeless(VersionEvent(Nanos(0))));
  EXPECT_EQ(timeless(events[1]), timeless(StartEvent(Nanos(0), 1)));
  for (size_t i = 0; i < steps.size(); ++i) {
    const std::vector<Scalar> scalars = {
        {"loss", steps[i].loss}, {"learning_rate", steps[i].lr}, {"gradient_norm", steps[i].gradient_norm}};
    EXPECT_EQ(timeless(events[2 + i]), timeless(ScalarsEvent(Nanos(0), static_cast<int64_t>(i) + 1, scalars)));
  }
}

TEST(RankLog, AResumedRunsFilesHaveEveryStepOnce) {
  const TestFolder undisturbed;
  {
    RankProcesses ranks(undisturbed, SomeConfigs(undisturbed));
    ranks.ExpectAllExit(kRankExitOk);
  }
  const std::string expected = Csv(undisturbed);
  const TestFolder folder;
  {
    RankProcesses first(folder, SomeConfigs(folder), /*generation=*/1, /*absent=*/{}, {{3, {"kill-backward", 5}}});
    for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(first.ExitCode(rank), kRankExitPeerLost) << first.Log(rank);
    EXPECT_THAT(expected, StartsWith(Csv(folder)));
    EXPECT_THAT(Csv(folder), HasSubstr("\n5,"));
  }
  RankProcesses second(folder, SomeConfigs(folder), /*generation=*/2);
  second.ExpectAllExit(kRankExitOk);
  EXPECT_EQ(Only<RankReady>(second.Reports(0)).at(0).next_step, 3);
  EXPECT_EQ(Csv(folder), expected);
  const std::vector<std::string> files = EventFiles(folder);
  ASSERT_EQ(files.size(), 2u);
  std::vector<std::string> events;
  ASSERT_TRUE(ReadEventRecords(folder.Read(files[1]), events));
  ASSERT_EQ(events.size(), 2u + 5u);
  EXPECT_EQ(events[1].substr(9), StartEvent(Nanos(0), 4).substr(9));
}

TEST(RankLog, FilesThatCannotBeWrittenEndNothing) {
  const TestFolder folder;
  fs::create_directories(folder.path() + "/checkpoints");
  folder.Write("checkpoints/metrics-small", "in the way");
  RankProcesses ranks(folder, SomeConfigs(folder, 2));
  ranks.ExpectAllExit(kRankExitOk);
  EXPECT_THAT(ranks.Log(0), HasSubstr("the run's metrics are no longer written: cannot create "));
}

}  // namespace
}  // namespace lynx
