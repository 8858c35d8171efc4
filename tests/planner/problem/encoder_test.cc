// Encoders with a head for masked tokens: planned only (PlanOnlyFeature::kEncoder).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/cost/op_cost.h"
#include "planner/problem/flops.h"
#include "planner/problem/layer_graph.h"
#include "planner/search/make_plan.h"

namespace lynx {
namespace {

ModelSpec Gpt() {
  ModelSpec model{.layers = 4, .hidden = 256, .heads = 4, .ffn = 1024, .seq = 128, .vocab = 1024};
  model.dropout = 0;
  model.attention = AttentionKernel::kFused;
  model.tied_embeddings = true;
  return model;
}
ModelSpec Bert() {
  ModelSpec model = Gpt();
  model.plan_only = Bit(PlanOnlyFeature::kEncoder);
  return model;
}

TEST(Encoder, AttentionHasNoCausalHalf) {
  const LayerShape gpt = ShapeOf(Gpt(), {}, 2), bert = ShapeOf(Bert(), {}, 2);
  for (const Pass pass : {Pass::kForward, Pass::kBackward}) {
    EXPECT_EQ(OpFlops(Op::kFlash, pass, bert), 2 * OpFlops(Op::kFlash, pass, gpt));
  }
  ModelSpec unfused = Bert();
  unfused.attention = AttentionKernel::kUnfused;
  EXPECT_EQ(OpFlops(Op::kProbs, Pass::kForward, ShapeOf(unfused, {}, 2)), OpFlops(Op::kProbs, Pass::kForward,
                                                                                  [] {
                                                                                    ModelSpec model = Gpt();
                                                                                    model.attention = AttentionKernel::kUnfused;
                                                                                    return ShapeOf(model, {}, 2);
                                                                                  }()))
      << "all scores are counted in both";
}

TEST(Encoder, TheHeadHasAProductOfItsOwn) {
  const LayerShape gpt = ShapeOf(Gpt(), {.tp = 2}, 2), bert = ShapeOf(Bert(), {.tp = 2}, 2);
  const int64_t tokens = 2 * 128, hidden = 256;
  EXPECT_EQ(OpParameters(Op::kLnf, bert) - OpParameters(Op::kLnf, gpt), hidden * hidden + hidden + 1024 / 2);
  EXPECT_EQ(OpParameters(Op::kPosition, bert) - OpParameters(Op::kPosition, gpt), 4 * hidden);
  EXPECT_EQ(OpFlops(Op::kLogits, Pass::kForward, bert) - OpFlops(Op::kLogits, Pass::kForward, gpt),
            2 * tokens * hidden * hidden);
  ASSERT_EQ(GemmsOf(Op::kLogits, Pass::kForward, bert).size(), 2U);
  EXPECT_EQ(GemmsOf(Op::kLogits, Pass::kForward, bert)[1], (GemmShape{tokens, hidden, hidden}));
  EXPECT_EQ(TensorBytes(Tensor::kLnf, bert), TensorBytes(Tensor::kLnf, gpt) * 3);
  EXPECT_EQ(TensorBytes(Tensor::kLnf, ShapeOf(Bert(), {.tp = 2, .sequence_parallel = true}, 2)),
            TensorBytes(Tensor::kLnf, gpt) * 3 / 2);
  EXPECT_EQ(ModelParameters(Bert()) - ModelParameters(Gpt()), hidden * hidden + hidden + 1024 + 4 * hidden);
  EXPECT_GT(StepFlops(Bert(), 8, FlopCount::kModel), StepFlops(Gpt(), 8, FlopCount::kModel));
  EXPECT_EQ(StepFlops(Bert(), 8, FlopCount::kModelCausal), StepFlops(Bert(), 8, FlopCount::kModel)) << "no score is left out";
}

TEST(Encoder, IsPlannedAndNotTrained) {
  PlanRequest request;
  request.spec.model = Bert();
  request.spec.data.path = "/data";
  request.spec.train = {.global_batch = 8, .micro_batch = 1};
  request.spec.resources = {.min_ranks = 4, .max_ranks = 4};
  request.cluster = UniformCluster(1, 4, StatedCpuProfile(), Bytes(0));
  request.spec.parallel.tp = 2;
  request.spec.parallel.pp = 2;
  const auto step = [&] {
    const absl::StatusOr<PlanResult> result = MakePlan(request);
    EXPECT_TRUE(result.ok()) << result.status();
    const Plan* plan = result.ok() ? std::get_if<Plan>(&*result) : nullptr;
    EXPECT_NE(plan, nullptr);
    return plan == nullptr ? Nanos(0) : plan->step;
  };
  const Nanos bert = step();
  request.spec.model = Gpt();
  EXPECT_GT(bert, step());
  EXPECT_THAT(std::string(CheckEngineRuns(Bert(), {}).message()),
              testing::HasSubstr("encoder (attention in both directions, with a head for masked tokens)"));
  request.spec.name = "job";
  request.spec.model.family = ModelFamily::kLlama;
  request.spec.model.plan_only = Bit(PlanOnlyFeature::kEncoder);
  EXPECT_THAT(std::string(ValidateJobSpec(request.spec).message()),
              testing::HasSubstr("model.planOnly is encoder: is for model.family gpt"));
}

}  // namespace
}  // namespace lynx
