// Tests of latent attention, of the block that every token passes in addition to its experts, and of first layers without
// experts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/cost/op_cost.h"
#include "planner/problem/flops.h"
#include "planner/problem/layer_graph.h"
#include "planner/problem/stage_context.h"
#include "tests/planner/plan/plan_fixtures.h"

namespace lynx {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Not;
using enum Op;

constexpr auto kTransformer = LayerType::kTransformer;

// b 2, s 16, h 8, a 4, E 4, top_k 2, w 6, u 10. A head of queries and keys has 6 elements, of which 2 are rotated; one of
// values has 5. z = 7 + 3 + 2.
ModelSpec Model() {
  ModelSpec model{.layers = 3, .hidden = 8, .heads = 4, .ffn = 12, .seq = 16, .vocab = 64, .dropout = 0};
  model.family = ModelFamily::kLlama;
  model.dtype = DataType::kBfloat16;
  model.attention = AttentionKernel::kFused;
  model.head_dim = 6;
  model.rotary.dims = 2;
  model.latent = {.query_rank = 7, .kv_rank = 3, .value_dim = 5};
  model.moe = {.experts = 4, .top_k = 2, .ffn = 6, .shared_ffn = 10, .dense_layers = 1};
  return model;
}

LayerShape Shape(const ModelSpec& model, const ParallelLayout& layout) { return ShapeOf(model, layout, 2); }

const ParallelLayout kSharded{.tp = 2, .dp = 2, .ep = 4, .sequence_parallel = true};

TEST(Latent, QueriesKeysAndValuesAreMadeFromNormedLatents) {
  const LayerGraph& graph = LayerGraph::Of(Shape(Model(), {}));
  EXPECT_THAT(graph.OpsOf(kTransformer, Segment::kAttn, Pass::kForward),
              ElementsAre(kLn1, kLatent, kLatentNorm, kQkv, kRope, kFlash, kProj));
  EXPECT_THAT(graph.OpsOf(kTransformer, Segment::kAttn, Pass::kWeight), Contains(kLatent));
  EXPECT_EQ(graph.InputsOf(Tensor::kQkv), Bit(Tensor::kLatentNormed));
  EXPECT_EQ(graph.InputsOf(Tensor::kLatentNormed), Bit(Tensor::kLatent));
  EXPECT_EQ(graph.InputsOf(Tensor::kLatent), Bit(Tensor::kLn1));
  // The backward passes of the norms read their inputs. The weight gradient of qkv reads the normed latents.
  EXPECT_TRUE(lynx::Contains(graph.ReadBy(Segment::kAttn), Tensor::kLatent));
  EXPECT_TRUE(lynx::Contains(graph.ReadBy(Segment::kAttn), Tensor::kLatentNormed));
  const LayerGraph& sharded = LayerGraph::Of(Shape(Model(), kSharded));
  EXPECT_TRUE(sharded.RepeatsCollective(Tensor::kLatent)) << "it is made from the gathered ln1";
  EXPECT_FALSE(sharded.RepeatsCollective(Tensor::kQkv));
}

// The ops that write a gradient come before those that read or change it.
TEST(Latent, GradientsAreBegunBeforeTheyAreUsed) {
  for (const int32_t rank : {7, 0}) {
    for (const ParallelLayout& layout : {ParallelLayout{}, ParallelLayout{.dp = 2, .ep = 2}, kSharded}) {
      ModelSpec model = Model();
      model.latent.query_rank = rank;
      for (const LayerShape& shape : {Shape(model, layout), DenseShape(Shape(model, layout))}) {
        const LayerGraph& graph = LayerGraph::Of(shape);
        TensorSet written = Bit(Tensor::kGrad);
        for (const Segment segment : graph.SegmentsOf(kTransformer, Pass::kBackward)) {
          for (const Op op : graph.OpsOf(kTransformer, segment, Pass::kBackward)) {
            for (const TensorUse& use : graph.InfoOf(op).gradients) {
              if (use.mode == AccessMode::kWrite) {
                EXPECT_FALSE(lynx::Contains(written, use.tensor))
                    << EnumName(op) << " begins " << EnumName(use.tensor) << " anew";
                written |= Bit(use.tensor);
              }
              EXPECT_TRUE(lynx::Contains(written, use.tensor)) << EnumName(op) << " reads " << EnumName(use.tensor);
            }
          }
          const CollectiveInfo& collective = graph.CollectiveOf(kTransformer, segment, Pass::kBackward);
          if (collective.kind == Collective::kNone) continue;
          written |= Bit(collective.to) | Bit(collective.to_weights);
        }
      }
    }
  }
}

TEST(Latent, SizesFollowTheRanksAndHeads) {
  for (const int32_t tp : {1, 2}) {
    const LayerShape shape = Shape(Model(), {.tp = tp, .sequence_parallel = tp > 1});
    const int64_t tokens = 32, heads = 4 / tp;
    EXPECT_EQ(shape.latent_width(), 12);
    EXPECT_EQ(shape.qkv_width(), heads * (6 + 6 + 5));
    EXPECT_EQ(shape.context_width(), heads * 5);
    EXPECT_EQ(TensorBytes(Tensor::kLatent, shape), Bytes(tokens * 12 * 2)) << "every rank has all latents";
    EXPECT_EQ(TensorBytes(Tensor::kGradLatent, shape), TensorBytes(Tensor::kLatentNormed, shape));
    EXPECT_EQ(TensorBytes(Tensor::kContext, shape), Bytes(tokens * heads * 5 * 2));
    EXPECT_EQ(OpParameters(kLatent, shape), 8 * 12);
    EXPECT_EQ(OpParameters(kLatentNorm, shape), 7 + 3);
    EXPECT_EQ(OpParameters(kQkv, shape), heads * (7 * 6 + 3 * (4 + 5)));
    EXPECT_EQ(OpParameters(kProj, shape), heads * 5 * 8);
    // The gradient of the 3 latents of keys and values is summed over heads in 32 bits.
    EXPECT_EQ(WorkspaceBytes(kQkv, Pass::kBackward, shape), Bytes(tokens * 3 * 4));
    EXPECT_EQ(WorkspaceBytes(kQkv, Pass::kForward, shape), Bytes(0));
    for (const Pass pass : {Pass::kForward, Pass::kBackward, Pass::kWeight}) {
      EXPECT_EQ(OpFlops(kLatent, pass, shape), 2 * tokens * OpParameters(kLatent, shape));
      EXPECT_EQ(OpFlops(kQkv, pass, shape), 2 * tokens * OpParameters(kQkv, shape));
    }
    // Half of the square of scores counts. The forward pass has two products, with elements of 6 and 5. The backward pass has
    // three and two.
    EXPECT_EQ(OpFlops(kFlash, Pass::kForward, shape), tokens * 16 * heads * (6 + 5));
    EXPECT_EQ(OpFlops(kFlash, Pass::kBackward, shape), tokens * 16 * heads * (3 * 6 + 2 * 5));
  }
  ModelSpec direct = Model();
  direct.latent.query_rank = 0;
  const LayerShape shape = Shape(direct, {});
  EXPECT_EQ(shape.latent_width(), 5);
  EXPECT_EQ(OpParameters(kLatentNorm, shape), 3);
  EXPECT_EQ(OpParameters(kQkv, shape), 4 * (8 * 6 + 3 * (4 + 5)));
  EXPECT_EQ(LayerGraph::Of(shape).InputsOf(Tensor::kQkv), Bit(Tensor::kLatentNormed) | Bit(Tensor::kLn1));
  // The keys and values of the whole sequence: each head has 6 and 5 elements per token.
  EXPECT_EQ(ContextGatherBytes(Shape(Model(), {.cp = 2})), Bytes(32 * 4 * (6 + 5) * 2));
}

TEST(Latent, QkvIsTwoProducts) {
  const LayerShape shape = Shape(Model(), {.tp = 2, .sequence_parallel = true});
  EXPECT_THAT(GemmsOf(kQkv, Pass::kForward, shape),
              ElementsAre(GemmShape{32, 2 * 6, 7, false}, GemmShape{32, 2 * (4 + 5), 3, false}));
  EXPECT_THAT(GemmsOf(kQkv, Pass::kWeight, shape),
              ElementsAre(GemmShape{2 * 6, 7, 32, true}, GemmShape{2 * (4 + 5), 3, 32, true}));
  EXPECT_THAT(GemmsOf(kLatent, Pass::kBackward, shape), ElementsAre(GemmShape{32, 8, 12, false}));
  EXPECT_THAT(GemmsOf(kSharedFc1, Pass::kForward, shape), ElementsAre(GemmShape{16, 20, 8, false})) << "the rank's own tokens";
  EXPECT_THAT(GemmsOf(kSharedFc2, Pass::kForward, shape), ElementsAre(GemmShape{16, 8, 10, false}));
  EXPECT_THAT(GemmsOf(kLatentNorm, Pass::kForward, shape), ElementsAre());
  for (const Op op : {kLatent, kQkv, kSharedFc1, kSharedFc2}) {
    for (const Pass pass : {Pass::kForward, Pass::kBackward, Pass::kWeight}) {
      int64_t flops = 0;
      for (const GemmShape& gemm : GemmsOf(op, pass, shape)) flops += 2 * gemm.rows * gemm.columns * gemm.depth;
      EXPECT_EQ(flops, OpFlops(op, pass, shape)) << EnumName(op);
      EXPECT_EQ(ClassOf(op, pass), OpClass::kGemm);
    }
  }
}

// On a device with tiles, each of the two products of qkv takes its own time, and its kernel has its own overhead.
TEST(Latent, TheProductsOfQkvRunOneAfterTheOther) {
  HardwareProfile profile = StatedCpuProfile();
  profile.bfloat16_flops_per_second = 1'000'000'000'000'000;
  profile.memory_bytes_per_second = 1'000'000'000;  // the memory moves one byte per nanosecond
  profile.gemm_tiles = {4, 128, 64};
  profile.op_overhead = Nanos(100);
  const LayerShape shape = Shape(Model(), {});
  const auto bytes = [](int64_t rows, int64_t columns, int64_t depth) {
    return (rows * depth + depth * columns + rows * columns) * 2;
  };
  EXPECT_EQ(OpCost(profile, kQkv, Pass::kForward, shape), Nanos(bytes(32, 24, 7) + bytes(32, 36, 3) + 2 * 100));
  EXPECT_EQ(OpCost(profile, kLatent, Pass::kForward, shape), Nanos(bytes(32, 12, 8) + 100));
}

TEST(SharedExperts, WorkOnARanksOwnTokensWithWholeWeights) {
  const LayerShape shape = Shape(Model(), kSharded);  // each rank has 16 of the 32 tokens
  EXPECT_EQ(TensorBytes(Tensor::kSharedFc1, shape), Bytes(16 * 20 * 2));
  EXPECT_EQ(TensorBytes(Tensor::kGradSharedSwiglu, shape), Bytes(16 * 10 * 2));
  EXPECT_EQ(TensorBytes(Tensor::kFc2Sum, shape), Bytes(16 * 8 * 2));
  EXPECT_EQ(OpParameters(kSharedFc1, shape) + OpParameters(kSharedFc2, shape), 3 * 8 * 10);
  EXPECT_EQ(OpFlops(kSharedFc1, Pass::kWeight, shape), 2 * 16 * 8 * 20);
  EXPECT_EQ(ExpertParameters(shape), 3 * 8 * 6) << "the block is no expert of one rank";
  EXPECT_EQ(OpTraffic(kSharedSwiglu, Pass::kForward, shape), Bytes(16 * (20 + 10) * 2));
}

// The gate has one weight for each element of a token. The 32-bit values of the gates follow the elements of fc1.
TEST(SharedExperts, MayHaveAGate) {
  ModelSpec model = Model();
  const LayerShape plain = Shape(model, kSharded);
  model.moe.shared_gate = true;
  const LayerShape shape = Shape(model, kSharded);
  EXPECT_EQ(GateBytes(shape), Bytes(16 * 4));
  EXPECT_EQ(GateBytes(plain), Bytes(0));
  EXPECT_EQ(GateBytes(DenseShape(shape)), Bytes(0));
  for (const Tensor tensor : {Tensor::kSharedFc1, Tensor::kGradSharedFc1}) {
    EXPECT_EQ(TensorBytes(tensor, shape), TensorBytes(tensor, plain) + Bytes(16 * 4));
  }
  EXPECT_EQ(TensorBytes(Tensor::kSharedSwiglu, shape), TensorBytes(Tensor::kSharedSwiglu, plain));
  EXPECT_EQ(OpParameters(kSharedFc1, shape), OpParameters(kSharedFc1, plain) + 8);
  EXPECT_EQ(OpFlops(kSharedFc1, Pass::kForward, shape), 2 * 16 * 8 * 21);
  EXPECT_EQ(&LayerGraph::Of(shape), &LayerGraph::Of(plain)) << "the same ops compute it";
}

TEST(SharedExperts, RunBesideTheExpertsAndAreAddedByUnpermute) {
  const LayerGraph& graph = LayerGraph::Of(Shape(Model(), {.dp = 2, .ep = 2}));
  EXPECT_THAT(graph.OpsOf(kTransformer, Segment::kMlp, Pass::kForward),
              ElementsAre(kFc1, kSilu, kSwiglu, kFc2, kSharedFc1, kSharedSwiglu, kSharedFc2));
  EXPECT_THAT(graph.OpsOf(kTransformer, Segment::kOut, Pass::kBackward),
              ElementsAre(kAdd2, kUnpermute, kSharedFc2, kSharedSwiglu, kSharedFc1));
  // The weight gradients of the shared experts run at the same time as the first transfer of the backward pass.
  EXPECT_THAT(graph.OpsOf(kTransformer, Segment::kOut, Pass::kWeight), ElementsAre(kSharedFc2, kSharedFc1));
  EXPECT_THAT(graph.InfoOf(kUnpermute).reads, Contains(Tensor::kFc2Sum));
  EXPECT_EQ(graph.RecomputableIndex(Tensor::kFc2Sum), -1) << "no backward op reads it";
  EXPECT_EQ(graph.InputsOf(Tensor::kSharedFc1), Bit(Tensor::kLn2));
  EXPECT_FALSE(graph.RepeatsCollective(Tensor::kSharedFc1));
  const LayerGraph& alone = LayerGraph::Of(Shape(Model(), {}));
  EXPECT_THAT(alone.OpsOf(kTransformer, Segment::kMlp, Pass::kBackward),
              ElementsAre(kAdd2, kUnpermute, kSharedFc2, kSharedSwiglu, kSharedFc1, kFc2, kSwiglu, kSilu, kFc1));
  ModelSpec without = Model();
  without.moe.shared_ffn = 0;
  EXPECT_FALSE(LayerGraph::Of(Shape(without, {})).Has(kSharedFc1));
  EXPECT_THAT(LayerGraph::Of(Shape(without, {})).InfoOf(kUnpermute).reads, Not(Contains(Tensor::kFc2Sum)));
}

TEST(DenseLayers, HaveTheGraphAndSizesOfTheModelWithoutExperts) {
  const ModelSpec model = Model();
  ModelSpec plain = model;
  plain.moe = {};
  const LayerShape dense = DenseShape(Shape(model, kSharded));
  ParallelLayout layout = kSharded;
  layout.ep = 1;
  EXPECT_EQ(dense, Shape(plain, layout));
  EXPECT_TRUE(LayerGraph::Of(dense).Has(kLatent));
  EXPECT_FALSE(LayerGraph::Of(dense).Has(kRouter));
}

// By hand: attention has 96 + 10 + 4 * 69 + 160 parameters, the norms of a layer 16. A dense layer has 3 * 8 * 12 more; a layer
// with experts has the router's 32, four experts of 144 each, and 240 of the block that every token passes.
TEST(DenseLayers, ParametersAndFlopsCountEachLayerAsItIs) {
  const ModelSpec model = Model();
  const int64_t attention = 96 + 4 * 69 + 160, ends = 2 * 64 * 8 + 8;
  EXPECT_EQ(ModelParameters(model), ends + 3 * (attention + 10 + 16) + 288 + 2 * (32 + 4 * 144 + 240));
  EXPECT_EQ(ActiveParameters(model), ends + 3 * (attention + 10 + 16) + 288 + 2 * (32 + 2 * 144 + 240));
  const double linears = 3 * attention + 288 + 2 * (32 + 2 * 144 + 240) + 64 * 8;
  const double scores = 3 * 4 * (6 + 5) * 16;  // multiplications of all layers for one token
  EXPECT_DOUBLE_EQ(StepFlops(model, 5, FlopCount::kModel), 5.0 * 16 * 6 * (linears + scores));
  EXPECT_DOUBLE_EQ(StepFlops(model, 5, FlopCount::kModelCausal), 5.0 * 16 * 6 * (linears + scores / 2));
}

}  // namespace
}  // namespace lynx
