#include "cli/spec/model_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/problem/flops.h"
#include "planner/problem/layer_graph.h"
#include "planner/problem/model_presets.h"
#include "tests/cli/spec/model_config_texts.h"

namespace lynx::cli {
namespace {

using ::testing::HasSubstr;

// The configurations are those that were published with the models, without the fields that are ignored.
constexpr char kGpt2[] = R"({
  "model_type": "gpt2", "activation_function": "gelu_new", "n_layer": 12, "n_embd": 768, "n_head": 12, "n_inner": null,
  "n_positions": 1024, "n_ctx": 1024, "vocab_size": 50257, "resid_pdrop": 0.1, "embd_pdrop": 0.1, "attn_pdrop": 0.1,
  "layer_norm_epsilon": 1e-05, "task_specific_params": {"text-generation": {"do_sample": true}}})";
constexpr char kLlama[] = R"({
  "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_act": "silu", "hidden_size": 8192,
  "intermediate_size": 28672, "max_position_embeddings": 4096, "num_attention_heads": 64, "num_hidden_layers": 80,
  "num_key_value_heads": 8, "rms_norm_eps": 1e-05, "rope_scaling": null, "tie_word_embeddings": false,
  "torch_dtype": "float16", "use_cache": true, "vocab_size": 32000})";
constexpr char kMistral[] = R"({
  "model_type": "mistral", "hidden_act": "silu", "hidden_size": 4096, "intermediate_size": 14336,
  "max_position_embeddings": 32768, "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8,
  "sliding_window": null, "tie_word_embeddings": false, "torch_dtype": "bfloat16", "vocab_size": 32768})";

TEST(ModelConfig, ReadsGpt2) {
  const absl::StatusOr<ModelSpec> model = ParseModelConfig(kGpt2, "config.json");
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(*model, (ModelSpec{.layers = 12,
                               .hidden = 768,
                               .heads = 12,
                               .ffn = 0,
                               .seq = 1024,
                               .vocab = 50257,
                               .dropout = 0.1,
                               .family = ModelFamily::kGpt,
                               .tied_embeddings = true}));
}

TEST(ModelConfig, ReadsLlama) {
  const absl::StatusOr<ModelSpec> model = ParseModelConfig(kLlama, "config.json");
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(*model, (ModelSpec{.layers = 80,
                               .hidden = 8192,
                               .heads = 64,
                               .ffn = 28672,
                               .seq = 4096,
                               .vocab = 32000,
                               .dropout = 0,
                               .family = ModelFamily::kLlama,
                               .kv_heads = 8,
                               .attention = AttentionKernel::kFused,
                               .dtype = DataType::kBfloat16}));
  // If there are as many key heads as heads, the value is the default, so it is stored as the default.
  const auto whole = ParseModelConfig(Replaced(kLlama, "\"num_key_value_heads\": 8", "\"num_key_value_heads\": 64"), "c");
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_EQ(whole->kv_heads, 0);
  const auto absent = ParseModelConfig(Replaced(kLlama, "\"num_key_value_heads\": 8, ", ""), "c");
  ASSERT_TRUE(absent.ok()) << absent.status();
  EXPECT_EQ(absent->kv_heads, 0);
}

// Reads a published configuration of a family, without the fields that are ignored.
ModelSpec Read(const std::string& text) {
  const absl::StatusOr<ModelSpec> model = ParseModelConfig(text, "config.json");
  EXPECT_TRUE(model.ok()) << model.status();
  return model.value_or(ModelSpec{});
}

TEST(ModelConfig, ReadsMistral) {
  ModelSpec model = Read(kMistral);
  EXPECT_EQ(model.ffn, 14336);
  EXPECT_EQ(model.kv_heads, 8);
  EXPECT_EQ(model.norm_epsilon, 1e-6) << "absent";
  EXPECT_EQ(model.window, 0);
  EXPECT_EQ(Read(Replaced(kMistral, "\"sliding_window\": null", "\"sliding_window\": 4096")).window, 4096);
  EXPECT_EQ(Read(Replaced(kMistral, "\"sliding_window\": null, ", "")).window, 4096) << "absent means 4096 there";
  model = Read(Replaced(kMistral, "\"sliding_window\"", "\"head_dim\": 64, \"rope_theta\": 1000000.0, \"sliding_window\""));
  EXPECT_EQ(model.head_dim, 64);
  EXPECT_EQ(model.rotary.theta, 1e6);
  EXPECT_EQ(model.attention, AttentionKernel::kFused);
  // In the family mistral, a missing field means the default of the class in transformers, which is not the number of heads.
  // null means the number of heads.
  EXPECT_EQ(Read(Replaced(kMistral, "\"num_key_value_heads\": 8,", "")).kv_heads, 8);
  EXPECT_EQ(Read(Replaced(kMistral, "\"num_key_value_heads\": 8", "\"num_key_value_heads\": null")).kv_heads, 0);
}

TEST(ModelConfig, ReadsLlama3) {
  const ModelSpec model = Read(Replaced(kLlama, "\"rope_scaling\": null", R"("rope_theta": 500000.0, "rope_scaling": {
      "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192, "rope_type": "llama3"})"));
  EXPECT_EQ(model.rotary, (RotarySpec{.theta = 5e5, .scaling = RopeScaling::kLlama3, .factor = 8, .original_seq = 8192}));
  EXPECT_EQ(model.norm_epsilon, 1e-5);
  EXPECT_EQ(model.plan_only, PlanOnlyFeatures{0});
  // Newer versions of transformers write this form.
  const ModelSpec newer = Read(Replaced(kLlama, "\"rope_scaling\": null", R"("rope_parameters": {"rope_theta": 500000.0,
      "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192, "rope_type": "llama3"})"));
  EXPECT_EQ(newer, model);
}

