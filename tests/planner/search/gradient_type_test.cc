// Tests plans whose gradients are summed in 16 bits (model.gradientDtype).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>

#include "planner/candidates/candidate_bound.h"
#include "planner/candidates/supported.h"
#include "planner/program/memory_model.h"
#include "planner/report/plan_table.h"
#include "planner/search/make_plan.h"
#include "planner/stages/layout_planner.h"
#include "tests/planner/plan/plan_fixtures.h"
#include "tests/planner/search/search_requests.h"

namespace lynx {
namespace {

using enum ZeroStage;
using ::testing::HasSubstr;

constexpr ZeroStage kZeroStages[] = {kNone, kOptimizer, kGradients, kWeights};

ModelSpec Model(DataType gradients) {
  return {.layers = 4,
          .hidden = 128,
          .heads = 4,
          .ffn = 512,
          .seq = 64,
          .vocab = 256,
          .dtype = DataType::kBfloat16,
          .gradient_dtype = gradients};
}

// Returns a request for eight devices on two nodes.
PlanRequest Request(DataType gradients, const ParallelSpec& parallel) {
  PlanRequest request;
  request.target = PlanTarget::kAnyFramework;
  request.spec.name = "job";
  request.spec.data.path = "corpus";
  request.spec.model = Model(gradients);
  request.spec.train.steps = 1;
  request.spec.train.global_batch = 16;
  request.spec.train.micro_batch = 1;
  request.spec.parallel = parallel;
  request.spec.resources = {.min_ranks = 8, .max_ranks = 8};
  request.cluster = UniformCluster(2, 4, SmallGpu());
  Normalize(request.spec);
  EXPECT_EQ(ValidateJobSpec(request.spec), absl::OkStatus());
  return request;
}

Plan Planned(const PlanRequest& request) {
  const absl::StatusOr<PlanResult> result = MakePlan(request);
  EXPECT_TRUE(result.ok() && std::holds_alternative<Plan>(*result)) << result.status();
  return result.ok() && std::holds_alternative<Plan>(*result) ? std::get<Plan>(*result) : Plan();
}

TEST(GradientType, SixteenBitsTakeHalfTheStatesOfGradientsAlone) {
  for (const ZeroStage zero : kZeroStages) {
    const auto states = [&](DataType gradients) {
      const ParallelLayout layout{.dp = 4, .zero = zero};
      return StatesOf(PipelineContexts(Model(gradients), layout, 1, 4, {4}).front());
    };
    const StateBytes wide = states(DataType::kFloat32), half = states(DataType::kBfloat16);
    EXPECT_EQ(half.gradients * 2, wide.gradients) << EnumName(zero);
    EXPECT_EQ(half.weights, wide.weights) << EnumName(zero);
    EXPECT_EQ(half.optimizer, wide.optimizer) << EnumName(zero);
  }
}

TEST(GradientType, BiasesOfRoutersKeepTheLoadOfTheirExpertsIn32Bits) {
  ModelSpec model = Model(DataType::kFloat32);
  model.family = ModelFamily::kLlama;
  model.dropout = 0;
  model.moe = {.experts = 4, .top_k = 2, .capacity = 1, .scores = RouterScores::kSigmoid, .router_bias = true};
  const auto gradients = [&] { return StatesOf(PipelineContexts(model, {.dp = 2}, 1, 4, {4}).front()).gradients; };
  const Bytes wide = gradients(), biases(int64_t{4} * 4 * 4);
  model.gradient_dtype = DataType::kBfloat16;
  EXPECT_EQ(gradients(), (wide - biases) / 2 + biases);
}

// With ZeRO-2, the arena has the gradients of a layer that are not reduced yet.
TEST(GradientType, UnreducedGradientsOfALayerAreHalfAsLarge) {
  const auto largest = [](DataType gradients) {
    const Plan plan = Planned(Request(gradients, {.tp = 1, .pp = 1, .dp = 8, .zero = ZeroStage::kGradients}));
    const absl::StatusOr<MemoryPlan> memory = FoldLiveness(plan.stages[0].program, plan.ContextOf(0));
    EXPECT_TRUE(memory.ok()) << memory.status();
    std::map<int32_t, Bytes> of_layer;
    for (const BufferInstance& buffer : memory->buffers) {
      if (buffer.key.tensor == Tensor::kWeightGradients) of_layer[buffer.key.layer] = buffer.bytes;
    }
    return of_layer[0];
  };
  const int64_t parameters = LayerParameters(LayerType::kTransformer, ShapeOf(Model(DataType::kFloat32), {}, 1));
  EXPECT_EQ(largest(DataType::kFloat32), Bytes(parameters * 4));
  EXPECT_EQ(largest(DataType::kBfloat16), Bytes(parameters * 2));
}

TEST(GradientType, ReductionsMoveHalfTheBytes) {
  HardwareProfile profile = SmallGpu();
  for (const ZeroStage zero : kZeroStages) {
    const ParallelLayout layout{.pp = 2, .dp = 4, .zero = zero};
    const CostModel wide(profile, Model(DataType::kFloat32), layout, 1, 4);
    const CostModel half(profile, Model(DataType::kBfloat16), layout, 1, 4);
    EXPECT_EQ(half.DataReduceTime(2000), wide.DataReduceTime(1000)) << EnumName(zero);
    EXPECT_EQ(half.WeightGatherTime(1000), wide.WeightGatherTime(1000)) << EnumName(zero);
    EXPECT_LT(half.TiedEmbeddingTime(), wide.TiedEmbeddingTime());
  }
}

TEST(GradientType, WhatWasMeasuredServes16BitsToo) {
  const HardwareProfile profile = WithMeasured(SmallGpu(), ThirdOf(SmallGpu()), Model(DataType::kFloat32), {.dp = 2}, 1);
  const CostModel wide(profile, Model(DataType::kFloat32), {.dp = 2}, 1, 4);
  const CostModel half(profile, Model(DataType::kBfloat16), {.dp = 2}, 1, 4);
  EXPECT_TRUE(half.measured());
  EXPECT_EQ(half.OpTime(Op::kFc1, Pass::kForward), wide.OpTime(Op::kFc1, Pass::kForward));
  EXPECT_EQ(half.OpTime(Op::kFc1, Pass::kWeight), wide.OpTime(Op::kFc1, Pass::kWeight));
}

TEST(GradientType, PlansHoldAndAreNeverSlower) {
  for (const ZeroStage zero : kZeroStages) {
    for (const int32_t pp : {1, 2}) {
      SCOPED_TRACE(testing::Message() << EnumName(zero) << ", " << pp << " stages");
      const ParallelSpec parallel{.tp = 1, .pp = pp, .dp = 8 / pp, .zero = zero};
      const Plan wide = Planned(Request(DataType::kFloat32, parallel));
      const Plan half = Planned(Request(DataType::kBfloat16, parallel));
      EXPECT_EQ(CheckPlan(half), absl::OkStatus());
      EXPECT_LT(half.step, wide.step);
      EXPECT_EQ(half.stages[0].states.gradients * 2, wide.stages[0].states.gradients);
      EXPECT_NE(half.digest, wide.digest);
    }
  }
}

// The job needs the memory that 16 bits save.
TEST(GradientType, AJobMayFitWith16BitsOnly) {
  const ParallelSpec parallel{.tp = 1, .pp = 2, .dp = 4, .zero = kNone};
  const Plan wide = Planned(Request(DataType::kFloat32, parallel));
  const auto with = [&](DataType gradients) {
    PlanRequest request = Request(gradients, parallel);
    request.spec.recompute = RecomputeMode::kFull;
    request.cluster.groups[0].memory_per_device = wide.stages[0].states.total();
    return *MakePlan(request);
  };
  EXPECT_FALSE(std::holds_alternative<Plan>(with(DataType::kFloat32)));
  EXPECT_TRUE(std::holds_alternative<Plan>(with(DataType::kBfloat16)));
}

TEST(GradientType, NoSimulatedStepIsShorterThanTheBound) {
  const PlanRequest request = Request(DataType::kBfloat16, {.tp = 1});
  const auto candidates = SupportedCandidates(request);
  ASSERT_TRUE(candidates.ok()) << candidates.status();
  PlanCaches caches(request);
  int planned = 0;
  for (size_t i = 0; i < candidates->size(); i += 5) {
    const Candidate& candidate = (*candidates)[i];
    SCOPED_TRACE(LayoutText(candidate.layout));
    const std::optional<Draft> draft =
        LayoutPlanner(request, candidate, caches).Best(Nanos(std::numeric_limits<int64_t>::max()));
    if (!draft) continue;
    ++planned;
    const std::optional<Nanos> bound = CandidateBound(request, candidate, caches).Bound();
    ASSERT_TRUE(bound.has_value());
    EXPECT_LE(*bound, draft->step);
  }
  EXPECT_GT(planned, 5);
}

TEST(GradientType, TheEngineRefusesItByItsName) {
  EXPECT_EQ(CheckEngineRuns(Model(DataType::kFloat32), {.dp = 2}), absl::OkStatus());
  EXPECT_EQ(std::string(CheckEngineRuns(Model(DataType::kBfloat16), {.dp = 2}).message()),
            "model.gradientDtype bfloat16 can be planned (lynxctl plan), but the engine of this version trains only with "
            "float32, in which it sums the gradients of weights");
  const Plan plan = Planned(Request(DataType::kBfloat16, {.tp = 1, .pp = 1, .dp = 8, .zero = kNone}));
  EXPECT_THAT(PlanTable(plan), HasSubstr("planned with gradients that are summed in bfloat16"));
}

}  // namespace
}  // namespace lynx
