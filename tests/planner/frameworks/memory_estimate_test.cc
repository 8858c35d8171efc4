#include "planner/frameworks/memory_estimate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/lower/lower.h"
#include "planner/problem/narrow_products.h"
#include "planner/program/memory_model.h"
#include "planner/recompute/recompute_policy.h"
#include "tests/planner/plan/plan_fixtures.h"

namespace lynx {
namespace {

StepRequest Request(const ParallelLayout& layout, RecomputeMode mode = RecomputeMode::kNone) {
  return {
      .model = {.layers = 8, .hidden = 512, .heads = 8, .ffn = 2048, .seq = 256, .vocab = 4096, .dtype = DataType::kBfloat16},
      .layout = layout,
      .micro_batch = 2,
      .microbatches = 4,
      .recompute = mode};
}

std::vector<MemoryEstimate> Estimated(const StepRequest& request) {
  const absl::StatusOr<std::vector<MemoryEstimate>> ranks = EstimateMemory(request);
  EXPECT_TRUE(ranks.ok()) << ranks.status();
  return ranks.ok() ? *ranks : std::vector<MemoryEstimate>(static_cast<size_t>(request.layout.pp));
}

TEST(MemoryEstimate, StatesFollowFromTheParametersAndWhatZeroShards) {
  const StepRequest plain = Request({.dp = 4});
  const int64_t parameters = ModelParameters(plain.model);
  const MemoryEstimate whole = Estimated(plain).front();
  EXPECT_EQ(whole.weights, Bytes(2 * parameters));
  EXPECT_EQ(whole.gradients, Bytes(4 * parameters));
  EXPECT_EQ(whole.optimizer, Bytes(12 * parameters)) << "the 32-bit weights and both moments";

  const MemoryEstimate one = Estimated(Request({.dp = 4, .zero = ZeroStage::kOptimizer})).front();
  EXPECT_EQ(one.optimizer, Bytes(3 * parameters));
  EXPECT_EQ(one.gradients, whole.gradients);
  const MemoryEstimate two = Estimated(Request({.dp = 4, .zero = ZeroStage::kGradients})).front();
  EXPECT_EQ(two.gradients, Bytes(parameters));
  EXPECT_EQ(two.weights, whole.weights);
  const MemoryEstimate three = Estimated(Request({.dp = 4, .zero = ZeroStage::kWeights})).front();
  const int64_t layer = LayerParameters(LayerType::kTransformer, ShapeOf(plain.model, plain.layout, 2));
  EXPECT_EQ(three.weights, Bytes(parameters / 2 + 2 * layer * 2)) << "a quarter, and two gathered layers";
}

TEST(MemoryEstimate, GradientsMayHave16Bits) {
  StepRequest request = Request({.dp = 4, .zero = ZeroStage::kGradients});
  MemoryEstimate wide = Estimated(request).front();
  request.model.gradient_dtype = DataType::kBfloat16;
  const MemoryEstimate half = Estimated(request).front();
  EXPECT_EQ(half.gradients, wide.gradients / 2);
  wide.gradients = half.gradients;
  EXPECT_EQ(half, wide);
  request.traits = TraitsOf(Framework::kFsdp);
  EXPECT_EQ(Estimated(request).front().gradients, half.gradients * 2) << "FSDP's shards have 32 bits, whatever travels";
  request.layout.zero = ZeroStage::kNone;
  const Bytes whole = Estimated(request).front().gradients;
  request.model.gradient_dtype = DataType::kFloat32;
  EXPECT_EQ(Estimated(request).front().gradients, whole * 2);
}

TEST(MemoryEstimate, WeightsMayHave8BitsOnly) {
  StepRequest request = Request({.dp = 4});
  request.only_narrow_weights = true;
  EXPECT_EQ(Estimated(request).front().weights, Bytes(2 * ModelParameters(request.model))) << "products are in 16 bits";
  request.model.matmul_type = MatmulType::kFloat8;
  const Bytes only = Estimated(request).front().weights;
  request.only_narrow_weights = false;
  const LayerShape shape = ShapeOf(request.model, request.layout, request.micro_batch);
  EXPECT_EQ(Estimated(request).front().weights - only, NarrowWeights(shape) * request.model.layers);
}

TEST(MemoryEstimate, ContextParallelRanksShareTheOptimizerToo) {
  const MemoryEstimate whole = Estimated(Request({})).front();
  const MemoryEstimate shared = Estimated(Request({.cp = 4, .zero = ZeroStage::kOptimizer})).front();
  EXPECT_EQ(shared.optimizer, whole.optimizer / 4);
}

TEST(MemoryEstimate, FirstLayersMayHaveNoExperts) {
  StepRequest request = Request({.pp = 2, .dp = 4, .ep = 4, .zero = ZeroStage::kOptimizer});
  request.model.family = ModelFamily::kLlama;
  request.model.dropout = 0;
  request.model.moe = {.experts = 8, .top_k = 2, .ffn = 512, .dense_layers = 3};
  const LayerShape shape = ShapeOf(request.model, request.layout, 2);
  const int64_t sparse = LayerParameters(LayerType::kTransformer, shape), experts = ExpertParameters(shape);
  const int64_t dense = LayerParameters(LayerType::kTransformer, DenseShape(shape));
  const int64_t embedding = LayerParameters(LayerType::kEmbedding, shape);
  const std::vector<MemoryEstimate> ranks = Estimated(request);
  EXPECT_EQ(ranks[0].weights, Bytes(2 * (3 * dense + sparse + embedding)));
  EXPECT_EQ(ranks[0].optimizer, Bytes(12 * (3 * dense + sparse - experts + embedding) / 4 + 12 * experts));
  EXPECT_EQ(ranks[1].weights, Bytes(2 * (4 * sparse + LayerParameters(LayerType::kHead, shape))));
  // The bytes that the layers store for two microbatches: three layers of one kind, and one of the other kind.
  const auto stored = [&](const LayerShape& of) { return StoredLayerBytes(request, of); };
  EXPECT_EQ(ranks[0].activations, (stored(DenseShape(shape)) * 3 + stored(shape)) * 2);
}

TEST(MemoryEstimate, WeightsOf32BitsHaveNoSecondCopy) {
  StepRequest request = Request({});
  request.model.dtype = DataType::kFloat32;
  const int64_t parameters = ModelParameters(request.model);
  const MemoryEstimate rank = Estimated(request).front();
  EXPECT_EQ(rank.weights, Bytes(4 * parameters));
  EXPECT_EQ(rank.optimizer, Bytes(8 * parameters));
}

TEST(MemoryEstimate, CastShardsAreNotKeptIn16BitsAndTheEndsStayGathered) {
  StepRequest request = Request({.dp = 4, .zero = ZeroStage::kWeights});
  const Bytes kept = Estimated(request).front().weights;
  request.traits.gathers_from_master = true;
  const LayerShape shape = ShapeOf(request.model, request.layout, 2);
  const int64_t ends = LayerParameters(LayerType::kEmbedding, shape) + LayerParameters(LayerType::kHead, shape);
  EXPECT_EQ(kept - Estimated(request).front().weights, Bytes(ModelParameters(request.model) * 2 / 4 - ends * 2));
}

TEST(MemoryEstimate, ManyMicrobatchesHoldWhatFewHold) {
  StepRequest request = Request({.pp = 2});
  request.microbatches = 64;
  const std::vector<MemoryEstimate> few = Estimated(request);
  request.microbatches = 1'000'000;
  EXPECT_EQ(Estimated(request), few);
}

TEST(MemoryEstimate, ActivationsAgreeWithTheFoldOverAProgram) {
  for (const RecomputeMode mode : {RecomputeMode::kNone, RecomputeMode::kFull, RecomputeMode::kSelective}) {
    for (const bool sequence_parallel : {false, true}) {
      StepRequest request = Request({.tp = 2, .pp = 2, .sequence_parallel = sequence_parallel}, mode);
      const std::vector<MemoryEstimate> ranks = Estimated(request);
      for (int32_t stage = 0; stage < 2; ++stage) {
        StageContext context = TinyContext(request.model, request.layout, request.microbatches, stage);
        context.micro_batch = request.micro_batch;
        const int32_t layers = context.only_slice().layers();
        const Program program = LowerStage(context, NamedPolicy(context.graph(), mode, layers));
        const absl::StatusOr<MemoryPlan> memory = FoldLiveness(program, context);
        ASSERT_TRUE(memory.ok()) << memory.status();
        const MemoryEstimate& rank = ranks[static_cast<size_t>(stage)];
        const double exact = static_cast<double>(memory->live_peak.value);
        // The estimate leaves out tensors that pass between stages. It counts only the largest gradient inside a layer.
        EXPECT_NEAR(static_cast<double>((rank.activations + rank.transient).value), exact, 0.15 * exact)
            << EnumName(mode) << (sequence_parallel ? " sp" : "") << " stage " << stage;
      }
    }
  }
}

TEST(MemoryEstimate, OnlyTheLastRankHasTheLogitsAndTheirCopies) {
  StepRequest request = Request({.pp = 2}, RecomputeMode::kFull);
  request.model.vocab = 1 << 18;
  const std::vector<MemoryEstimate> one = Estimated(request);
  request.traits.half_logits_copies = 1;
  request.traits.float_logits_copies = 2;
  const std::vector<MemoryEstimate> copies = Estimated(request);
  const int64_t logits = int64_t{2} * 256 * (1 << 18) * 4;
  EXPECT_EQ(one[1].transient, Bytes(logits));
  EXPECT_EQ(copies[1].transient, Bytes(2 * logits + logits / 2));
  EXPECT_EQ(copies[0], one[0]);
}

TEST(MemoryEstimate, WhatLibrariesAllocateCounts) {
  StepRequest request = Request({});
  const Bytes before = Estimated(request).front().total();
  request.traits.workspace_bytes = 1000;
  EXPECT_EQ(Estimated(request).front().total() - before, Bytes(1000));
}

TEST(MemoryEstimate, RefusesPoliciesThatDifferByLayer) {
  const auto refused = EstimateMemory(Request({}, RecomputeMode::kHeu));
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.status().message(), testing::HasSubstr("does not treat every layer alike"));
}

TEST(MemoryEstimate, ProductsInEightBitsHaveCopiesOfTheWeights) {
  StepRequest request = Request({.pp = 2});
  const std::vector<MemoryEstimate> wide = Estimated(request);
  request.model.matmul_type = MatmulType::kFloat8;
  const std::vector<MemoryEstimate> narrow = Estimated(request);
  const Bytes copies = NarrowWeights(ShapeOf(request.model, request.layout, 2));
  EXPECT_GT(copies, Bytes(0));
  EXPECT_EQ(narrow[0].weights - wide[0].weights, copies * 4) << "of the layers of a stage";
  EXPECT_LT(narrow[0].activations, wide[0].activations);
  request.layout = {.dp = 2, .zero = ZeroStage::kWeights};
  const Bytes sharded = Estimated(request).front().weights;
  request.model.matmul_type = MatmulType::kModel;
  EXPECT_EQ(sharded - Estimated(request).front().weights, copies * 2) << "of the gathered layers";
}

TEST(MemoryEstimate, RefusesMorePartsThanLayers) {
  StepRequest request = Request({.pp = 16});
  request.microbatches = 16;
  const auto refused = EstimateMemory(request);
  EXPECT_THAT(refused.status().message(), testing::HasSubstr("8 layers cannot be cut into 16 parts"));
}

}  // namespace
}  // namespace lynx