TEST(ModelConfig, ReadsOtherScalings) {
  const auto scaled = [](const char* scaling) {
    return Read(Replaced(kLlama, "\"rope_scaling\": null", std::string("\"rope_scaling\": ") + scaling));
  };
  EXPECT_EQ(scaled(R"({"type": "linear", "factor": 2.5})").rotary,
            (RotarySpec{.scaling = RopeScaling::kLinear, .factor = 2.5}));
  EXPECT_EQ(scaled(R"({"type": "dynamic", "factor": 2.0})").rotary,
            (RotarySpec{.scaling = RopeScaling::kDynamic, .factor = 2, .original_seq = 4096}));
  // transformers uses max_position_embeddings here, whatever the object rope_scaling says.
  EXPECT_EQ(scaled(R"({"type": "dynamic", "factor": 2.0, "original_max_position_embeddings": 2048})").rotary.original_seq,
            4096);
  EXPECT_EQ(scaled(R"({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2048, "beta_fast": 16})").rotary,
            (RotarySpec{.scaling = RopeScaling::kYarn, .factor = 4, .original_seq = 2048, .beta_fast = 16}));
  // DeepSeek writes the factor of cosines and sines in this form. Here both values are 1, so there is no factor.
  EXPECT_EQ(scaled(R"({"type": "yarn", "factor": 4.0, "mscale": 1.0, "mscale_all_dim": 1.0})").rotary.attention_factor, 1);
  EXPECT_EQ(scaled(R"({"type": "longrope", "short_factor": [1], "long_factor": [2]})").plan_only,
            Bit(PlanOnlyFeature::kOtherRopeScaling));
  EXPECT_EQ(scaled(R"({"rope_type": "default"})").rotary, RotarySpec());
}

TEST(ModelConfig, ReadsQwen) {
  const ModelSpec qwen2 = Read(Replaced(kLlama, "\"llama\"", "\"qwen2\""));
  EXPECT_TRUE(qwen2.qkv_bias);
  EXPECT_FALSE(qwen2.qk_norm);
  EXPECT_EQ(qwen2.window, 0) << "without use_sliding_window";
  EXPECT_EQ(Read(Replaced(kLlama, "\"llama\"", "\"qwen2\", \"use_sliding_window\": true, \"sliding_window\": 2048")).window,
            2048);
  const ModelSpec qwen3 = Read(Replaced(kLlama, "\"llama\"", "\"qwen3\", \"head_dim\": 96"));
  EXPECT_TRUE(qwen3.qk_norm);
  EXPECT_FALSE(qwen3.qkv_bias);
  EXPECT_EQ(qwen3.head_dim, 96);
}

TEST(ModelConfig, ReadsPhi3AndStarCoder) {
  const ModelSpec phi =
      Read(Replaced(kLlama, "\"llama\"", "\"phi3\", \"partial_rotary_factor\": 0.75, \"sliding_window\": 2047"));
  EXPECT_EQ(phi.rotary.dims, 96);  // 96 of 128 elements
  EXPECT_EQ(phi.window, 2047);
  // For the family phi3, transformers reads the type yarn as longrope.
  const ModelSpec long_phi = Read(Replaced(Replaced(kLlama, "\"llama\"", "\"phi3\""), "\"rope_scaling\": null",
                                           R"("rope_scaling": {"type": "yarn", "factor": 4.0})"));
  EXPECT_EQ(long_phi.plan_only, Bit(PlanOnlyFeature::kOtherRopeScaling));
  EXPECT_EQ(long_phi.rotary.scaling, RopeScaling::kNone);
  const ModelSpec bigcode = Read(Replaced(Replaced(kGpt2, "\"gpt2\"", "\"gpt_bigcode\""), "gelu_new", "gelu_pytorch_tanh"));
  EXPECT_EQ(bigcode.kv_heads, 1) << "multi_query is true where it is absent";
  EXPECT_EQ(bigcode.plan_only, PlanOnlyFeatures{0});
}

// Everything that the engine does not support must be named, but the shape must still be read.
TEST(ModelConfig, WhatTheEngineLacksIsKeptByName) {
  const struct {
    std::string text;
    PlanOnlyFeature feature;
  } cases[] = {
      {Replaced(kGpt2, "gelu_new", "gelu"), PlanOnlyFeature::kExactGelu},
      {Replaced(kGpt2, "gelu_new", "relu"), PlanOnlyFeature::kOtherActivation},
      {Replaced(kGpt2, "\"n_layer\"", "\"scale_attn_weights\": false, \"n_layer\""), PlanOnlyFeature::kMultipliers},
      {Replaced(kGpt2, "\"n_layer\"", "\"scale_attn_by_inverse_layer_idx\": true, \"n_layer\""), PlanOnlyFeature::kMultipliers},
      {Replaced(kLlama, "\"silu\"", "\"gelu\""), PlanOnlyFeature::kGatedGelu},
      {Replaced(kLlama, "\"silu\"", "\"relu2\""), PlanOnlyFeature::kOtherActivation},
      {Replaced(kLlama, "\"rms_norm_eps\"", "\"attention_bias\": true, \"rms_norm_eps\""), PlanOnlyFeature::kLinearBiases},
      {Replaced(kLlama, "\"rms_norm_eps\"", "\"mlp_bias\": true, \"rms_norm_eps\""), PlanOnlyFeature::kLinearBiases},
      {Replaced(kLlama, "\"llama\"", "\"gemma2\""), PlanOnlyFeature::kSoftCapping},
      {Replaced(kLlama, "\"llama\"", "\"olmo2\""), PlanOnlyFeature::kPostNorms},
      {Replaced(kLlama, "\"llama\"", "\"granite\""), PlanOnlyFeature::kMultipliers},
      {Replaced(kLlama, "\"llama\"", "\"smollm3\""), PlanOnlyFeature::kSkippedRotary},
      {Replaced(kLlama, "\"llama\"", "\"gpt_neox\""), PlanOnlyFeature::kParallelResidual},
      {Replaced(kLlama, "\"llama\"", "\"phi\""), PlanOnlyFeature::kRotaryWithLayerNorm},
      {Replaced(kLlama, "\"llama\"", "\"frobnicator\""), PlanOnlyFeature::kUnknownFamily},
  };
  for (const auto& c : cases) {
    const ModelSpec model = Read(c.text);
    EXPECT_TRUE((model.plan_only & Bit(c.feature)) != 0) << EnumName(c.feature) << "\n" << c.text;
    EXPECT_GT(model.layers, 0);
    const auto weights = ParseModelConfigOfWeights(c.text, "config.json");
    EXPECT_THAT(std::string(weights.status().message()), HasSubstr(PlanOnlyFeatureText(c.feature)));
  }
}

