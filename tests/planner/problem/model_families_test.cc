#include "planner/problem/model_families.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <string>

#include "planner/problem/layout.h"

namespace lynx {
namespace {

using testing::HasSubstr;

ModelSpec Llama() {
  return {.layers = 2,
          .hidden = 32,
          .heads = 4,
          .ffn = 96,
          .seq = 16,
          .vocab = 67,
          .dropout = 0,
          .family = ModelFamily::kLlama,
          .kv_heads = 2};
}

std::string TypeOf(const ModelSpec& model) {
  const absl::StatusOr<const FamilyTraits*> family = ExportFamilyOf(model);
  return family.ok() ? (*family)->model_type : std::string(family.status().message());
}

TEST(ModelFamilies, RowsAreWhole) {
  std::set<std::string> types;
  bool planned_only = false;
  for (const FamilyTraits& family : ModelFamilies()) {
    EXPECT_TRUE(types.insert(family.model_type).second) << family.model_type;
    EXPECT_EQ(FindModelFamily(family.model_type), &family);
    EXPECT_EQ(WhyNotPlanned(family.model_type), "") << family.model_type;
    EXPECT_THAT(family.model_class, HasSubstr(family.base == ModelFamily::kGpt ? "M" : "ForCausalLM")) << family.model_type;
    const ExpertTraits& experts = family.experts;
    EXPECT_FALSE(family.trained() && family.plan_only != 0) << family.model_type;
    EXPECT_TRUE(family.trained() || family.plan_only != 0) << family.model_type << " lacks nothing";
    EXPECT_FALSE(planned_only && family.trained()) << "trained ones come first";
    EXPECT_TRUE(experts.experts == 0 ? experts.top_k == 0 : experts.experts >= 2 && experts.top_k <= experts.experts)
        << family.model_type;
    planned_only |= !family.trained();
  }
  EXPECT_EQ(FindModelFamily("frobnicator"), nullptr);
}

TEST(ModelFamilies, FeaturesParseBack) {
  for (int i = 0; i < kPlanOnlyFeatureCount; ++i) {
    const auto feature = static_cast<PlanOnlyFeature>(i);
    PlanOnlyFeature parsed;
    ASSERT_TRUE(ParseEnum(EnumName(feature), parsed));
    EXPECT_EQ(parsed, feature);
  }
  PlanOnlyFeature parsed;
  EXPECT_FALSE(ParseEnum("gelu", parsed));
  EXPECT_EQ(PlanOnlyText(Bit(PlanOnlyFeature::kSoftCapping) | Bit(PlanOnlyFeature::kLayerNorm)),
            "layer-norm (LayerNorm with gated feed-forward layers), soft-capping (caps on scores or logits, or on queries, "
            "keys and values)");
}

TEST(ModelFamilies, AModelIsExportedAsTheFamilyThatHasItsLayers) {
  EXPECT_EQ(TypeOf(Llama()), "llama");
  ModelSpec model = Llama();
  model.head_dim = 6;
  EXPECT_EQ(TypeOf(model), "llama");
  model.window = 16;
  EXPECT_EQ(TypeOf(model), "mistral");
  model.qkv_bias = true;
  EXPECT_EQ(TypeOf(model), "qwen2");
  model.qkv_bias = false, model.qk_norm = true;
  EXPECT_EQ(TypeOf(model), "qwen3");
  model = Llama();
  model.rotary.dims = 4;
  EXPECT_EQ(TypeOf(model), "phi3");
  ModelSpec gpt{.layers = 2, .hidden = 32, .heads = 4, .ffn = 96, .seq = 16, .vocab = 67};
  EXPECT_EQ(TypeOf(gpt), "gpt2");
  gpt.kv_heads = 1;
  EXPECT_EQ(TypeOf(gpt), "gpt_bigcode");
}

TEST(ModelFamilies, ExpertsAreNamed) {
  ModelSpec model = Llama();
  model.moe = {.experts = 8, .top_k = 2};
  EXPECT_EQ(ModelFeaturesText(model), ", 8 experts of width 96, 2 for each token");
  model.moe = {.experts = 4, .top_k = 1, .ffn = 48, .normalized = false};
  EXPECT_EQ(ModelFeaturesText(model),
            ", 4 experts of width 48, 1 for each token with weights that are not divided by their sum");
}

TEST(ModelFamilies, WhatDeepseekHasIsNamedAndNotAlwaysExported) {
  ModelSpec model = Llama();
  model.moe = {.experts = 8, .top_k = 2, .shared_ffn = 48};
  EXPECT_EQ(ModelFeaturesText(model), ", 8 experts of width 96, 2 for each token, a block of width 48 that every token passes");
  EXPECT_THAT(TypeOf(model), HasSubstr("a model with model.moe.sharedFfn without model.moe.sharedGate cannot be written"));
  model.moe = {.experts = 8, .top_k = 2, .dense_layers = 1};
  EXPECT_EQ(ModelFeaturesText(model), ", 8 experts of width 96, 2 for each token, no experts in the first 1 layers");
  EXPECT_THAT(TypeOf(model), HasSubstr("model.moe.denseLayers 1 and scores by softmax"));
  model = Llama();
  model.kv_heads = 0, model.rotary.dims = 4;
  model.latent = {.query_rank = 16, .kv_rank = 8, .value_dim = 6};
  EXPECT_EQ(ModelFeaturesText(model),
            ", 4 elements of a head turn, keys and values from 8 latents and queries from 16, values of 6");
  EXPECT_THAT(TypeOf(model), HasSubstr("a model with model.latent.kvRank without model.moe.experts cannot be written"));
  model.moe = {.experts = 8, .top_k = 2, .ffn = 24, .normalized = false, .shared_ffn = 48, .dense_layers = 1};
  EXPECT_EQ(TypeOf(model), "deepseek_v2");
  const auto with = [&](const std::function<void(ModelSpec&)>& change) {
    ModelSpec changed = model;
    change(changed);
    return TypeOf(changed);
  };
  EXPECT_THAT(with([](ModelSpec& m) { m.window = 8; }), HasSubstr("model.latent.kvRank and model.window 8"));
  EXPECT_THAT(with([](ModelSpec& m) { m.rotary.dims = m.head_size(); }),
              HasSubstr(", which is a whole head, cannot be written"));
  EXPECT_THAT(with([](ModelSpec& m) { m.moe.shared_gate = true; }), HasSubstr("model.latent.kvRank and model.moe.sharedGate"));
  EXPECT_THAT(with([](ModelSpec& m) { m.moe.shared_ffn = 0; }), HasSubstr("model.latent.kvRank without model.moe.sharedFfn"));
  EXPECT_THAT(with([](ModelSpec& m) { m.moe.shared_ffn = 25; }),
              HasSubstr("25, which is no multiple of the experts' width 24"));
  EXPECT_THAT(with([](ModelSpec& m) { m.moe.normalized = true; }), HasSubstr("scores by softmax and model.moe.normalized"));
  EXPECT_THAT(with([](ModelSpec& m) { m.moe.weight_scale = 2; }), HasSubstr("model.moe.weightScale 2 and scores by softmax"));
  model.moe.scores = RouterScores::kSigmoid;
  EXPECT_THAT(TypeOf(model), HasSubstr("model.moe.scores sigmoid without model.moe.routerBias"));
  model.moe.router_bias = true;
  model.moe.weight_scale = 2.5;
  EXPECT_EQ(TypeOf(model), "deepseek_v3");
}

TEST(ModelFamilies, ExpertsAreExportedAsTheFamilyThatHasThem) {
  ModelSpec model = Llama();
  model.moe = {.experts = 8, .top_k = 2, .ffn = 24, .capacity = 1.25};
  model.window = 16, model.head_dim = 6;
  EXPECT_EQ(TypeOf(model), "mixtral");
  model.moe.normalized = false;
  EXPECT_THAT(TypeOf(model), HasSubstr("a model with model.moe.normalized false and no model.qkNorm cannot be written"));
  model.qk_norm = true;
  EXPECT_EQ(TypeOf(model), "qwen3_moe");
  model.moe.normalized = true;
  EXPECT_EQ(TypeOf(model), "qwen3_moe");
  ModelSpec olmoe = model;
  olmoe.qk_norm_whole = true;
  EXPECT_THAT(TypeOf(olmoe), HasSubstr("model.qkNormWhole and model.headDim 6"));
  olmoe.head_dim = 0;
  EXPECT_THAT(TypeOf(olmoe), HasSubstr("model.qkNormWhole and model.window 16"));
  olmoe.window = 0;
  EXPECT_EQ(TypeOf(olmoe), "olmoe");
  EXPECT_THAT(ModelFeaturesText(olmoe), HasSubstr(", norms over all queries and keys"));
  olmoe.moe = {};
  EXPECT_THAT(TypeOf(olmoe), HasSubstr("model.qkNormWhole without experts"));
  model.rotary.dims = 4;
  EXPECT_THAT(TypeOf(model), HasSubstr("model.moe.experts and model.rope.dims 4"));
  model.rotary.dims = 0, model.qkv_bias = true;
  EXPECT_THAT(TypeOf(model), HasSubstr("model.moe.experts and model.qkvBias without model.moe.sharedGate"));
}

TEST(ModelFamilies, SharedExpertsAreExportedAsTheFamilyThatHasThem) {
  ModelSpec model = Llama();
  model.moe = {
      .experts = 8, .top_k = 2, .ffn = 24, .normalized = false, .capacity = 1.25, .shared_ffn = 40, .shared_gate = true};
  EXPECT_THAT(ModelFeaturesText(model), HasSubstr("a block of width 40 that every token passes through a gate"));
  EXPECT_THAT(TypeOf(model), HasSubstr("model.moe.sharedGate without model.qkvBias"));
  model.qkv_bias = true;
  EXPECT_EQ(TypeOf(model), "qwen2_moe");
  const auto with = [&](const std::function<void(ModelSpec&)>& change) {
    ModelSpec changed = model;
    change(changed);
    return TypeOf(changed);
  };
  EXPECT_THAT(with([](ModelSpec& m) { m.qk_norm = true; }), HasSubstr("both model.moe.sharedGate and model.qkNorm"));
  EXPECT_THAT(with([](ModelSpec& m) { m.head_dim = 6; }), HasSubstr("model.moe.sharedGate and model.headDim 6"));
  EXPECT_THAT(with([](ModelSpec& m) { m.window = 16; }), HasSubstr("model.moe.sharedGate and model.window 16"));
  EXPECT_THAT(with([](ModelSpec& m) { m.moe.weight_scale = 2; }), HasSubstr("model.moe.weightScale 2 and scores by softmax"));
}

TEST(ModelFamilies, SigmoidsWithBiasesAreExportedAsGlm) {
  ModelSpec model = Llama();
  model.moe = {.experts = 8, .top_k = 2, .ffn = 24, .capacity = 1.25, .shared_ffn = 48, .dense_layers = 1};
  model.moe.scores = RouterScores::kSigmoid;
  EXPECT_THAT(TypeOf(model), HasSubstr("model.moe.scores sigmoid without model.moe.routerBias"));
  model.moe.router_bias = true, model.moe.weight_scale = 2.5;
  EXPECT_EQ(TypeOf(model), "glm4_moe");
  EXPECT_THAT(ModelFeaturesText(model), HasSubstr(", scores by sigmoid, weights times 2.5, biases that only choose"));
  model.qk_norm = model.qkv_bias = true, model.rotary.dims = 4, model.head_dim = 16;
  EXPECT_EQ(TypeOf(model), "glm4_moe");
  model.moe.shared_ffn = 40;
  EXPECT_THAT(TypeOf(model), HasSubstr("model.moe.sharedFfn 40, which is no multiple of the experts' width 24"));
  model.moe.shared_ffn = 0;
  EXPECT_THAT(TypeOf(model), HasSubstr("model.moe.routerBias without model.moe.sharedFfn"));
  model.moe.shared_ffn = 24, model.window = 8;
  EXPECT_THAT(TypeOf(model), HasSubstr("model.moe.routerBias and model.window 8"));
  model.window = 0, model.moe.shared_gate = true;
  EXPECT_THAT(TypeOf(model), HasSubstr("both model.moe.routerBias and model.moe.sharedGate"));
}

TEST(ModelFamilies, WhatNoFamilyHasIsNamed) {
  ModelSpec model = Llama();
  model.qk_norm = model.qkv_bias = true;
  EXPECT_THAT(TypeOf(model),
              HasSubstr("a model with both model.qkNorm and model.qkvBias cannot be written as a Hugging Face folder"));
  model.qkv_bias = false, model.rotary.dims = 4;
  EXPECT_THAT(TypeOf(model), HasSubstr("model.rope.dims 4 and model.qkNorm"));
  model = Llama();
  model.rotary.dims = 4, model.head_dim = 6;
  EXPECT_THAT(TypeOf(model), HasSubstr("both model.rope.dims and model.headDim"));
  model.head_dim = 0, model.rotary.scaling = RopeScaling::kLinear, model.rotary.factor = 2;
  EXPECT_THAT(TypeOf(model), HasSubstr("model.rope.dims 4 and model.rope.scaling linear"));
  model = Llama();
  model.plan_only = Bit(PlanOnlyFeature::kSoftCapping);
  EXPECT_THAT(TypeOf(model), HasSubstr("soft-capping (caps on scores or logits, or on queries, keys and values)"));
  ModelSpec gpt{.layers = 2, .hidden = 32, .heads = 4, .ffn = 96, .seq = 16, .vocab = 67, .kv_heads = 2};
  EXPECT_THAT(TypeOf(gpt), HasSubstr("model.kvHeads 2 of 4 heads in model.family gpt"));
  gpt.kv_heads = 0, gpt.head_dim = 6;
  EXPECT_THAT(TypeOf(gpt), HasSubstr("model.headDim 6 in model.family gpt"));
}

// If the engine cannot compute a feature of a model, it refuses to train the model and names the feature. It never ignores the
// feature.
TEST(ModelFamilies, TheEngineRefusesByTheNameOfTheFeature) {
  const ParallelLayout layout;
  ModelSpec model = Llama();
  EXPECT_EQ(CheckEngineRuns(model, layout), absl::OkStatus());
  model.window = 16;
  EXPECT_EQ(CheckEngineRuns(model, layout), absl::OkStatus());
  model.window = 8;
  EXPECT_THAT(std::string(CheckEngineRuns(model, layout).message()),
              HasSubstr("model.seq 16 is longer than the attention window, model.window 8"));
  model = Llama();
  model.head_dim = 1024;
  EXPECT_THAT(std::string(CheckEngineRuns(model, layout).message()), HasSubstr("turn 1024 elements of a head"));
  model.rotary.dims = 64;
  EXPECT_EQ(CheckEngineRuns(model, layout), absl::OkStatus());
  for (int i = 0; i < kPlanOnlyFeatureCount; ++i) {
    const auto feature = static_cast<PlanOnlyFeature>(i);
    model = Llama();
    model.plan_only = Bit(feature);
    if ((Bit(feature) & kLeftOutFeatures) != 0) {
      EXPECT_EQ(CheckEngineRuns(model, layout), absl::OkStatus()) << "the model is trained without this part";
      model.plan_only |= Bit(PlanOnlyFeature::kSoftCapping);
      EXPECT_THAT(std::string(CheckEngineRuns(model, layout).message()),
                  testing::EndsWith("lacks: soft-capping (caps on scores or logits, or on queries, keys and values)"));
      continue;
    }
    EXPECT_THAT(std::string(CheckEngineRuns(model, layout).message()), HasSubstr(PlanOnlyFeatureText(feature)));
  }
}

}  // namespace
}  // namespace lynx
