#include "planner/problem/model_families.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace lynx {
namespace {

struct FeatureInfo {
  PlanOnlyFeature feature;
  const char* text;
};

using enum PlanOnlyFeature;
constexpr std::array<FeatureInfo, kPlanOnlyFeatureCount> kFeatures = {{
    {kGatedGelu, "a feed-forward gate that passes through GELU"},
    {kExactGelu, "GELU by the error function, not its approximation by tanh"},
    {kOtherActivation, "an activation function other than GELU and SiLU"},
    {kLayerNorm, "LayerNorm with gated feed-forward layers"},
    {kNormOffset, "norms whose weights are offsets from one"},
    {kPostNorms, "norms after attention and after feed-forward layers"},
    {kWholeQueryNorm, "norms over all queries and over all keys of a token that have fewer heads"},
    {kParallelResidual, "attention and feed-forward layers side by side on one input"},
    {kSoftCapping, "caps on scores or logits, or on queries, keys and values"},
    {kMultipliers, "constant factors on embeddings, residuals, scores or logits"},
    {kSkippedRotary, "layers without positions"},
    {kLocalLayers, "sliding windows in some layers only"},
    {kOtherRopeScaling, "a scaling of rotary positions other than linear, dynamic, llama3 and yarn"},
    {kRotaryWithLayerNorm, "rotary positions in layers with LayerNorm and biases"},
    {kLinearBiases, "biases in gated layers beyond those of query, key and value"},
    {kOtherPositions, "positions that are neither learned embeddings nor rotary"},
    {kUnknownFamily, "a model_type that is not in the table of families"},
    {kAttentionSinks, "a learned score of each head beside those of the keys"},
    {kOtherRouting, "experts that are chosen in groups, or in another way than by the softmax or sigmoid of a router's scores"},
    {kSharedExpertGate, "a gate that weights what every token passes beside its experts"},
    {kMultiTokenPrediction, "layers after the last one that predict further tokens; they are not planned, trained or imported"},
    {kEncoder, "attention in both directions, with a head for masked tokens"},
}};

constexpr bool InEnumOrder() {
  for (size_t i = 0; i < kFeatures.size(); ++i) {
    if (static_cast<size_t>(kFeatures[i].feature) != i) return false;
  }
  return true;
}
static_assert(InEnumOrder(), "kFeatures is indexed by PlanOnlyFeature");

template <class... Features>
constexpr PlanOnlyFeatures Set(Features... features) {
  return (Bit(features) | ...);
}

constexpr auto kGpt = ModelFamily::kGpt;
constexpr auto kLlama = ModelFamily::kLlama;

// The defaults of each family are from https://huggingface.co/docs/transformers/model_doc/NAME, and those of families with
// experts from transformers' configuration classes.
// clang-format off
constexpr ExpertTraits kDeepseekV3Experts{.experts = 256, .top_k = 8, .weights = ExpertWeights::kByTrueField, .ffn = 2048,
    .shared = SharedExperts::kByCount, .absent_shared = 1, .dense_layers = true, .absent_dense_layers = 3,
    .scores = RouterScores::kSigmoid, .absent_weight_scale = 2.5, .absent_groups = 8};
constexpr FamilyTraits kTrained[] = {
    {.model_type = "gpt2", .model_class = "GPT2LMHeadModel", .models = "GPT-2", .base = kGpt, .weights = WeightNames::kGpt2,
     .tied = true, .norm_epsilon = 1e-5},
    {.model_type = "gpt_bigcode", .model_class = "GPTBigCodeForCausalLM", .models = "StarCoder: GPT with one key and value head",
     .base = kGpt, .weights = WeightNames::kGptBigCode, .tied = true, .norm_epsilon = 1e-5},
    {.model_type = "llama", .model_class = "LlamaForCausalLM", .models = "Llama 2, 3, 3.1, 3.2 and 3.3; SmolLM2", .base = kLlama,
     .weights = WeightNames::kLlama},
    {.model_type = "mistral", .model_class = "MistralForCausalLM",
     .models = "Mistral v0.1 (sequences within its window), v0.3, Nemo", .base = kLlama, .weights = WeightNames::kLlama,
     .key_heads = 8, .window = WindowField::kAlways, .absent_window = 4096},
    {.model_type = "qwen2", .model_class = "Qwen2ForCausalLM", .models = "Qwen2 and 2.5", .base = kLlama,
     .weights = WeightNames::kLlama, .qkv_bias = true, .key_heads = 32, .window = WindowField::kIfUsed, .absent_window = 4096},
    {.model_type = "qwen3", .model_class = "Qwen3ForCausalLM", .models = "Qwen3 (dense)", .base = kLlama,
     .weights = WeightNames::kLlama, .qk_norm = true, .head_dim = 128, .key_heads = 32, .window = WindowField::kIfUsed, .absent_window = 4096},
    {.model_type = "phi3", .model_class = "Phi3ForCausalLM", .models = "Phi-3 (4k) and Phi-4", .base = kLlama,
     .weights = WeightNames::kPhi3, .norm_epsilon = 1e-5, .window = WindowField::kAlways},
    {.model_type = "mixtral", .model_class = "MixtralForCausalLM", .models = "Mixtral 8x7B and 8x22B", .base = kLlama,
     .weights = WeightNames::kMixtral, .norm_epsilon = 1e-5, .rope_theta = 1e6, .key_heads = 8, .window = WindowField::kAlways, .experts = {.experts = 8, .top_k = 2}},
    {.model_type = "qwen3_moe", .model_class = "Qwen3MoeForCausalLM", .models = "Qwen3 30B-A3B and 235B-A22B", .base = kLlama,
     .weights = WeightNames::kQwen3Moe, .qk_norm = true, .key_heads = 4, .window = WindowField::kIfUsed, .absent_window = 4096,
     .experts = {.experts = 128, .top_k = 8, .weights = ExpertWeights::kByField, .ffn = 768}},
    {.model_type = "qwen2_moe", .model_class = "Qwen2MoeForCausalLM", .models = "Qwen1.5-MoE-A2.7B and Qwen2-57B-A14B", .base = kLlama,
     .weights = WeightNames::kQwen2Moe, .qkv_bias = true, .key_heads = 16, .window = WindowField::kIfUsed, .absent_window = 4096,
     .experts = {.experts = 60, .top_k = 4, .weights = ExpertWeights::kByField, .ffn = 1408,
     .shared = SharedExperts::kByWidth, .absent_shared = 5632, .shared_gate = true}},
    {.model_type = "glm4_moe", .model_class = "Glm4MoeForCausalLM", .models = "GLM-4.5, 4.5-Air and 4.6", .base = kLlama,
     .weights = WeightNames::kGlm4Moe, .norm_epsilon = 1e-5, .rotary_share = 0.5, .key_heads = 8,
     .experts = {.experts = 128, .top_k = 8, .weights = ExpertWeights::kByTrueField, .ffn = 1408, .shared = SharedExperts::kByCount,
     .absent_shared = 1, .dense_layers = true, .absent_dense_layers = 1, .scores = RouterScores::kSigmoid}},
    {.model_type = "olmoe", .model_class = "OlmoeForCausalLM", .models = "OLMoE", .base = kLlama, .weights = WeightNames::kOlmoe,
     .qk_norm = true, .qk_norm_whole = true, .norm_epsilon = 1e-5,
     .experts = {.experts = 64, .top_k = 8, .weights = ExpertWeights::kByField, .aux_loss = 0.01}},
    {.model_type = "deepseek_v2", .model_class = "DeepseekV2ForCausalLM", .models = "DeepSeek-V2-Lite", .base = kLlama,
     .weights = WeightNames::kDeepseekV2, .experts = {.experts = 64, .weights = ExpertWeights::kPlain, .ffn = 1407,
     .shared = SharedExperts::kByCount, .absent_shared = 2, .dense_layers = true}, .latent = true},
    {.model_type = "deepseek_v3", .model_class = "DeepseekV3ForCausalLM", .models = "DeepSeek-V3 without groups of experts: Moonlight",
     .base = kLlama, .weights = WeightNames::kDeepseekV3, .experts = kDeepseekV3Experts, .latent = true},
    {.model_type = "kimi_k2", .model_class = "DeepseekV3ForCausalLM", .models = "Kimi K2", .base = kLlama,
     .weights = WeightNames::kDeepseekV3, .experts = kDeepseekV3Experts, .latent = true},
};

constexpr auto kNoNames = WeightNames::kNone;
constexpr FamilyTraits kPlannedOnly[] = {
    {.model_type = "gemma", .model_class = "GemmaForCausalLM", .models = "Gemma", .base = kLlama, .weights = kNoNames, .tied = true,
     .head_dim = 256, .key_heads = 16, .plan_only = Set(kGatedGelu, kNormOffset, kMultipliers)},
    {.model_type = "gemma2", .model_class = "Gemma2ForCausalLM", .models = "Gemma 2", .base = kLlama, .weights = kNoNames, .tied = true,
     .head_dim = 256, .key_heads = 4, .plan_only = Set(kGatedGelu, kNormOffset, kPostNorms, kSoftCapping, kMultipliers, kLocalLayers)},
    {.model_type = "gemma3_text", .model_class = "Gemma3ForCausalLM", .models = "Gemma 3", .base = kLlama, .weights = kNoNames,
     .qk_norm = true, .tied = true, .rope_theta = 1e6, .head_dim = 256,
     .key_heads = 4, .plan_only = Set(kGatedGelu, kNormOffset, kPostNorms, kMultipliers, kLocalLayers)},
    {.model_type = "phi", .model_class = "PhiForCausalLM", .models = "Phi-1.5 and Phi-2", .base = kGpt, .weights = kNoNames,
     .norm_epsilon = 1e-5, .rotary_share = 0.5, .plan_only = Set(kParallelResidual, kRotaryWithLayerNorm)},
    {.model_type = "gpt_neox", .model_class = "GPTNeoXForCausalLM", .models = "GPT-NeoX and Pythia", .base = kGpt, .weights = kNoNames,
     .norm_epsilon = 1e-5, .rotary_share = 0.25, .plan_only = Set(kParallelResidual, kRotaryWithLayerNorm)},
    {.model_type = "gptj", .model_class = "GPTJForCausalLM", .models = "GPT-J", .base = kGpt, .weights = kNoNames, .norm_epsilon = 1e-5,
     .plan_only = Set(kParallelResidual, kRotaryWithLayerNorm)},
    {.model_type = "codegen", .model_class = "CodeGenForCausalLM", .models = "CodeGen", .base = kGpt, .weights = kNoNames,
     .norm_epsilon = 1e-5, .plan_only = Set(kParallelResidual, kRotaryWithLayerNorm)},
    {.model_type = "gpt_neo", .model_class = "GPTNeoForCausalLM", .models = "GPT-Neo", .base = kGpt, .weights = kNoNames, .tied = true,
     .norm_epsilon = 1e-5, .plan_only = Set(kLocalLayers, kMultipliers)},
    {.model_type = "starcoder2", .model_class = "Starcoder2ForCausalLM", .models = "StarCoder 2", .base = kGpt, .weights = kNoNames,
     .tied = true, .norm_epsilon = 1e-5, .key_heads = 2, .plan_only = Set(kRotaryWithLayerNorm)},
    {.model_type = "falcon", .model_class = "FalconForCausalLM", .models = "Falcon", .base = kGpt, .weights = kNoNames, .tied = true,
     .norm_epsilon = 1e-5, .plan_only = Set(kParallelResidual, kRotaryWithLayerNorm)},
    {.model_type = "opt", .model_class = "OPTForCausalLM", .models = "OPT", .base = kGpt, .weights = kNoNames, .tied = true,
     .norm_epsilon = 1e-5, .plan_only = Set(kOtherPositions)},
    {.model_type = "bloom", .model_class = "BloomForCausalLM", .models = "BLOOM", .base = kGpt, .weights = kNoNames, .tied = true,
     .norm_epsilon = 1e-5, .plan_only = Set(kOtherPositions)},
    {.model_type = "mpt", .model_class = "MptForCausalLM", .models = "MPT", .base = kGpt, .weights = kNoNames, .tied = true,
     .norm_epsilon = 1e-5, .plan_only = Set(kOtherPositions)},
    {.model_type = "olmo", .model_class = "OlmoForCausalLM", .models = "OLMo", .base = kLlama, .weights = kNoNames, .norm_epsilon = 1e-5,
     .plan_only = Set(kLayerNorm)},
    {.model_type = "olmo2", .model_class = "Olmo2ForCausalLM", .models = "OLMo 2", .base = kLlama, .weights = kNoNames, .qk_norm = true,
     .qk_norm_whole = true, .norm_epsilon = 1e-5, .plan_only = Set(kPostNorms)},
    {.model_type = "granite", .model_class = "GraniteForCausalLM", .models = "Granite 3", .base = kLlama, .weights = kNoNames,
     .plan_only = Set(kMultipliers)},
    {.model_type = "smollm3", .model_class = "SmolLM3ForCausalLM", .models = "SmolLM3", .base = kLlama, .weights = kNoNames, .tied = true,
     .rope_theta = 2e6, .key_heads = 4, .plan_only = Set(kSkippedRotary)},
    {.model_type = "stablelm", .model_class = "StableLmForCausalLM", .models = "StableLM", .base = kLlama, .weights = kNoNames,
     .norm_epsilon = 1e-5, .rotary_share = 0.25, .key_heads = 32, .plan_only = Set(kLayerNorm)},
    {.model_type = "cohere", .model_class = "CohereForCausalLM", .models = "Command R", .base = kLlama, .weights = kNoNames, .tied = true,
     .norm_epsilon = 1e-5, .plan_only = Set(kLayerNorm, kParallelResidual, kMultipliers)},
    {.model_type = "flex_olmo", .model_class = "FlexOlmoForCausalLM", .models = "FlexOlmo", .base = kLlama, .weights = kNoNames,
     .qk_norm = true, .qk_norm_whole = true, .rope_theta = 5e5, .plan_only = Set(kPostNorms),
     .experts = {.experts = 7, .top_k = 5, .weights = ExpertWeights::kByField, .aux_loss = 0.01}},
    {.model_type = "gpt_oss", .model_class = "GptOssForCausalLM", .models = "gpt-oss 20b and 120b", .base = kLlama, .weights = kNoNames,
     .qkv_bias = true, .norm_epsilon = 1e-5, .rope_theta = 150000, .head_dim = 64, .key_heads = 8,
     .plan_only = Set(kOtherActivation, kLocalLayers, kOtherRopeScaling, kLinearBiases, kAttentionSinks),
     .experts = {.experts = 128, .top_k = 4}},
    {.model_type = "granitemoe", .model_class = "GraniteMoeForCausalLM", .models = "Granite 3 MoE", .base = kLlama, .weights = kNoNames,
     .plan_only = Set(kMultipliers), .experts = {.experts = 8, .top_k = 2}},
    {.model_type = "phimoe", .model_class = "PhimoeForCausalLM", .models = "Phi-3.5-MoE", .base = kLlama, .weights = kNoNames,
     .norm_epsilon = 1e-5, .rope_theta = 1e6, .key_heads = 8, .window = WindowField::kAlways, .plan_only = Set(kLayerNorm, kOtherRouting),
     .experts = {.experts = 16, .top_k = 2, .weights = ExpertWeights::kPlain}},
    {.model_type = "dbrx", .model_class = "DbrxForCausalLM", .models = "DBRX", .base = kLlama, .weights = kNoNames, .norm_epsilon = 1e-5,
     .key_heads = 1, .plan_only = Set(kLayerNorm), .experts = {.experts = 4, .top_k = 1, .aux_loss = 0.01}},
    {.model_type = "minimax_m2", .model_class = "MiniMaxM2ForCausalLM", .models = "MiniMax-M2", .base = kLlama, .weights = kNoNames,
     .qk_norm = true, .qk_norm_whole = true, .rope_theta = 5e6, .rotary_share = 0.5, .head_dim = 128, .key_heads = 8,
     .plan_only = Set(kWholeQueryNorm, kOtherRouting), .experts = {.experts = 256, .top_k = 8}},
    {.model_type = "granitemoeshared", .model_class = "GraniteMoeSharedForCausalLM", .models = "Granite MoE with shared experts",
     .base = kLlama, .weights = kNoNames, .plan_only = Set(kMultipliers),
     .experts = {.experts = 8, .top_k = 2, .shared = SharedExperts::kByWidth}},
    {.model_type = "ernie4_5_moe", .model_class = "Ernie4_5_MoeForCausalLM", .models = "ERNIE 4.5 MoE", .base = kLlama,
     .weights = kNoNames, .tied = true, .norm_epsilon = 1e-5, .rope_theta = 5e5, .key_heads = 4, .plan_only = Set(kOtherRouting),
     .experts = {.experts = 64, .top_k = 6, .ffn = 1536, .shared = SharedExperts::kByCount, .absent_shared = 2, .dense_layers = true,
     .absent_dense_layers = 1}},
    {.model_type = "bert", .model_class = "BertForMaskedLM", .models = "BERT", .base = kGpt, .weights = kNoNames, .tied = true,
     .norm_epsilon = 1e-12, .plan_only = Set(kPostNorms, kEncoder)},
    {.model_type = "roberta", .model_class = "RobertaForMaskedLM", .models = "RoBERTa", .base = kGpt, .weights = kNoNames, .tied = true,
     .norm_epsilon = 1e-12, .plan_only = Set(kPostNorms, kEncoder)},
    {.model_type = "xlm-roberta", .model_class = "XLMRobertaForMaskedLM", .models = "XLM-RoBERTa", .base = kGpt, .weights = kNoNames,
     .tied = true, .norm_epsilon = 1e-12, .plan_only = Set(kPostNorms, kEncoder)},
    {.model_type = "camembert", .model_class = "CamembertForMaskedLM", .models = "CamemBERT", .base = kGpt, .weights = kNoNames,
     .tied = true, .norm_epsilon = 1e-12, .plan_only = Set(kPostNorms, kEncoder)},
};
// clang-format on

struct NotPlanned {
  const char* model_type;
  const char* why;
};
constexpr NotPlanned kNotPlanned[] = {
    {"modernbert", "rotary positions in an encoder"},
    {"t5", "an encoder beside the decoder"},
    {"bart", "an encoder beside the decoder"},
    {"whisper", "an encoder beside the decoder"},
    {"mamba", "state-space layers"},
    {"mamba2", "state-space layers"},
    {"rwkv", "recurrent layers"},
    {"llama4_text", "an expert that every token passes"},
    {"dots1", "an expert that every token passes"},
    {"hunyuan_v1_moe", "an expert that every token passes"},
    {"qwen3_next", "linear attention beside an expert that every token passes"},
    {"jamba", "state-space layers beside mixtures of experts"},
    {"jetmoe", "mixtures of attention heads"},
};

absl::Status NotExported(const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat(
      "a model with ", what, " cannot be written as a Hugging Face folder: no class of transformers has such layers"));
}