constexpr char kMixtral[] = R"({
  "model_type": "mixtral", "hidden_act": "silu", "hidden_size": 4096, "intermediate_size": 14336,
  "max_position_embeddings": 32768, "num_attention_heads": 32, "num_experts_per_tok": 2, "num_hidden_layers": 32,
  "num_key_value_heads": 8, "num_local_experts": 8, "output_router_logits": false, "rms_norm_eps": 1e-05,
  "rope_theta": 1000000.0, "router_aux_loss_coef": 0.02, "sliding_window": null, "tie_word_embeddings": false,
  "torch_dtype": "bfloat16", "vocab_size": 32000})";
constexpr char kQwen3Moe[] = R"({
  "model_type": "qwen3_moe", "attention_bias": false, "decoder_sparse_step": 1, "head_dim": 128, "hidden_act": "silu",
  "hidden_size": 2048, "intermediate_size": 6144, "max_position_embeddings": 40960, "mlp_only_layers": [],
  "moe_intermediate_size": 768, "norm_topk_prob": true, "num_attention_heads": 32, "num_experts": 128,
  "num_experts_per_tok": 8, "num_hidden_layers": 48, "num_key_value_heads": 4, "rms_norm_eps": 1e-06,
  "rope_theta": 1000000.0, "router_aux_loss_coef": 0.001, "sliding_window": null, "tie_word_embeddings": false,
  "torch_dtype": "bfloat16", "use_sliding_window": false, "vocab_size": 151936})";

// The model that a job with this configuration has.
ModelSpec Normalized(ModelSpec model) {
  JobSpec spec{.model = model};
  Normalize(spec);
  return spec.model;
}

TEST(ModelConfig, ReadsMixtral) {
  const ModelSpec model = Read(kMixtral);
  EXPECT_EQ(Normalized(model), FindModelPreset("mixtral-8x7b")->model);
  EXPECT_EQ(model.moe, (MoeSpec{.experts = 8, .top_k = 2}));
  // If the fields are missing, the defaults of the configuration class are used.
  const std::string plain = Replaced(Replaced(kMixtral, "\"num_local_experts\": 8, ", ""), "\"num_experts_per_tok\": 2, ", "");
  EXPECT_EQ(Read(plain), model);
  EXPECT_EQ(Read(Replaced(kMixtral, "\"num_local_experts\": 8", "\"num_experts\": 4")).moe.experts, 4);
  EXPECT_EQ(Read(Replaced(kMixtral, "\"sliding_window\": null", "\"sliding_window\": 4096")).window, 4096);
  EXPECT_TRUE(
      Read(Replaced(kMixtral, "\"num_local_experts\"", "\"norm_topk_prob\": false, \"num_local_experts\"")).moe.normalized)
      << "transformers always divides Mixtral's weights by their sum";
}

