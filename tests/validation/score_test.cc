// Checks the thresholds of the scoreboard (docs/validation.md), so that no source becomes worse without notice.
#include "tests/validation/score.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "tests/validation/mixture_recipe.h"

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
  double time;              // the largest allowed mean absolute error; 0 = no times
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
      {"Megatron-Bridge", 77, 4, 0.106, 0.125},
      {"Megatron-Bridge, mixtures", 68, 1, 0.14, 0.03},
      {"Megatron-Bridge, GPT-OSS", 29, 0, 0.27, 0},
      {"Megatron-LM, mixtures", 7, 0, 0.09, 0},
      {"MLPerf", 23, 0, 0.11, 0},
      {"InternEvo", 54, 0, 0.085, 0},
      {"Megatron-LM README 2024", 9, 0, 0.07, 0},
      {"Megatron-LM README 2021", 10, 0, 0.08, 0},
      {"torchtitan", 2, 14, 0.21, 0.16},
      {"Megatron-LM, B200 (SimuMax)", 31, 31, 0.1, 0.034},
      {"Megatron-LM's CI, A100", 0, 68, 0, 0.012},
      {"Megatron-LM's CI, H100", 0, 18, 0, 0.028},
      {"Megatron-LM's CI, GB200", 0, 34, 0, 0.026},
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
  // This source may keep one copy of its 8-bit weights where the estimate counts two: see docs/validation.md.
  const std::map<std::string, int32_t> known = {{"Megatron-Bridge, GPT-OSS", 1}};
  for (const SourceScore& score : ScoreBySource(Predictions())) {
    const auto found = known.find(score.source);
    EXPECT_EQ(score.false_overflows, found == known.end() ? 0 : found->second) << score.source;
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
    // Without a cluster file, only the memory is predicted, if it was published.
    if (one.run->obstacle != Obstacle::kDevice) EXPECT_EQ(predicted, one.run->obstacle == Obstacle::kNone) << one.run->row;
  }
}

TEST(Score, ObstaclesAreTheRowsOwn) {
  EXPECT_EQ(RunNamed("runs:2250").obstacle, Obstacle::kExperts) << "DeepSeek-V3";
  EXPECT_EQ(RunNamed("runs:21").obstacle, Obstacle::kIncomplete) << "no sequence length";
  EXPECT_EQ(RunNamed("runs:2187").obstacle, Obstacle::kFramework) << "Pax";
  EXPECT_EQ(RunNamed("golden:2").request.model.plan_only, Bit(PlanOnlyFeature::kEncoder)) << "BERT";
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

TEST(Score, RecipesSayHowMixturesRan) {
  const auto recipe = [](const char* release, const char* model, const char* gpu, bool eight_bit) {
    return RecipeOf(absl::StrCat("megatron-bridge ", release), model, gpu, eight_bit);
  };
  const MixtureRecipe h100 = recipe("26.02.01", "Qwen3-235B-A22B", "H100-SXM", true);
  EXPECT_TRUE(h100.known && h100.beside);
  EXPECT_FALSE(h100.once_per_node || h100.whole_graph || h100.norms_and_activation || h100.slowed);
  EXPECT_TRUE(recipe("26.06", "Qwen3-30B-A3B", "GB300", true).whole_graph);
  EXPECT_FALSE(recipe("26.06", "Qwen3-30B-A3B", "H100-SXM", true).whole_graph) << "the first rule that fits";
  EXPECT_FALSE(recipe("26.04", "Qwen3-30B-A3B", "GB300", true).whole_graph);
  EXPECT_FALSE(recipe("26.06", "Qwen3-30B-A3B", "GB300", false).known);
  EXPECT_TRUE(recipe("26.02", "GPT-OSS-120B", "GB200", false).norms_and_activation);
  EXPECT_TRUE(recipe("26.06.01", "GPT-OSS-120B", "GB200", true).slowed);
  EXPECT_FALSE(recipe("26.06", "GPT-OSS-120B", "GB200", true).slowed);
  EXPECT_FALSE(recipe("25.09", "Qwen3-30B-A3B", "GB200", true).known);
  EXPECT_FALSE(RecipeOf("megatron-bridge", "Qwen3-30B-A3B", "H100-SXM", false).known);
  EXPECT_FALSE(RecipeOf("megatron-core dev", "Qwen3-235B-A22B", "H100-SXM", false).known);
}

TEST(Score, AMixtureRunsAsItsRecipeSays) {
  const std::vector<RecomputeModule> norms_and_activation = {RecomputeModule::kLayernorm, RecomputeModule::kMoeAct};
  const RunOfFramework& graphed = RunNamed("runs:1664");  // Qwen3-30B, GB300, 26.06
  EXPECT_EQ(graphed.request.model.matmul_type, MatmulType::kMxfp8);
  EXPECT_EQ(graphed.request.layout.weave, WeaveMode::kNeighbours);
  EXPECT_EQ(graphed.request.traits.expert_product_host_nanos, 0);
  const RunOfFramework& launched = RunNamed("runs:1844");  // Qwen3-30B, B200, 26.02
  EXPECT_EQ(launched.request.layout.weave, WeaveMode::kOff);
  EXPECT_EQ(launched.request.traits, [] {
    FrameworkTraits traits = TraitsOf(Framework::kNemo);
    traits.rows_once_per_node = true;
    return traits;
  }());
  EXPECT_EQ(RunNamed("runs:1837").request.modules, norms_and_activation) << "GPT-OSS, GB200, 26.02";
  EXPECT_FALSE(RunNamed("runs:1837").request.traits.rows_once_per_node);
  EXPECT_EQ(RunNamed("runs:1638").obstacle, Obstacle::kFault);
  EXPECT_TRUE(RunNamed("runs:2288").request.traits.rows_once_per_node) << "DeepEP";
  EXPECT_EQ(RunNamed("runs:2288").request.modules, norms_and_activation);
  EXPECT_EQ(RunNamed("runs:2289").request.layout.weave, WeaveMode::kNeighbours) << "+1f1b a2a overlap";
}

TEST(Score, MixturesOfTheIntegrationTests) {
  const RunOfFramework& run = RunNamed("golden:609");  // Mixtral 8x7B
  EXPECT_EQ(run.obstacle, Obstacle::kNone);
  EXPECT_EQ(run.request.model.moe, (MoeSpec{.experts = 8, .top_k = 2}));
  EXPECT_EQ(run.request.model.vocab, 32000) << "Llama2Tokenizer";
  EXPECT_EQ(run.request.layout.dp, 8) << "64 devices";
  EXPECT_EQ(run.request.layout.ep, 8);
  EXPECT_EQ(RunNamed("golden:604").obstacle, Obstacle::kShardedExperts) << "by tensor parallelism, the default";
  EXPECT_EQ(RunNamed("golden:614").obstacle, Obstacle::kExperts) << "GELU";
  EXPECT_EQ(RunNamed("golden:600").obstacle, Obstacle::kExperts) << "latent attention";
  EXPECT_EQ(RunNamed("golden:450").request.layout.dp, 1) << "one node of GB200 has 4 devices";
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
