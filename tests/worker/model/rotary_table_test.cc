// Tests the frequencies of rotary positions. Another program has computed the expected numbers in double, from the formulas of
// documentation and papers.
#include "worker/model/rotary_table.h"

#include <gtest/gtest.h>

#include <cmath>

namespace lynx::worker {
namespace {

ModelSpec Model(const RotarySpec& rotary, int32_t head_dim, int32_t seq = 8192) {
  return {.layers = 1,
          .hidden = 64,
          .heads = 1,
          .ffn = 64,
          .seq = seq,
          .vocab = 8,
          .dropout = 0,
          .family = ModelFamily::kLlama,
          .head_dim = head_dim,
          .rotary = rotary};
}

void ExpectSlope(const RotaryTable& table, size_t pair, double want) {
  EXPECT_NEAR(table.slopes[pair], want, 1e-12 * want) << pair;
}

TEST(RotaryTable, PlainPairsTurnByPowersOfTheBase) {
  const RotaryTable table = RotaryTableOf(Model({}, 0));
  EXPECT_EQ(table.pairs, 32);
  EXPECT_EQ(table.scale, 1);
  ExpectSlope(table, 0, 1);
  ExpectSlope(table, 16, 0.01);
  const RotaryTable part = RotaryTableOf(Model({.dims = 16}, 0));
  EXPECT_EQ(part.pairs, 8);
  ExpectSlope(part, 4, 0.01);
}

TEST(RotaryTable, LearnedPositionsHaveNoPairs) {
  ModelSpec gpt = Model({}, 0);
  gpt.family = ModelFamily::kGpt;
  EXPECT_EQ(RotaryTableOf(gpt).pairs, 0);
}

TEST(RotaryTable, LinearScalingDividesEveryAngle) {
  const RotaryTable table = RotaryTableOf(Model({.scaling = RopeScaling::kLinear, .factor = 4}, 0));
  ExpectSlope(table, 0, 0.25);
  ExpectSlope(table, 16, 0.0025);
}

// Up to the original number of positions the base does not change; beyond it the base grows.
TEST(RotaryTable, DynamicScalingFollowsTheSequence) {
  const RotarySpec rotary{.scaling = RopeScaling::kDynamic, .factor = 2, .original_seq = 4096};
  ExpectSlope(RotaryTableOf(Model(rotary, 0, 2048)), 16, 0.01);
  ExpectSlope(RotaryTableOf(Model(rotary, 0, 8192)), 5, 0.19863005319821675);
}

// Llama 3.1's scaling: pairs up to 29 rotate as far as without scaling, pairs from 35 on rotate one eighth as far.
TEST(RotaryTable, Llama3ScalingLeavesFastPairs) {
  const RotaryTable table =
      RotaryTableOf(Model({.theta = 500000, .scaling = RopeScaling::kLlama3, .factor = 8, .original_seq = 8192}, 128, 131072));
  EXPECT_EQ(table.pairs, 64);
  ExpectSlope(table, 20, 0.016560440080994446);
  ExpectSlope(table, 28, 0.003211445994752591);
  ExpectSlope(table, 30, 0.0013718935677611381);
  ExpectSlope(table, 32, 0.0005248461609929547);
  ExpectSlope(table, 34, 0.0001785078127679964);
  ExpectSlope(table, 40, 3.428102195952591e-05);
  ExpectSlope(table, 63, 3.068925988914511e-07);
}

TEST(RotaryTable, YarnMixesBetweenTwoPairs) {
  const RotaryTable table =
      RotaryTableOf(Model({.theta = 1e6, .scaling = RopeScaling::kYarn, .factor = 4, .original_seq = 32768}, 128, 131072));
  ExpectSlope(table, 23, 0.006978305848598663);
  ExpectSlope(table, 28, 0.0018482765647068783);
  ExpectSlope(table, 40, 4.445698525097307e-05);
  ExpectSlope(table, 63, 3.102344401879299e-07);
  EXPECT_NEAR(table.scale, 1.138629436111989, 1e-14);
  RotarySpec given{.theta = 1e6, .scaling = RopeScaling::kYarn, .factor = 4, .original_seq = 32768, .attention_factor = 0.75};
  EXPECT_EQ(RotaryTableOf(Model(given, 128)).scale, 0.75);
}

TEST(RotaryTable, YarnMayGiveTheScoresAFactor) {
  RotarySpec rotary{.dims = 64, .scaling = RopeScaling::kYarn, .factor = 40, .original_seq = 4096};
  EXPECT_EQ(ScoreFactorOf(rotary), 1.0f);
  rotary.mscale_all_dim = 1;  // DeepSeek-V3
  EXPECT_FLOAT_EQ(ScoreFactorOf(rotary), 1.8738542f);
  rotary.mscale_all_dim = 0.707;  // DeepSeek-V2-Lite
  EXPECT_FLOAT_EQ(ScoreFactorOf(rotary), 1.5896262f);
  EXPECT_EQ(ScoreFactorOf({}), 1.0f);
}

}  // namespace
}  // namespace lynx::worker