// Qwen2-MoE has the softmax of scores, and a gate on the block that every token passes.
absl::StatusOr<const FamilyTraits*> ExportAsQwen2Moe(const ModelSpec& model) {
  const MoeSpec& moe = model.moe;
  if (moe.shared_ffn != 0 && !moe.shared_gate) return NotExported("model.moe.sharedFfn without model.moe.sharedGate");
  if (moe.shared_ffn != 0 && !model.qkv_bias) return NotExported("model.moe.sharedGate without model.qkvBias");
  if (moe.shared_ffn == 0) return NotExported("model.moe.experts and model.qkvBias without model.moe.sharedGate");
  if (model.qk_norm) return NotExported("both model.moe.sharedGate and model.qkNorm");
  if (model.head_dim != 0) return NotExported(absl::StrCat("model.moe.sharedGate and model.headDim ", model.head_dim));
  // In this class only every second layer has a window.
  if (model.window != 0) return NotExported(absl::StrCat("model.moe.sharedGate and model.window ", model.window));
  return FindModelFamily("qwen2_moe");
}

// GLM-4.5: the sigmoids of scores with biases, and blocks that every token passes, each as wide as an expert.
absl::StatusOr<const FamilyTraits*> ExportAsGlm4Moe(const ModelSpec& model) {
  const MoeSpec& moe = model.moe;
  if (!moe.router_bias) return NotExported("model.moe.scores sigmoid without model.moe.routerBias");
  if (moe.shared_gate) return NotExported("both model.moe.routerBias and model.moe.sharedGate");
  if (moe.shared_ffn == 0) return NotExported("model.moe.routerBias without model.moe.sharedFfn");
  if (moe.shared_ffn % model.expert_ffn() != 0) {
    return NotExported(absl::StrCat("model.moe.routerBias and model.moe.sharedFfn ", moe.shared_ffn,
                                    ", which is no multiple of the experts' width ", model.expert_ffn()));
  }
  if (model.window != 0) return NotExported(absl::StrCat("model.moe.routerBias and model.window ", model.window));
  return FindModelFamily("glm4_moe");
}

