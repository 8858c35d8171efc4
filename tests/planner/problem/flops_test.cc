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

TEST(Flops, UtilizationIsAShareOfThePeak) { EXPECT_DOUBLE_EQ(FlopsUtilization(1e15, 2, 5, 1'000'000'000'000'000), 0.1); }

}  // namespace
}  // namespace lynx
