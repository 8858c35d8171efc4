#include "planner/problem/model_presets.h"

#include <algorithm>
#include <utility>

namespace lynx {
namespace {

// The paper of Lynx, arXiv 2406.08756, gives only the numbers of parameters. The depths and widths below give these numbers.
// Heads of 128 elements and the vocabulary of Megatron-LM (GPT-2's, padded) are not from the paper; this file chooses them.
constexpr char kLynxPaper[] = "sizes of arXiv 2406.08756; shape by 12Lh^2 + vh";
constexpr char kKorthikanti[] = "arXiv 2205.05198, table 3";
constexpr char kYuan[] = "Yuan et al., USENIX ATC 2024";

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

}  // namespace

const std::vector<ModelPreset>& ModelPresets() {
  static const auto& presets = *new std::vector<ModelPreset>{
      Gpt("gpt-1.3b", kLynxPaper, 24, 2048, 16),      Gpt("gpt-4.7b", kLynxPaper, 40, 3072, 24),
      Gpt("gpt-6.7b", kLynxPaper, 32, 4096, 32),      Gpt("gpt-12.8b", kLynxPaper, 40, 5120, 40),
      Gpt("gpt-20.2b", kLynxPaper, 44, 6144, 48),     Gpt("gpt-22b", kKorthikanti, 48, 6144, 64),
      Gpt("gpt-23b", kLynxPaper, 50, 6144, 48),       Gpt("gpt-175b", kKorthikanti, 96, 12288, 96),
      Gpt("gpt-530b", kKorthikanti, 105, 20480, 128), Gpt("gpt-1t", kKorthikanti, 128, 25600, 160),
      Llama("llama-7b", 32, 4096, 32, 11008),         Llama("llama-65b", 80, 8192, 64, 22016),
      Llama("llama-70b", 80, 8192, 64, 28672, 8),     Llama("llama-175b", 96, 12288, 96, 32768),
  };
  return presets;
}

const ModelPreset* FindModelPreset(const std::string& name) {
  const std::vector<ModelPreset>& all = ModelPresets();
  const auto found = std::find_if(all.begin(), all.end(), [&](const ModelPreset& p) { return p.name == name; });
  return found == all.end() ? nullptr : &*found;
}

}  // namespace lynx
