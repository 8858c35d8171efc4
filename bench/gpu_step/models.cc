#include "bench/gpu_step/models.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace lynx::bench {
namespace {

ModelSpec Gpt(int32_t layers, int32_t hidden, int32_t heads, int32_t seq, int32_t vocab) {
  return {.layers = layers,
          .hidden = hidden,
          .heads = heads,
          .seq = seq,
          .vocab = vocab,
          .dropout = 0,
          .family = ModelFamily::kGpt,
          .attention = AttentionKernel::kFused,
          .dtype = DataType::kBfloat16,
          .tied_embeddings = true};
}

}  // namespace

const std::vector<BenchModel>& BenchModels() {
  static const auto& models = *new std::vector<BenchModel>{
      // Radford et al. 2019; the vocabulary of 50,257 is padded to a multiple of 64.
      {"gpt2-124m", "GPT-2, 124M parameters", Gpt(12, 768, 12, 1024, 50304), 8, 4},
      // The preset gpt-1.3b (planner/problem/model_presets.cc) without dropout and with fused attention.
      {"gpt-1.3b", "GPT, 1.3B parameters", Gpt(24, 2048, 16, 2048, 51200), 4, 2},
      // TinyLlama, Zhang et al. 2024 (arXiv 2401.02385).
      {"llama-1.1b",
       "Llama, 1.1B parameters (TinyLlama)",
       {.layers = 22,
        .hidden = 2048,
        .heads = 32,
        .ffn = 5632,
        .seq = 2048,
        .vocab = 32000,
        .dropout = 0,
        .family = ModelFamily::kLlama,
        .kv_heads = 4,
        .attention = AttentionKernel::kFused,
        .dtype = DataType::kBfloat16},
       4,
       2},
  };
  return models;
}

absl::StatusOr<BenchModel> FindBenchModel(const std::string& name) {
  std::vector<std::string> names;
  for (const BenchModel& model : BenchModels()) {
    if (model.name == name) return model;
    names.push_back(model.name);
  }
  return absl::NotFoundError(absl::StrCat("--models: there is no model '", name, "'; there are ", absl::StrJoin(names, ", ")));
}

}  // namespace lynx::bench
