#include "cli/spec/model_config.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/check.h"
#include "common/status.h"

namespace lynx::cli {
namespace {

using Json = nlohmann::json;

// Reads and checks fields of one JSON object. Keeps the first error. A field with an invalid value gets its default.
class ConfigReader {
 public:
  ConfigReader(const Json& json, const std::string& file) : json_(json), file_(file) {}

  const absl::Status& status() const { return status_; }
  void Fail(const std::string& message) {
    if (status_.ok()) status_ = absl::InvalidArgumentError(absl::StrCat(file_, ": ", message));
  }
  void Keep(const absl::Status& status) { status_.Update(status); }
  // An absent field and null mean the same, as in the library that writes these files, unless a comment says otherwise.
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

  // Returns the first of these names that is present, or the first name if none is. Families use different names for
  // the same thing.
  const char* FirstOf(std::initializer_list<const char*> fields) const {
    for (const char* field : fields) {
      if (Has(field)) return field;
    }
    return *fields.begin();
  }
  int32_t Count(std::initializer_list<const char*> fields) {
    const char* const field = FirstOf(fields);
    if (!Has(field)) Fail(absl::StrCat(absl::StrJoin(fields, ", or "), ": missing; it is required"));
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
  // Works like Count, but the number may also be zero.
  int32_t CountOrZero(const char* field, int32_t otherwise) {
    return Has(field) && json_.at(field) == 0 ? 0 : Count(field, otherwise);
  }
  // Reads a number of at least zero; `otherwise` if the field is absent.
  double NotNegative(const char* field, double otherwise) {
    if (!Has(field)) return otherwise;
    const Json& value = json_.at(field);
    if (value.is_number() && value.get<double>() >= 0) return value.get<double>();
    Fail(absl::StrCat(field, " is ", Text(field), ": must be a number of at least 0"));
    return otherwise;
  }
  double Rate(const char* field, double otherwise) {
    if (!Has(field)) return otherwise;
    const Json& value = json_.at(field);
    if (value.is_number() && value.get<double>() >= 0 && value.get<double>() < 1) return value.get<double>();
    Fail(absl::StrCat(field, " is ", Text(field), ": must be a number from 0 to below 1"));
    return otherwise;
  }
  // Reads a number above zero; `otherwise` if the field is absent.
  double Positive(const char* field, double otherwise) {
    if (!Has(field)) return otherwise;
    const Json& value = json_.at(field);
    if (value.is_number() && value.get<double>() > 0) return value.get<double>();
    Fail(absl::StrCat(field, " is ", Text(field), ": must be a number above 0"));
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
  // The object in a field; empty if the field is absent.
  Json Object(const char* field) {
    if (!Has(field)) return Json::object();
    if (json_.at(field).is_object()) return json_.at(field);
    Fail(absl::StrCat(field, " is ", Text(field), ": must be an object"));
    return Json::object();
  }
  bool IsAbove(const char* field, double least) const {
    return Has(field) && json_.at(field).is_number() && json_.at(field).get<double>() > least;
  }
  bool IsList(const char* field) const { return Has(field) && json_.at(field).is_array() && !json_.at(field).empty(); }
  // True if the list of words has one that begins with `begin`.
  bool HasWord(const char* field, const std::string& begin) const {
    if (!Has(field) || !json_.at(field).is_array()) return false;
    return std::any_of(json_.at(field).begin(), json_.at(field).end(),
                       [&](const Json& word) { return word.is_string() && word.get<std::string>().rfind(begin, 0) == 0; });
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
    model.dtype = DataType::kBfloat16;  // float16 becomes bfloat16, because both have 16 bits
  } else if (dtype == "float32") {
    model.dtype = DataType::kFloat32;
  } else if (!dtype.empty() && dtype != "auto") {
    config.Fail(absl::StrCat(field, " is ", config.Text(field), ": must be bfloat16, float16 or float32"));
  }
}

// The traits assumed for a family that is not in the table.
constexpr FamilyTraits kUnknown{.model_type = "",
                                .model_class = "",
                                .models = "",
                                .base = ModelFamily::kLlama,
                                .weights = WeightNames::kNone,
                                .plan_only = Bit(PlanOnlyFeature::kUnknownFamily)};

// Reads latent attention. The defaults are the same in transformers' classes for DeepSeek-V2 and V3. If q_lora_rank is null,
// the queries are made from the layer's input. `head_dim`, which newer files have, is only the rotated part of a head.
void ReadLatent(ConfigReader& config, ModelSpec& model) {
  model.latent.query_rank = config.HasNull("q_lora_rank") ? 0 : config.Count("q_lora_rank", 1536);
  model.latent.kv_rank = config.Count("kv_lora_rank", 512);
  model.latent.value_dim = config.Count("v_head_dim", 128);
  model.head_dim = config.Count("qk_nope_head_dim", 128) + config.Count("qk_rope_head_dim", 64);
}

void ReadShape(const FamilyTraits& family, ConfigReader& config, ModelSpec& model) {
  model.layers = config.Count({"num_hidden_layers", "n_layer", "n_layers", "num_layers"});
  model.hidden = config.Count({"hidden_size", "n_embd", "d_model"});
  model.heads = config.Count({"num_attention_heads", "n_head", "n_heads", "num_heads"});
  model.seq = config.Count({"max_position_embeddings", "n_positions", "max_seq_len", "seq_length"});
  model.vocab = config.Count({"vocab_size"});
  // ffn is 0 if the field is absent; then Normalize sets it to 4 times the hidden size for GPT.
  // A model whose experts have a width of their own has no other feed-forward blocks here, so it need not say their width.
  const bool own_width = family.experts.ffn != 0 && !family.experts.dense_layers && !config.Has("intermediate_size");
  model.ffn = model.family == ModelFamily::kGpt ? config.Count(config.FirstOf({"intermediate_size", "n_inner", "ffn_dim"}), 0)
              : own_width                       ? config.Count("moe_intermediate_size", family.experts.ffn)
                                                : config.Count({"intermediate_size"});
  // If num_key_value_heads is null, the library transformers uses the number of heads. If it is absent, transformers uses the
  // default of the model family's configuration class.
  const bool null = config.HasNull("num_key_value_heads");
  const int32_t absent = family.key_heads == 0 || null ? model.heads : family.key_heads;
  model.kv_heads = config.Count(config.FirstOf({"num_key_value_heads", "num_kv_heads"}), absent);
  const bool one_by_default = std::string(family.model_type) == "gpt_bigcode";
  if (config.Flag("multi_query", one_by_default)) model.kv_heads = 1;
  if (model.kv_heads == model.heads) model.kv_heads = 0;
  model.head_dim = config.Count("head_dim", family.head_dim);
  if (family.latent) ReadLatent(config, model);
  if (int64_t{model.head_dim} * model.heads == model.hidden) model.head_dim = 0;
  model.tied_embeddings = config.Flag("tie_word_embeddings", family.tied);
}

// Reads activation, biases and norms.
void ReadLayers(const FamilyTraits& family, ConfigReader& config, ModelSpec& model) {
  const bool gpt = model.family == ModelFamily::kGpt;
  const bool encoder = (family.plan_only & Bit(PlanOnlyFeature::kEncoder)) != 0;
  const std::string otherwise = encoder ? "gelu"
                                : gpt   ? family.weights == WeightNames::kGptBigCode ? "gelu_pytorch_tanh" : "gelu_new"
                                        : "silu";
  const std::string activation =
      config.Word(config.FirstOf({"activation_function", "hidden_activation", "hidden_act", "activation"}), otherwise);
  const bool tanh_gelu = activation == "gelu_new" || activation == "gelu_pytorch_tanh" || activation == "gelu_fast";
  if (gpt && !tanh_gelu) {
    model.plan_only |= Bit(activation == "gelu" ? PlanOnlyFeature::kExactGelu : PlanOnlyFeature::kOtherActivation);
  } else if (!gpt && activation != "silu" && activation != "swish") {
    const bool gelu = activation.rfind("gelu", 0) == 0;
    model.plan_only |= Bit(gelu ? PlanOnlyFeature::kGatedGelu : PlanOnlyFeature::kOtherActivation);
  }
  model.norm_epsilon = config.Positive(config.FirstOf({"rms_norm_eps", "layer_norm_epsilon", "layer_norm_eps", "norm_epsilon"}),
                                       family.norm_epsilon);
  // In GLM-4.5, attention_bias is of queries, keys and values only.
  const bool glm = std::string(family.model_type) == "glm4_moe";
  model.qkv_bias = !gpt && (glm ? config.Flag("attention_bias", false) : family.qkv_bias && config.Flag("qkv_bias", true));
  model.qk_norm = !gpt && (family.qk_norm || config.Flag("use_qk_norm", false));
  model.qk_norm_whole = family.qk_norm_whole;
  if (model.qk_norm_whole && model.key_heads() != model.heads) model.plan_only |= Bit(PlanOnlyFeature::kWholeQueryNorm);
  if (config.IsAbove("clip_qkv", 0)) model.plan_only |= Bit(PlanOnlyFeature::kSoftCapping);
  for (const std::string biases : {"attention_bias", "mlp_bias", "lm_head_bias", "use_bias"}) {
    if (glm && biases == "attention_bias") continue;
    if (config.Flag(biases.c_str(), false) && !gpt) model.plan_only |= Bit(PlanOnlyFeature::kLinearBiases);
  }
}

void ReadDropout(ConfigReader& config, ModelSpec& model) {
  model.dropout = 0;
  if (model.family == ModelFamily::kLlama) {
    for (const char* field : {"attention_dropout", "resid_pdrop", "embd_pdrop"}) {
      if (config.Rate(field, 0) != 0) {
        config.Fail(absl::StrCat(field, " is ", config.Text(field), ": must be 0, for such models have no dropout here"));
      }
    }
    return;
  }
  const char* const residual = config.FirstOf({"resid_pdrop", "hidden_dropout", "residual_dropout", "hidden_dropout_prob"});
  const bool encoder = (model.plan_only & Bit(PlanOnlyFeature::kEncoder)) != 0;
  const bool has_rates = config.Has(residual) || config.Has("n_embd") || encoder;
  model.dropout = config.Rate(residual, has_rates ? 0.1 : 0);
  for (const char* field : {"embd_pdrop", "attn_pdrop", "attention_probs_dropout_prob"}) {
    if (config.Rate(field, model.dropout) != model.dropout) {
      config.Fail(absl::StrCat(field, " is ", config.Text(field), ": must equal ", residual, " (", model.dropout,
                               "), since a model has one dropout rate here"));
    }
  }
}

// Checks the options for scaled attention scores and cross-attention, which only GPT-2's configuration has.
void CheckGptSwitches(ConfigReader& config, ModelSpec& model) {
  if (config.Flag("scale_attn_by_inverse_layer_idx", false) || !config.Flag("scale_attn_weights", true)) {
    model.plan_only |= Bit(PlanOnlyFeature::kMultipliers);
  }
  if (config.Flag("add_cross_attention", false))
    config.Fail("add_cross_attention is true: cross-attention is not planned here");
}

// Reads what only the configurations of encoders have. RoBERTa and its kin keep the first positions, up to that of the padding
// token, for no token.
void ReadEncoder(const std::string& type, ConfigReader& config, ModelSpec& model) {
  if (config.Flag("is_decoder", false)) config.Fail("is_decoder is true: such a model is no encoder, and is not planned here");
  if (config.Word("position_embedding_type", "absolute") != "absolute") {
    model.plan_only |= Bit(PlanOnlyFeature::kOtherPositions);
  }
  constexpr int32_t kPaddingToken = 1;
  if (type != "bert") model.seq -= config.CountOrZero("pad_token_id", kPaddingToken) + 1;
  if (model.seq < 1) config.Fail("max_position_embeddings: no position is left beside those up to pad_token_id");
}

double YarnScale(double factor, double mscale) { return factor <= 1 ? 1 : 0.1 * mscale * std::log(factor) + 1; }

// Reads the scaling of rotary positions. `scaling` reads the object in the field `where`. The type of the scaling is in its
// field "rope_type", or "type" in older files.
void ReadRopeScaling(ConfigReader& scaling, const char* where, const FamilyTraits& family, ModelSpec& model,
                     ConfigReader& config) {
  RotarySpec& rotary = model.rotary;
  const std::string type = scaling.Word(scaling.FirstOf({"rope_type", "type"}), "default");
  if (type == "default" || type == "mrope") return;
  // transformers treats every scaling of a Phi-3 as longrope. The first versions of its files say "su" or "yarn" for it.
  const bool long_rope = family.weights == WeightNames::kPhi3;
  if (long_rope || !ParseEnum(type, rotary.scaling) || rotary.scaling == RopeScaling::kNone) {
    model.plan_only |= Bit(PlanOnlyFeature::kOtherRopeScaling);
    return;
  }
  if (!scaling.Has("factor")) config.Fail(absl::StrCat(where, ".factor: missing; scaling ", type, " needs it"));
  rotary.factor = scaling.Positive("factor", 1);
  if (rotary.factor < 1) config.Fail(absl::StrCat(where, ".factor is ", scaling.Text("factor"), ": must be at least 1"));
  if (rotary.scaling == RopeScaling::kLinear) return;
  const char* const original = "original_max_position_embeddings";
  if (rotary.scaling == RopeScaling::kLlama3 && !scaling.Has(original)) {
    config.Fail(absl::StrCat(where, ".", original, ": missing; scaling llama3 needs it"));
  }
  // For dynamic scaling, transformers does not look at original_max_position_embeddings.
  rotary.original_seq = rotary.scaling == RopeScaling::kDynamic ? model.seq : scaling.Count(original, model.seq);
  if (rotary.scaling == RopeScaling::kLlama3) {
    rotary.low_freq_factor = scaling.Positive("low_freq_factor", 1);
    rotary.high_freq_factor = scaling.Positive("high_freq_factor", 4);
  }
  if (rotary.scaling != RopeScaling::kYarn) return;
  rotary.beta_fast = scaling.Positive("beta_fast", 32);
  rotary.beta_slow = scaling.Positive("beta_slow", 1);
  rotary.attention_factor = scaling.Positive("attention_factor", 0);
  // As in transformers, 0 is the same as no such field.
  const double mscale = scaling.NotNegative("mscale", 0), mscale_all_dim = scaling.NotNegative("mscale_all_dim", 0);
  if (rotary.attention_factor == 0 && mscale > 0 && mscale_all_dim > 0) {
    rotary.attention_factor = YarnScale(rotary.factor, mscale) / YarnScale(rotary.factor, mscale_all_dim);
  }
  if (!scaling.Flag("truncate", true)) model.plan_only |= Bit(PlanOnlyFeature::kOtherRopeScaling);
  // DeepSeek multiplies the scores by the square of this factor.
  if (family.latent) rotary.mscale_all_dim = mscale_all_dim;
}

// Reads rotary positions. Newer files have all values in `rope_parameters`; older files have `rope_theta` and `rope_scaling`.
void ReadRotary(const FamilyTraits& family, const std::string& file, ConfigReader& config, ModelSpec& model) {
  const char* const where = config.FirstOf({"rope_parameters", "rope_scaling"});
  const Json object = config.Object(where);
  ConfigReader scaling(object, file);
  const double theta = config.Positive(config.FirstOf({"rope_theta", "rotary_emb_base"}), family.rope_theta);
  const double share = config.Positive(config.FirstOf({"partial_rotary_factor", "rotary_pct"}), family.rotary_share);
  model.rotary.theta = scaling.Positive("rope_theta", theta);
  const double of_head = scaling.Positive("partial_rotary_factor", share);
  const int32_t head = model.heads == 0 ? 0 : model.head_size();
  model.rotary.dims = of_head == 1 ? 0 : static_cast<int32_t>(head * of_head);
  if (family.latent) {
    model.rotary.dims = config.Count("qk_rope_head_dim", 64);
    // Imports take the pairs that turn together as neighbours.
    if (!config.Flag("rope_interleave", true)) model.plan_only |= Bit(PlanOnlyFeature::kOtherPositions);
  }
  if (of_head > 1) config.Fail(absl::StrCat("partial_rotary_factor is ", of_head, ": must be at most 1"));
  ReadRopeScaling(scaling, where, family, model, config);
  config.Keep(scaling.status());
}

void ReadWindow(const FamilyTraits& family, ConfigReader& config, ModelSpec& model) {
  const bool used = config.Flag("use_sliding_window", family.window != WindowField::kIfUsed);
  const int32_t absent = config.HasNull("sliding_window") ? 0 : family.absent_window;
  const bool all_full = config.Has("layer_types") && !config.HasWord("layer_types", "sliding");
  if (family.window != WindowField::kNone && used && !all_full) model.window = config.Count("sliding_window", absent);
  // In this class only every second layer has a window.
  if (std::string(family.model_type) == "qwen2_moe" && model.window != 0) model.plan_only |= Bit(PlanOnlyFeature::kLocalLayers);
}

// Reads the experts that every token passes, and the first layers, which have no experts.
void ReadSharedAndDense(const ExpertTraits& traits, ConfigReader& config, ModelSpec& model) {
  MoeSpec& moe = model.moe;
  if (traits.shared == SharedExperts::kByCount) {
    const char* const field = config.FirstOf({"n_shared_experts", "moe_num_shared_experts"});
    const int64_t width = int64_t{config.HasNull(field) ? 0 : config.CountOrZero(field, traits.absent_shared)} * moe.ffn;
    constexpr int64_t kMaxWidth = 1 << 30;
    if (width > kMaxWidth)
      config.Fail(absl::StrCat(field, " is ", config.Text(field), ": too many experts of width ", moe.ffn));
    moe.shared_ffn = static_cast<int32_t>(std::min(width, kMaxWidth));
  } else if (traits.shared == SharedExperts::kByWidth) {
    moe.shared_ffn = config.CountOrZero(config.FirstOf({"shared_expert_intermediate_size", "shared_intermediate_size"}),
                                        traits.absent_shared);
  }
  moe.shared_gate = traits.shared_gate && moe.shared_ffn > 0;
  if (!traits.dense_layers) return;
  const char* const field = config.FirstOf({"first_k_dense_replace", "moe_layer_start_index"});
  moe.dense_layers = config.CountOrZero(field, traits.absent_dense_layers);
  if (moe.dense_layers >= model.layers && model.layers > 0) {
    config.Fail(absl::StrCat(field, " is ", moe.dense_layers, " of ", model.layers, " layers: must leave layers with experts"));
  }
  const int32_t last = model.layers - 1;
  const char* const end = "moe_layer_end_index";  // -1: the last layer
  if (config.Has(end) && config.Text(end) != "-1" && config.CountOrZero(end, last) < last) {
    config.Fail(absl::StrCat(end, " is ", config.Text(end), ": layers without experts after those that have them (layer ", last,
                             ") cannot be planned by this version"));
  }
}

// Reads the experts of a family that has them.
void ReadExperts(const FamilyTraits& family, ConfigReader& config, ModelSpec& model) {
  const ExpertTraits& traits = family.experts;
  if (traits.experts == 0) return;
  MoeSpec& moe = model.moe;
  moe.experts =
      config.Count(config.FirstOf({"num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"}), traits.experts);
  const std::initializer_list<const char*> top_k = {"num_experts_per_tok", "moe_k"};
  moe.top_k = traits.top_k == 0 ? config.Count(top_k) : config.Count(config.FirstOf(top_k), traits.top_k);
  if (traits.ffn != 0) moe.ffn = config.Count("moe_intermediate_size", traits.ffn);
  const bool by_field = traits.weights == ExpertWeights::kByField || traits.weights == ExpertWeights::kByTrueField;
  moe.normalized = by_field ? config.Flag("norm_topk_prob", traits.weights == ExpertWeights::kByTrueField)
                            : traits.weights == ExpertWeights::kNormalized;
  ReadSharedAndDense(traits, config, model);
  // transformers adds the loss that balances the experts only if output_router_logits is true. It takes the means over the
  // tokens of all layers together, and counts all choices of a token. Lynx sums the loss over the layers instead. With top_k /
  // layers as a factor, both losses are equal if all layers are alike.
  if (config.Flag("output_router_logits", false) && model.layers > 0) {
    moe.aux_loss = config.NotNegative("router_aux_loss_coef", traits.aux_loss) * moe.top_k / model.layers;
  }
  const bool sigmoid = traits.scores == RouterScores::kSigmoid;
  const std::string scores = sigmoid ? "sigmoid" : "softmax", method = sigmoid ? "noaux_tc" : "greedy";
  bool other = config.Word("scoring_func", scores) != scores || config.Word("topk_method", method) != method ||
               config.IsAbove("router_jitter_noise", 0);
  const double scale = config.Positive("routed_scaling_factor", traits.absent_weight_scale);
  if (sigmoid) {
    moe.scores = traits.scores;
    moe.weight_scale = scale;
    moe.router_bias = true;  // no file says how fast the bias moves
    other = other || config.Count("n_group", traits.absent_groups) > 1;
  } else {
    other = other || scale != 1;
    // There are two classes for DeepSeek-V2. The class in transformers ignores the field. The class that comes with the model
    // divides the weights by their sum if the field is true, which the engine does not do for this family.
    if (family.latent) other = config.Flag("norm_topk_prob", false) || other;
  }
  if (other) model.plan_only |= Bit(PlanOnlyFeature::kOtherRouting);
}

// Gives the fields of DBRX's configuration, some of which are in objects of their own, the names that other families use.
Json RenamedDbrx(const Json& dbrx) {
  constexpr struct {
    const char *object, *from, *to;
  } kNames[] = {{"attn_config", "kv_n_heads", "num_key_value_heads"},
                {"attn_config", "rope_theta", "rope_theta"},
                {"attn_config", "attn_pdrop", "attention_dropout"},
                {"ffn_config", "ffn_hidden_size", "intermediate_size"},
                {"ffn_config", "moe_num_experts", "num_local_experts"},
                {"ffn_config", "moe_top_k", "num_experts_per_tok"},
                {"ffn_config", "moe_loss_weight", "router_aux_loss_coef"},
                {"ffn_config", "moe_jitter_eps", "router_jitter_noise"},
                {"ffn_config", "moe_normalize_expert_weights", "moe_normalize_expert_weights"}};
  Json renamed = dbrx;
  if (dbrx.contains("emb_pdrop")) renamed["embd_pdrop"] = dbrx.at("emb_pdrop");
  const Json::json_pointer activation("/ffn_config/ffn_act_fn/name");
  if (dbrx.contains(activation)) renamed["hidden_act"] = dbrx.at(activation);
  for (const auto& name : kNames) {
    if (!dbrx.contains(name.object) || !dbrx.at(name.object).is_object()) continue;
    if (dbrx.at(name.object).contains(name.from)) renamed[name.to] = dbrx.at(name.object).at(name.from);
  }
  return renamed;
}

// Reads the order of the norm by which DBRX divides the weights of a token's experts. With order 1, the default, this norm is
// the sum of the weights.
void ReadDbrxWeights(ConfigReader& config, ModelSpec& model) {
  const char* const field = "moe_normalize_expert_weights";
  model.moe.normalized = !config.HasNull(field);
  if (model.moe.normalized && config.Positive(field, 1) != 1) model.plan_only |= Bit(PlanOnlyFeature::kOtherRouting);
}

// A field that a model with experts may not have: a number above `most`, or a list that is not empty.
struct UnplannedField {
  const char* field;
  double most;
  const char* what;
};
constexpr char kShared[] = "experts that every token passes";
constexpr char kUnlike[] = "layers without experts between those that have them";
constexpr UnplannedField kUnplannedFields[] = {
    {"n_shared_experts", 0, kShared},
    {"num_shared_experts", 0, kShared},
    {"moe_num_shared_experts", 0, kShared},
    {"shared_intermediate_size", 0, kShared},
    {"shared_expert_intermediate_size", 0, kShared},
    {"first_k_dense_replace", 0, kUnlike},
    {"moe_layer_start_index", 0, kUnlike},
    {"moe_layer_freq", 1, kUnlike},
    {"decoder_sparse_step", 1, kUnlike},
    {"interleave_moe_layer_step", 1, kUnlike},
    {"moe_layer_interval", 1, kUnlike},
    {"mlp_only_layers", 0, kUnlike},
};

// True if ReadExperts reads the field of a family.
bool ReadsField(const ExpertTraits& traits, const std::string& field) {
  if (field == "n_shared_experts" || field == "moe_num_shared_experts") return traits.shared == SharedExperts::kByCount;
  if (field == "first_k_dense_replace" || field == "moe_layer_start_index") return traits.dense_layers;
  const bool width = field == "shared_expert_intermediate_size" || field == "shared_intermediate_size";
  return width && traits.shared == SharedExperts::kByWidth;
}

// Says why a model with experts cannot be planned. `known`: nullptr if the table has no such family.
std::string WhyNotTheseExperts(const FamilyTraits* known, ConfigReader& config) {
  bool experts = known != nullptr && known->experts.experts > 0;
  for (const char* field : {"num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"}) {
    experts = experts || config.IsAbove(field, 1);
  }
  if (!experts) return "";
  for (const UnplannedField& unplanned : kUnplannedFields) {
    if (known != nullptr && ReadsField(known->experts, unplanned.field)) continue;
    if (!config.IsAbove(unplanned.field, unplanned.most) && !config.IsList(unplanned.field)) continue;
    return absl::StrCat(unplanned.what, " (", unplanned.field, " is ", config.Text(unplanned.field), ")");
  }
  return known != nullptr && known->experts.experts > 0 ? "" : "mixtures of experts of this family";
}

// Refuses layers that are not like those of any family in the table, whatever the family is called.
absl::Status CheckPlanned(const std::string& type, ConfigReader& config, const std::string& file) {
  std::string why = WhyNotPlanned(type);
  const FamilyTraits* const known = FindModelFamily(type);
  if (why.empty()) why = WhyNotTheseExperts(known, config);
  if (why.empty() && config.Has("kv_lora_rank") && (known == nullptr || !known->latent)) {
    why = "latent attention of this family";
  }
  if (why.empty() && config.Flag("is_encoder_decoder", false)) why = "an encoder beside the decoder";
  if (why.empty()) return config.status();
  return absl::InvalidArgumentError(
      absl::StrCat(file, ": model_type is \"", type.substr(0, 60), "\": ", why, " cannot be planned by this version"));
}

struct ReadConfig {
  ModelSpec model;
  const FamilyTraits* family;
};

absl::StatusOr<ReadConfig> Read(const std::string& text, const std::string& file) {
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return absl::InvalidArgumentError(absl::StrCat(file, ": not valid JSON"));
  if (!json.is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(file, ": expected an object with the fields of a model"));
  }
  // Models that also see or hear keep the fields of their language model in a separate object.
  if (json.contains("text_config") && json["text_config"].is_object() && json["text_config"].contains("model_type")) {
    json = Json(json["text_config"]);
  }
  if (json.contains("model_type") && json["model_type"] == "dbrx") json = RenamedDbrx(json);
  ConfigReader config(json, file);
  if (!config.Has("model_type")) {
    return absl::InvalidArgumentError(
        absl::StrCat(file, ": model_type: missing; it names the model's family, such as \"llama\""));
  }
  const std::string type = config.Word("model_type", "");
  LYNX_RETURN_IF_ERROR(config.status());
  LYNX_RETURN_IF_ERROR(CheckPlanned(type, config, file));
  const FamilyTraits* const known = FindModelFamily(type);
  const FamilyTraits& family = known == nullptr ? kUnknown : *known;
  ModelSpec model{.family = family.base};
  model.plan_only = family.plan_only;
  // All models except GPT-2 are trained with attention that never stores its scores. GPT-2 is planned as Megatron-LM's GPT,
  // which stores the scores.
  if (type != "gpt2") model.attention = AttentionKernel::kFused;
  ReadShape(family, config, model);
  ReadExperts(family, config, model);
  if (type == "dbrx") ReadDbrxWeights(config, model);
  ReadLayers(family, config, model);
  ReadDropout(config, model);
  if (model.family == ModelFamily::kLlama) {
    ReadRotary(family, file, config, model);
    ReadWindow(family, config, model);
  } else if ((family.plan_only & Bit(PlanOnlyFeature::kEncoder)) != 0) {
    ReadEncoder(type, config, model);
  } else {
    CheckGptSwitches(config, model);
  }
  if (config.IsAbove("num_nextn_predict_layers", 0)) model.plan_only |= Bit(PlanOnlyFeature::kMultiTokenPrediction);
  if (config.Has("quantization_config")) {
    config.Fail("quantization_config: quantized weights cannot be trained; remove it to plan the model itself");
  }
  ReadDtype(config, model);
  LYNX_RETURN_IF_ERROR(config.status());
  return ReadConfig{model, known};
}

}  // namespace

absl::StatusOr<ModelSpec> ParseModelConfig(const std::string& text, const std::string& file) {
  LYNX_ASSIGN_OR_RETURN(const ReadConfig read, Read(text, file));
  return read.model;
}

absl::StatusOr<ModelOfWeights> ParseModelConfigOfWeights(const std::string& text, const std::string& file) {
  LYNX_ASSIGN_OR_RETURN(const ReadConfig read, Read(text, file));
  if (const PlanOnlyFeatures lacked = LackedFeatures(read.model); lacked != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        file,
        ": such a model can be planned, but its weights cannot be imported, for the engine lacks: ", PlanOnlyText(lacked)));
  }
  LYNX_CHECK(read.family != nullptr);
  if (!read.family->trained()) {
    return absl::InvalidArgumentError(absl::StrCat(file, ": model_type is \"", read.family->model_type,
                                                   "\": such a model can be planned, but its weights cannot be imported, for "
                                                   "the engine does not train models of this family"));
  }
  JobSpec spec;
  spec.model = read.model;
  Normalize(spec);
  spec.model.dtype = DataType::kFloat32;
  spec.model.attention = read.model.latent.any() ? AttentionKernel::kFused : AttentionKernel::kUnfused;
  return ModelOfWeights{spec.model, read.family};
}

}  // namespace lynx::cli