// OLMoE: one norm over all queries and one over all keys.
absl::StatusOr<const FamilyTraits*> ExportAsOlmoe(const ModelSpec& model) {
  if (model.head_dim != 0) return NotExported(absl::StrCat("model.qkNormWhole and model.headDim ", model.head_dim));
  if (model.window != 0) return NotExported(absl::StrCat("model.qkNormWhole and model.window ", model.window));
  return FindModelFamily("olmoe");
}

// DeepSeek-V2, with the softmax of scores, and DeepSeek-V3, with their sigmoids and biases.
absl::StatusOr<const FamilyTraits*> ExportAsDeepseek(const ModelSpec& model) {
  const MoeSpec& moe = model.moe;
  if (!moe.any()) return NotExported("model.latent.kvRank without model.moe.experts");
  if (model.window != 0) return NotExported(absl::StrCat("model.latent.kvRank and model.window ", model.window));
  if (model.rotary.dims == model.head_size()) {
    return NotExported(absl::StrCat("model.latent.kvRank and model.rope.dims ", model.rotary.dims, ", which is a whole head,"));
  }
  if (moe.shared_gate) return NotExported("both model.latent.kvRank and model.moe.sharedGate");
  if (moe.shared_ffn == 0) return NotExported("model.latent.kvRank without model.moe.sharedFfn");
  if (moe.shared_ffn % model.expert_ffn() != 0) {
    return NotExported(absl::StrCat("model.latent.kvRank and model.moe.sharedFfn ", moe.shared_ffn,
                                    ", which is no multiple of the experts' width ", model.expert_ffn()));
  }
  if (moe.scores == RouterScores::kSigmoid) {
    if (!moe.router_bias) return NotExported("model.moe.scores sigmoid without model.moe.routerBias");
    return FindModelFamily("deepseek_v3");
  }
  if (moe.normalized) return NotExported("model.latent.kvRank, scores by softmax and model.moe.normalized");
  if (moe.weight_scale != 1) {
    return NotExported(absl::StrCat("model.moe.weightScale ", moe.weight_scale, " and scores by softmax"));
  }
  return FindModelFamily("deepseek_v2");
}

