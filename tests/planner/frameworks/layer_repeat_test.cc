#include "planner/frameworks/layer_repeat.h"

#include <gtest/gtest.h>

#include "planner/frameworks/step_estimate.h"

namespace lynx {
namespace {

using enum RecomputeModule;

ModelSpec Llama() {
  ModelSpec model{.layers = 4, .hidden = 1024, .heads = 16, .ffn = 4096, .seq = 512, .vocab = 1024};
  model.dropout = 0;
  model.family = ModelFamily::kLlama;
  model.kv_heads = 4;
  model.attention = AttentionKernel::kFused;
  model.dtype = DataType::kBfloat16;
  return model;
}

Bytes Kept(const LayerShape& shape, RecomputeMode mode, const std::vector<RecomputeModule>& modules, Framework framework) {
  return LayerRepeatOf(shape, mode, modules, TraitsOf(framework)).kept_bytes();
}

TEST(LayerRepeat, ModulesDropWhatTheyRunAgain) {
  const LayerShape shape = ShapeOf(Llama(), {}, 1);
  const auto kept = [&](const std::vector<RecomputeModule>& modules, Framework framework) {
    return Kept(shape, RecomputeMode::kSelective, modules, framework);
  };
  const Bytes all = Kept(shape, RecomputeMode::kNone, {}, Framework::kMegatron);
  const Bytes block =
      StoredBytes(Tensor::kFc1, shape) + StoredBytes(Tensor::kSilu, shape) + StoredBytes(Tensor::kSwiglu, shape);
  const Bytes norm = StoredBytes(Tensor::kLn2, shape);
  EXPECT_EQ(kept({kMlp}, Framework::kMegatron), all - block - norm) << "the norm is part of linear_fc1";
  EXPECT_EQ(kept({kMlp}, Framework::kLynx), all - block);
  EXPECT_EQ(kept({kLayernorm}, Framework::kMegatron), all);
  EXPECT_EQ(kept({kLayernorm}, Framework::kLynx), all - norm - StoredBytes(Tensor::kLn1, shape));
  EXPECT_EQ(kept({kCoreAttn}, Framework::kNemo), all - TensorBytes(Tensor::kLse, shape)) << "proj keeps the output";
  EXPECT_EQ(kept({kMoe}, Framework::kMegatron), all);
}

TEST(LayerRepeat, TorchtitanKeepsEverySecondProduct) {
  const ModelSpec model = Llama();
  const LayerRepeat repeat =
      LayerRepeatOf(ShapeOf(model, {}, 2), RecomputeMode::kBalanced, {}, TraitsOf(Framework::kTorchtitan));
  const int64_t tokens = 2 * 512, half = 2;
  // x, wq, wv, attention with its log-sum-exp, w1 and w2.
  EXPECT_EQ(repeat.kept_bytes(), Bytes(tokens * half * (1024 + 1024 + 256 + 1024 + 4096 + 1024) + tokens * 16 * 4));
  EXPECT_EQ(repeat.qkv_permille, 1000 * 4 / 24) << "wk";
  EXPECT_EQ(repeat.fc1_permille, 500) << "w3";
  EXPECT_TRUE(Contains(repeat.ops, Op::kProj)) << "wo";
  EXPECT_FALSE(Contains(repeat.ops, Op::kFc2) || Contains(repeat.ops, Op::kFlash));
  const LayerShape shards = ShapeOf(model, {.tp = 2, .sequence_parallel = true}, 2);
  const LayerRepeat sharded = LayerRepeatOf(shards, RecomputeMode::kBalanced, {}, TraitsOf(Framework::kTorchtitan));
  // On two ranks, half of everything but w2's partial sums, and both reduce-scattered sums.
  EXPECT_EQ(sharded.kept_bytes(), Bytes(tokens * half * (3 * 512 + 512 + 128 + 512 + 2048 + 1024) + tokens * 8 * 4));
  ModelSpec other = model;
  other.family = ModelFamily::kGpt;
  EXPECT_FALSE(CheckpointsByOp(ShapeOf(other, {}, 1), TraitsOf(Framework::kTorchtitan)));
  EXPECT_FALSE(CheckpointsByOp(ShapeOf(model, {}, 1), TraitsOf(Framework::kMegatron)));
}

TEST(LayerRepeat, TimesAreThoseOfTheOpsAndTheirCollectives) {
  const ModelSpec model = Llama();
  const ParallelLayout layout{.tp = 2, .sequence_parallel = true};
  const LayerShape shape = ShapeOf(model, layout, 1);
  const CostModel costs(StatedCpuProfile(), model, layout, 1, 8);
  const auto layer = [&](RecomputeMode mode, const std::vector<RecomputeModule>& modules, Framework framework) {
    return EstimateLayer(costs, shape, mode, TraitsOf(framework), modules);
  };
  const LayerEstimate mlp = layer(RecomputeMode::kSelective, {kMlp}, Framework::kMegatron);
  const OpSet block = Bit(Op::kLn2) | Bit(Op::kFc1) | Bit(Op::kSilu) | Bit(Op::kSwiglu) | Bit(Op::kFc2);
  const Nanos collectives = costs.GatherTime(LayerType::kTransformer, Tensor::kLn2Full) +
                            costs.WindowTime(LayerType::kTransformer, Segment::kMlp, Pass::kForward);
  EXPECT_EQ(mlp.recompute, costs.OpSetTime(block) + collectives);
  EXPECT_EQ(mlp.repeated_collectives, collectives);
  EXPECT_EQ(mlp.repeated.size(), 5U);
  EXPECT_EQ(mlp.repeated[1], (std::pair(Op::kFc1, costs.OpTime(Op::kFc1, Pass::kForward))));
  const LayerEstimate op = layer(RecomputeMode::kBalanced, {}, Framework::kTorchtitan);
  const LayerEstimate full = layer(RecomputeMode::kFull, {}, Framework::kTorchtitan);
  EXPECT_GT(op.recompute, layer(RecomputeMode::kBalanced, {}, Framework::kLynx).recompute);
  EXPECT_LT(op.recompute, full.recompute);
  EXPECT_EQ(op.repeated_collectives, costs.GatherTime(LayerType::kTransformer, Tensor::kLn1Full) +
                                         costs.GatherTime(LayerType::kTransformer, Tensor::kLn2Full));
  Nanos parts = full.repeated_collectives;
  for (const auto& [which, time] : full.repeated) parts += time;
  EXPECT_EQ(parts, full.recompute);
}

}  // namespace
}  // namespace lynx
