// Programs of ranks that share out more than tensors and stages: sequence parallelism.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <variant>

#include "planner/compare.h"
#include "planner/memory_model.h"
#include "planner/plan.h"
#include "planner/simulate.h"
#include "planner/validate.h"
#include "tests/planner/golden_programs.h"
#include "tests/planner/stage_programs.h"

namespace lynx {
namespace {

using ::testing::HasSubstr;
using enum ActionKind;

constexpr ParallelLayout kTp2Sp{.tp = 2, .sequence_parallel = true};

ModelSpec SmallLlama(int32_t layers) {
  ModelSpec model = SmallModel(layers);
  model.family = ModelFamily::kLlama;
  model.attention = AttentionKernel::kFused;
  model.kv_heads = 2;
  model.dropout = 0;
  return model;
}

TEST(SequenceParallelGolden, Gpt) {
  ExpectGoldenPrograms("program_sequence_parallel_gpt.txt",
                       NamedPipeline(RecomputeMode::kFull, SmallModel(1), kTp2Sp, 1));
}

TEST(SequenceParallelGolden, GptStoringAll) {
  ExpectGoldenPrograms("program_sequence_parallel_none.txt",
                       NamedPipeline(RecomputeMode::kNone, SmallModel(1), kTp2Sp, 1));
}

TEST(SequenceParallelGolden, Llama) {
  ExpectGoldenPrograms("program_sequence_parallel_llama.txt",
                       NamedPipeline(RecomputeMode::kFullKeepCollectives, SmallLlama(1), kTp2Sp, 1));
}

std::map<ActionKind, int> StartsOfLayer(const Program& program, int32_t layer) {
  std::map<ActionKind, int> count;
  for (const Action& action : program) {
    if (action.layer == layer && InfoOf(action.kind).phase == Phase::kStart) ++count[action.kind];
  }
  return count;
}

// Korthikanti et al. 2022, section 4.2.2: g and its conjugate stand twice in a layer, so each pass has two all-gathers
// and two reduce-scatters; and backward gathers the shares of both norms' outputs again for the weight gradients.
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
        // The attention block's result is made again with its collective.
        if (mode == RecomputeMode::kFull) expected[kRecomputeReduceScatterStart] = microbatches;
        EXPECT_EQ(StartsOfLayer(p.programs[0], layer), expected) << RecomputeModeName(mode);
      }
    }
  }
}

// A rank stores a tp-th of what the replicated norms and residuals would keep.
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
      EXPECT_EQ(shared.at(tensor) * 2, whole.at(tensor)) << TensorName(tensor);
    }
    for (const Tensor tensor : {Tensor::kQkv, Tensor::kContext, Tensor::kFc1}) {
      EXPECT_EQ(shared.at(tensor), whole.at(tensor)) << TensorName(tensor);
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

// What is planned for other frameworks may be what the engine refuses, by name.
TEST(SequenceParallel, TheEngineRefusesItByName) {
  PlanRequest request = Request(SmallModel(4));
  request.spec.parallel = {.tp = 2, .pp = 2, .sequence_parallel = Choice::kOn};
  request.target = PlanTarget::kAnyFramework;
  const absl::StatusOr<PlanResult> result = MakePlan(request);
  ASSERT_TRUE(result.ok()) << result.status();
  const Plan& plan = std::get<Plan>(*result);
  EXPECT_THAT(std::string(CheckEngineRuns(plan.model, plan.layout).message()),
              HasSubstr("parallel.sequenceParallel on can be planned"));
}

}  // namespace
}  // namespace lynx
