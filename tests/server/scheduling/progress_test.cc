#include "server/scheduling/progress.h"

#include <gtest/gtest.h>

#include "server/scheduling/slowest_profile.h"
#include "server/values/rank_logs.h"

namespace lynx::server {
namespace {

StepReport Step(int64_t step, int64_t duration_ms, int64_t forward_ms = 10) {
  return {.step = step,
          .loss = 4.0 / static_cast<double>(step + 1),
          .gradient_norm = 2,
          .lr = 0.1,
          .tokens = 1000,
          .duration = Nanos(duration_ms * 1'000'000),
          .forward = Nanos(forward_ms * 1'000'000),
          .arena_peak = Bytes(100 + step),
          .experts = {.rows_routed = 100,
                      .rows_dropped = step,
                      .rows_in_rounds = 2 * step,
                      .rounds = 3 * step,
                      .skew = 2.0 + static_cast<double>(step)}};
}

TEST(StepStatisticsTest, ProgressFollowsTheNewestStep) {
  StepStatistics statistics({2, 1, 1}, {});
  Progress progress;
  for (int64_t step = 0; step < 30; ++step) {
    statistics.AddStep(0, Step(step, 100), Nanos(step + 1), progress);
    statistics.AddStep(1, Step(step, 200), Nanos(step + 1), progress);
  }
  EXPECT_EQ(progress.steps_done, 30);
  EXPECT_DOUBLE_EQ(progress.first_loss, 4.0);
  EXPECT_DOUBLE_EQ(progress.loss, 4.0 / 30);
  EXPECT_DOUBLE_EQ(progress.expert_skew, 31);
  EXPECT_DOUBLE_EQ(progress.expert_dropped, 0.29);
  EXPECT_DOUBLE_EQ(progress.expert_in_rounds, 0.58);
  EXPECT_EQ(progress.expert_rounds, 87);
  EXPECT_EQ(progress.step, Nanos(200'000'000)) << "of the slowest rank";
  EXPECT_DOUBLE_EQ(progress.tokens_per_second, 5000);
  EXPECT_EQ(progress.first_step_time, Nanos(1));
  // A rank that is behind reports an older step. This must not move the progress back.
  statistics.AddStep(1, Step(28, 200), Nanos(99), progress);
  EXPECT_EQ(progress.steps_done, 30);
}

TEST(StepStatisticsTest, MedianIgnoresOutliers) {
  StepStatistics statistics({1, 1, 1}, {});
  Progress progress;
  for (int64_t step = 0; step < 20; ++step) {
    statistics.AddStep(0, Step(step, step == 10 ? 5000 : 100), Nanos(1), progress);
  }
  EXPECT_EQ(progress.step, Nanos(100'000'000));
}

TEST(StepStatisticsTest, ANewGenerationStartsWhereItResumes) {
  StepStatistics statistics({1, 1, 1}, {});
  Progress progress;
  progress.steps_done = 15;
  progress.first_loss = 9;
  progress.first_step_time = Nanos(5);
  statistics.AddStep(0, Step(10, 100), Nanos(50), progress);
  EXPECT_EQ(progress.steps_done, 11);
  EXPECT_DOUBLE_EQ(progress.first_loss, 9) << "of the job, not of the generation";
}

TEST(StepStatisticsTest, MeansLeaveOutTheFirstTwoStepsAndTakeTheBusiestRank) {
  StepStatistics statistics({2, 2, 1}, {});
  Progress progress;
  statistics.AddStarted(3, {.states = Bytes(77)});
  for (int64_t step = 0; step < 5; ++step) {
    for (int32_t rank = 0; rank < 4; ++rank) {
      statistics.AddStep(rank, Step(step, 100, step < 2 ? 1000 : 10 + rank), Nanos(1), progress);
    }
  }
  const std::vector<StageMeasurement> measured = statistics.Measured();
  ASSERT_EQ(measured.size(), 2u);
  EXPECT_EQ(measured[0].steps, 3);
  EXPECT_EQ(measured[0].forward, Nanos(11'000'000));
  EXPECT_EQ(measured[1].forward, Nanos(13'000'000));
  EXPECT_EQ(measured[1].step, Nanos(100'000'000));
  EXPECT_EQ(measured[1].arena_peak, Bytes(104));
  EXPECT_EQ(measured[1].states, Bytes(77));
}

TEST(StepStatisticsTest, GoesOnFromWhatAnEarlierServerMeasured) {
  const StageMeasurement base{
      .steps = 3, .step = Nanos(100), .forward = Nanos(40), .core_wait = Nanos(4), .arena_peak = Bytes(500)};
  StepStatistics statistics({1, 1, 1}, {base});
  Progress progress;
  StepReport step;
  step.step = 9;
  step.duration = Nanos(200);
  step.forward = Nanos(80);
  step.core_wait = Nanos(20);
  statistics.AddStep(0, step, Nanos(1), progress);
  const StageMeasurement measured = statistics.Measured().at(0);
  EXPECT_EQ(measured.steps, 4);
  EXPECT_EQ(measured.step, Nanos((3 * 100 + 200) / 4));
  EXPECT_EQ(measured.forward, Nanos((3 * 40 + 80) / 4));
  EXPECT_EQ(measured.core_wait, Nanos((3 * 4 + 20) / 4));
  EXPECT_EQ(measured.arena_peak, Bytes(500));
}

TEST(RankLogsTest, KeepsTheLastLines) {
  RankLogs logs;
  const RankKey key{JobId("a"), Generation(1), 0};
  for (int i = 0; i < 1500; ++i) logs.Add({key, {std::to_string(i)}}, Nanos(7));
  const std::vector<LogLine> lines = logs.Last(JobId("a"), {.limit = 5000});
  ASSERT_EQ(lines.size(), RankLogs::kLinesPerRank);
  EXPECT_EQ(lines.front().text, "500");
  EXPECT_EQ(lines.back().text, "1499");
  EXPECT_EQ(logs.LastOf({JobId("a"), Generation(2), 0}, 3).size(), 0u);
}

TEST(RankLogsTest, LinesAndJobsAreBounded) {
  RankLogs logs;
  std::string wide;
  for (int i = 0; i < 3000; ++i) wide += "\xC3\xA4";  // two bytes each
  wide.insert(0, "x");
  logs.Add({{JobId("first"), Generation(1), 0}, {wide}}, Nanos(0));
  const std::string kept = logs.Last(JobId("first"), {.rank = 0, .limit = 1}).at(0).text;
  EXPECT_EQ(kept.size(), RankLogs::kLineBytes - 1) << "no half of a character";
  for (size_t i = 0; i < RankLogs::kJobs; ++i) logs.Add({{JobId(std::to_string(i)), Generation(1), 0}, {"line"}}, Nanos(0));
  EXPECT_TRUE(logs.Last(JobId("first"), {.limit = 1}).empty());
  EXPECT_FALSE(logs.Last(JobId("0"), {.limit = 1}).empty());
}

TEST(RankLogsTest, ToldByGenerationAndFromASequenceOn) {
  RankLogs logs;
  const JobId job("a");
  logs.Add({{job, Generation(1), 0}, {"one", "two"}}, Nanos(1000));
  logs.Add({{job, Generation(2), 1}, {"three"}}, Nanos(900));  // the clock was set back
  logs.Add({{job, Generation(2), 0}, {"four", "five"}}, Nanos(5000));
  const auto texts = [&](const LogQuery& query) {
    std::vector<std::string> all;
    for (const LogLine& line : logs.Last(job, query)) all.push_back(line.text);
    return all;
  };
  const std::vector<LogLine> all = logs.Last(job, {.limit = 100});
  EXPECT_EQ(texts({.limit = 100}), (std::vector<std::string>{"one", "two", "four", "five", "three"}));
  EXPECT_EQ(all.at(0).sequence, 1000);
  EXPECT_EQ(all.at(4).sequence, 1002) << "larger than all before";
  EXPECT_EQ(texts({.generation = Generation(2), .limit = 100}), (std::vector<std::string>{"four", "five", "three"}));
  EXPECT_EQ(texts({.generation = Generation(2), .limit = 1}), (std::vector<std::string>{"five", "three"}));
  EXPECT_EQ(texts({.generation = Generation(1), .limit = 1}), (std::vector<std::string>{"two"})) << "though others came later";
  EXPECT_EQ(texts({.after = 1001, .limit = 100}), (std::vector<std::string>{"four", "five", "three"}));
  EXPECT_EQ(texts({.rank = 1, .after = 1002, .limit = 100}), std::vector<std::string>());
}

TEST(RankLogsTest, TheFirstFailureOfTheNewestGenerationIsKnown) {
  RankLogs logs;
  const JobId job("a");
  EXPECT_FALSE(logs.FirstFailure(job).has_value());
  logs.NoteFailure({job, Generation(2), 3});
  logs.NoteFailure({job, Generation(2), 1});
  EXPECT_EQ(logs.FirstFailure(job)->rank, 3);
  logs.NoteFailure({job, Generation(3), 0});
  EXPECT_EQ(logs.FirstFailure(job)->generation, Generation(3));
  for (size_t i = 0; i < RankLogs::kJobs; ++i) logs.NoteFailure({JobId(std::to_string(i)), Generation(1), 0});
  EXPECT_FALSE(logs.FirstFailure(job).has_value()) << "as its lines";
}

TEST(SlowestProfileTest, TakesTheWorstOfEveryFigure) {
  HardwareProfile a = StatedCpuProfile(), b = StatedCpuProfile();
  const LayerShape both{.micro_batch = 1}, only_a{.micro_batch = 2};
  a.measured = {{.shape = both}, {.shape = only_a}};
  b.measured = {{.shape = both}};
  a.measured[0].ops[3] = {Nanos(5), Nanos(50), Nanos(0)};
  b.measured[0].ops[3] = {Nanos(7), Nanos(40), Nanos(1)};
  b.flops_per_second = 1;
  a.inter_node = {Nanos(9'000'000), 5};
  b.overlap_slowdown_permille = 4000;
  const HardwareProfile slowest =
      SlowestProfile({std::make_shared<const HardwareProfile>(a), nullptr, std::make_shared<const HardwareProfile>(b)});
  ASSERT_EQ(slowest.measured.size(), 1u);
  EXPECT_EQ(slowest.measured[0].ops[3], (OpTimes{Nanos(7), Nanos(50), Nanos(1)}));
  EXPECT_EQ(slowest.flops_per_second, 1);
  EXPECT_EQ(slowest.inter_node, (LinkCost{Nanos(9'000'000), 5}));
  EXPECT_EQ(slowest.overlap_slowdown_permille, 4000);
  EXPECT_EQ(SlowestProfile({nullptr}), StatedCpuProfile());
}

}  // namespace
}  // namespace lynx::server
