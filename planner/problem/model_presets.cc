#include "planner/problem/model_presets.h"

#include <algorithm>
#include <utility>

#include "planner/problem/model_families.h"

namespace lynx {
namespace {

// The paper of Lynx, arXiv 2406.08756, gives only the numbers of parameters. The depths and widths below give these numbers.
// Heads of 128 elements and the vocabulary of Megatron-LM (GPT-2's, padded) are not from the paper; this file chooses them.
constexpr char kLynxPaper[] = "sizes of arXiv 2406.08756; shape by 12Lh^2 + vh";
constexpr char kKorthikanti[] = "arXiv 2205.05198, table 3";
constexpr char kYuan[] = "Yuan et al., USENIX ATC 2024";
// Released models with experts. Shapes are those of the weights' config.json. Sequences have the length for which the model was
// made (Mixtral), of most of its pretraining (Qwen3, OLMoE), or for which positions were made before they were scaled
// (gpt-oss).
constexpr char kMixtral[] = "mistralai's config.json; arXiv 2401.04088";
constexpr char kQwen3[] = "Qwen's config.json; arXiv 2505.09388";
constexpr char kOlmoe[] = "allenai's config.json; arXiv 2409.02060";
constexpr char kGptOss[] = "openai's config.json; arXiv 2508.10925";
// The sequences of these models are as long as in most of their pretraining. The layer of DeepSeek-V3 that predicts further
// tokens is left out.
constexpr char kDeepseekV2[] = "deepseek-ai's config.json; arXiv 2405.04434";
constexpr char kDeepseekV3[] = "deepseek-ai's config.json; arXiv 2412.19437";
constexpr char kKimiK2[] = "moonshotai's config.json; arXiv 2507.20534";

// A GPT as Megatron-LM trains it: 16-bit elements, stored attention scores and dropout masks, and an output projection that
// uses the weights of the embedding.
ModelPreset Gpt(std::string name, const char* source, int32_t layers, int32_t hidden, int32_t heads) {
  return {std::move(name),
          source,
          {.layers = layers,
           .hidden = hidden,
           .heads = heads,
           .ffn = 4 * hidden,
           .seq = 2048,
           .vocab = 51200,
           .dropout = 0.1,
           .family = ModelFamily::kGpt,
           .attention = AttentionKernel::kUnfused,
           .dtype = DataType::kBfloat16,
           .dropout_masks = DropoutMasks::kStored,
           .tied_embeddings = true}};
}

ModelPreset Llama(std::string name, int32_t layers, int32_t hidden, int32_t heads, int32_t ffn, int32_t kv_heads = 0) {
  return {std::move(name),
          kYuan,
          {.layers = layers,
           .hidden = hidden,
           .heads = heads,
           .ffn = ffn,
           .seq = 4096,
           .vocab = 32000,
           .dropout = 0,
           .family = ModelFamily::kLlama,
           .kv_heads = kv_heads,
           .attention = AttentionKernel::kFused,
           .dtype = DataType::kBfloat16}};
}

// A model with the fields that Llama's family has; experts and other features are added by the functions below.
ModelPreset Released(std::string name, const char* source, int32_t layers, int32_t hidden, int32_t heads, int32_t kv_heads,
                     const MoeSpec& moe, int32_t ffn) {
  ModelPreset preset = Llama(std::move(name), layers, hidden, heads, ffn, kv_heads);
  preset.source = source;
  preset.model.moe = moe;
  return preset;
}

ModelPreset Mixtral(std::string name, int32_t layers, int32_t hidden, int32_t heads, int32_t ffn, int32_t seq) {
  ModelPreset preset = Released(std::move(name), kMixtral, layers, hidden, heads, 8, {.experts = 8, .top_k = 2}, ffn);
  preset.model.seq = seq;
  preset.model.rotary.theta = 1e6;
  return preset;
}

ModelPreset Qwen3Moe(std::string name, int32_t layers, int32_t hidden, int32_t heads, int32_t ffn) {
  ModelPreset preset = Released(std::move(name), kQwen3, layers, hidden, heads, 4, {.experts = 128, .top_k = 8}, ffn);
  preset.model.vocab = 151936;
  preset.model.head_dim = 128;
  preset.model.qk_norm = true;
  preset.model.norm_epsilon = 1e-6;
  preset.model.rotary.theta = 1e6;
  return preset;
}

ModelPreset Olmoe() {
  ModelPreset preset = Released("olmoe-1b-7b", kOlmoe, 16, 2048, 16, 0, {.experts = 64, .top_k = 8, .normalized = false}, 1024);
  preset.model.vocab = 50304;
  preset.model.qk_norm = preset.model.qk_norm_whole = true;
  return preset;
}

ModelPreset GptOss(std::string name, int32_t layers, int32_t experts) {
  ModelPreset preset = Released(std::move(name), kGptOss, layers, 2880, 64, 8, {.experts = experts, .top_k = 4}, 2880);
  preset.model.vocab = 201088;
  preset.model.head_dim = 64;
  preset.model.qkv_bias = true;
  preset.model.rotary.theta = 150000;
  preset.model.plan_only = FindModelFamily("gpt_oss")->plan_only;
  return preset;
}

// A model with latent attention: heads of 128 elements that are not rotated and 64 that are, values of 128. Its experts are
// narrower than the feed-forward block of its first layers.
ModelPreset Deepseek(std::string name, const char* source, int32_t layers, int32_t hidden, int32_t heads, int32_t ffn,
                     int32_t vocab, const MoeSpec& moe) {
  ModelPreset preset = Released(std::move(name), source, layers, hidden, heads, 0, moe, ffn);
  preset.model.vocab = vocab;
  preset.model.head_dim = 192;
  preset.model.norm_epsilon = 1e-6;
  preset.model.rotary.dims = 64;
  preset.model.latent = {.query_rank = 1536, .kv_rank = 512, .value_dim = 128};
  return preset;
}

ModelPreset DeepseekV2() {
  const MoeSpec moe{.experts = 160, .top_k = 6, .ffn = 1536, .normalized = false, .shared_ffn = 3072, .dense_layers = 1};
  ModelPreset preset = Deepseek("deepseek-v2", kDeepseekV2, 60, 5120, 128, 12288, 102400, moe);
  preset.model.plan_only = Bit(PlanOnlyFeature::kOtherRouting);  // choice by groups of experts, weights times 16
  return preset;
}

ModelPreset DeepseekV2Lite() {
  const MoeSpec moe{.experts = 64, .top_k = 6, .ffn = 1408, .normalized = false, .shared_ffn = 2816, .dense_layers = 1};
  ModelPreset preset = Deepseek("deepseek-v2-lite", kDeepseekV2, 27, 2048, 16, 10944, 102400, moe);
  preset.model.latent.query_rank = 0;
  return preset;
}

ModelPreset DeepseekV3() {
  const MoeSpec moe{.experts = 256,
                    .top_k = 8,
                    .ffn = 2048,
                    .shared_ffn = 2048,
                    .dense_layers = 3,
                    .scores = RouterScores::kSigmoid,
                    .weight_scale = 2.5,
                    .router_bias = true};
  ModelPreset preset = Deepseek("deepseek-v3", kDeepseekV3, 61, 7168, 128, 18432, 129280, moe);
  // choice by groups of experts
  preset.model.plan_only = Bit(PlanOnlyFeature::kOtherRouting) | Bit(PlanOnlyFeature::kMultiTokenPrediction);
  return preset;
}

ModelPreset KimiK2() {
  const MoeSpec moe{.experts = 384,
                    .top_k = 8,
                    .ffn = 2048,
                    .shared_ffn = 2048,
                    .dense_layers = 1,
                    .scores = RouterScores::kSigmoid,
                    .weight_scale = 2.827,
                    .router_bias = true};
  ModelPreset preset = Deepseek("kimi-k2", kKimiK2, 61, 7168, 64, 18432, 163840, moe);
  preset.model.rotary.theta = 50000;
  return preset;
}

}  // namespace

const std::vector<ModelPreset>& ModelPresets() {
  static const auto& presets = *new std::vector<ModelPreset>{
      Gpt("gpt-1.3b", kLynxPaper, 24, 2048, 16),
      Gpt("gpt-4.7b", kLynxPaper, 40, 3072, 24),
      Gpt("gpt-6.7b", kLynxPaper, 32, 4096, 32),
      Gpt("gpt-12.8b", kLynxPaper, 40, 5120, 40),
      Gpt("gpt-20.2b", kLynxPaper, 44, 6144, 48),
      Gpt("gpt-22b", kKorthikanti, 48, 6144, 64),
      Gpt("gpt-23b", kLynxPaper, 50, 6144, 48),
      Gpt("gpt-175b", kKorthikanti, 96, 12288, 96),
      Gpt("gpt-530b", kKorthikanti, 105, 20480, 128),
      Gpt("gpt-1t", kKorthikanti, 128, 25600, 160),
      Llama("llama-7b", 32, 4096, 32, 11008),
      Llama("llama-65b", 80, 8192, 64, 22016),
      Llama("llama-70b", 80, 8192, 64, 28672, 8),
      Llama("llama-175b", 96, 12288, 96, 32768),
      Mixtral("mixtral-8x7b", 32, 4096, 32, 14336, 32768),
      Mixtral("mixtral-8x22b", 56, 6144, 48, 16384, 65536),
      Qwen3Moe("qwen3-30b-a3b", 48, 2048, 32, 768),
      Qwen3Moe("qwen3-235b-a22b", 94, 4096, 64, 1536),
      Olmoe(),
      GptOss("gpt-oss-20b", 24, 32),
      GptOss("gpt-oss-120b", 36, 128),
      DeepseekV2(),
      DeepseekV2Lite(),
      DeepseekV3(),
      KimiK2(),
  };
  return presets;
}

const ModelPreset* FindModelPreset(const std::string& name) {
  const std::vector<ModelPreset>& all = ModelPresets();
  const auto found = std::find_if(all.begin(), all.end(), [&](const ModelPreset& p) { return p.name == name; });
  return found == all.end() ? nullptr : &*found;
}

}  // namespace lynx
