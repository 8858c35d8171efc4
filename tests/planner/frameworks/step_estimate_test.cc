#include "planner/frameworks/step_estimate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/cost/op_cost.h"
#include "planner/cost/simulate.h"
#include "planner/lower/lower.h"
#include "planner/recompute/recompute_policy.h"
#include "tests/planner/plan/plan_fixtures.h"

namespace lynx {
namespace {

ModelSpec Model(int32_t layers) {
  return {.layers = layers, .hidden = 512, .heads = 8, .ffn = 2048, .seq = 256, .vocab = 512, .dropout = 0.1};
}

StepRequest Request(const ParallelLayout& layout, RecomputeMode mode) {
  return {.model = Model(12), .layout = layout, .micro_batch = 1, .microbatches = 8, .recompute = mode, .ranks_per_node = 8};
}

Nanos Estimated(const StepRequest& request, const HardwareProfile& profile = StatedCpuProfile()) {
  const absl::StatusOr<StepEstimate> estimate = EstimateStep(request, profile);
  EXPECT_TRUE(estimate.ok()) << estimate.status();
  return estimate.ok() ? estimate->step : Nanos(0);
}

Nanos Simulated(const StepRequest& request) {
  const ParallelLayout& layout = request.layout;
  std::vector<StageContext> contexts;
  std::vector<Program> programs;
  for (int32_t stage = 0; stage < layout.pp; ++stage) {
    StageContext context = TinyContext(request.model, layout, request.microbatches, stage);
    const int32_t layers = context.only_slice().layers();
    contexts.push_back(context);
    programs.push_back(LowerStage(context, NamedPolicy(context.graph(), request.recompute, layers)));
  }
  const CostModel costs(StatedCpuProfile(), request.model, layout, 1, request.ranks_per_node);
  const absl::StatusOr<Simulation> simulation = Simulate(programs, contexts, costs);
  EXPECT_TRUE(simulation.ok()) << simulation.status();
  return simulation.ok() ? simulation->step : Nanos(0);
}

TEST(StepEstimate, AgreesWithTheSimulatorOnPlainPrograms) {
  std::vector<ParallelLayout> layouts = {{}, {.tp = 2}, {.tp = 2, .pp = 2}, {.tp = 4, .pp = 3}, {.tp = 2, .dp = 2}};
  for (const ParallelLayout& plain : layouts) {
    for (const bool sequence_parallel : {false, true}) {
      ParallelLayout layout = plain;
      layout.sequence_parallel = sequence_parallel && layout.tp > 1;
      for (const RecomputeMode mode : {RecomputeMode::kNone, RecomputeMode::kFull, RecomputeMode::kFullKeepCollectives,
                                       RecomputeMode::kSelective, RecomputeMode::kBalanced}) {
        const StepRequest request = Request(layout, mode);
        const double simulated = Seconds(Simulated(request));
        EXPECT_NEAR(Seconds(Estimated(request)), simulated, 0.03 * simulated) << LayoutText(layout) << " " << EnumName(mode);
      }
    }
  }
}

TEST(StepEstimate, ACheckpointedFunctionRunsAgainAsAWhole) {
  const ModelSpec model = Model(12);
  const ParallelLayout layout{.tp = 2};
  const CostModel costs(StatedCpuProfile(), model, layout, 1, 8);
  const LayerShape shape = ShapeOf(model, layout, 1);
  const auto recompute = [&](RecomputeMode mode, const FrameworkTraits& traits) {
    return EstimateLayer(costs, shape, mode, traits).recompute;
  };
  EXPECT_EQ(recompute(RecomputeMode::kFull, kMegatron2022Traits), costs.LayerTime(LayerType::kTransformer, Pass::kForward));
  EXPECT_EQ(recompute(RecomputeMode::kFull, kMegatron2022Traits) - recompute(RecomputeMode::kFull, kLynxTraits),
            costs.OpTime(Op::kFc2, Pass::kForward) + costs.OpTime(Op::kAdd2, Pass::kForward) +
                costs.WindowTime(LayerType::kTransformer, Segment::kMlp, Pass::kForward));
  EXPECT_EQ(recompute(RecomputeMode::kSelective, kLynxTraits), costs.OpTime(Op::kProbs, Pass::kForward));
  EXPECT_EQ(recompute(RecomputeMode::kSelective, kMegatron2022Traits), costs.OpSetTime(Bit(Op::kProbs) | Bit(Op::kContext)));
  EXPECT_EQ(recompute(RecomputeMode::kNone, kMegatron2022Traits), Nanos(0));
}

TEST(StepEstimate, InterleavingShortensTheBubbleAndBlockingTransfersLengthenTheStep) {
  StepRequest plain = Request({.pp = 4}, RecomputeMode::kNone);
  StepRequest interleaved = plain;
  interleaved.layout.virtual_stages = 3;
  interleaved.layout.schedule = ScheduleKind::kInterleaved;
  EXPECT_LT(Estimated(interleaved), Estimated(plain));
  StepRequest blocking = interleaved;
  blocking.traits.blocking_transfers = true;
  EXPECT_GT(Estimated(blocking), Estimated(interleaved));
  // Each rank sends a share of a tensor over the slow network, and the shares are gathered over fast links. This is faster
  // than sending whole tensors over the slow network.
  StepRequest whole = Request({.tp = 2, .pp = 4}, RecomputeMode::kNone);
  whole.ranks_per_node = 2;
  whole.traits.blocking_transfers = true;
  StepRequest scattered = whole;
  scattered.traits.scattered_transfers = true;
  EXPECT_LT(Estimated(scattered), Estimated(whole));
}

TEST(StepEstimate, LongStepsRepeatTheirMiddle) {
  for (const ParallelLayout& layout : {ParallelLayout{}, ParallelLayout{.pp = 4},
                                       ParallelLayout{.pp = 2, .virtual_stages = 2, .schedule = ScheduleKind::kInterleaved}}) {
    const auto step = [&](int32_t microbatches) {
      StepRequest request = Request(layout, RecomputeMode::kFull);
      request.microbatches = microbatches;
      return Estimated(request);
    };
    // For few microbatches the whole step is computed. For more, its middle is repeated. Both steps grow by the same time per
    // microbatch.
    const Nanos period = step(12) - step(8);
    for (int32_t microbatches = 16; microbatches < 200; microbatches += 4) {
      EXPECT_EQ(step(microbatches) - step(microbatches - 4), period) << LayoutText(layout) << " " << microbatches;
    }
    EXPECT_EQ(step(1'000'000) - step(1'000'000 - 4), period);
  }
}

TEST(StepEstimate, TransfersMayBlockOnlyWhereEachRankHasOnePart) {
  StepRequest plain = Request({.pp = 4}, RecomputeMode::kNone);
  StepRequest interleaved =
      Request({.pp = 4, .virtual_stages = 3, .schedule = ScheduleKind::kInterleaved}, RecomputeMode::kNone);
  const Nanos plain_beside = Estimated(plain), interleaved_beside = Estimated(interleaved);
  plain.traits.blocks_without_virtual_stages = interleaved.traits.blocks_without_virtual_stages = true;
  EXPECT_GT(Estimated(plain), plain_beside);
  EXPECT_EQ(Estimated(interleaved), interleaved_beside);
}

TEST(StepEstimate, SplittingWeightGradientsFillsTheBubble) {
  StepRequest plain = Request({.pp = 4}, RecomputeMode::kNone);
  StepRequest split = plain;
  split.layout.schedule = ScheduleKind::kZeroBubble;
  EXPECT_LT(Estimated(split), Estimated(plain));
  StepRequest tall = Request({.pp = 1}, RecomputeMode::kNone), tall_split = tall;
  tall_split.layout.schedule = ScheduleKind::kZeroBubble;
  EXPECT_EQ(Estimated(tall), Estimated(tall_split)) << "the same work, and nothing to fill";
}

TEST(StepEstimate, CopiesToTheHostHideBehindPassesUntilTheyTakeLonger) {
  HardwareProfile profile = StatedCpuProfile();
  StepRequest request = Request({.pp = 2}, RecomputeMode::kNone);
  profile.host = {Nanos(0), 1'000'000'000'000, 1'000'000'000'000, 2'000'000'000'000};
  const Nanos without = Estimated(request, profile);
  request.offload_permille = 1000;
  EXPECT_EQ(Estimated(request, profile), without);
  profile.host.op_slowdown_permille = 2000;
  EXPECT_GT(Estimated(request, profile), without);
  profile.host = {Nanos(0), 1'000'000, 1'000'000, 2'000'000};
  // The estimate includes the copies of x and of the stored tensors of each chunk, at one microsecond per byte.
  EXPECT_GT(Estimated(request, profile), Nanos(int64_t{8} * 6 * 1000 * 1'000'000));
}

TEST(StepEstimate, TiedEmbeddingsAndReplicasAddReductions) {
  StepRequest request = Request({.pp = 2, .dp = 2}, RecomputeMode::kNone);
  request.traits.overlaps_data_reduction = false;
  request.model.tied_embeddings = true;
  const StepEstimate estimate = *EstimateStep(request, StatedCpuProfile());
  const CostModel costs(StatedCpuProfile(), request.model, request.layout, 1, 8);
  EXPECT_EQ(estimate.tied_embedding, costs.TiedEmbeddingTime());
  EXPECT_GT(estimate.tied_embedding, Nanos(0));
  EXPECT_EQ(estimate.data_reduction, costs.DataReduceTime(estimate.parameters_per_rank));
  EXPECT_EQ(estimate.step, estimate.pipeline + estimate.data_reduction + estimate.tied_embedding + estimate.optimizer);
  StepRequest half = request;
  half.model.gradient_dtype = DataType::kBfloat16;
  const StepEstimate reduced = *EstimateStep(half, StatedCpuProfile());
  EXPECT_EQ(reduced.data_reduction, costs.DataReduceTime(estimate.parameters_per_rank / 2));
  EXPECT_LT(reduced.tied_embedding, estimate.tied_embedding);
  request.traits.overlaps_data_reduction = true;
  EXPECT_LT(EstimateStep(request, StatedCpuProfile())->data_reduction, estimate.data_reduction);
}

TEST(StepEstimate, SharingGradientsAndWeightsCostsTransfersWithEveryMicrobatch) {
  StepRequest request = Request({.dp = 2}, RecomputeMode::kNone);
  request.traits.overlaps_data_reduction = false;
  const auto with = [&](ZeroStage zero) {
    request.layout.zero = zero;
    return *EstimateStep(request, StatedCpuProfile());
  };
  const StepEstimate optimizer = with(ZeroStage::kOptimizer), gradients = with(ZeroStage::kGradients);
  const StepEstimate weights = with(ZeroStage::kWeights);
  const CostModel costs(StatedCpuProfile(), request.model, request.layout, 1, 8);
  const Nanos reduce = costs.DataReduceTime(optimizer.parameters_per_rank);
  const Nanos gather = costs.WeightGatherTime(optimizer.parameters_per_rank);
  EXPECT_EQ(optimizer.data_reduction, reduce + gather);
  EXPECT_EQ(gradients.data_reduction, gather);
  EXPECT_EQ(weights.data_reduction, Nanos(0));
  EXPECT_EQ(gradients.pipeline - optimizer.pipeline, reduce * 8);
  EXPECT_EQ(weights.pipeline - gradients.pipeline, gather * 2 * 8);
  request.traits.overlaps_data_reduction = true;
  EXPECT_LT(with(ZeroStage::kWeights).pipeline, weights.pipeline);
  HardwareProfile fast = StatedCpuProfile();
  fast.intra_node = fast.inter_node = {Nanos(0), 1'000'000'000'000'000};
  EXPECT_EQ(EstimateStep(request, fast)->pipeline, optimizer.pipeline) << "hidden behind the passes";
}

TEST(StepEstimate, SmallOpsTakeAsLongAsTheHostNeedsToLaunchThem) {
  const ModelSpec model = Model(12);
  const CostModel costs(StatedCpuProfile(), model, {}, 1, 8);
  const LayerGraph& graph = LayerGraph::Of(ShapeOf(model, {}, 1));
  const auto layer = [&](int32_t host_nanos, RecomputeMode mode) {
    FrameworkTraits traits = kMegatron2022Traits;
    traits.host_nanos_per_op = host_nanos;
    return EstimateLayer(costs, ShapeOf(model, {}, 1), mode, traits);
  };
  int64_t ops = 0;
  for (const OpInfo& info : graph.ops()) ops += info.layer_type == LayerType::kTransformer ? 1 : 0;
  const int32_t slow = 1'000'000'000;
  EXPECT_EQ(layer(slow, RecomputeMode::kNone).forward, Nanos(slow * ops));
  EXPECT_EQ(layer(slow, RecomputeMode::kNone).backward, Nanos(2 * slow * ops)) << "gradients of inputs and of weights";
  EXPECT_EQ(layer(slow, RecomputeMode::kFull).recompute, Nanos(slow * ops));
  EXPECT_EQ(layer(1, RecomputeMode::kFull).backward, layer(0, RecomputeMode::kFull).backward) << "the device is slower";
}

// A request for four layers with 8 experts on two ranks.
StepRequest Mixture() {
  StepRequest request;
  request.model = {.layers = 4,
                   .hidden = 256,
                   .heads = 4,
                   .ffn = 256,
                   .seq = 128,
                   .vocab = 256,
                   .family = ModelFamily::kLlama,
                   .attention = AttentionKernel::kFused,
                   .dtype = DataType::kBfloat16};
  request.model.moe = {.experts = 8, .top_k = 2};
  request.layout = {.dp = 2, .ep = 2};
  request.ranks_per_node = 8;
  return request;
}

TEST(StepEstimate, RowsAreSortedAndBiasesAddedByKernelsOfTheirOwn) {
  StepRequest request = Mixture();
  const HardwareProfile cpu = StatedCpuProfile();
  const auto layer = [&] { return EstimateStep(request, cpu)->layer; };
  const LayerEstimate plain = layer();
  const int64_t elements = 128 * 2 * 256;
  request.traits.sorts_rows = true;
  const Nanos sort = MemoryTime(cpu, Bytes(elements * 4)) + cpu.op_overhead;
  EXPECT_EQ(layer().forward - plain.forward, sort * 2);
  EXPECT_EQ(layer().backward - plain.backward, sort * 2);
  request.layout.ep = 1;
  const LayerEstimate alone = layer();
  request.traits.sorts_rows = false;
  EXPECT_EQ(alone.forward, layer().forward) << "rows that stay are not sorted again";
  request = Mixture();
  request.traits = {.forward_bias_bytes = 28, .backward_bias_bytes = 40};
  EXPECT_EQ(layer().forward, plain.forward) << "without biases";
  request.expert_biases = true;
  EXPECT_EQ(layer().forward - plain.forward, MemoryTime(cpu, Bytes(elements * 28)));
  EXPECT_EQ(layer().backward - plain.backward, MemoryTime(cpu, Bytes(elements * 40)));
}

TEST(StepEstimate, ExpertsInEightBitsTakeAsLongAsTheHostNeedsToLaunchThem) {
  StepRequest request = Mixture();
  HardwareProfile gpu = StatedCpuProfile();
  gpu.float8_flops_per_second = 1'000'000'000'000;
  gpu.gemm_tiles = {4, 128, 64};
  const auto layer = [&] { return EstimateStep(request, gpu)->layer; };
  const Nanos free = layer().forward;
  constexpr int32_t kSlow = 1'000'000'000;
  request.traits.expert_product_host_nanos = kSlow;
  EXPECT_EQ(layer().forward, free) << "products in 16 bits are launched together";
  for (const MatmulType type : {MatmulType::kFloat8, MatmulType::kMxfp8}) {
    request.model.matmul_type = type;
    EXPECT_EQ(layer().forward, Nanos(int64_t{kSlow} * 2 * 4)) << "two products of four experts";
    EXPECT_EQ(layer().backward, Nanos(int64_t{kSlow} * 2 * 4 * 2)) << "gradients of inputs and of weights";
  }
  request.traits.expert_product_host_nanos = 1;
  EXPECT_LT(layer().forward, Nanos(kSlow)) << "the device is slower";
}

TEST(StepEstimate, TheAttentionKernelBelongsToTheFramework) {
  StepRequest request = Request({}, RecomputeMode::kNone);
  request.model.attention = AttentionKernel::kFused;
  const Nanos plain = Estimated(request);
  request.traits.attention_permille = 100;
  EXPECT_GT(Estimated(request), plain);
  request.model.attention = AttentionKernel::kUnfused;
  const Nanos unfused = Estimated(request);
  request.traits.attention_permille = 1000;
  EXPECT_EQ(Estimated(request), unfused) << "the trait is of fused kernels";
}

TEST(StepEstimate, AHiddenGatherOfWeightsCostsOneLayersGather) {
  StepRequest request = Request({.dp = 4, .zero = ZeroStage::kOptimizer}, RecomputeMode::kNone);
  const CostModel costs(StatedCpuProfile(), request.model, request.layout, 1, 8);
  const StepEstimate exposed = *EstimateStep(request, StatedCpuProfile());
  request.traits.hides_weight_gather = true;
  const StepEstimate hidden = *EstimateStep(request, StatedCpuProfile());
  const int64_t layer = LayerParameters(LayerType::kTransformer, ShapeOf(request.model, request.layout, 1));
  EXPECT_EQ(exposed.step - hidden.step, costs.WeightGatherTime(exposed.parameters_per_rank) - costs.WeightGatherTime(layer));
}

TEST(StepEstimate, BroadcastsOfShardsCostTimeByReplica) {
  StepRequest request = Request({.dp = 4, .zero = ZeroStage::kOptimizer}, RecomputeMode::kNone);
  const Nanos one_gather = Estimated(request);
  request.traits.broadcast_nanos_per_replica = 1000;
  EXPECT_EQ(Estimated(request) - one_gather, Nanos(4 * 1000));
  request.layout.zero = ZeroStage::kNone;
  const Nanos replicated = Estimated(request);
  request.traits.broadcast_nanos_per_replica = 0;
  EXPECT_EQ(Estimated(request), replicated) << "nothing is gathered";
}

TEST(StepEstimate, RefusesWhatItCannotEstimate) {
  const auto message = [](const StepRequest& request) {
    const absl::Status status = EstimateStep(request, StatedCpuProfile()).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_THAT(message(Request({}, RecomputeMode::kHeu)), ::testing::StartsWith("\"heu\" does not treat every layer"));
  StepRequest many = Request({.pp = 8, .virtual_stages = 2}, RecomputeMode::kNone);
  many.layout.schedule = ScheduleKind::kInterleaved;
  EXPECT_EQ(message(many), "12 layers cannot be cut into 16 parts");
  StepRequest narrow = Request({}, RecomputeMode::kNone);
  narrow.model.matmul_type = MatmulType::kFloat8;
  EXPECT_THAT(message(narrow), ::testing::HasSubstr("have no known rate of 8-bit products"));
  StepRequest odd = Request({.pp = 3}, RecomputeMode::kNone);
  odd.layout.schedule = ScheduleKind::kChimera;
  EXPECT_FALSE(message(odd).empty());
}

}  // namespace
}  // namespace lynx
