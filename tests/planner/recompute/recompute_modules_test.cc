#include "planner/recompute/recompute_modules.h"

#include <gtest/gtest.h>

#include "planner/recompute/recompute_policy.h"
#include "planner/search/make_plan.h"

namespace lynx {
namespace {

using enum RecomputeModule;
using enum Tensor;

LayerShape Gpt() { return {}; }
LayerShape Llama() { return {.family = ModelFamily::kLlama, .attention = AttentionKernel::kFused}; }
LayerShape Experts() {
  LayerShape shape = Llama();
  shape.experts = 8, shape.top_k = 2, shape.expert_ffn = 64, shape.ep = 2, shape.shared_ffn = 64;
  return shape;
}
LayerShape Latent() {
  LayerShape shape = Llama();
  shape.query_rank = 16, shape.kv_rank = 16, shape.value_dim = 8, shape.rotary_dims = 4;
  return shape;
}

TEST(RecomputeModules, AreSetsOfTensors) {
  const auto tensors = [](const LayerShape& shape, const std::vector<RecomputeModule>& modules) {
    return TensorsOfModules(LayerGraph::Of(shape), modules);
  };
  EXPECT_EQ(tensors(Gpt(), {kCoreAttn}), Bit(kProbs));
  EXPECT_EQ(tensors(Llama(), {kCoreAttn}), Bit(kContext));
  EXPECT_EQ(tensors(Gpt(), {kLayernorm, kMlp}), Bit(kLn1) | Bit(kLn2) | Bit(kFc1) | Bit(kGelu));
  EXPECT_EQ(tensors(Llama(), {kMlp}), Bit(kFc1) | Bit(kSilu) | Bit(kSwiglu));
  EXPECT_EQ(tensors(Llama(), {kMoeAct, kMoe, kSharedExperts, kMlaUpProj}), TensorSet{0}) << "the layers lack these modules";
  EXPECT_EQ(tensors(Experts(), {kMlp}), TensorSet{0}) << "every layer has experts";
  EXPECT_EQ(tensors(Experts(), {kMoeAct}), Bit(kSilu) | Bit(kSwiglu));
  EXPECT_EQ(tensors(Experts(), {kSharedExperts}), Bit(kSharedFc1) | Bit(kSharedSwiglu));
  EXPECT_EQ(tensors(Experts(), {kMoe}),
            Bit(kScores) | Bit(kExpertRows) | Bit(kFc1) | Bit(kSilu) | Bit(kSwiglu) | Bit(kSharedFc1) | Bit(kSharedSwiglu));
  EXPECT_EQ(tensors(Latent(), {kMlaUpProj}), Bit(kQkv));
}

TEST(RecomputeModules, MegatronCallsWholeFunctions) {
  const RepeatedModules mlp = MegatronModules(LayerGraph::Of(Llama()), {kMlp}, /*fused_norms=*/true);
  EXPECT_EQ(mlp.ops, Bit(Op::kLn2) | Bit(Op::kFc1) | Bit(Op::kSilu) | Bit(Op::kSwiglu) | Bit(Op::kFc2));
  EXPECT_EQ(mlp.dropped, Bit(kLn2) | Bit(kFc1) | Bit(kSilu) | Bit(kSwiglu));
  EXPECT_FALSE(Contains(MegatronModules(LayerGraph::Of(Llama()), {kMlp}, false).dropped, kLn2)) << "the block's input";
  const RepeatedModules core = MegatronModules(LayerGraph::Of(Llama()), {kCoreAttn}, true);
  EXPECT_EQ(core.ops, Bit(Op::kFlash));
  EXPECT_EQ(core.kept_part, Bit(kContext)) << "the input of proj";
  const RepeatedModules unfused = MegatronModules(LayerGraph::Of(Gpt()), {kCoreAttn}, true);
  EXPECT_EQ(unfused.ops, Bit(Op::kProbs) | Bit(Op::kContext));
  EXPECT_EQ(unfused.dropped, Bit(kProbs));
  const RepeatedModules moe = MegatronModules(LayerGraph::Of(Experts()), {kMoe}, true);
  EXPECT_TRUE(Contains(moe.ops, Op::kUnpermute) && Contains(moe.ops, Op::kSharedFc2) && Contains(moe.ops, Op::kFc2));
  EXPECT_FALSE(Contains(moe.dropped, kLn2));
}

TEST(RecomputeModules, NormsInLinearsAreNotRecomputedAlone) {
  const auto norms = [](const LayerShape& shape, bool fused) {
    return MegatronModules(LayerGraph::Of(shape), {kLayernorm}, fused).dropped;
  };
  EXPECT_EQ(norms(Llama(), false), Bit(kLn1) | Bit(kLn2));
  EXPECT_EQ(norms(Llama(), true), TensorSet{0});
  EXPECT_EQ(norms(Experts(), true), Bit(kLn2));
  EXPECT_EQ(norms(Latent(), true), Bit(kLn1));
  EXPECT_EQ(MegatronModules(LayerGraph::Of(Latent()), {kMlaUpProj}, true).dropped, Bit(kLatentNormed) | Bit(kQkv));
  EXPECT_EQ(MegatronModules(LayerGraph::Of(Latent()), {kMlaUpProj}, false).dropped, Bit(kQkv));
}

TEST(RecomputeModules, AreFoundByTheirTensors) {
  for (const LayerShape& shape : {Gpt(), Llama(), Experts(), Latent()}) {
    const LayerGraph& graph = LayerGraph::Of(shape);
    for (unsigned bits = 1; bits < 1U << kEnumNames<RecomputeModule>.size(); ++bits) {
      std::vector<RecomputeModule> modules;
      for (unsigned i = 0; i < kEnumNames<RecomputeModule>.size(); ++i) {
        if ((bits >> i & 1U) != 0) modules.push_back(static_cast<RecomputeModule>(i));
      }
      const TensorSet tensors = TensorsOfModules(graph, modules);
      const std::vector<RecomputeModule> found = ModulesOfTensors(graph, tensors);
      EXPECT_EQ(TensorsOfModules(graph, found), tensors) << ModulesText(modules);
      EXPECT_LE(found.size(), modules.size()) << ModulesText(modules) << ": " << ModulesText(found);
    }
    EXPECT_TRUE(ModulesOfTensors(graph, Bit(kX1)).empty());
    EXPECT_TRUE(ModulesOfTensors(graph, 0).empty());
  }
  EXPECT_EQ(ModulesText({kLayernorm, kMoeAct}), "layernorm moe_act");
}

// A plan for Lynx's programs stores and recomputes what the modules say.
TEST(RecomputeModules, ArePlanned) {
  PlanRequest request;
  request.spec.model = {
      .layers = 4, .hidden = 64, .heads = 4, .ffn = 256, .seq = 32, .vocab = 512, .family = ModelFamily::kLlama};
  request.spec.model.attention = AttentionKernel::kFused;
  request.spec.data.path = "/data";
  request.spec.train = {.global_batch = 8, .micro_batch = 1};
  request.spec.resources = {.min_ranks = 2, .max_ranks = 2};
  request.spec.parallel.tp = 2;
  request.spec.parallel.pp = 1;
  request.spec.recompute = RecomputeMode::kSelective;
  request.spec.recompute_options.modules = {kLayernorm, kMlp};
  request.cluster = UniformCluster(1, 2, StatedCpuProfile(), Bytes(0));
  const absl::StatusOr<PlanResult> result = MakePlan(request);
  ASSERT_TRUE(result.ok()) << result.status();
  const Plan* plan = std::get_if<Plan>(&*result);
  ASSERT_NE(plan, nullptr);
  const LayerGraph& graph = plan->ContextOf(0).graph();
  for (const LayerPolicy& layer : plan->stages[0].slices[0].policy.layers) {
    EXPECT_EQ(LayerPolicyText(graph, layer), "qkv context x1 stored; critical: ln1 ln2 fc1 silu swiglu");
  }
  request.spec.model.moe = {.experts = 4, .top_k = 2, .ffn = 64, .dense_layers = 1};
  EXPECT_EQ(MakePlan(request).status().message(),
            "recomputeOptions.modules where only some layers have experts is not planned by this version: use lynxctl plan "
            "--framework megatron, or another policy (balanced, full, auto)");
}

}  // namespace
}  // namespace lynx