TEST(ModelConfig, ReadsQwen3Moe) {
  const ModelSpec model = Read(kQwen3Moe);
  EXPECT_EQ(model.moe, (MoeSpec{.experts = 128, .top_k = 8, .ffn = 768}));
  EXPECT_TRUE(model.qk_norm);
  EXPECT_EQ(model.plan_only, PlanOnlyFeatures{0});
  EXPECT_EQ(ModelParameters(Normalized(model)), 30'532'122'624);
  EXPECT_FALSE(Read(Replaced(kQwen3Moe, "\"norm_topk_prob\": true, ", "")).moe.normalized) << "false by default";
  // Only the width of the experts has an effect.
  const ModelSpec without = Read(Replaced(kQwen3Moe, "\"intermediate_size\": 6144, ", ""));
  EXPECT_EQ(without.ffn, 768);
  EXPECT_EQ(Normalized(without).moe.ffn, 0);
  EXPECT_EQ(Read(Replaced(kQwen3Moe, "\"moe_intermediate_size\": 768, ", "")).moe.ffn, 768) << "the default of the class";
}

// Compares the factor of the loss that balances experts. transformers sums over the choices, and Lynx takes the mean over the
// layers.
TEST(ModelConfig, TheLossThatBalancesExpertsIsThatOfTransformers) {
  EXPECT_EQ(Read(kMixtral).moe.aux_loss, 0) << "without output_router_logits, transformers does not add it";
  const std::string with = Replaced(kMixtral, "\"output_router_logits\": false", "\"output_router_logits\": true");
  EXPECT_DOUBLE_EQ(Read(with).moe.aux_loss, 0.02 * 2 / 32);
  EXPECT_DOUBLE_EQ(Read(Replaced(with, "\"router_aux_loss_coef\": 0.02, ", "")).moe.aux_loss, 0.001 * 2 / 32);
  EXPECT_EQ(Read(Replaced(with, "0.02", "0")).moe.aux_loss, 0);
}

TEST(ModelConfig, ReadsOtherModelsWithExperts) {
  const ModelSpec olmoe = Read(Replaced(Replaced(kMixtral, "\"mixtral\"", "\"olmoe\""), "\"num_local_experts\": 8, ", ""));
  EXPECT_EQ(olmoe.moe, (MoeSpec{.experts = 64, .top_k = 2, .normalized = false}));
  EXPECT_TRUE(olmoe.qk_norm && olmoe.qk_norm_whole);
  EXPECT_EQ(olmoe.plan_only, Bit(PlanOnlyFeature::kWholeQueryNorm)) << "a quarter as many keys as queries";
  const std::string as_released =
      Replaced(Replaced(Replaced(kMixtral, "\"mixtral\"", "\"olmoe\", \"clip_qkv\": null"), "\"num_local_experts\": 8, ", ""),
               "\"num_key_value_heads\": 8, ", "");
  EXPECT_EQ(Read(as_released).plan_only, PlanOnlyFeatures{0});
  EXPECT_EQ(Read(Replaced(as_released, "null", "8.0")).plan_only, Bit(PlanOnlyFeature::kSoftCapping));
  const ModelSpec oss = Read(Replaced(Replaced(kMixtral, "\"mixtral\"", "\"gpt_oss\", \"attention_bias\": true"),
                                      "\"sliding_window\": null", "\"sliding_window\": 128"));
  EXPECT_TRUE(oss.qkv_bias);
  EXPECT_EQ(oss.head_dim, 64);
  EXPECT_TRUE((oss.plan_only & Bit(PlanOnlyFeature::kAttentionSinks)) != 0);
  EXPECT_TRUE((oss.plan_only & Bit(PlanOnlyFeature::kLocalLayers)) != 0);
  const ModelSpec phi = Read(Replaced(kMixtral, "\"mixtral\"", "\"phimoe\", \"lm_head_bias\": true"));
  EXPECT_FALSE(phi.moe.normalized);
  EXPECT_EQ(phi.plan_only,
            Bit(PlanOnlyFeature::kLayerNorm) | Bit(PlanOnlyFeature::kOtherRouting) | Bit(PlanOnlyFeature::kLinearBiases));
  EXPECT_EQ(Read(Replaced(kMixtral, "\"rope_theta\"", "\"router_jitter_noise\": 0.1, \"rope_theta\"")).plan_only,
            Bit(PlanOnlyFeature::kOtherRouting));
  const ModelSpec minimax = Read(Replaced(kMixtral, "\"mixtral\"", "\"minimax_m2\""));
  EXPECT_EQ(minimax.rotary.dims, 64);
  EXPECT_TRUE((minimax.plan_only & Bit(PlanOnlyFeature::kOtherRouting)) != 0);
}

// DBRX has 132 billion parameters, 36 billion of them active (its model card).
TEST(ModelConfig, ReadsDbrx) {
  constexpr char kDbrx[] = R"({
  "model_type": "dbrx", "attn_config": {"clip_qkv": 8, "kv_n_heads": 8, "rope_theta": 500000}, "d_model": 6144, "emb_pdrop": 0.0,
  "ffn_config": {"ffn_hidden_size": 10752, "moe_jitter_eps": 0, "moe_loss_weight": 0.05, "moe_num_experts": 16, "moe_top_k": 4},
  "max_seq_len": 32768, "n_heads": 48, "n_layers": 40, "resid_pdrop": 0.0, "tie_word_embeddings": false,
  "torch_dtype": "bfloat16", "vocab_size": 100352})";
  const ModelSpec model = Read(kDbrx);
  EXPECT_EQ(model.moe, (MoeSpec{.experts = 16, .top_k = 4}));
  EXPECT_EQ(model.kv_heads, 8);
  EXPECT_EQ(model.rotary.theta, 5e5);
  EXPECT_EQ(model.plan_only, Bit(PlanOnlyFeature::kLayerNorm));
  EXPECT_NEAR(static_cast<double>(ModelParameters(Normalized(model))), 132e9, 1e9);
  EXPECT_NEAR(static_cast<double>(ActiveParameters(Normalized(model))), 36e9, 1e9);
  EXPECT_FALSE(
      Read(Replaced(kDbrx, "\"moe_jitter_eps\"", "\"moe_normalize_expert_weights\": null, \"moe_jitter_eps\"")).moe.normalized);
  EXPECT_TRUE(
      (Read(Replaced(kDbrx, "\"moe_jitter_eps\"", "\"moe_normalize_expert_weights\": 2, \"moe_jitter_eps\"")).plan_only &
       Bit(PlanOnlyFeature::kOtherRouting)) != 0);
  EXPECT_TRUE(
      (Read(Replaced(kDbrx, "\"moe_jitter_eps\"", "\"ffn_act_fn\": {\"name\": \"gelu\"}, \"moe_jitter_eps\"")).plan_only &
       Bit(PlanOnlyFeature::kGatedGelu)) != 0);
  EXPECT_THAT(ErrorOf(Replaced(kDbrx, "\"emb_pdrop\": 0.0", "\"emb_pdrop\": 0.1")), HasSubstr("embd_pdrop is 0.1: must be 0"));
}

// The published files, without the description of the 8-bit weights.
constexpr char kDeepseekV3[] = R"({
  "model_type": "deepseek_v3", "attention_bias": false, "attention_dropout": 0.0, "first_k_dense_replace": 3, "head_dim": 64,
  "hidden_act": "silu", "hidden_size": 7168, "intermediate_size": 18432, "kv_lora_rank": 512, "max_position_embeddings": 163840,
  "moe_intermediate_size": 2048, "moe_layer_freq": 1, "n_group": 8, "n_routed_experts": 256, "n_shared_experts": 1,
  "norm_topk_prob": true, "num_attention_heads": 128, "num_experts_per_tok": 8, "num_hidden_layers": 61,
  "num_key_value_heads": 128, "num_nextn_predict_layers": 1, "q_lora_rank": 1536, "qk_nope_head_dim": 128,
  "qk_rope_head_dim": 64, "rms_norm_eps": 1e-06, "rope_scaling": {"beta_fast": 32, "beta_slow": 1, "factor": 40, "mscale": 1.0,
  "mscale_all_dim": 1.0, "original_max_position_embeddings": 4096, "type": "yarn"}, "rope_theta": 10000,
  "routed_scaling_factor": 2.5, "scoring_func": "sigmoid", "tie_word_embeddings": false, "topk_group": 4,
  "topk_method": "noaux_tc", "torch_dtype": "bfloat16", "v_head_dim": 128, "vocab_size": 129280})";
