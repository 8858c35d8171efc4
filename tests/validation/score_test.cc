// Holds the thresholds of the scoreboard (docs/validation.md): no source gets worse unnoticed.
#include "tests/validation/score.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace lynx::validation {
namespace {

Scoreboard& Board() {
  static Scoreboard board(LYNX_SOURCE_DIR);
  return board;
}
const std::vector<Prediction>& Predictions() {
  static const std::vector<Prediction> predictions = Board().PredictAll();
  return predictions;
}
SourceScore ScoreOf(const std::string& source) {
  for (SourceScore& score : ScoreBySource(Predictions())) {
    if (score.source == source) return score;
  }
  ADD_FAILURE() << "no source " << source;
  return {};
}
const RunOfFramework& RunNamed(const std::string& row) {
  const std::vector<RunOfFramework>& runs = Board().runs();
  const auto found = std::find_if(runs.begin(), runs.end(), [&](const RunOfFramework& run) { return run.row == row; });
  EXPECT_NE(found, runs.end()) << row;
  return *found;
}

struct Threshold {
  const char* source;
  int32_t times, memories;  // at least this number of runs
  double time;              // the mean absolute error at most; 0 = no times
  double memory;
};

TEST(Score, NoSourceIsWorseThanItsThreshold) {
  constexpr Threshold kThresholds[] = {
      {"vTrain, several nodes", 88, 0, 0.08, 0},
      {"vTrain, one node", 1080, 0, 0.085, 0},
      {"llm-foundry, A100 80GB", 61, 0, 0.05, 0},
      {"llm-foundry, H100", 77, 0, 0.05, 0},
      {"NeMo", 19, 0, 0.085, 0},
      {"NeMo Automodel", 1, 0, 0.3, 0},
      {"Megatron-LM, Llama 3", 3, 0, 0.12, 0},
      {"Megatron-Bridge", 56, 3, 0.11, 0.35},
      {"Megatron-Bridge, mixtures", 4, 1, 0.07, 0.08},
      {"Megatron-Bridge, GPT-OSS", 24, 0, 0.34, 0},
      {"Megatron-LM, mixtures", 1, 0, 0.38, 0},
      {"MLPerf", 20, 0, 0.12, 0},
      {"InternEvo", 54, 0, 0.085, 0},
      {"Megatron-LM README 2024", 9, 0, 0.07, 0},
      {"Megatron-LM README 2021", 10, 0, 0.08, 0},
      {"torchtitan", 0, 6, 0, 0.23},
      {"Megatron-LM, B200 (SimuMax)", 31, 31, 0.1, 0.034},
      {"Megatron-LM's CI, A100", 0, 52, 0, 0.012},
      {"Megatron-LM's CI, H100", 0, 7, 0, 0.025},
      {"Megatron-LM's CI, GB200", 0, 34, 0, 0.03},
  };
  for (const Threshold& threshold : kThresholds) {
    const SourceScore score = ScoreOf(threshold.source);
    EXPECT_GE(score.time.runs, threshold.times) << threshold.source;
    EXPECT_GE(score.memory.runs, threshold.memories) << threshold.source;
    EXPECT_LE(score.time.mean, threshold.time) << threshold.source;
    EXPECT_LE(score.memory.mean, threshold.memory) << threshold.source;
  }
  for (const SourceScore& score : ScoreBySource(Predictions())) {
    const auto held = std::count_if(std::begin(kThresholds), std::end(kThresholds),
                                    [&](const Threshold& one) { return score.source == one.source; });
    EXPECT_EQ(held, score.expressed > 0 ? 1 : 0) << score.source;
  }
}

TEST(Score, ErrorsOnRunsThatNothingWasFittedToAreAlike) {
  for (const FittedConstant& constant : FittedConstants()) {
    const SourceScore score = ScoreOf(constant.source);
    EXPECT_GE(score.held_back_time.runs, 10) << constant.source;
    EXPECT_LE(score.held_back_time.mean, score.time.mean + 0.03) << constant.source;
  }
}

TEST(Score, ConstantsAreWhatAFitFinds) {
  for (const FittedConstant& constant : FittedConstants()) {
    EXPECT_EQ(Board().Refit(constant), constant.value) << constant.name;
  }
}

TEST(Score, EveryRunThatRanFits) {
  for (const SourceScore& score : ScoreBySource(Predictions())) {
    // One run of Megatron-Bridge with products in 8 bits: docs/validation.md.
    EXPECT_EQ(score.false_overflows, score.source == "Megatron-Bridge" ? 1 : 0) << score.source;
  }
}

TEST(Score, TheChosenLayoutIsNearlyTheFastestMeasuredOne) {
  std::map<std::string, double> mean;
  for (const Choice& choice : ChoicesBySource(Predictions())) mean[choice.source] = choice.mean_regret;
  EXPECT_LE(mean.at("vTrain, several nodes"), 0.02);
  EXPECT_LE(mean.at("vTrain, one node"), 0.055);
  EXPECT_LE(mean.at("InternEvo"), 0.1);
}

TEST(Score, ARunIsPredictedOrHasAnObstacle) {
  for (const Prediction& one : Predictions()) {
    const bool predicted = one.has_time() || one.has_memory();
    // Without a cluster file the memory alone is predicted, where it was published.
    if (one.run->obstacle != Obstacle::kDevice) EXPECT_EQ(predicted, one.run->obstacle == Obstacle::kNone) << one.run->row;
  }
}

TEST(Score, ObstaclesAreTheRowsOwn) {
  EXPECT_EQ(RunNamed("runs:2250").obstacle, Obstacle::kExperts) << "DeepSeek-V3";
  EXPECT_EQ(RunNamed("runs:21").obstacle, Obstacle::kIncomplete) << "no sequence length";
  EXPECT_EQ(RunNamed("runs:2187").obstacle, Obstacle::kFramework) << "Pax";
  EXPECT_EQ(RunNamed("golden:2").obstacle, Obstacle::kEncoder) << "BERT";
}

TEST(Score, ARowBecomesTheRequestThatItDescribes) {
  const RunOfFramework& run = RunNamed("runs:1981");  // MPT-13b on 8 A100, 16,384 tokens
  ASSERT_TRUE(run.described);
  EXPECT_EQ(run.framework, Framework::kFsdp);
  EXPECT_EQ(run.request.layout, (ParallelLayout{.dp = 8, .zero = ZeroStage::kWeights}));
  EXPECT_EQ(run.request.micro_batch, 3);
  EXPECT_EQ(run.request.microbatches, 3);
  EXPECT_EQ(run.request.recompute, RecomputeMode::kFull);
  EXPECT_EQ(run.request.model.vocab, 50432) << "50,368 padded to a multiple of 128";
  EXPECT_EQ(run.cluster, "a100-80gb-nvlink");
  EXPECT_EQ(run.network_gbits_of_node, 1600);
}

TEST(Score, GroupsOfReplicasShardTheStates) {
  EXPECT_EQ(RunNamed("runs:2200").request.layout, (ParallelLayout{.dp = 16, .zero = ZeroStage::kOptimizer, .zero_group = 8}));
  EXPECT_EQ(RunNamed("runs:2196").request.layout, (ParallelLayout{.dp = 8, .zero = ZeroStage::kOptimizer}))
      << "a group of all replicas";
}

TEST(Score, ErrorsHaveSignsOnlyInTheirMedian) {
  const Errors errors = ErrorsOf({-0.3, 0.1, 0.2});
  EXPECT_EQ(errors.runs, 3);
  EXPECT_DOUBLE_EQ(errors.median, 0.1);
  EXPECT_DOUBLE_EQ(errors.mean, 0.2);
  EXPECT_DOUBLE_EQ(errors.ninetieth, 0.3);
  EXPECT_EQ(ErrorsOf({}).runs, 0);
}

}  // namespace
}  // namespace lynx::validation