// The other classes with experts choose experts in a different way.
absl::StatusOr<const FamilyTraits*> ExportFamilyOfExperts(const ModelSpec& model) {
  const MoeSpec& moe = model.moe;
  if (moe.scores == RouterScores::kSigmoid) return ExportAsGlm4Moe(model);
  if (moe.weight_scale != 1)
    return NotExported(absl::StrCat("model.moe.weightScale ", moe.weight_scale, " and scores by softmax"));
  if (moe.dense_layers != 0)
    return NotExported(absl::StrCat("model.moe.denseLayers ", moe.dense_layers, " and scores by softmax"));
  if (model.rotary.dims != 0) return NotExported(absl::StrCat("model.moe.experts and model.rope.dims ", model.rotary.dims));
  if (moe.shared_ffn != 0 || model.qkv_bias) return ExportAsQwen2Moe(model);
  if (model.qk_norm_whole) return ExportAsOlmoe(model);
  if (model.qk_norm) return FindModelFamily("qwen3_moe");
  if (!moe.normalized) return NotExported("model.moe.normalized false and no model.qkNorm");
  return FindModelFamily("mixtral");
}

}  // namespace

const std::vector<FamilyTraits>& ModelFamilies() {
  static const auto& families = *new std::vector<FamilyTraits>([] {
    std::vector<FamilyTraits> all(std::begin(kTrained), std::end(kTrained));
    all.insert(all.end(), std::begin(kPlannedOnly), std::end(kPlannedOnly));
    return all;
  }());
  return families;
}