constexpr char kDeepseekV2Lite[] = R"({
  "model_type": "deepseek_v2", "attention_bias": false, "first_k_dense_replace": 1, "hidden_act": "silu", "hidden_size": 2048,
  "intermediate_size": 10944, "kv_lora_rank": 512, "max_position_embeddings": 4096, "moe_intermediate_size": 1408,
  "moe_layer_freq": 1, "n_group": 1, "n_routed_experts": 64, "n_shared_experts": 2, "norm_topk_prob": false,
  "num_attention_heads": 16, "num_experts_per_tok": 6, "num_hidden_layers": 27, "num_key_value_heads": 16, "q_lora_rank": null,
  "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "rms_norm_eps": 1e-06, "rope_theta": 10000, "routed_scaling_factor": 1.0,
  "scoring_func": "softmax", "tie_word_embeddings": false, "topk_method": "greedy", "torch_dtype": "bfloat16",
  "v_head_dim": 128, "vocab_size": 102400})";

TEST(ModelConfig, ReadsDeepseek) {
  ModelSpec v3 = Normalized(Read(kDeepseekV3));
  EXPECT_EQ(v3.rotary.scaling, RopeScaling::kYarn);
  EXPECT_EQ(v3.rotary.attention_factor, 1);
  EXPECT_EQ(v3.rotary.mscale_all_dim, 1);
  EXPECT_EQ(v3.plan_only, Bit(PlanOnlyFeature::kOtherRouting) | Bit(PlanOnlyFeature::kMultiTokenPrediction));
  // The preset describes the model in its pretraining, before the positions were scaled.
  v3.rotary = {.theta = 10000, .dims = 64}, v3.seq = 4096;
  EXPECT_EQ(v3, FindModelPreset("deepseek-v3")->model);
  // If these fields are missing, the defaults of the configuration class are used: those of DeepSeek-V3.
  ModelSpec plain = Normalized(Read(R"({"model_type": "deepseek_v3", "num_hidden_layers": 61, "num_attention_heads": 128,
    "hidden_size": 7168, "intermediate_size": 18432, "max_position_embeddings": 4096, "vocab_size": 129280,
    "torch_dtype": "bfloat16"})"));
  plain.plan_only |= Bit(PlanOnlyFeature::kMultiTokenPrediction);
  EXPECT_EQ(plain, FindModelPreset("deepseek-v3")->model);

  const ModelSpec lite = Normalized(Read(kDeepseekV2Lite));
  EXPECT_EQ(lite, FindModelPreset("deepseek-v2-lite")->model);
  EXPECT_EQ(lite.plan_only, PlanOnlyFeatures{0});
  EXPECT_EQ(Read(Replaced(kDeepseekV2Lite, "\"q_lora_rank\": null", "\"q_lora_rank\": 96")).latent.query_rank, 96);
  EXPECT_EQ(Read(Replaced(kDeepseekV2Lite, "\"q_lora_rank\": null,", "")).latent.query_rank, 1536) << "the default";
  EXPECT_EQ(Read(Replaced(kDeepseekV2Lite, "\"n_shared_experts\": 2", "\"n_shared_experts\": null")).moe.shared_ffn, 0);
  for (const auto& [from, to] : {std::pair("\"greedy\"", "\"group_limited_greedy\""),
                                 std::pair("\"routed_scaling_factor\": 1.0", "\"routed_scaling_factor\": 16.0"),
                                 std::pair("\"norm_topk_prob\": false", "\"norm_topk_prob\": true")}) {
    EXPECT_EQ(Read(Replaced(kDeepseekV2Lite, from, to)).plan_only, Bit(PlanOnlyFeature::kOtherRouting)) << to;
  }
  EXPECT_TRUE((Read(Replaced(kDeepseekV2Lite, "\"attention_bias\": false", "\"attention_bias\": true")).plan_only &
               Bit(PlanOnlyFeature::kLinearBiases)) != 0);
  for (const bool neighbours : {true, false}) {  // which elements of a head turn together
    const std::string field = neighbours ? "\"rope_interleave\": true, " : "\"rope_interleave\": false, ";
    const PlanOnlyFeatures features = Read(Replaced(kDeepseekV3, "\"q_lora_rank\"", field + "\"q_lora_rank\"")).plan_only;
    EXPECT_EQ((features & Bit(PlanOnlyFeature::kOtherPositions)) == 0, neighbours);
  }
  const ModelSpec unscaled = Read(Replaced(kDeepseekV3, "\"mscale_all_dim\": 1.0", "\"mscale_all_dim\": 0"));
  EXPECT_EQ(unscaled.rotary.mscale_all_dim + unscaled.rotary.attention_factor, 0);
  EXPECT_TRUE(ParseModelConfigOfWeights(kDeepseekV2Lite, "config.json").ok());
  EXPECT_THAT(std::string(ParseModelConfigOfWeights(kDeepseekV3, "config.json").status().message()), HasSubstr("other-routing"))
      << "it chooses among groups of experts";
}

TEST(ModelConfig, ReadsKimiK2) {
  std::string text = Replaced(kDeepseekV3, "deepseek_v3", "kimi_k2");
  for (const auto& [from, to] :
       {std::pair("\"first_k_dense_replace\": 3", "\"first_k_dense_replace\": 1"),
        std::pair("\"n_routed_experts\": 256", "\"n_routed_experts\": 384"), std::pair("\"n_group\": 8", "\"n_group\": 1"),
        std::pair("\"routed_scaling_factor\": 2.5", "\"routed_scaling_factor\": 2.827"),
        std::pair("\"num_attention_heads\": 128", "\"num_attention_heads\": 64"),
        std::pair("\"num_key_value_heads\": 128", "\"num_key_value_heads\": 64"),
        std::pair("\"num_nextn_predict_layers\": 1", "\"num_nextn_predict_layers\": 0"),
        std::pair("\"vocab_size\": 129280", "\"vocab_size\": 163840"),
        std::pair("\"rope_theta\": 10000", "\"rope_theta\": 50000.0")}) {
    text = Replaced(text.c_str(), from, to);
  }
  ModelSpec kimi = Normalized(Read(text));
  kimi.rotary = {.theta = 50000, .dims = 64}, kimi.seq = 4096;
  EXPECT_EQ(kimi.plan_only, PlanOnlyFeatures{0});
  EXPECT_EQ(kimi, FindModelPreset("kimi-k2")->model);
}

