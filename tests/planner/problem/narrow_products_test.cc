#include "planner/problem/narrow_products.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/cost/op_cost.h"
#include "planner/program/memory_model.h"
#include "planner/search/make_plan.h"

namespace lynx {
namespace {

using ::testing::HasSubstr;

// A Llama of 2 layers whose sizes are multiples of 32.
ModelSpec Model(MatmulType type) {
  return {.layers = 2,
          .hidden = 1024,
          .heads = 8,
          .ffn = 2048,
          .seq = 256,
          .vocab = 1024,
          .dropout = 0,
          .family = ModelFamily::kLlama,
          .kv_heads = 4,
          .attention = AttentionKernel::kFused,
          .dtype = DataType::kBfloat16,
          .matmul_type = type};
}
LayerShape Shape(MatmulType type, const ParallelLayout& layout = {}) { return ShapeOf(Model(type), layout, 2); }

// A GPU that multiplies 8-bit operands twice as fast as 16-bit ones, and 4-bit operands four times as fast. Its memory moves
// 1000 bytes in a nanosecond.
HardwareProfile Gpu() {
  HardwareProfile profile = StatedCpuProfile();
  profile.device_kind = "GPU";
  profile.flops_per_second = 1'000'000'000'000;
  profile.bfloat16_flops_per_second = 10'000'000'000'000;
  profile.float8_flops_per_second = 20'000'000'000'000;
  profile.float4_flops_per_second = 40'000'000'000'000;
  profile.memory_bytes_per_second = 1'000'000'000'000;
  profile.gemm_tiles = {4, 128, 64};
  profile.op_overhead = Nanos(100);
  return profile;
}

TEST(NarrowProducts, InputsOfLinearsAreKeptInOneByte) {
  const LayerShape plain = Shape(MatmulType::kModel), float8 = Shape(MatmulType::kFloat8), mxfp8 = Shape(MatmulType::kMxfp8);
  for (const Tensor tensor : {Tensor::kLn1, Tensor::kLn2, Tensor::kSwiglu}) {
    const int64_t elements = TensorBytes(tensor, plain).value / 2;
    EXPECT_EQ(TensorBytes(tensor, float8), Bytes(elements)) << EnumName(tensor);
    EXPECT_EQ(TensorBytes(tensor, mxfp8), Bytes(elements / 32 * 33)) << EnumName(tensor);
  }
  // Attention's backward pass reads the context, and no linear reads the other tensors. So all of them stay in 16 bits.
  for (const Tensor tensor : {Tensor::kX, Tensor::kQkv, Tensor::kContext, Tensor::kX1, Tensor::kFc1, Tensor::kSilu,
                              Tensor::kLnf, Tensor::kGrad, Tensor::kGradFc1, Tensor::kLogits}) {
    EXPECT_EQ(TensorBytes(tensor, mxfp8), TensorBytes(tensor, plain)) << EnumName(tensor);
  }
  EXPECT_EQ(NarrowBytes(33, MatmulType::kMxfp8), Bytes(35)) << "a block that is not full has a scale";
  const LayerShape nvfp4 = Shape(MatmulType::kNvfp4);
  for (const Tensor tensor : {Tensor::kLn1, Tensor::kLn2, Tensor::kSwiglu}) {
    EXPECT_EQ(TensorBytes(tensor, nvfp4), Bytes(TensorBytes(tensor, plain).value / 2 / 16 * 9)) << EnumName(tensor);
  }
  EXPECT_EQ(TensorBytes(Tensor::kContext, nvfp4), TensorBytes(Tensor::kContext, plain));
  EXPECT_EQ(NarrowBytes(33, MatmulType::kNvfp4), Bytes(17 + 3)) << "two elements in a byte, and a scale for 16";
}

TEST(NarrowProducts, WhatOpsReadAndWriteStaysWide) {
  for (const Op op : {Op::kLn1, Op::kSwiglu, Op::kAdd1, Op::kFlash}) {
    for (const Pass pass : {Pass::kForward, Pass::kBackward}) {
      EXPECT_EQ(OpTraffic(op, pass, Shape(MatmulType::kMxfp8)), OpTraffic(op, pass, Shape(MatmulType::kModel))) << EnumName(op);
    }
  }
}

TEST(NarrowProducts, OperandsAreQuantizedByKernelsOfTheirOwn) {
  const LayerShape float8 = Shape(MatmulType::kFloat8), mxfp8 = Shape(MatmulType::kMxfp8);
  const int64_t hidden = 2 * 256 * 1024, wide = 2 * 256 * 2048;  // elements
  EXPECT_EQ(QuantizeTraffic(Op::kLn1, Pass::kForward, float8), Bytes(hidden * (4 + 2))) << "read twice, two copies";
  EXPECT_EQ(QuantizeTraffic(Op::kLn1, Pass::kForward, mxfp8), Bytes(hidden * 2 + hidden / 32 * 33 * 2));
  EXPECT_EQ(QuantizeTraffic(Op::kSwiglu, Pass::kForward, float8), Bytes(wide * 6));
  EXPECT_EQ(QuantizeTraffic(Op::kProj, Pass::kForward, float8), Bytes(hidden * 5)) << "the copy by rows";
  EXPECT_EQ(QuantizeTraffic(Op::kProj, Pass::kWeight, float8), Bytes(hidden * 5)) << "by columns, from the kept context";
  EXPECT_EQ(QuantizeTraffic(Op::kFc2, Pass::kBackward, float8), Bytes(hidden * 6)) << "the gradient of its output";
  EXPECT_EQ(QuantizeTraffic(Op::kQkv, Pass::kBackward, float8), Bytes(wide * 6));
  for (const Op op : {Op::kQkv, Op::kFc1, Op::kFc2}) {
    EXPECT_EQ(QuantizeTraffic(op, Pass::kForward, float8), Bytes(0)) << "its input is quantised where it is made";
    EXPECT_EQ(QuantizeTraffic(op, Pass::kWeight, float8), Bytes(0));
  }
  for (const Op op : {Op::kLnf, Op::kLogits, Op::kFlash, Op::kEmbed}) {
    for (const Pass pass : {Pass::kForward, Pass::kBackward}) EXPECT_EQ(QuantizeTraffic(op, pass, float8), Bytes(0));
  }
  EXPECT_EQ(QuantizeTraffic(Op::kLn1, Pass::kBackward, float8), Bytes(0));
  const LayerShape shared = Shape(MatmulType::kFloat8, {.tp = 4, .sequence_parallel = true});
  EXPECT_EQ(QuantizeTraffic(Op::kLn1, Pass::kForward, shared), Bytes(hidden / 4 * 6)) << "the rank's share";
  EXPECT_EQ(QuantizeTraffic(Op::kLn1, Pass::kForward, Shape(MatmulType::kModel)), Bytes(0));
}

TEST(NarrowProducts, FourBitsAreReadTwiceAndWrittenInNineSixteenths) {
  const LayerShape nvfp4 = Shape(MatmulType::kNvfp4);
  const int64_t hidden = 2 * 256 * 1024, wide = 2 * 256 * 2048;
  EXPECT_EQ(QuantizeTraffic(Op::kLn1, Pass::kForward, nvfp4), Bytes(hidden * 4 + hidden / 16 * 9 * 2));
  EXPECT_EQ(QuantizeTraffic(Op::kFc2, Pass::kBackward, nvfp4), Bytes(hidden * 4 + hidden / 16 * 9 * 2));
  EXPECT_EQ(QuantizeWeightBytes(1600, MatmulType::kNvfp4), Bytes(1600 * 4 + 900 * 2));
  EXPECT_EQ(QuantizeWeightBytes(1600, MatmulType::kFloat8), Bytes(1600 * 6));
  EXPECT_EQ(QuantizeWeightBytes(1600, MatmulType::kModel), Bytes(0));
  EXPECT_EQ(NarrowWeights(nvfp4), Bytes(WeightsOfNarrowProducts(nvfp4) / 16 * 9 * 2));
  EXPECT_EQ(WorkspaceBytes(Op::kFc2, Pass::kForward, nvfp4), Bytes(wide / 16 * 9));
  EXPECT_EQ(PaddedExpertRows(1, MatmulType::kNvfp4), 128);
  EXPECT_EQ(PaddedExpertRows(1, MatmulType::kMxfp8), 32);
}

TEST(NarrowProducts, FourBitsNeedTheirOwnRate) {
  HardwareProfile gpu = Gpu();
  const LayerShape nvfp4 = Shape(MatmulType::kNvfp4), mxfp8 = Shape(MatmulType::kMxfp8);
  for (const Op op : {Op::kQkv, Op::kFc1, Op::kFc2}) {
    EXPECT_LT(OpCost(gpu, op, Pass::kForward, nvfp4), OpCost(gpu, op, Pass::kForward, mxfp8)) << EnumName(op);
  }
  PlanRequest request;
  request.spec.model = Model(MatmulType::kNvfp4);
  request.spec.data.path = "/data";
  request.spec.train.global_batch = 8;
  request.spec.resources = {.min_ranks = 2, .max_ranks = 2};
  request.target = PlanTarget::kAnyFramework;
  request.cluster = UniformCluster(1, 2, gpu, Bytes(0));
  EXPECT_TRUE(MakePlan(request).ok()) << MakePlan(request).status();
  request.cluster.groups[0].profile.float4_flops_per_second = 0;
  EXPECT_EQ(MakePlan(request).status().message(),
            "model.matmulType nvfp4: the devices of kind \"GPU\" have no known rate of 4-bit products: plan for a cluster file "
            "that gives peak.float4 and gemmTiles, or set model.matmulType: model");
  request.spec.model.seq = 240;
  EXPECT_THAT(CheckNarrowSizes(request.spec.model, {}).message(), HasSubstr("must be a multiple of 32"));
  EXPECT_THAT(CheckEngineRuns(Model(MatmulType::kNvfp4), {}).message(), HasSubstr("model.matmulType nvfp4"));
}

TEST(NarrowProducts, CopiesThatAreNotKeptNeedMemoryWhileAPassRuns) {
  const LayerShape float8 = Shape(MatmulType::kFloat8);
  const int64_t hidden = 2 * 256 * 1024, wide = 2 * 256 * 2048;
  EXPECT_EQ(WorkspaceBytes(Op::kLn1, Pass::kForward, float8), Bytes(hidden * 2)) << "before it is quantised";
  EXPECT_EQ(WorkspaceBytes(Op::kFc2, Pass::kForward, float8), Bytes(wide)) << "the copy by rows";
  EXPECT_EQ(WorkspaceBytes(Op::kFc2, Pass::kBackward, float8), Bytes(hidden * 2)) << "both copies of the gradient";
  EXPECT_EQ(WorkspaceBytes(Op::kProj, Pass::kWeight, float8), Bytes(hidden * 2)) << "the gradient's and the context's copy";
  EXPECT_EQ(WorkspaceBytes(Op::kFlash, Pass::kBackward, float8),
            WorkspaceBytes(Op::kFlash, Pass::kBackward, Shape(MatmulType::kModel)));
}

TEST(NarrowProducts, ProductsRunAtTheirOwnPeak) {
  const HardwareProfile gpu = Gpu();
  HardwareProfile faster = gpu;
  faster.float8_flops_per_second *= 2;
  const LayerShape plain = Shape(MatmulType::kModel), float8 = Shape(MatmulType::kFloat8);
  for (const Op op : {Op::kQkv, Op::kProj, Op::kFc1, Op::kFc2}) {
    for (const Pass pass : {Pass::kForward, Pass::kBackward, Pass::kWeight}) {
      const int64_t flops = PaddedFlops(GemmsOf(op, pass, float8).front(), gpu.gemm_tiles);
      // 20000 FLOPs take a nanosecond. On the faster device, 40000 FLOPs take a nanosecond, and all other times are the same.
      const Nanos saved((flops + 19'999) / 20'000 - (flops + 39'999) / 40'000);
      EXPECT_EQ(OpCost(gpu, op, pass, float8) - OpCost(faster, op, pass, float8), saved) << EnumName(op);
      EXPECT_LT(OpCost(gpu, op, pass, float8), OpCost(gpu, op, pass, plain)) << EnumName(op);
    }
  }
  EXPECT_EQ(OpCost(gpu, Op::kLogits, Pass::kForward, float8), OpCost(gpu, Op::kLogits, Pass::kForward, plain));
  const int64_t moved = 2 * 256 * 1024 * 6;
  EXPECT_EQ(OpCost(gpu, Op::kLn1, Pass::kForward, float8),
            OpCost(gpu, Op::kLn1, Pass::kForward, plain) + Nanos((moved + 999) / 1000 + 100));
}

TEST(NarrowProducts, WeightsHaveCopiesAndGathersAreSmaller) {
  const ParallelLayout layout{.tp = 2, .sequence_parallel = true};
  const LayerShape plain = Shape(MatmulType::kModel, layout), float8 = Shape(MatmulType::kFloat8, layout);
  const int64_t linears = 1024 * (2048 + 1024 + 2 * 2048 + 2048) / 2;
  EXPECT_EQ(NarrowWeights(float8), Bytes(2 * linears));
  EXPECT_EQ(NarrowWeights(plain), Bytes(0));
  StageContext context = PipelineContexts(Model(MatmulType::kFloat8), layout, 1, 1, {2}).front();
  const StateBytes with = StatesOf(context);
  context.model.matmul_type = MatmulType::kModel;
  const StateBytes without = StatesOf(context);
  EXPECT_EQ(with.weights - without.weights, Bytes(2 * 2 * linears)) << "two layers";
  EXPECT_EQ(with.gradients, without.gradients);
  EXPECT_EQ(with.optimizer, without.optimizer);
  const auto bytes = [](Segment segment, const LayerShape& shape) {
    return CollectiveBytes(LayerType::kTransformer, segment, Pass::kForward, shape);
  };
  EXPECT_EQ(bytes(Segment::kNorm1, float8) * 2, bytes(Segment::kNorm1, plain)) << "gathers quantised shares";
  EXPECT_EQ(bytes(Segment::kAttn, float8), bytes(Segment::kAttn, plain)) << "sums stay as they are";
}

// The same model with 8 experts of width 512. Each of 4 ranks has 2 experts, and each token goes to 2.
ModelSpec Mixture(MatmulType type) {
  ModelSpec model = Model(type);
  model.moe = {.experts = 8, .top_k = 2, .ffn = 512};
  return model;
}
LayerShape ExpertShape(MatmulType type, int32_t micro_batch = 2) {
  return ShapeOf(Mixture(type), {.dp = 4, .ep = 4}, micro_batch);
}

TEST(NarrowProducts, ExpertsKeepTheirInputsInOneByte) {
  const LayerShape plain = ExpertShape(MatmulType::kModel), float8 = ExpertShape(MatmulType::kFloat8),
                   mxfp8 = ExpertShape(MatmulType::kMxfp8);
  for (const Tensor tensor : {Tensor::kLn1, Tensor::kExpertRows, Tensor::kSwiglu}) {
    const int64_t elements = TensorBytes(tensor, plain).value / 2;
    EXPECT_EQ(TensorBytes(tensor, float8), Bytes(elements)) << EnumName(tensor);
    EXPECT_EQ(TensorBytes(tensor, mxfp8), Bytes(elements / 32 * 33)) << EnumName(tensor);
  }
  // The router and permute read ln2, so ln2 stays in 16 bits. Rows are sent in 16 bits.
  for (const Tensor tensor : {Tensor::kLn2, Tensor::kRows, Tensor::kScores, Tensor::kFc1, Tensor::kSilu, Tensor::kExpertOut,
                              Tensor::kGradExpertRows, Tensor::kGradRows}) {
    EXPECT_EQ(TensorBytes(tensor, mxfp8), TensorBytes(tensor, plain)) << EnumName(tensor);
  }
  const auto dispatched = [](const LayerShape& shape) {
    return CollectiveBytes(LayerType::kTransformer, Segment::kNorm2, Pass::kForward, shape);
  };
  EXPECT_GT(dispatched(plain), Bytes(0));
  EXPECT_EQ(dispatched(mxfp8), dispatched(plain));
}

TEST(NarrowProducts, RowsOfAnExpertArePadded) {
  EXPECT_EQ(PaddedExpertRows(33, MatmulType::kModel), 33);
  EXPECT_EQ(PaddedExpertRows(33, MatmulType::kFloat8), 48);
  EXPECT_EQ(PaddedExpertRows(33, MatmulType::kMxfp8), 64);
  LayerShape shape = ExpertShape(MatmulType::kModel, 1);
  shape.seq = 68;  // 136 rows for two experts
  EXPECT_EQ(shape.expert_rows(), 136);
  shape.matmul_type = MatmulType::kFloat8;
  EXPECT_EQ(shape.expert_rows(), 2 * 80);
  EXPECT_EQ(shape.sent_rows(), 136);
  shape.matmul_type = MatmulType::kMxfp8;
  EXPECT_EQ(shape.filled_rows(), 2 * 96);
  EXPECT_EQ(OpFlops(Op::kFc2, Pass::kForward, shape), int64_t{2} * 2 * 96 * 1024 * 512) << "padding is multiplied, too";
  shape.capacity_permille = 1250;  // rooms of 22 rows, from four ranks
  EXPECT_EQ(shape.expert_rows(), 2 * 96);
  shape.capacity_permille = 1500;  // 26 rows
  EXPECT_EQ(shape.expert_rows(), 2 * 128);
}

TEST(NarrowProducts, OperandsOfExpertsAreQuantizedAsAWhole) {
  const LayerShape float8 = ExpertShape(MatmulType::kFloat8);
  const int64_t rows = 2 * 256 * 2;
  EXPECT_EQ(QuantizeTraffic(Op::kLn2, Pass::kForward, float8), Bytes(0));
  EXPECT_EQ(QuantizeTraffic(Op::kPermute, Pass::kForward, float8), Bytes(rows * 1024 * (4 + 2)));
  EXPECT_EQ(QuantizeTraffic(Op::kFc1, Pass::kForward, float8), Bytes(0)) << "counted with permute";
  EXPECT_EQ(QuantizeTraffic(Op::kSwiglu, Pass::kForward, float8), Bytes(rows * 512 * 6));
  EXPECT_EQ(QuantizeTraffic(Op::kFc1, Pass::kBackward, float8), Bytes(rows * 1024 * 6));
  EXPECT_EQ(QuantizeTraffic(Op::kFc2, Pass::kBackward, float8), Bytes(rows * 1024 * 6));
  for (const Op op : {Op::kRouter, Op::kUnpermute}) {
    EXPECT_FALSE(IsNarrowProduct(op, float8));
    EXPECT_EQ(QuantizeTraffic(op, Pass::kForward, float8), Bytes(0)) << EnumName(op);
  }
  EXPECT_EQ(WorkspaceBytes(Op::kPermute, Pass::kForward, float8), Bytes(0));
  EXPECT_EQ(WorkspaceBytes(Op::kFc1, Pass::kForward, float8), Bytes(rows * 1024 * 3)) << "what arrived, and its copy by rows";
  EXPECT_EQ(WorkspaceBytes(Op::kSwiglu, Pass::kForward, float8), Bytes(rows * 512 * 2));
  EXPECT_EQ(WorkspaceBytes(Op::kFc2, Pass::kForward, float8), Bytes(rows * 512)) << "the copy by rows";
  const int64_t linears = 1024 * (2048 + 1024) + 2 * 1024 * 3 * 512;
  EXPECT_EQ(NarrowWeights(float8), Bytes(2 * linears));
}

TEST(NarrowProducts, ProductsOfExpertsRunAtTheirOwnPeak) {
  HardwareProfile gpu = Gpu(), faster = Gpu();
  faster.float8_flops_per_second *= 2;
  const LayerShape plain = ExpertShape(MatmulType::kModel, 16), float8 = ExpertShape(MatmulType::kFloat8, 16);
  for (const Op op : {Op::kFc1, Op::kFc2}) {
    for (const Pass pass : {Pass::kForward, Pass::kBackward, Pass::kWeight}) {
      EXPECT_LT(OpCost(faster, op, pass, float8), OpCost(gpu, op, pass, float8)) << EnumName(op);
      EXPECT_LT(OpCost(gpu, op, pass, float8), OpCost(gpu, op, pass, plain)) << EnumName(op);
    }
  }
  EXPECT_EQ(OpCost(gpu, Op::kRouter, Pass::kForward, float8), OpCost(gpu, Op::kRouter, Pass::kForward, plain));
}

PlanRequest Request(MatmulType type) {
  PlanRequest request;
  request.spec.model = Model(type);
  request.spec.train.global_batch = 8;
  request.spec.resources = {.min_ranks = 2, .max_ranks = 2};
  request.spec.parallel = {.tp = 2, .pp = 1, .dp = 1};
  request.cluster = UniformCluster(1, 2, Gpu(), kGiB * 8);
  return request;
}

TEST(NarrowProducts, PlansAreFaster) {
  const Plan plain = std::get<Plan>(MakePlan(Request(MatmulType::kModel)).value());
  const Plan float8 = std::get<Plan>(MakePlan(Request(MatmulType::kFloat8)).value());
  EXPECT_LT(float8.step, plain.step);
  EXPECT_GT(float8.step * 2, plain.step) << "only products of linears are twice as fast";
  EXPECT_NE(float8.digest, plain.digest);
}

TEST(NarrowProducts, PlansWithExpertsAreFaster) {
  const auto plan = [](MatmulType type) {
    PlanRequest request = Request(type);
    request.spec.model = Mixture(type);
    request.spec.parallel = {.tp = 1, .pp = 1, .dp = 2, .ep = 2};
    return MakePlan(request);
  };
  const auto plain = plan(MatmulType::kModel), float8 = plan(MatmulType::kFloat8);
  ASSERT_TRUE(plain.ok() && float8.ok()) << plain.status() << float8.status();
  EXPECT_LT(std::get<Plan>(*float8).step, std::get<Plan>(*plain).step);
}

TEST(NarrowProducts, DevicesWithoutThemAndSizesThatDoNotFitAreRefused) {
  const auto error = [](const PlanRequest& request) { return std::string(MakePlan(request).status().message()); };
  PlanRequest request = Request(MatmulType::kMxfp8);
  EXPECT_TRUE(MakePlan(request).ok());
  request.cluster.groups[0].profile.float8_flops_per_second = 0;
  EXPECT_THAT(error(request), HasSubstr("model.matmulType mxfp8: the devices of kind \"GPU\" have no known rate of 8-bit "
                                        "products: plan for a cluster file that gives peak.float8 and gemmTiles"));
  request = Request(MatmulType::kMxfp8);
  request.cluster.groups[0].profile.gemm_tiles = {};
  EXPECT_THAT(error(request), HasSubstr("have no known rate of 8-bit products"));
  request = Request(MatmulType::kMxfp8);
  request.spec.model.ffn = 2048 + 32;
  EXPECT_THAT(error(request), HasSubstr("model.matmulType mxfp8: the feed-forward width of a rank is 1040, and must be a "
                                        "multiple of 32 with parallel.tp 2"));
  request.spec.model.matmul_type = MatmulType::kFloat8;
  EXPECT_TRUE(MakePlan(request).ok()) << "a multiple of 16";
  ModelSpec mixture = Mixture(MatmulType::kMxfp8);
  EXPECT_EQ(CheckNarrowSizes(mixture, {.dp = 4, .ep = 4}), absl::OkStatus());
  mixture.ffn = 2048 + 8;  // no layer has this width
  EXPECT_EQ(CheckNarrowSizes(mixture, {.dp = 4, .ep = 4}), absl::OkStatus());
  mixture.moe.ffn = 520;
  EXPECT_THAT(std::string(CheckNarrowSizes(mixture, {.dp = 4, .ep = 4}).message()),
              HasSubstr("model.matmulType mxfp8: the width of an expert is 520, and must be a multiple of 32"));
}

TEST(NarrowProducts, TheEngineDoesNotTrainThem) {
  EXPECT_EQ(CheckEngineRuns(Model(MatmulType::kModel), {}), absl::OkStatus());
  EXPECT_THAT(std::string(CheckEngineRuns(Model(MatmulType::kMxfp8), {}).message()),
              HasSubstr("model.matmulType mxfp8 can be planned (lynxctl plan), but the engine of this version trains only with "
                        "model"));
}

}  // namespace
}  // namespace lynx