const FamilyTraits* FindModelFamily(const std::string& model_type) {
  const std::vector<FamilyTraits>& all = ModelFamilies();
  const auto found = std::find_if(all.begin(), all.end(), [&](const FamilyTraits& f) { return model_type == f.model_type; });
  return found == all.end() ? nullptr : &*found;
}

std::string WhyNotPlanned(const std::string& model_type) {
  for (const NotPlanned& family : kNotPlanned) {
    if (model_type == family.model_type) return family.why;
  }
  return "";
}

absl::StatusOr<const FamilyTraits*> ExportFamilyOf(const ModelSpec& model) {
  if (LackedFeatures(model) != 0) return NotExported(PlanOnlyText(LackedFeatures(model)));
  if (model.family == ModelFamily::kGpt) {
    if (model.head_dim != 0) return NotExported(absl::StrCat("model.headDim ", model.head_dim, " in model.family gpt"));
    if (model.key_heads() == model.heads) return FindModelFamily("gpt2");
    if (model.key_heads() == 1) return FindModelFamily("gpt_bigcode");
    return NotExported(absl::StrCat("model.kvHeads ", model.key_heads(), " of ", model.heads, " heads in model.family gpt"));
  }
  if (model.latent.any()) return ExportAsDeepseek(model);
  if (model.qk_norm_whole && !(model.moe.any() && model.moe.scores == RouterScores::kSoftmax)) {
    return NotExported("model.qkNormWhole without experts that are weighted by a softmax");
  }
  if (model.moe.any()) return ExportFamilyOfExperts(model);
  if (model.qk_norm && model.qkv_bias) return NotExported("both model.qkNorm and model.qkvBias");
  if (model.rotary.dims != 0 && (model.qk_norm || model.qkv_bias)) {
    return NotExported(
        absl::StrCat("model.rope.dims ", model.rotary.dims, " and model.", model.qk_norm ? "qkNorm" : "qkvBias"));
  }
  if (model.rotary.dims != 0 && model.head_dim != 0) return NotExported("both model.rope.dims and model.headDim");
  if (model.rotary.dims != 0 && model.rotary.scaling != RopeScaling::kNone) {
    return NotExported(
        absl::StrCat("model.rope.dims ", model.rotary.dims, " and model.rope.scaling ", EnumName(model.rotary.scaling)));
  }
  if (model.rotary.dims != 0) return FindModelFamily("phi3");
  if (model.qk_norm) return FindModelFamily("qwen3");
  if (model.qkv_bias) return FindModelFamily("qwen2");
  return FindModelFamily(model.window != 0 ? "mistral" : "llama");
}