// In this class only every second layer has a window, if one is used.
TEST(ModelConfig, WindowsOfQwen2MoeAreOfSomeLayers) {
  const std::string file = R"({"model_type": "qwen2_moe", "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4,
    "num_hidden_layers": 2, "max_position_embeddings": 32, "vocab_size": 100, "num_experts": 8, "sliding_window": 16)";
  EXPECT_EQ(Read(file + "}").plan_only, PlanOnlyFeatures{0});
  EXPECT_EQ(Read(file + R"(, "use_sliding_window": true})").plan_only, Bit(PlanOnlyFeature::kLocalLayers));
}

// Qwen1.5-MoE-A2.7B has 14.3 billion parameters, 2.7 billion of them active (its model card).
TEST(ModelConfig, ReadsSharedExpertsOfOtherFamilies) {
  const ModelSpec qwen =
      Read(R"({"model_type": "qwen2_moe", "decoder_sparse_step": 1, "hidden_act": "silu", "hidden_size": 2048,
    "intermediate_size": 5632, "max_position_embeddings": 8192, "moe_intermediate_size": 1408, "norm_topk_prob": false,
    "num_attention_heads": 16, "num_experts": 60, "num_experts_per_tok": 4, "num_hidden_layers": 24, "num_key_value_heads": 16,
    "shared_expert_intermediate_size": 5632, "tie_word_embeddings": false, "torch_dtype": "bfloat16", "vocab_size": 151936})");
  EXPECT_EQ(qwen.moe,
            (MoeSpec{.experts = 60, .top_k = 4, .ffn = 1408, .normalized = false, .shared_ffn = 5632, .shared_gate = true}));
  EXPECT_TRUE(qwen.qkv_bias);
  EXPECT_EQ(qwen.plan_only, PlanOnlyFeatures{0});
  EXPECT_NEAR(static_cast<double>(ModelParameters(Normalized(qwen))), 14.3e9, 0.05e9);
  EXPECT_NEAR(static_cast<double>(ActiveParameters(Normalized(qwen))), 2.7e9, 0.05e9);

  // GLM-4.5 has 355 billion parameters, 32 billion of them active (its model card), with the layer that is not planned.
  const ModelSpec glm = Read(R"({"model_type": "glm4_moe", "attention_bias": true, "first_k_dense_replace": 3, "head_dim": 128,
    "hidden_act": "silu", "hidden_size": 5120, "intermediate_size": 12288, "max_position_embeddings": 131072,
    "moe_intermediate_size": 1536, "n_group": 1, "n_routed_experts": 160, "n_shared_experts": 1, "norm_topk_prob": true,
    "num_attention_heads": 96, "num_experts_per_tok": 8, "num_hidden_layers": 92, "num_key_value_heads": 8,
    "num_nextn_predict_layers": 1, "partial_rotary_factor": 0.5, "rms_norm_eps": 1e-05, "rope_theta": 1000000,
    "routed_scaling_factor": 2.5, "topk_group": 1, "use_qk_norm": true, "vocab_size": 151552})");
  EXPECT_EQ(glm.moe, (MoeSpec{.experts = 160,
                              .top_k = 8,
                              .ffn = 1536,
                              .shared_ffn = 1536,
                              .dense_layers = 3,
                              .scores = RouterScores::kSigmoid,
                              .weight_scale = 2.5,
                              .router_bias = true}));
  EXPECT_TRUE(glm.qkv_bias && glm.qk_norm);
  EXPECT_EQ(glm.rotary.dims, 64);
  EXPECT_EQ(glm.plan_only, Bit(PlanOnlyFeature::kMultiTokenPrediction));
  EXPECT_NEAR(static_cast<double>(ModelParameters(Normalized(glm))), 355e9, 4e9);
  EXPECT_NEAR(static_cast<double>(ActiveParameters(Normalized(glm))), 32e9, 2e9);

  // Layers that predict further tokens are left out of training.
  const auto weights = ParseModelConfigOfWeights(
      R"({"model_type": "glm4_moe", "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "n_group": 1,
          "num_hidden_layers": 3, "max_position_embeddings": 32, "vocab_size": 100, "n_routed_experts": 8,
          "num_nextn_predict_layers": 1})",
      "config.json");
  ASSERT_TRUE(weights.ok()) << weights.status();
  EXPECT_EQ(weights->model.plan_only, kLeftOutFeatures);

  // Features that the engine cannot compute must be named.
  const char* const small = R"({"model_type": "glm4_moe", "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4,
    "num_hidden_layers": 3, "max_position_embeddings": 32, "vocab_size": 100, "n_routed_experts": 8, "n_group": 1})";
  EXPECT_EQ(Read(small).plan_only, PlanOnlyFeatures{0});
  EXPECT_EQ(Read(small).moe.weight_scale, 1);
  for (const char* other :
       {"\"n_group\": 4", "\"n_group\": 1, \"scoring_func\": \"softmax\"", "\"n_group\": 1, \"topk_method\": \"greedy\""}) {
    EXPECT_EQ(Read(Replaced(small, "\"n_group\": 1", other)).plan_only, Bit(PlanOnlyFeature::kOtherRouting)) << other;
  }

  const ModelSpec granite = Read(Replaced(kMixtral, "\"mixtral\"", "\"granitemoeshared\", \"shared_intermediate_size\": 512"));
  EXPECT_EQ(granite.moe, (MoeSpec{.experts = 8, .top_k = 2, .shared_ffn = 512}));
  EXPECT_EQ(granite.plan_only, Bit(PlanOnlyFeature::kMultipliers));

  const std::string ernie =
      Replaced(kMixtral, "\"mixtral\"",
               "\"ernie4_5_moe\", \"moe_num_experts\": 48, \"moe_k\": 5, \"moe_intermediate_size\": 96, "
               "\"moe_num_shared_experts\": 3, \"moe_layer_start_index\": 2, \"moe_layer_end_index\": -1");
  const std::string named =
      Replaced(Replaced(ernie.c_str(), "\"num_experts_per_tok\": 2, ", "").c_str(), "\"num_local_experts\": 8, ", "");
  EXPECT_EQ(Read(named).moe, (MoeSpec{.experts = 48, .top_k = 5, .ffn = 96, .shared_ffn = 288, .dense_layers = 2}));
  EXPECT_EQ(Read(named).plan_only, Bit(PlanOnlyFeature::kOtherRouting));
  EXPECT_TRUE((Read(Replaced(named.c_str(), "\"moe_k\"", "\"use_bias\": true, \"moe_k\"")).plan_only &
               Bit(PlanOnlyFeature::kLinearBiases)) != 0);
}

