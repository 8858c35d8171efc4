#include "cli/model_config.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status.h"

namespace lynx {
namespace {

using Json = nlohmann::json;

struct Refused {
  const char* model_type;
  const char* missing;
};
// Families that people are likely to try, and what our layers lack for them.
constexpr Refused kRefused[] = {
    {"bert", "bidirectional attention and post-layer norms"},
    {"bloom", "ALiBi positions and the norm after the embedding"},
    {"codegen", "rotary positions with LayerNorm, and parallel residuals"},
    {"cohere", "parallel residuals"},
    {"deepseek_v2", "mixture of experts and latent attention"},
    {"deepseek_v3", "mixture of experts and latent attention"},
    {"falcon", "parallel residuals, and rotary positions with LayerNorm"},
    {"gemma", "GeGLU, and heads whose size is not hidden_size / num_attention_heads"},
    {"gemma2", "GeGLU, sliding windows and four norms a layer"},
    {"gemma3", "GeGLU, sliding windows and four norms a layer"},
    {"gemma3_text", "GeGLU, sliding windows and four norms a layer"},
    {"gpt_bigcode", "one key and value head shared by all heads, with LayerNorm"},
    {"gpt_neo", "local attention windows and attention without scaling"},
    {"gpt_neox", "rotary positions with LayerNorm, and parallel residuals"},
    {"gptj", "rotary positions with LayerNorm, and parallel residuals"},
    {"mixtral", "mixture of experts"},
    {"mpt", "ALiBi positions"},
    {"olmo", "norms without weights"},
    {"opt", "ReLU, and positions that begin at an offset of two"},
    {"phi", "parallel residuals, and rotary positions with LayerNorm"},
    {"phi3", "one fused projection for gate and up, and sliding windows"},
    {"qwen2", "biases of the query, key and value projections"},
    {"qwen2_moe", "mixture of experts"},
    {"qwen3", "norms of queries and keys"},
    {"qwen3_moe", "mixture of experts"},
    {"starcoder2", "biases with rotary positions, and sliding windows"},
    {"t5", "an encoder"},
};
constexpr char kTaken[] = "gpt2, llama, mistral";

// Reads checked fields of one JSON object. The first error is kept; what follows it reads defaults.
class ConfigReader {
 public:
  ConfigReader(const Json& json, const std::string& file) : json_(json), file_(file) {}

  const absl::Status& status() const { return status_; }
  void Fail(const std::string& message) {
    if (status_.ok()) status_ = absl::InvalidArgumentError(absl::StrCat(file_, ": ", message));
  }
  void Keep(const absl::Status& status) { status_.Update(status); }
  // Absent and null are the same, as in the library that writes these files, unless said otherwise.
  bool Has(const char* field) const { return json_.contains(field) && !json_.at(field).is_null(); }
  bool HasNull(const char* field) const { return json_.contains(field) && json_.at(field).is_null(); }
  std::string Text(const char* field) const {
    if (!Has(field)) return "null";
    const Json& value = json_.at(field);
    if (value.is_object()) return "an object";
    if (value.is_array()) return "a list";
    const std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
    constexpr size_t kLongest = 60;
    return text.size() <= kLongest ? text : text.substr(0, kLongest) + "...";
  }

  int32_t Count(const char* field) {
    if (!Has(field)) Fail(absl::StrCat(field, ": missing; it is required"));
    return Count(field, 0);
  }
  int32_t Count(const char* field, int32_t otherwise) {
    if (!Has(field)) return otherwise;
    const Json& value = json_.at(field);
    const bool whole =
        value.is_number_integer() && (!value.is_number_unsigned() || value.get<uint64_t>() <= uint64_t{kMaxCount});
    if (whole && value.get<int64_t>() >= 1 && value.get<int64_t>() <= kMaxCount) return value.get<int32_t>();
    Fail(absl::StrCat(field, " is ", Text(field), ": must be a whole number from 1 to ", kMaxCount));
    return otherwise;
  }
  double Rate(const char* field, double otherwise) {
    if (!Has(field)) return otherwise;
    const Json& value = json_.at(field);
    if (value.is_number() && value.get<double>() >= 0 && value.get<double>() < 1) return value.get<double>();
    Fail(absl::StrCat(field, " is ", Text(field), ": must be a number from 0 to below 1"));
    return otherwise;
  }
  bool Flag(const char* field, bool otherwise) {
    if (!Has(field)) return otherwise;
    const Json& value = json_.at(field);
    if (value.is_boolean()) return value.get<bool>();
    Fail(absl::StrCat(field, " is ", Text(field), ": must be true or false"));
    return otherwise;
  }
  std::string Word(const char* field, const std::string& otherwise) {
    if (!Has(field)) return otherwise;
    if (json_.at(field).is_string()) return json_.at(field).get<std::string>();
    Fail(absl::StrCat(field, " is ", Text(field), ": must be a string"));
    return otherwise;
  }
  void MustBe(const char* field, double value, double otherwise) {
    if (!Has(field) && otherwise == value) return;
    if (Has(field) && json_.at(field).is_number() && json_.at(field).get<double>() == value) return;
    Fail(absl::StrCat(field, " is ", Has(field) ? Text(field) : absl::StrCat("missing, which means ", otherwise),
                      ": must be ", value, ", as in Lynx's layers"));
  }
  // The layers here have no such thing.
  void MustBeFalse(const char* field, const char* missing) {
    if (Flag(field, false)) Fail(absl::StrCat(field, " is true: ", missing, " are not in Lynx's layers"));
  }