const char* PlanOnlyFeatureText(PlanOnlyFeature feature) { return kFeatures.at(static_cast<size_t>(feature)).text; }

std::vector<PlanOnlyFeature> FeaturesOf(PlanOnlyFeatures set) {
  std::vector<PlanOnlyFeature> features;
  for (const FeatureInfo& info : kFeatures) {
    if ((set & Bit(info.feature)) != 0) features.push_back(info.feature);
  }
  return features;
}

std::string PlanOnlyText(PlanOnlyFeatures set) {
  return absl::StrJoin(FeaturesOf(set), ", ", [](std::string* out, PlanOnlyFeature feature) {
    absl::StrAppend(out, EnumName(feature), " (", PlanOnlyFeatureText(feature), ")");
  });
}

std::string ModelFeaturesText(const ModelSpec& m) {
  const ModelSpec plain;
  const RotarySpec& r = m.rotary;
  std::string text;
  if (m.head_dim != 0) absl::StrAppend(&text, ", heads of ", m.head_dim);
  if (m.qkv_bias) absl::StrAppend(&text, ", biases of queries, keys and values");
  if (m.qk_norm) absl::StrAppend(&text, m.qk_norm_whole ? ", norms over all queries and keys" : ", norms of queries and keys");
  if (r.theta != plain.rotary.theta) absl::StrAppend(&text, ", rope theta ", r.theta);
  if (r.dims != 0) absl::StrAppend(&text, ", ", r.dims, " elements of a head turn");
  if (r.scaling != RopeScaling::kNone) absl::StrAppend(&text, ", ", EnumName(r.scaling), " scaling by ", r.factor);
  if (m.norm_epsilon != plain.norm_epsilon) absl::StrAppend(&text, ", norm epsilon ", m.norm_epsilon);
  if (m.window != 0) absl::StrAppend(&text, ", window ", m.window);
  if (m.moe.any()) {
    absl::StrAppend(&text, ", ", m.moe.experts, " experts of width ", m.expert_ffn(), ", ", m.moe.top_k, " for each token");
    if (!m.moe.normalized) text += " with weights that are not divided by their sum";
    if (m.moe.scores == RouterScores::kSigmoid) text += ", scores by sigmoid";
    if (m.moe.weight_scale != 1) absl::StrAppend(&text, ", weights times ", m.moe.weight_scale);
    if (m.moe.router_bias) text += ", biases that only choose";
    if (m.moe.shared_ffn != 0) absl::StrAppend(&text, ", a block of width ", m.moe.shared_ffn, " that every token passes");
    if (m.moe.shared_gate) text += " through a gate";
    if (m.moe.dense_layers != 0) absl::StrAppend(&text, ", no experts in the first ", m.moe.dense_layers, " layers");
  }
  if (m.latent.any()) {
    absl::StrAppend(&text, ", keys and values from ", m.latent.kv_rank, " latents");
    if (m.latent.query_rank != 0) absl::StrAppend(&text, " and queries from ", m.latent.query_rank);
    absl::StrAppend(&text, ", values of ", m.latent.value_dim);
  }
  if (m.matmul_type != MatmulType::kModel) absl::StrAppend(&text, ", products in ", EnumName(m.matmul_type));
  return text;
}

}  // namespace lynx