// If a model also reads images, the fields of its language model are in a separate object.
TEST(ModelConfig, ReadsTheTextModelOfAModelThatSees) {
  const ModelSpec inner = Read(Replaced(kLlama, "\"llama\"", "\"gemma3_text\""));
  EXPECT_EQ(Read("{\"model_type\": \"gemma3\", \"text_config\": " + Replaced(kLlama, "\"llama\"", "\"gemma3_text\"") + "}"),
            inner);
}

// config.json does not contain the capacity that the engine needs. A job that begins with these weights must state it.
TEST(ModelConfig, WeightsOfExpertsHaveNoCapacity) {
  for (const auto& [text, type] : {std::pair(kMixtral, "mixtral"), std::pair(kQwen3Moe, "qwen3_moe")}) {
    const auto read = ParseModelConfigOfWeights(text, "config.json");
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_STREQ(read->family->model_type, type);
    EXPECT_EQ(read->model.moe, Read(text).moe);
    EXPECT_EQ(read->model.moe.capacity, 0);
  }
}

TEST(ModelConfig, WeightsComeWithTheirNames) {
  const auto read = ParseModelConfigOfWeights(kMistral, "config.json");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_STREQ(read->family->model_type, "mistral");
  EXPECT_EQ(read->model.dtype, DataType::kFloat32);
  const auto gpt = ParseModelConfigOfWeights(kGpt2, "config.json");
  ASSERT_TRUE(gpt.ok()) << gpt.status();
  EXPECT_EQ(gpt->model.ffn, 4 * 768) << "normalized";
}

struct BadConfig {
  const char* name;
  const char* text;
  const char* from;
  const char* to;
  const char* expected;
};
void PrintTo(const BadConfig& bad, std::ostream* out) { *out << bad.name; }

class BadModelConfig : public testing::TestWithParam<BadConfig> {};

TEST_P(BadModelConfig, NamesTheFieldAndWhatWouldBeRight) {
  EXPECT_THAT(ErrorOf(Replaced(GetParam().text, GetParam().from, GetParam().to)), HasSubstr(GetParam().expected));
}

