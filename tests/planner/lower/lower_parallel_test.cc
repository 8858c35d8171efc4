// Tests programs of ranks with sequence parallelism, with sharded model states (ZeRO), and with context parallelism.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <variant>

#include "planner/cost/cost_model.h"
#include "planner/cost/op_cost.h"
#include "planner/cost/simulate.h"
#include "planner/frameworks/step_estimate.h"
#include "planner/plan/plan.h"
#include "planner/program/memory_model.h"
#include "planner/program/state_sharing.h"
#include "planner/program/validate.h"
#include "planner/search/compare.h"
#include "planner/search/make_plan.h"
#include "tests/planner/lower/golden_programs.h"
#include "tests/planner/lower/stage_programs.h"

namespace lynx {
namespace {

using ::testing::HasSubstr;
using enum ActionKind;

const ParallelLayout kTp2Sp{.tp = 2, .sequence_parallel = true};

ModelSpec SmallLlama(int32_t layers) {
  ModelSpec model = SmallModel(layers);
  model.family = ModelFamily::kLlama;
  model.attention = AttentionKernel::kFused;
  model.kv_heads = 2;
  model.dropout = 0;
  return model;
}

TEST(SequenceParallelGolden, Gpt) {
  ExpectGoldenPrograms("programs/program_sequence_parallel_gpt.txt",
                       NamedPipeline(RecomputeMode::kFull, SmallModel(1), kTp2Sp, 1));
}

TEST(SequenceParallelGolden, GptStoringAll) {
  ExpectGoldenPrograms("programs/program_sequence_parallel_none.txt",
                       NamedPipeline(RecomputeMode::kNone, SmallModel(1), kTp2Sp, 1));
}

TEST(SequenceParallelGolden, Llama) {
  ExpectGoldenPrograms("programs/program_sequence_parallel_llama.txt",
                       NamedPipeline(RecomputeMode::kFullKeepCollectives, SmallLlama(1), kTp2Sp, 1));
}

std::map<ActionKind, int> StartsOfLayer(const Program& program, int32_t layer) {
  std::map<ActionKind, int> count;
  for (const Action& action : program) {
    if (action.layer == layer && InfoOf(action.kind).phase == Phase::kStart) ++count[action.kind];
  }
  return count;
}

// Korthikanti et al. 2022, section 4.2.2: g and its conjugate occur twice in a layer. So each pass has two all-gathers and two
// reduce-scatters. In addition, the backward pass gathers the shares of both norms' outputs again, because the weight gradients
// need them.
TEST(SequenceParallel, CollectivesOfALayerAreThoseOfThePaper) {
  const int32_t microbatches = 3;
  for (const ModelSpec& model : {SmallModel(2), SmallLlama(2)}) {
    for (const RecomputeMode mode : {RecomputeMode::kNone, RecomputeMode::kSelective, RecomputeMode::kBalanced,
                                     RecomputeMode::kFullKeepCollectives, RecomputeMode::kFull}) {
      const Pipeline p = NamedPipeline(mode, model, kTp2Sp, microbatches);
      for (int32_t layer = 0; layer < 2; ++layer) {
        std::map<ActionKind, int> expected = {{kAllGatherStart, 2 * microbatches},
                                              {kReduceScatterStart, 2 * microbatches},
                                              {kBackwardAllGatherStart, 2 * microbatches},
                                              {kBackwardReduceScatterStart, 2 * microbatches},
                                              {kRecomputeAllGatherStart, 2 * microbatches}};
        // Full recomputation computes the result of the attention block again, including its reduce-scatter.
        if (mode == RecomputeMode::kFull) expected[kRecomputeReduceScatterStart] = microbatches;
        EXPECT_EQ(StartsOfLayer(p.programs[0], layer), expected) << EnumName(mode);
      }
    }
  }
}

// With sequence parallelism a rank stores 1/tp of the norms and residuals. Without it, every rank stores all of them.
TEST(SequenceParallel, StoresAShareOfEveryTensorOfHiddenWidth) {
  for (const ModelSpec& model : {SmallModel(1), SmallLlama(1)}) {
    const auto stored = [&](const ParallelLayout& layout) {
      const Pipeline p = NamedPipeline(RecomputeMode::kNone, model, layout, 1);
      const absl::StatusOr<MemoryPlan> plan = FoldLiveness(p.programs[0], p.contexts[0]);
      EXPECT_TRUE(plan.ok()) << plan.status();
      std::map<Tensor, Bytes> bytes;
      for (const BufferInstance& buffer : plan->buffers) {
        if (buffer.key.layer == 0) bytes[buffer.key.tensor] = std::max(bytes[buffer.key.tensor], buffer.bytes);
      }
      return bytes;
    };
    const std::map<Tensor, Bytes> whole = stored({.tp = 2}), shared = stored(kTp2Sp);
    for (const Tensor tensor : {Tensor::kX, Tensor::kLn1, Tensor::kX1, Tensor::kLn2}) {
      EXPECT_EQ(shared.at(tensor) * 2, whole.at(tensor)) << EnumName(tensor);
    }
    for (const Tensor tensor : {Tensor::kQkv, Tensor::kContext, Tensor::kFc1}) {
      EXPECT_EQ(shared.at(tensor), whole.at(tensor)) << EnumName(tensor);
    }
  }
}

PlanRequest Request(const ModelSpec& model) {
  PlanRequest request{.cluster = UniformCluster(2, 4, StatedCpuProfile())};
  request.spec.name = "parallel";
  request.spec.model = model;
  request.spec.train = {.steps = 1, .global_batch = 8};
  request.spec.resources = {.min_ranks = 4, .max_ranks = 4};
  Normalize(request.spec);
  return request;
}

TEST(SequenceParallel, PlansPassTheirChecks) {
  for (const ModelSpec& model : {SmallModel(4), SmallLlama(4)}) {
    PlanRequest request = Request(model);
    request.spec.parallel = {.tp = 2, .sequence_parallel = Choice::kOn};
    request.spec.resources.activation_memory_per_rank = Bytes(300'000);
    const absl::StatusOr<PlanResult> result = MakePlan(request);
    ASSERT_TRUE(result.ok()) << result.status();
    ASSERT_TRUE(std::holds_alternative<Plan>(*result)) << std::get<Infeasible>(*result).reason;
    const Plan& plan = std::get<Plan>(*result);
    EXPECT_TRUE(plan.layout.sequence_parallel);
    EXPECT_EQ(CheckPlan(plan), absl::OkStatus());
  }
}

// The engine refuses plans that are for other frameworks. Its message names what it cannot run.
TEST(ZeroStages, TheEngineRefusesThemByName) {
  PlanRequest request = Request(SmallModel(4));
  request.spec.parallel = {.tp = 2, .dp = 2, .zero = ZeroStage::kGradients};
  request.target = PlanTarget::kAnyFramework;
  const absl::StatusOr<PlanResult> result = MakePlan(request);
  ASSERT_TRUE(result.ok()) << result.status();
  const Plan& plan = std::get<Plan>(*result);
  EXPECT_THAT(std::string(CheckEngineRuns(plan.model, plan.layout).message()),
              HasSubstr("parallel.zero gradients can be planned (lynxctl plan), but the engine of this version trains "
                        "only with none or optimizer"));
  ModelSpec model = plan.model;
  for (const DataType dtype : {DataType::kFloat32, DataType::kBfloat16}) {
    model.dtype = dtype;
    EXPECT_TRUE(CheckEngineRuns(model, {.dp = 2, .zero = ZeroStage::kOptimizer}).ok());
  }
}

ParallelLayout Shared(ZeroStage zero) { return {.dp = 2, .zero = zero}; }
constexpr std::array kZeroStages = {ZeroStage::kOptimizer, ZeroStage::kGradients, ZeroStage::kWeights};

TEST(ZeroGolden, Optimizer) {
  ExpectGoldenPrograms("programs/program_zero_optimizer.txt",
                       NamedPipeline(RecomputeMode::kNone, 2, Shared(ZeroStage::kOptimizer), 2));
}
TEST(ZeroGolden, Gradients) {
  ExpectGoldenPrograms("programs/program_zero_gradients.txt",
                       NamedPipeline(RecomputeMode::kNone, 2, Shared(ZeroStage::kGradients), 2));
}
TEST(ZeroGolden, Weights) {
  ExpectGoldenPrograms("programs/program_zero_weights.txt",
                       NamedPipeline(RecomputeMode::kFull, 3, Shared(ZeroStage::kWeights), 2));
}

TEST(Zero, AnOnlyRankSharesNothing) {
  for (const ZeroStage zero : kZeroStages) {
    EXPECT_EQ(NamedPipeline(RecomputeMode::kFull, 2, {.zero = zero}, 2).programs,
              NamedPipeline(RecomputeMode::kFull, 2, {}, 2).programs);
  }
}

TEST(Zero, LayersAreReducedAndGatheredAsTheStageSays) {
  const int32_t layers = 4, microbatches = 3;
  for (const ZeroStage zero : kZeroStages) {
    const Pipeline p = NamedPipeline(RecomputeMode::kSelective, layers, Shared(zero), microbatches);
    const bool each = zero >= ZeroStage::kGradients;
    for (int32_t layer = 0; layer < layers; ++layer) {
      std::map<ActionKind, int> starts = StartsOfLayer(p.programs[0], layer);
      EXPECT_EQ(starts[kDataReduceStart], each ? microbatches : 1);
      // With ZeRO-3, no gather is needed in two cases, because the layer's weights are still on the rank: before the top
      // layer's backward pass, which follows the head's, and before the bottom layer's next forward pass, which follows its
      // backward pass.
      const int kept = layer + 1 == layers ? microbatches : layer == 0 ? microbatches - 1 : 0;
      const int passes = 2 * microbatches - kept;
      EXPECT_EQ(starts[kWeightGatherStart], zero == ZeroStage::kWeights ? passes : 1) << layer;
    }
    const auto optimizer = std::find(p.programs[0].begin(), p.programs[0].end(), Action{.kind = kOptimizer});
    const bool after =
        std::any_of(optimizer, p.programs[0].end(), [](const Action& action) { return action.kind == kWeightGatherStart; });
    EXPECT_EQ(after, zero != ZeroStage::kWeights);
  }
}

TEST(Zero, StatesAreDividedAsTheStageSays) {
  ModelSpec model = SmallModel(4);
  model.dtype = DataType::kBfloat16;
  const int64_t parameters = ModelParameters(model);
  const auto states = [&](const ParallelLayout& layout) { return StatesOf(ContextsOf(model, layout, 1).front()); };
  const int64_t multiple = 4 * kShareAlignment;
  const auto share = [&](int64_t bytes) {
    int64_t elements = 0;
    for (const auto [type, count] :
         {std::pair(LayerType::kEmbedding, 1), {LayerType::kTransformer, 4}, {LayerType::kHead, 1}}) {
      const int64_t of_layer = LayerParameters(type, ShapeOf(model, {}, 1));
      elements += (of_layer + multiple - 1) / multiple * kShareAlignment * count;
    }
    return Bytes(elements * bytes);
  };
  const ParallelLayout layout{.dp = 2, .cp = 2};
  for (const ZeroStage zero : {ZeroStage::kNone, ZeroStage::kOptimizer, ZeroStage::kGradients, ZeroStage::kWeights}) {
    ParallelLayout with = layout;
    with.zero = zero;
    const StateBytes bytes = states(with);
    // If states are sharded, whole arrays have the padding of the shares.
    const auto whole = [&](int64_t each) { return zero == ZeroStage::kNone ? Bytes(parameters * each) : share(each) * 4; };
    EXPECT_EQ(bytes.weights, zero == ZeroStage::kWeights ? share(2) : whole(2));
    EXPECT_EQ(bytes.gradients, zero >= ZeroStage::kGradients ? share(4) : whole(4));
    EXPECT_EQ(bytes.optimizer, zero >= ZeroStage::kOptimizer ? share(12) : whole(12));
  }
}

// Returns the largest number of the tensor's buffers that exist at the same time.
int MostAlive(const Pipeline& p, Tensor tensor) {
  const absl::StatusOr<MemoryPlan> plan = FoldLiveness(p.programs[0], p.contexts[0]);
  EXPECT_TRUE(plan.ok()) << plan.status();
  std::vector<int> change(p.programs[0].size() + 1);
  for (const BufferInstance& buffer : plan->buffers) {
    if (buffer.key.tensor != tensor) continue;
    ++change[static_cast<size_t>(buffer.first)];
    --change[static_cast<size_t>(buffer.last) + 1];
  }
  int live = 0, most = 0;
  for (const int by : change) most = std::max(most, live += by);
  return most;
}

TEST(Zero, GatheredWeightsAndUnreducedGradientsLiveWhileUsed) {
  for (const RecomputeMode mode : {RecomputeMode::kNone, RecomputeMode::kFull}) {
    const Pipeline weights = NamedPipeline(mode, 6, Shared(ZeroStage::kWeights), 2);
    EXPECT_EQ(MostAlive(weights, Tensor::kWeights), 2);  // one is in use, and one is being gathered
    EXPECT_EQ(MostAlive(weights, Tensor::kWeightGradients), 2);
    const Pipeline gradients = NamedPipeline(mode, 6, Shared(ZeroStage::kGradients), 2);
    EXPECT_EQ(MostAlive(gradients, Tensor::kWeights), 0);
    EXPECT_EQ(MostAlive(gradients, Tensor::kWeightGradients), 2);
    EXPECT_EQ(MostAlive(NamedPipeline(mode, 6, Shared(ZeroStage::kOptimizer), 2), Tensor::kWeightGradients), 0);
  }
}

absl::Status ValidateChanged(const Pipeline& p, const std::string& find, const std::string& replace) {
  std::string text = "\n" + ProgramText(p.programs[0]);
  const size_t at = text.find(find);
  EXPECT_NE(at, std::string::npos) << find;
  if (at != std::string::npos) text.replace(at, find.size(), replace);
  const absl::StatusOr<Program> program = ParseProgram(text);
  EXPECT_TRUE(program.ok()) << program.status();
  return ValidateProgram(*program, p.contexts[0]);
}

TEST(Zero, TheValidatorNamesWhatIsMissingOrTooEarly) {
  const auto error = [](ZeroStage zero, const std::string& find, const std::string& replace) {
    return std::string(ValidateChanged(NamedPipeline(RecomputeMode::kNone, 2, Shared(zero), 2), find, replace).message());
  };
  using enum ZeroStage;
  EXPECT_THAT(error(kOptimizer, "\n0PG+:0\n", "\n"), HasSubstr("waits out of order"));
  EXPECT_THAT(error(kOptimizer, "\n0PG+:h\n0PG-:e\n0PG-:0\n0PG-:1\n0PG-:h", "\n0PG-:e\n0PG-:0\n0PG-:1"),
              HasSubstr("the step still lacks 0PG+:h"));
  EXPECT_THAT(error(kOptimizer, "\n0PG-:h", ""), HasSubstr("the step still lacks 0PG-:h"));
  EXPECT_THAT(error(kOptimizer, "\n0PG+:1\n", "\n0PG+:0\n"), HasSubstr("the layer's updated weights are gathered once"));
  EXPECT_THAT(error(kOptimizer, "\n0NORM+", "\n0PG+:0\n0NORM+"), HasSubstr("updated weights are gathered after OPT"));
  EXPECT_THAT(error(kNone, "\n0NORM+", "\n0PG+:0\n0NORM+"), HasSubstr("no rank lacks weights without ZeRO"));
  EXPECT_THAT(error(kGradients, "\n0DP+:0\n", "\n0DP+:1\n"),
              HasSubstr("gradients are reduced after the layer's backward and weight pass of microbatch 1"));
  EXPECT_THAT(error(kWeights, "\n0PG+:0\n", "\n"), HasSubstr("waits"));
  EXPECT_THAT(error(kWeights, "\n0PG-:0\n0PG+:1\n0F0:0.attn\n", "\n0F0:0.attn\n0PG-:0\n0PG+:1\n"),
              HasSubstr("touches weights[0], while 0PG+:0 writes it"));
  EXPECT_THAT(error(kWeights, "\n0OPT\n", "\n0OPT\n0PG+:0\n"), HasSubstr("only NORM- and OPT may follow NORM+"));
  // If its gather is removed, a layer cannot read its weights.
  const Pipeline p = NamedPipeline(RecomputeMode::kNone, 2, Shared(kWeights), 1);
  Program bare;
  for (const Action& action : p.programs[0]) {
    if (action.kind != kWeightGatherStart && action.kind != kWeightGatherWait) bare.push_back(action);
  }
  EXPECT_THAT(std::string(ValidateProgram(bare, p.contexts[0]).message()),
              HasSubstr("reads weights[e], which no action before it writes"));
}

double SimulatedSeconds(const Pipeline& p, const HardwareProfile& profile) {
  const StageContext& c = p.contexts[0];
  const CostModel costs(profile, c.model, c.layout, c.micro_batch, 8);
  const absl::StatusOr<Simulation> simulation = Simulate(p.programs, p.contexts, costs);
  EXPECT_TRUE(simulation.ok()) << simulation.status();
  return simulation.ok() ? Seconds(simulation->step) : 0;
}

// The closed form leaves out two times: the collective for the gradient norm, and the exposed part of a gather at the very
// beginning of a pass.
TEST(Zero, SimulationAgreesWithTheClosedForm) {
  ModelSpec model = SmallModel(12);
  model.hidden = 256, model.ffn = 1024, model.heads = 8, model.seq = 256;
  for (ParallelLayout layout : {ParallelLayout{.dp = 2}, {.tp = 2, .dp = 2}, {.pp = 2, .dp = 2}, {.pp = 3, .dp = 2}}) {
    for (const ZeroStage zero : kZeroStages) {
      layout.zero = zero;
      for (const RecomputeMode mode : {RecomputeMode::kNone, RecomputeMode::kFull}) {
        const double simulated = SimulatedSeconds(NamedPipeline(mode, model, layout, 8), StatedCpuProfile());
        const absl::StatusOr<StepEstimate> estimate = EstimateStep({.model = model,
                                                                    .layout = layout,
                                                                    .micro_batch = 2,
                                                                    .microbatches = 8,
                                                                    .recompute = mode,
                                                                    .ranks_per_node = 8,
                                                                    .traits = {}},
                                                                   StatedCpuProfile());
        ASSERT_TRUE(estimate.ok()) << estimate.status();
        EXPECT_NEAR(Seconds(estimate->step), simulated, 0.04 * simulated) << LayoutText(layout) << " " << EnumName(mode);
      }
    }
  }
}

// c ranks share each sequence; a model has a heads, of which k are key heads. A rank sends and holds b s 2k/t h/a elements of
// keys and values in each of three collectives: the gather of the forward pass, the gather of the backward pass, and the
// reduce-scatter of the backward pass. A step of the ring moves 1/c of these elements.
TEST(ContextParallel, BytesAreThoseOfTheGather) {
  for (const ModelSpec& model : {SmallModel(2), SmallLlama(2)}) {
    for (const int32_t cp : {1, 2, 4}) {
      const LayerShape shape = ShapeOf(model, {.tp = 2, .cp = cp}, 3);
      const int64_t whole = int64_t{3} * 16 * 2 * model.key_heads() / 2 * (model.hidden / model.heads) * 4;
      const Bytes gathered(cp == 1 ? 0 : whole);
      EXPECT_EQ(ContextGatherBytes(shape), gathered);
      const LayerShape alone = ShapeOf(model, {.tp = 2}, 3);
      const Op core = model.attention == AttentionKernel::kFused ? Op::kFlash : Op::kProbs;
      EXPECT_EQ(WorkspaceBytes(core, Pass::kForward, shape) - WorkspaceBytes(core, Pass::kForward, alone), gathered);
      EXPECT_GE(WorkspaceBytes(core, Pass::kBackward, shape), gathered * 2);
      HardwareProfile profile = StatedCpuProfile();
      const CostModel costs(profile, model, {.tp = 2, .cp = cp}, 3, 8);
      profile.intra_node.latency = Nanos(0);
      const CostModel direct(profile, model, {.tp = 2, .cp = cp}, 3, 8);
      const Nanos sent = TimeAtRate(gathered.value * (cp - 1) / cp, profile.intra_node.bytes_per_second);
      profile.intra_node.bytes_per_second *= 1'000'000;
      const CostModel free(profile, model, {.tp = 2, .cp = cp}, 3, 8);
      EXPECT_NEAR(static_cast<double>((direct.OpTime(core, Pass::kForward) - free.OpTime(core, Pass::kForward)).value),
                  static_cast<double>(sent.value), cp);
      EXPECT_NEAR(static_cast<double>((direct.OpTime(core, Pass::kBackward) - free.OpTime(core, Pass::kBackward)).value),
                  static_cast<double>(sent.value * 2), 2 * cp);
    }
  }
}

TEST(ContextParallel, EveryTensorIsOfTheRanksOwnTokens) {
  const Pipeline one = NamedPipeline(RecomputeMode::kNone, SmallLlama(2), {}, 1);
  const Pipeline two = NamedPipeline(RecomputeMode::kNone, SmallLlama(2), {.cp = 2}, 1);
  const auto bytes = [](const Pipeline& p, Tensor tensor) { return TensorBytes(tensor, p.contexts[0].shape()); };
  for (const Tensor tensor : {Tensor::kX, Tensor::kQkv, Tensor::kContext, Tensor::kFc1, Tensor::kLogits}) {
    EXPECT_EQ(bytes(two, tensor) * 2, bytes(one, tensor)) << EnumName(tensor);
  }
  EXPECT_EQ(ValidatePrograms(two.programs, two.contexts), absl::OkStatus());
}

TEST(ParallelPlans, OfSharedStatesAndSequencesPassTheirChecks) {
  const std::array<ParallelSpec, 4> parallels = {
      ParallelSpec{.dp = 2, .zero = ZeroStage::kOptimizer}, ParallelSpec{.pp = 2, .dp = 2, .zero = ZeroStage::kGradients},
      ParallelSpec{.tp = 2, .dp = 2, .zero = ZeroStage::kWeights}, ParallelSpec{.pp = 2, .cp = 2}};
  for (const ParallelSpec& parallel : parallels) {
    PlanRequest request = Request(SmallLlama(4));
    request.spec.parallel = parallel;
    request.spec.resources.activation_memory_per_rank = Bytes(1'500'000);
    const absl::StatusOr<PlanResult> result = MakePlan(request);
    ASSERT_TRUE(result.ok()) << result.status();
    ASSERT_TRUE(std::holds_alternative<Plan>(*result)) << std::get<Infeasible>(*result).reason;
    const Plan& plan = std::get<Plan>(*result);
    EXPECT_EQ(CheckPlan(plan), absl::OkStatus()) << LayoutText(plan.layout);
    EXPECT_EQ(CheckEngineRuns(SmallModel(4), plan.layout).ok(), parallel.zero == ZeroStage::kOptimizer);
  }
}

}  // namespace
}  // namespace lynx
