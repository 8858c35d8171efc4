#include "planner/problem/flops.h"

#include <gtest/gtest.h>

#include "planner/problem/model_presets.h"

namespace lynx {
namespace {

TEST(Flops, FollowTheFormulasOfKorthikantiForAGpt) {
  for (const char* name : {"gpt-22b", "gpt-175b", "gpt-530b", "gpt-1t"}) {
    const ModelSpec& model = FindModelPreset(name)->model;
    const double h = model.hidden, s = model.seq, layers = model.layers, v = model.vocab, samples = 7;
    const double scale = 72 * samples * layers * s * h * h, vocab = v / (12 * h * layers);
    const auto flops = [&](FlopCount count) { return StepFlops(model, 7, count); };
    EXPECT_DOUBLE_EQ(flops(FlopCount::kModel), scale * (1 + s / (6 * h) + vocab));
    EXPECT_DOUBLE_EQ(flops(FlopCount::kModelCausal), scale * (1 + s / (12 * h) + vocab));
    EXPECT_DOUBLE_EQ(flops(FlopCount::kFullRecompute), scale * (4.0 / 3 * (1 + s / (6 * h)) + vocab));
    EXPECT_DOUBLE_EQ(flops(FlopCount::kSelectiveRecompute), scale * (1 + 2 * s / (9 * h) + vocab));
    EXPECT_DOUBLE_EQ(flops(FlopCount::kSelectiveRecomputePublished), scale * (1 + s / (3 * h) + vocab));
  }
}

TEST(Flops, CountGatedAndGroupedLinearsAsTheyAre) {
  const ModelSpec& model = FindModelPreset("llama-70b")->model;
  const double h = model.hidden, layers = model.layers;
  // The terms are: the projections of the queries and the output, the projections of keys and values for 8 of 64 heads, and
  // gate, up and down.
  const double weights = layers * h * (2 * h + 2 * h / 8 + 3.0 * model.ffn) + h * model.vocab;
  EXPECT_DOUBLE_EQ(StepFlops(model, 3, FlopCount::kModelCausal), 3.0 * model.seq * (6 * weights + 6 * layers * h * model.seq));
}

// Mixtral 8x7B, by hand: a token passes queries and output (4096 x 4096 each), keys and values (4096 x 1024 each), the router
// (4096 x 8), gate, up and down of 2 of 8 experts (4096 x 14336 each), and the output projection (4096 x 32000).
TEST(Flops, CountTheExpertsThatATokenPasses) {
  ModelSpec model = FindModelPreset("mixtral-8x7b")->model;
  const double layer = 2 * 16'777'216.0 + 2 * 4'194'304.0 + 32'768 + 2 * 3 * 58'720'256.0;
  const double active = 32 * layer + 131'072'000;
  const double attention = 6.0 * 32 * 4096 * 32768;  // per token; only half of the square of scores counts
  EXPECT_DOUBLE_EQ(StepFlops(model, 5, FlopCount::kModelCausal), 5.0 * 32768 * (6 * active + attention));
  EXPECT_EQ(ActiveParameters(model), 12'879'925'248);
  // The model needs the same FLOPs with any capacity and any skew.
  const double flops = StepFlops(model, 1, FlopCount::kModel);
  model.moe.capacity = 1.25, model.moe.skew = 2;
  EXPECT_EQ(StepFlops(model, 1, FlopCount::kModel), flops);
  // The FLOPs follow the width of an expert, and the number of experts for each token.
  model.moe.ffn = 100, model.moe.top_k = 3;
  const double less = 32 * (3 * 3 * 4096 * 100.0 - 2 * 3 * 58'720'256.0);
  EXPECT_DOUBLE_EQ(StepFlops(model, 1, FlopCount::kModel), flops + 6.0 * 32768 * less);
}

TEST(Flops, UtilizationIsAShareOfThePeak) { EXPECT_DOUBLE_EQ(FlopsUtilization(1e15, 2, 5, 1'000'000'000'000'000), 0.1); }

}  // namespace
}  // namespace lynx
