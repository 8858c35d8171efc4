// Tests programs in which a layer computes the input of the layer above it again. This is Megatron-LM's uniform recomputation
// of groups.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>

#include "planner/cost/cost_model.h"
#include "planner/cost/simulate.h"
#include "planner/plan/plan.h"
#include "planner/program/memory_model.h"
#include "planner/program/validate.h"
#include "planner/report/plan_table.h"
#include "planner/search/make_plan.h"
#include "tests/planner/lower/golden_programs.h"
#include "tests/planner/lower/stage_programs.h"

namespace lynx {
namespace {

using ::testing::HasSubstr;
using enum ActionKind;

Pipeline Uniform(int32_t group, const ModelSpec& model, const ParallelLayout& layout, int32_t microbatches) {
  const LayerShape shape = ShapeOf(model, layout, 2);
  return LoweredWith(ContextsOf(model, layout, microbatches), [&](const StageSlice& slice) {
    return NamedPolicy(shape, RecomputeMode::kUniform, {.layers = group}, slice.layers());
  });
}

TEST(ChainGolden, UniformGroupsOfTwo) {
  ExpectGoldenPrograms("programs/program_uniform_2.txt", Uniform(2, SmallModel(4), {.tp = 2}, 1));
}
TEST(ChainGolden, WithSequenceParallelismAndStages) {
  ExpectGoldenPrograms("programs/program_uniform_2_sequence_parallel.txt",
                       Uniform(2, SmallModel(4), {.tp = 2, .pp = 2, .sequence_parallel = true}, 2));
}

TEST(Chain, GroupsOfOneAreFullRecomputation) {
  EXPECT_EQ(Uniform(1, SmallModel(4), {.tp = 2, .pp = 2}, 3).programs,
            NamedPipeline(RecomputeMode::kFull, 4, {.tp = 2, .pp = 2}, 3).programs);
  EXPECT_EQ(Uniform(0, SmallModel(4), {}, 3).programs, NamedPipeline(RecomputeMode::kFull, 4, {}, 3).programs);
}

TEST(Chain, PolicyTextNamesTheInputs) {
  const Pipeline p = Uniform(3, SmallModel(8), {.pp = 2}, 1);
  EXPECT_EQ(StagePolicyText(p.contexts[1].graph(), p.policies[1][0], 4), "layers 4-7: full; inputs recomputed: 5-6");
  EXPECT_EQ(RecomputedInputsText(p.policies[0][0], 0), "1-2");
  const Pipeline two = Uniform(2, SmallModel(8), {}, 1);
  EXPECT_EQ(RecomputedInputsText(two.policies[0][0], 0), "1 3 5 7");
  EXPECT_EQ(RecomputedInputsText(two.policies[0][0], 10), "11 13 15 17");
}

TEST(Chain, ProgramsAreValidAndRun) {
  ModelSpec llama = SmallModel(7);
  llama.family = ModelFamily::kLlama;
  llama.attention = AttentionKernel::kFused;
  llama.dropout = 0;
  ModelSpec masks = SmallModel(7);
  masks.dropout_masks = DropoutMasks::kStored;
  for (const ModelSpec& model : {SmallModel(7), llama, masks}) {
    for (ParallelLayout layout :
         {ParallelLayout{}, {.tp = 2}, {.tp = 2, .pp = 2}, {.pp = 3, .dp = 2}, {.dp = 2, .zero = ZeroStage::kWeights}}) {
      for (const bool sharded : {false, true}) {
        layout.sequence_parallel = sharded && layout.tp > 1;
        for (int32_t group = 1; group <= 8; ++group) {
          const Pipeline p = Uniform(group, model, layout, 4);
          const absl::Status valid = ValidatePrograms(p.programs, p.contexts);
          ASSERT_TRUE(valid.ok()) << valid << " " << LayoutText(layout) << " groups of " << group;
          const CostModel costs(StatedCpuProfile(), model, layout, 2, 2);
          ASSERT_TRUE(Simulate(p.programs, p.contexts, costs).ok());
          ASSERT_EQ(*ParseProgram(ProgramText(p.programs[0])), p.programs[0]);
          ASSERT_TRUE(PlanMemory(p.programs[0], p.contexts[0]).ok());
        }
      }
    }
  }
}

// Makes programs for random schedules, placements and chains.
TEST(ChainProperty, ProgramsAreValidAndRun) {
  for (uint64_t seed = 1; seed <= 150; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    std::mt19937_64 rng(seed);
    Pipeline p = RandomPipeline(rng, /*experts=*/seed % 3 == 0);
    for (std::vector<StagePolicy>& of_rank : p.policies) {
      for (StagePolicy& policy : of_rank) {
        policy.input_recomputed.resize(policy.layers.size());
        for (size_t l = 1; l < policy.layers.size(); ++l) policy.input_recomputed[l] = Draw(rng, 0, 1) == 1;
      }
    }
    p = Lowered(p.contexts, p.policies);
    const absl::Status valid = ValidatePrograms(p.programs, p.contexts);
    ASSERT_TRUE(valid.ok()) << valid << " " << NameOf(p);
    const StageContext& c = p.contexts[0];
    const CostModel costs(StatedCpuProfile(), c.model, c.layout, c.micro_batch, 2);
    const absl::StatusOr<Simulation> simulation = Simulate(p.programs, p.contexts, costs);
    ASSERT_TRUE(simulation.ok()) << simulation.status() << " " << NameOf(p);
  }
}

// `inputs`: bytes of the layer inputs that live from the forward pass into the backward pass. `others`: bytes of all other
// tensors that live that long. `peak`: bytes that are alive at the peak.
struct Held {
  Bytes inputs, others;
  Bytes peak;
};

Held HeldBy(const Pipeline& p) {
  const absl::StatusOr<MemoryPlan> plan = FoldLiveness(p.programs[0], p.contexts[0]);
  EXPECT_TRUE(plan.ok()) << plan.status();
  Held held{.inputs = {}, .others = {}, .peak = plan->live_peak};
  for (const BufferInstance& buffer : plan->buffers) {
    const Action& first = p.programs[0][static_cast<size_t>(buffer.first)];
    const Action& last = p.programs[0][static_cast<size_t>(buffer.last)];
    if (buffer.key.layer < 0 || first.kind != kForward || last.kind == kForward) continue;
    (buffer.key.tensor == Tensor::kX ? held.inputs : held.others) += buffer.bytes;
  }
  return held;
}

// Megatron-LM's flags are --recompute-method uniform and --recompute-num-layers N. Of n layers, the inputs of n/N groups are
// kept. While a group runs backward, everything that its N layers made is kept too.
TEST(Chain, MemoryIsOneInputAGroupAndOneGroupsActivations) {
  const LayerShape shape = ContextsOf(SmallModel(1), {}, 1)[0].shape();
  const Bytes input = TensorBytes(Tensor::kX, shape);
  Bytes layer = input;  // includes the layer's own input
  for (const Tensor tensor : LayerGraph::Of(shape).recomputable()) layer += StoredBytes(tensor, shape);
  for (const int32_t layers : {12, 24}) {
    for (const int32_t group : {1, 2, 3, 4, 6, 12}) {
      const Held held = HeldBy(Uniform(group, SmallModel(layers), {}, 1));
      EXPECT_EQ(held.inputs, input * (layers / group)) << layers << " in groups of " << group;
      EXPECT_EQ(held.others, Bytes(0));
      // If a group has one more layer, the peak has the activations of one more layer, except the layer's input. If there is
      // one more group, the peak has one more input.
      const Held one = HeldBy(Uniform(1, SmallModel(layers), {}, 1));
      EXPECT_EQ(held.peak - one.peak, layer * (group - 1) + input * (layers / group) - input * layers);
    }
  }
}

// Compared with full recomputation, only fc2 and add2 run once more. They do so in all layers except the top layer of each
// group.
TEST(Chain, ComputesTheLastOpsAgainOfAllButTheTops) {
  const ParallelLayout layout;
  const CostModel costs(StatedCpuProfile(), SmallModel(12), layout, 2, 2);
  const auto recomputed = [&](int32_t group) {
    const Pipeline p = Uniform(group, SmallModel(12), layout, 2);
    return Simulate(p.programs, p.contexts, costs)->stages[0].recompute_exposed;
  };
  const Nanos last = costs.OpTime(Op::kFc2, Pass::kForward) + costs.OpTime(Op::kAdd2, Pass::kForward);
  for (const int32_t group : {2, 3, 4, 6, 12}) {
    EXPECT_EQ(recomputed(group) - recomputed(1), last * (2 * (12 - 12 / group))) << group;
  }
}

TEST(Chain, TheValidatorNamesTheRule) {
  const Pipeline p = Uniform(2, SmallModel(4), {.tp = 2}, 1);
  const auto error = [&](const std::string& find, const std::string& replace) {
    std::string text = "\n" + ProgramText(p.programs[0]);
    const size_t at = text.find(find);
    EXPECT_NE(at, std::string::npos) << find;
    if (at != std::string::npos) text.replace(at, find.size(), replace);
    const absl::StatusOr<Program> program = ParseProgram(text);
    EXPECT_TRUE(program.ok()) << program.status();
    return std::string(ValidateProgram(*program, p.contexts[0]).message());
  };
  EXPECT_THAT(error("\n0R0:2.end(add2)", ""), HasSubstr("reads x, whose recomputation is not complete"));
  EXPECT_THAT(error("\n0R0:2.mlp(fc2)", ""), HasSubstr("a repeated all-reduce follows the recomputation of fc2, once"));
  EXPECT_THAT(error("\n0RAR+0:2.mlp\n0RAR-0:2.mlp", ""),
              HasSubstr("add2 again changes x, unless fc2 and its all-reduce have just been recomputed"));
  EXPECT_THAT(error("\n0R0:2.end(add2)", "\n0R0:2.end(add2)\n0R0:3.end(add2)"),
              HasSubstr("only the producers of recomputable tensors"));
  EXPECT_THAT(error("\n0B0:3.mlp", "\n0RAR+0:3.mlp\n0B0:3.mlp"), HasSubstr("no such collective ends this segment"));
}

TEST(UniformPlan, KeepsOneInputAGroup) {
  PlanRequest request{.cluster = UniformCluster(1, 2, StatedCpuProfile())};
  request.spec.name = "uniform";
  request.spec.model = SmallModel(24);
  request.spec.train = {.steps = 1, .global_batch = 16, .micro_batch = 1};
  request.spec.parallel = {.pp = 2, .dp = 1};
  request.spec.resources = {.min_ranks = 2, .max_ranks = 2};
  request.spec.recompute = RecomputeMode::kUniform;
  Normalize(request.spec);
  const auto plan_with = [&](int32_t group) {
    request.spec.recompute_options.layers = group;
    const absl::StatusOr<PlanResult> result = MakePlan(request);
    EXPECT_TRUE(result.ok() && std::holds_alternative<Plan>(*result));
    return std::get<Plan>(*result);
  };
  const Plan one = plan_with(1), two = plan_with(2);
  EXPECT_EQ(CheckPlan(two), absl::OkStatus());
  EXPECT_GT(two.step, one.step);
  EXPECT_THAT(PlanText(two), HasSubstr("inputs recomputed: 1 3 5"));
  EXPECT_THAT(PlanTable(two), HasSubstr("stage 0, inputs recomputed: 1 3 5"));
  EXPECT_NE(one.digest, two.digest);
}

// As memory shrinks, groups first have one layer, then more layers, and at last nothing fits. No N that the job pins is faster
// than the N that the planner chooses.
TEST(UniformPlan, LeftOpenNIsThatOfTheShortestStepThatFits) {
  PlanRequest request{.cluster = UniformCluster(1, 2, StatedCpuProfile())};
  request.spec.name = "uniform";
  request.spec.model = SmallModel(48);
  request.spec.train = {.steps = 1, .global_batch = 16, .micro_batch = 1};
  request.spec.parallel = {.pp = 2, .dp = 1, .schedule = ScheduleKind::kOneForwardOneBackward};
  request.spec.resources = {.min_ranks = 2, .max_ranks = 2};
  request.spec.recompute = RecomputeMode::kUniform;
  Normalize(request.spec);
  const auto step_with = [&](int32_t group) -> std::optional<Nanos> {
    request.spec.recompute_options.layers = group;
    const absl::StatusOr<PlanResult> result = MakePlan(request);
    EXPECT_TRUE(result.ok());
    const Plan* plan = std::get_if<Plan>(&*result);
    return plan == nullptr ? std::nullopt : std::optional(plan->step);
  };
  request.spec.recompute_options.layers = 1;
  Bytes one;
  const absl::StatusOr<PlanResult> roomy = MakePlan(request);
  for (const StagePlan& stage : std::get<Plan>(*roomy).stages) one = std::max(one, stage.arena);
  std::set<std::optional<Nanos>> steps;
  for (const int64_t percent : {100, 90, 70, 40}) {
    SCOPED_TRACE(percent);
    request.spec.resources.activation_memory_per_rank = one / 100 * percent;
    std::optional<Nanos> best;
    for (int32_t group = 1; group <= 12; ++group) {
      const std::optional<Nanos> step = step_with(group);
      if (step && (!best || *step < *best)) best = step;
    }
    const std::optional<Nanos> open = step_with(0);
    EXPECT_EQ(open, best);
    steps.insert(open);
  }
  EXPECT_GE(steps.size(), 3u) << "one layer a group, more of them, and nothing that fits";
}

TEST(ChainDeathTest, AStagesFirstInputCannotBeMadeAgain) {
  const std::vector<StageContext> contexts = ContextsOf(SmallModel(2), {}, 1);
  StagePolicy policy = NamedPolicy(contexts[0].graph(), RecomputeMode::kFull, 2);
  policy.input_recomputed = {true, false};
  EXPECT_DEATH(LowerStage(contexts[0], policy), "LYNX_CHECK");
}

}  // namespace
}  // namespace lynx
