#include "planner/cost/op_cost.h"

#include <gtest/gtest.h>

#include "tests/planner/plan/plan_fixtures.h"

namespace lynx {
namespace {

constexpr Op kLinears[] = {Op::kQkv, Op::kProj, Op::kFc1, Op::kFc2, Op::kLogits};
constexpr Pass kPasses[] = {Pass::kForward, Pass::kBackward, Pass::kWeight};

LayerShape GptShape() {
  return {.micro_batch = 2,
          .seq = 64,
          .hidden = 256,
          .heads = 8,
          .ffn = 1024,
          .vocab = 512,
          .tp = 2,
          .dropout = true,
          .dtype = DataType::kBfloat16,
          .stored_masks = true};
}

LayerShape LlamaShape() {
  return {.micro_batch = 1,
          .seq = 128,
          .hidden = 256,
          .heads = 8,
          .ffn = 640,
          .vocab = 512,
          .tp = 2,
          .family = ModelFamily::kLlama,
          .kv_heads = 2,
          .attention = AttentionKernel::kFused,
          .dtype = DataType::kBfloat16,
          .cp = 2};
}

// Returns the profile of a device whose memory moves one byte per nanosecond. The device computes 1000 FLOPs per nanosecond,
// and four tiles at a time.
HardwareProfile TiledProfile() {
  HardwareProfile profile = StatedCpuProfile();
  profile.flops_per_second = 1'000'000'000;
  profile.bfloat16_flops_per_second = 1'000'000'000'000;
  profile.memory_bytes_per_second = 1'000'000'000;
  profile.gemm_tiles = {4, 128, 64};
  profile.op_overhead = Nanos(0);
  return profile;
}

TEST(OpCost, ProductsHaveTheFlopsOfTheirOps) {
  for (const LayerShape& shape : {GptShape(), LlamaShape()}) {
    for (const Op op : kLinears) {
      for (const Pass pass : kPasses) {
        const std::vector<GemmShape> gemms = GemmsOf(op, pass, shape);
        ASSERT_EQ(gemms.size(), 1u);
        const GemmShape& gemm = gemms.front();
        EXPECT_EQ(2 * gemm.rows * gemm.columns * gemm.depth, OpFlops(op, pass, shape)) << EnumName(op);
        EXPECT_EQ(gemm.accumulates, pass == Pass::kWeight);
      }
    }
    for (const OpInfo& info : LayerGraph::Of(shape).ops()) {
      EXPECT_EQ(!GemmsOf(info.op, Pass::kForward, shape).empty(), ClassOf(info.op, Pass::kForward) == OpClass::kGemm);
    }
  }
}

TEST(OpCost, TheLastWaveOfTilesCostsAsMuchAsAnyOther) {
  const GemmTiles tiles{4, 128, 64};
  EXPECT_EQ(PaddedFlops({256, 128, 10}, {}), 2 * 256 * 128 * 10) << "no tiles, no waves";
  EXPECT_EQ(PaddedFlops({256, 128, 10}, tiles), 2 * 256 * 128 * 10) << "four tiles on four units";
  EXPECT_EQ(PaddedFlops({128, 256, 10}, tiles), 2 * 256 * 128 * 10) << "the other way round";
  // The result has 320 x 128 elements. Five tiles of 128 x 64 take two waves, which is as long as eight tiles take. Ten tiles
  // of 64 x 64 take three waves, which is as long as six of the larger tiles take, at nine tenths of the speed.
  EXPECT_EQ(PaddedFlops({320, 128, 10}, tiles), int64_t{2} * 12 * 64 * 64 * 10 * 1000 / 900);
  // The result has 40 x 40 elements and fits in one tile of the smallest size. Three of the four units are idle.
  EXPECT_EQ(PaddedFlops({40, 40, 10}, tiles), int64_t{2} * 4 * 64 * 64 * 10 * 1000 / 900);
  EXPECT_GT(PaddedFlops({int64_t{1} << 31, int64_t{1} << 31, int64_t{1} << 31}, tiles), 0) << "no overflow";
}

TEST(OpCost, AProductIsWrittenAfterItIsComputed) {
  const LayerShape shape = GptShape();  // 128 tokens; fc1: 128 x 512, depth 256: 8 tiles
  const HardwareProfile profile = TiledProfile();
  const int64_t flops = 2 * 128 * 512 * 256, operands = (128 + 512) * 256 * 2;
  ASSERT_LT(flops / 1000, operands) << "bound by its operands";
  EXPECT_EQ(OpCost(profile, Op::kFc1, Pass::kForward, shape), Nanos(operands + 128 * 512 * 2));
  // The gradient of the weight is read and written in 32 bits. The gradient of the bias reads the gradient of the output again.
  EXPECT_EQ(OpCost(profile, Op::kFc1, Pass::kWeight, shape),
            Nanos((128 * 512 + 128 * 256) * 2 + 512 * 256 * 8 + 128 * 512 * 2));
  // Logits have 32 bits.
  EXPECT_EQ(OpCost(profile, Op::kLogits, Pass::kForward, shape), Nanos((128 + 256) * 256 * 2 + 128 * 256 * 4));
  HardwareProfile slow = profile;
  slow.bfloat16_flops_per_second = 1'000'000'000;
  slow.op_overhead = Nanos(3);
  slow.efficiency[static_cast<size_t>(OpClass::kGemm)] = {{1, 500}};
  EXPECT_EQ(OpCost(slow, Op::kFc1, Pass::kForward, shape), Nanos(2 * flops + 128 * 512 * 2 + 3));
}

TEST(OpCost, OnlyLogitsAreWide) {
  LayerShape shape = GptShape();
  shape.encoder = true;
  // The product before the logits has 128 x 256 results, depth 256, of 16 bits in every pass.
  const auto added = [&](Pass pass) {
    return OpCost(TiledProfile(), Op::kLogits, pass, shape) - OpCost(TiledProfile(), Op::kLogits, pass, GptShape());
  };
  EXPECT_EQ(added(Pass::kForward), Nanos((128 + 256) * 256 * 2 + 128 * 256 * 2));
  EXPECT_EQ(added(Pass::kBackward), Nanos((128 + 256) * 256 * 2 + 128 * 256 * 2));
  EXPECT_EQ(added(Pass::kWeight), Nanos((256 + 256) * 128 * 2 + 256 * 256 * 8));
}

TEST(OpCost, EachStepOverTheScoresIsAKernel) {
  const LayerShape shape = GptShape();
  const int64_t elements = 2 * 4 * 64 * 64, qkv = TensorBytes(Tensor::kQkv, shape).value;
  int64_t forward = 0, backward = 0;
  for (const Op op : {Op::kProbs, Op::kDrop, Op::kContext}) {
    forward += KernelTraffic(op, Pass::kForward, shape).value;
    backward += KernelTraffic(op, Pass::kBackward, shape).value;
  }
  EXPECT_EQ(forward, 13 * elements + 2 * qkv);
  EXPECT_EQ(backward, 19 * elements + 2 * qkv);
  HardwareProfile profile = TiledProfile();
  profile.efficiency[static_cast<size_t>(OpClass::kScores)] = {{1, 250}};
  EXPECT_EQ(OpCost(profile, Op::kDrop, Pass::kForward, shape), Nanos(4 * 5 * elements));
  LayerShape drawn = shape;
  drawn.stored_masks = false;
  EXPECT_EQ(KernelTraffic(Op::kContext, Pass::kForward, drawn).value, (2 + 4) * elements + qkv)
      << "dropout in a kernel of its own";
}

TEST(OpCost, FusedAttentionFollowsItsOwnCurvesBySequenceLength) {
  const LayerShape shape = LlamaShape();
  HardwareProfile profile = TiledProfile();
  profile.bfloat16_flops_per_second = 1'000'000'000;
  profile.efficiency[static_cast<size_t>(OpClass::kAttention)] = {{64, 100}, {128, 500}};
  profile.efficiency[static_cast<size_t>(OpClass::kAttentionBackward)] = {{128, 250}};
  EXPECT_EQ(OpCost(profile, Op::kFlash, Pass::kForward, shape), Nanos(2 * OpFlops(Op::kFlash, Pass::kForward, shape)));
  EXPECT_EQ(OpCost(profile, Op::kFlash, Pass::kBackward, shape), Nanos(4 * OpFlops(Op::kFlash, Pass::kBackward, shape)));
}

TEST(OpCost, TheGateAndTheLossAreCountedByKernel) {
  const LayerShape shape = LlamaShape();
  const int64_t half = 64 * 320 * 2, logits = TensorBytes(Tensor::kLogits, shape).value;
  EXPECT_EQ(KernelTraffic(Op::kSilu, Pass::kForward, shape), Bytes(2 * half));
  EXPECT_EQ(KernelTraffic(Op::kSwiglu, Pass::kForward, shape), Bytes(3 * half));
  EXPECT_EQ(KernelTraffic(Op::kSilu, Pass::kBackward, shape), Bytes(3 * half));
  EXPECT_EQ(KernelTraffic(Op::kLoss, Pass::kForward, shape), Bytes(8 * logits));
  EXPECT_EQ(KernelTraffic(Op::kLoss, Pass::kBackward, shape), Bytes(logits * 7 / 2));
}

TEST(OpCost, NormsAndAdditionsWorkOnASharedSequence) {
  LayerShape shape = GptShape();
  const auto traffic = [&](Op op) { return OpTraffic(op, Pass::kBackward, shape).value - 4 * OpParameters(op, shape); };
  const int64_t ln = traffic(Op::kLn1);
  const int64_t add = OpTraffic(Op::kAdd1, Pass::kBackward, shape).value - 2 * OpParameters(Op::kAdd1, shape);
  shape.sequence_parallel = true;
  EXPECT_EQ(traffic(Op::kLn1) * 2, ln);
  EXPECT_EQ((OpTraffic(Op::kAdd1, Pass::kBackward, shape).value - 4 * OpParameters(Op::kAdd1, shape)) * 2, add);
}

TEST(OpCost, LongTimesAreCut) {
  LayerShape shape = GptShape();
  HardwareProfile profile = TiledProfile();
  profile.memory_bytes_per_second = profile.bfloat16_flops_per_second = 1;
  for (const OpInfo& info : LayerGraph::Of(shape).ops()) {
    for (const Pass pass : kPasses) EXPECT_LE(OpCost(profile, info.op, pass, shape), kMaxTime);
  }
  EXPECT_EQ(OpCost(profile, Op::kFc1, Pass::kForward, shape), kMaxTime);
  EXPECT_EQ(OpCost(profile, Op::kGelu, Pass::kWeight, shape), Nanos(0)) << "no such pass";
}

}  // namespace
}  // namespace lynx