INSTANTIATE_TEST_SUITE_P(
    All, BadModelConfig,
    testing::Values(
        BadConfig{"NotJson", kGpt2, "{", "", "config.json: not valid JSON"},
        BadConfig{"NoType", kGpt2, "\"model_type\": \"gpt2\", ", "", "model_type: missing; it names the model's family"},
        BadConfig{"TypeNotText", kGpt2, "\"gpt2\"", "7", "model_type is 7: must be a string"},
        BadConfig{"Experts", kLlama, "\"rms_norm_eps\"", "\"num_local_experts\": 8, \"rms_norm_eps\"",
                  "config.json: model_type is \"llama\": mixtures of experts of this family cannot be planned by this version"},
        BadConfig{"SharedExperts", kLlama, "\"llama\"", "\"frobnicator\", \"num_experts\": 8, \"n_shared_experts\": 1",
                  "experts that every token passes (n_shared_experts is 1) cannot be planned"},
        BadConfig{"SharedWidth", kMixtral, "\"mixtral\"", "\"granitemoe\", \"shared_intermediate_size\": 512",
                  "experts that every token passes (shared_intermediate_size is 512) cannot be planned"},
        BadConfig{"EverySecondLayer", kQwen3Moe, "\"decoder_sparse_step\": 1", "\"decoder_sparse_step\": 2",
                  "layers without experts between those that have them (decoder_sparse_step is 2) cannot be planned"},
        BadConfig{"DenseLayers", kQwen3Moe, "\"mlp_only_layers\": []", "\"mlp_only_layers\": [0]",
                  "layers without experts between those that have them (mlp_only_layers is a list) cannot be planned"},
        BadConfig{"FirstLayers", kQwen3Moe, "\"mlp_only_layers\": []", "\"first_k_dense_replace\": 3",
                  "layers without experts between those that have them (first_k_dense_replace is 3) cannot be planned"},
        BadConfig{"NoExpert", kMixtral, "\"num_local_experts\": 8", "\"num_local_experts\": 0",
                  "num_local_experts is 0: must be a whole number from 1"},
        BadConfig{"NegativeLoss", kMixtral,
                  "\"output_router_logits\": false, \"rms_norm_eps\": 1e-05,\n  \"rope_theta\": 1000000.0, "
                  "\"router_aux_loss_coef\": 0.02",
                  "\"output_router_logits\": true, \"router_aux_loss_coef\": -1",
                  "router_aux_loss_coef is -1: must be a number of at least 0"},
        BadConfig{"SharedByFamily", kLlama, "\"llama\"", "\"llama4_text\"",
                  "an expert that every token passes cannot be planned"},
        BadConfig{"LatentByField", kLlama, "\"rms_norm_eps\"", "\"kv_lora_rank\": 512, \"rms_norm_eps\"",
                  "latent attention of this family cannot be planned"},
        BadConfig{"SparseStep", kDeepseekV3, "\"moe_layer_freq\": 1", "\"moe_layer_freq\": 2",
                  "layers without experts between those that have them (moe_layer_freq is 2) cannot be planned"},
        BadConfig{"AllDense", kDeepseekV3, "\"first_k_dense_replace\": 3", "\"first_k_dense_replace\": 61",
                  "first_k_dense_replace is 61 of 61 layers: must leave layers with experts"},
        BadConfig{"NoWidthOfDenseLayers", kDeepseekV3, "\"intermediate_size\": 18432, ", "", "intermediate_size: missing"},
        BadConfig{"TooManyShared", kDeepseekV3, "\"n_shared_experts\": 1", "\"n_shared_experts\": 1000000",
                  "n_shared_experts is 1000000: too many experts of width 2048"},
        BadConfig{"NegativeShared", kDeepseekV3, "\"n_shared_experts\": 1", "\"n_shared_experts\": -1",
                  "n_shared_experts is -1: must be a whole number from 1"},
        BadConfig{"QuantizedExperts", kDeepseekV3, "\"rms_norm_eps\"",
                  "\"quantization_config\": {\"fmt\": \"e4m3\"}, \"rms_norm_eps\"",
                  "quantization_config: quantized weights cannot be trained"},
        BadConfig{"NoChoice", kDeepseekV2Lite, "\"num_experts_per_tok\": 6, ", "",
                  "num_experts_per_tok, or moe_k: missing; it is required"},
        BadConfig{"LastLayersDense", kMixtral, "\"mixtral\"", "\"ernie4_5_moe\", \"moe_layer_end_index\": 29",
                  "moe_layer_end_index is 29: layers without experts after those that have them (layer 31) cannot be planned"},
        BadConfig{"EveryThirdLayer", kMixtral, "\"mixtral\"", "\"ernie4_5_moe\", \"moe_layer_interval\": 3",
                  "layers without experts between those that have them (moe_layer_interval is 3) cannot be planned"},
        BadConfig{"Encoder", kLlama, "\"llama\"", "\"t5\"", "an encoder beside the decoder cannot be planned"},
        BadConfig{"StateSpace", kLlama, "\"llama\"", "\"mamba\"", "state-space layers cannot be planned"},
        BadConfig{"NoHeads", kLlama, "\"num_attention_heads\": 64, ", "",
                  "num_attention_heads, or n_head, or n_heads, or num_heads: missing"},
        BadConfig{"NoFactor", kLlama, "\"rope_scaling\": null", "\"rope_scaling\": {\"type\": \"yarn\"}",
                  "rope_scaling.factor: missing; scaling yarn needs it"},
        BadConfig{"SmallFactor", kLlama, "\"rope_scaling\": null", "\"rope_scaling\": {\"type\": \"linear\", \"factor\": 0.5}",
                  "rope_scaling.factor is 0.5: must be at least 1"},
        BadConfig{"NoOriginal", kLlama, "\"rope_scaling\": null", "\"rope_scaling\": {\"type\": \"llama3\", \"factor\": 8}",
                  "rope_scaling.original_max_position_embeddings: missing"},
        BadConfig{"ScalingNotAnObject", kLlama, "\"rope_scaling\": null", "\"rope_scaling\": 2",
                  "rope_scaling is 2: must be an object"},
        BadConfig{"Theta", kLlama, "\"rope_scaling\": null", "\"rope_theta\": -1",
                  "rope_theta is -1: must be a number above 0"},
        BadConfig{"Epsilon", kLlama, "\"rms_norm_eps\": 1e-05", "\"rms_norm_eps\": \"small\"",
                  "rms_norm_eps is \"small\": must be a number"},
        BadConfig{"Missing", kGpt2, "\"n_layer\": 12, ", "",
                  "num_hidden_layers, or n_layer, or n_layers, or num_layers: missing; it is required"},
        BadConfig{"NotWhole", kGpt2, "\"n_layer\": 12", "\"n_layer\": 12.5", "n_layer is 12.5: must be a whole number"},
        BadConfig{"Negative", kGpt2, "\"n_layer\": 12", "\"n_layer\": -12", "n_layer is -12: must be a whole number"},
        BadConfig{"Huge", kGpt2, "\"n_layer\": 12", "\"n_layer\": 18446744073709551615", "n_layer is 1844"},
        BadConfig{"List", kGpt2, "\"n_layer\": 12", "\"n_layer\": [12]", "n_layer is a list: must be"},
        BadConfig{"TwoRates", kGpt2, "\"attn_pdrop\": 0.1", "\"attn_pdrop\": 0.2", "attn_pdrop is 0.2: must equal resid_pdrop"},
        BadConfig{"RateOfOne", kGpt2, "\"resid_pdrop\": 0.1", "\"resid_pdrop\": 1",
                  "resid_pdrop is 1: must be a number from 0"},
        BadConfig{"CrossAttention", kGpt2, "\"n_layer\"", "\"add_cross_attention\": true, \"n_layer\"",
                  "add_cross_attention is true: cross-attention is not planned here"},
        BadConfig{"FlagNotBool", kGpt2, "\"n_layer\"", "\"tie_word_embeddings\": 1, \"n_layer\"",
                  "tie_word_embeddings is 1: must be true or false"},
        BadConfig{"AttentionDropout", kLlama, "\"rms_norm_eps\"", "\"attention_dropout\": 0.1, \"rms_norm_eps\"",
                  "attention_dropout is 0.1: must be 0"},
        BadConfig{"Dtype", kLlama, "\"float16\"", "\"int8\"", "torch_dtype is \"int8\": must be bfloat16"},
        BadConfig{"Quantized", kLlama, "\"rms_norm_eps\"", "\"quantization_config\": {\"bits\": 4}, \"rms_norm_eps\"",
                  "quantization_config: quantized weights cannot be trained"}),
    [](const auto& info) { return info.param.name; });

TEST(ModelConfig, OtherJsonIsRefused) {
  EXPECT_THAT(ErrorOf("[1, 2]"), HasSubstr("expected an object"));
  EXPECT_THAT(ErrorOf(""), HasSubstr("not valid JSON"));
  EXPECT_THAT(ErrorOf(std::string(100'000, '[')), HasSubstr("not valid JSON"));
  EXPECT_THAT(ErrorOf("{\"model_type\": \"gpt2\", \"n_layer\": " + std::string(100'000, '[') + std::string(100'000, ']') + "}"),
              HasSubstr("n_layer is a list"));
  EXPECT_THAT(ErrorOf("{\"model_type\": \"\xff\"}"), HasSubstr("not valid JSON"));
}

}  // namespace
}  // namespace lynx::cli
