#include "planner/frameworks/framework.h"

#include <gtest/gtest.h>

#include <utility>

namespace lynx {
namespace {

TEST(Framework, NamesParse) {
  for (int i = 0; i < kFrameworkCount; ++i) {
    Framework parsed = Framework::kLynx;
    EXPECT_TRUE(ParseEnum(EnumName(static_cast<Framework>(i)), parsed));
    EXPECT_EQ(parsed, static_cast<Framework>(i));
  }
  Framework parsed = Framework::kNemo;
  EXPECT_FALSE(ParseEnum("jax", parsed));
  EXPECT_EQ(parsed, Framework::kNemo);
}

TEST(Framework, OnlyOurEngineRecomputesNoMoreThanIsRead) {
  for (int i = 0; i < kFrameworkCount; ++i) {
    const auto framework = static_cast<Framework>(i);
    EXPECT_EQ(TraitsOf(framework).checkpoints_functions, framework != Framework::kLynx) << EnumName(framework);
  }
  EXPECT_EQ(TraitsOf(Framework::kLynx), kLynxTraits);
  FrameworkTraits nemo = TraitsOf(Framework::kNemo);
  EXPECT_TRUE(std::exchange(nemo.rows_once_per_node, false)) << "its recipes of mixtures use DeepEP or HybridEP";
  EXPECT_FALSE(std::exchange(nemo.sorts_rows, true)) << "which sort while they send";
  EXPECT_EQ(nemo, TraitsOf(Framework::kMegatron)) << "NeMo runs Megatron Core";
}

TEST(Framework, EachHasItsDegrees) {
  const ParallelLayout contexts{.cp = 2}, tensors{.tp = 2}, stages{.pp = 2};
  EXPECT_TRUE(RunsLayout(Framework::kMegatron, contexts));
  EXPECT_FALSE(RunsLayout(Framework::kMegatronDeepspeed, contexts));
  EXPECT_FALSE(RunsLayout(Framework::kLynx, contexts));
  EXPECT_TRUE(RunsLayout(Framework::kNanotron, tensors));
  EXPECT_FALSE(RunsLayout(Framework::kFsdp, tensors));
  EXPECT_FALSE(RunsLayout(Framework::kFsdp, stages));
  const ParallelLayout sequence{.tp = 2, .sequence_parallel = true};
  EXPECT_TRUE(RunsLayout(Framework::kMegatron, sequence));
  for (const Framework older : {Framework::kDeepspeed, Framework::kMegatronDeepspeed, Framework::kInternevo}) {
    EXPECT_FALSE(RunsLayout(older, sequence)) << EnumName(older);
  }
}

TEST(Framework, EachHasItsSchedules) {
  const ParallelLayout interleaved{.pp = 2, .virtual_stages = 2, .schedule = ScheduleKind::kInterleaved};
  const ParallelLayout zero_bubble{.pp = 2, .schedule = ScheduleKind::kZeroBubble};
  EXPECT_TRUE(RunsLayout(Framework::kMegatron, interleaved));
  EXPECT_FALSE(RunsLayout(Framework::kDeepspeed, interleaved));
  EXPECT_FALSE(RunsLayout(Framework::kMegatron, zero_bubble));
  EXPECT_TRUE(RunsLayout(Framework::kTorchtitan, zero_bubble));
  EXPECT_FALSE(RunsLayout(Framework::kMegatron, {.tp = 2, .weave = WeaveMode::kPairs})) << "only our engine weaves";
}

TEST(Framework, OnlySomeHaveExpertsOnSeveralRanks) {
  const ParallelLayout experts{.dp = 2, .ep = 2};
  for (const Framework framework : {Framework::kLynx, Framework::kMegatron, Framework::kDeepspeed, Framework::kNemo}) {
    EXPECT_TRUE(RunsLayout(framework, experts)) << EnumName(framework);
  }
  for (const Framework framework : {Framework::kTorchtitan, Framework::kNanotron, Framework::kInternevo}) {
    EXPECT_TRUE(RunsLayout(framework, {.dp = 2})) << EnumName(framework);
    EXPECT_FALSE(RunsLayout(framework, experts)) << EnumName(framework);
  }
}

TEST(Framework, EachShardsWhatItCan) {
  const ParallelLayout weights{.dp = 2, .zero = ZeroStage::kWeights};
  const ParallelLayout weights_of_stages{.pp = 2, .dp = 2, .zero = ZeroStage::kWeights};
  EXPECT_TRUE(RunsLayout(Framework::kMegatron, weights));
  EXPECT_FALSE(RunsLayout(Framework::kMegatron, weights_of_stages));
  EXPECT_TRUE(RunsLayout(Framework::kTorchtitan, weights_of_stages));
  EXPECT_FALSE(RunsLayout(Framework::kNanotron, weights));
  EXPECT_FALSE(RunsLayout(Framework::kDeepspeed, {.tp = 2, .dp = 2, .zero = ZeroStage::kWeights}));
  EXPECT_TRUE(RunsLayout(Framework::kDeepspeed, {.tp = 2, .dp = 2, .zero = ZeroStage::kGradients}));
  EXPECT_FALSE(RunsLayout(Framework::kTorchtitan, {.dp = 2, .zero = ZeroStage::kOptimizer})) << "FSDP2 shards gradients too";
  EXPECT_TRUE(RunsLayout(Framework::kTorchtitan, {.dp = 2})) << "replicas that share nothing";
  EXPECT_FALSE(RunsLayout(Framework::kFsdp, {.dp = 2})) << "FSDP always shards";
  EXPECT_TRUE(RunsLayout(Framework::kFsdp, {})) << "one device has nothing to shard";
}

}  // namespace
}  // namespace lynx