 private:
  static constexpr int64_t kMaxCount = 1 << 30;

  const Json& json_;
  const std::string& file_;
  absl::Status status_;
};

void ReadDtype(ConfigReader& config, ModelSpec& model) {
  const char* field = config.Has("torch_dtype") ? "torch_dtype" : "dtype";
  const std::string dtype = config.Word(field, "");
  if (dtype == "bfloat16" || dtype == "float16") {
    model.dtype = DataType::kBfloat16;  // 16 bits either way
  } else if (dtype == "float32") {
    model.dtype = DataType::kFloat32;
  } else if (!dtype.empty() && dtype != "auto") {
    config.Fail(absl::StrCat(field, " is ", config.Text(field), ": must be bfloat16, float16 or float32"));
  }
}

// https://huggingface.co/docs/transformers/model_doc/gpt2 names the fields and their defaults.
ModelSpec ReadGpt2(ConfigReader& config) {
  ModelSpec model{.layers = config.Count("n_layer"),
                  .hidden = config.Count("n_embd"),
                  .heads = config.Count("n_head"),
                  .seq = config.Count("n_positions"),
                  .vocab = config.Count("vocab_size"),
                  .family = ModelFamily::kGpt};
  model.ffn = config.Count("n_inner", 0);
  const std::string activation = config.Word("activation_function", "gelu_new");
  if (activation.rfind("gelu", 0) != 0) {
    config.Fail(
        absl::StrCat("activation_function is ", config.Text("activation_function"), ": must be a form of gelu"));
  }
  model.dropout = config.Rate("resid_pdrop", 0.1);
  for (const char* field : {"embd_pdrop", "attn_pdrop"}) {
    if (config.Rate(field, 0.1) != model.dropout) {
      config.Fail(absl::StrCat(field, " is ", config.Text(field), ": must equal resid_pdrop (", model.dropout,
                               "), since a model has one dropout rate here"));
    }
  }
  config.MustBeFalse("scale_attn_by_inverse_layer_idx", "attention scales that differ by layer");
  config.MustBeFalse("add_cross_attention", "cross-attention blocks");
  if (!config.Flag("scale_attn_weights", true)) config.Fail("scale_attn_weights is false: attention is scaled here");
  model.tied_embeddings = config.Flag("tie_word_embeddings", true);
  return model;
}

// https://huggingface.co/docs/transformers/model_doc/llama and model_doc/mistral.
ModelSpec ReadLlama(ConfigReader& config) {
  ModelSpec model{.layers = config.Count("num_hidden_layers"),
                  .hidden = config.Count("hidden_size"),
                  .heads = config.Count("num_attention_heads"),
                  .ffn = config.Count("intermediate_size"),
                  .seq = config.Count("max_position_embeddings"),
                  .vocab = config.Count("vocab_size"),
                  .dropout = 0,
                  .family = ModelFamily::kLlama};
  model.kv_heads = config.Count("num_key_value_heads", model.heads);
  if (model.kv_heads == model.heads) model.kv_heads = 0;
  const std::string activation = config.Word("hidden_act", "silu");
  if (activation != "silu" && activation != "swish") {
    config.Fail(absl::StrCat("hidden_act is ", config.Text("hidden_act"), ": must be silu"));
  }
  const int32_t head = config.Count("head_dim", 0);
  if (head != 0 && int64_t{head} * model.heads != model.hidden) {
    config.Fail(absl::StrCat("head_dim is ", head, ": must be hidden_size / num_attention_heads (", model.hidden,
                             " / ", model.heads, "); heads of another size are not in Lynx's layers"));
  }
  if (config.Rate("attention_dropout", 0) != 0) {
    config.Fail(absl::StrCat("attention_dropout is ", config.Text("attention_dropout"), ": must be 0"));
  }
  config.MustBeFalse("attention_bias", "biases of the attention projections");
  config.MustBeFalse("mlp_bias", "biases of the feed-forward projections");
  model.tied_embeddings = config.Flag("tie_word_embeddings", false);
  return model;
}

// Absent means 4096 there, not none.
void CheckNoSlidingWindow(ConfigReader& config) {
  if (config.HasNull("sliding_window")) return;
  const std::string is = config.Has("sliding_window") ? config.Text("sliding_window") : "missing, which means 4096";
  config.Fail(
      absl::StrCat("sliding_window is ", is,
                   ": must be null; attention over a window is not in Lynx's layers (for sequences within the "
                   "window, null is the same)"));
}

// The functions that the weights were trained with.
void CheckGpt2Functions(ConfigReader& config) {
  const std::string activation = config.Word("activation_function", "gelu_new");
  if (activation == "gelu") {
    config.Fail("activation_function is \"gelu\", the exact one: must be gelu_new, the approximation by tanh");
  }
  config.MustBe("layer_norm_epsilon", 1e-5, 1e-5);
}

void CheckLlamaFunctions(const Json& json, ConfigReader& config, const std::string& file) {
  config.MustBe("rms_norm_eps", 1e-5, 1e-6);
  // Newer versions of the library keep both in one object.
  const Json nested = config.Has("rope_parameters") ? json.at("rope_parameters") : Json();
  ConfigReader parameters(nested, file);
  if (nested.is_object()) {
    parameters.MustBe("rope_theta", 10000, 10000);
    if (parameters.Word("rope_type", "default") != "default") {
      parameters.Fail(absl::StrCat("rope_parameters.rope_type is ", parameters.Text("rope_type"),
                                   ": must be default; scaled rotary positions are not in Lynx's layers"));
    }
    config.Keep(parameters.status());
  }
  config.MustBe("rope_theta", 10000, 10000);
  if (config.Has("rope_scaling")) {
    config.Fail("rope_scaling: must be null; scaled rotary positions are not in Lynx's layers");
  }
}

absl::Status Unknown(const std::string& type, const std::string& file) {
  for (const Refused& refused : kRefused) {
    if (type != refused.model_type) continue;
    return absl::InvalidArgumentError(absl::StrCat(file, ": model_type is \"", type, "\": ", refused.missing,
                                                   " are not in Lynx's layers; families that are taken: ", kTaken));
  }
  return absl::InvalidArgumentError(absl::StrCat(file, ": model_type is \"", type.substr(0, 60),
                                                 "\": not known here; families that are taken: ", kTaken));
}

}  // namespace

absl::StatusOr<ModelSpec> ParseModelConfig(const std::string& text, const std::string& file) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return absl::InvalidArgumentError(absl::StrCat(file, ": not valid JSON"));
  if (!json.is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(file, ": expected an object with the fields of a model"));
  }
  ConfigReader config(json, file);
  if (!config.Has("model_type")) {
    return absl::InvalidArgumentError(absl::StrCat(file, ": model_type: missing; families that are taken: ", kTaken));
  }
  const std::string type = config.Word("model_type", "");
  LYNX_RETURN_IF_ERROR(config.status());
  ModelSpec model;
  if (type == "gpt2") {
    model = ReadGpt2(config);
  } else if (type == "llama" || type == "mistral") {
    model = ReadLlama(config);
    if (type == "mistral") CheckNoSlidingWindow(config);
  } else {
    return Unknown(type, file);
  }
  if (config.Has("quantization_config")) {
    config.Fail("quantization_config: quantized weights cannot be trained; remove it to plan the model itself");
  }
  ReadDtype(config, model);
  LYNX_RETURN_IF_ERROR(config.status());
  return model;
}

absl::StatusOr<ModelSpec> ParseModelConfigOfWeights(const std::string& text, const std::string& file) {
  JobSpec spec;
  LYNX_ASSIGN_OR_RETURN(spec.model, ParseModelConfig(text, file));
  const Json json = Json::parse(text);
  ConfigReader config(json, file);
  if (spec.model.family == ModelFamily::kGpt) {
    CheckGpt2Functions(config);
  } else {
    CheckLlamaFunctions(json, config, file);
  }
  LYNX_RETURN_IF_ERROR(config.status());
  Normalize(spec);
  spec.model.dtype = DataType::kFloat32;
  return spec.model;
}

}  // namespace lynx
