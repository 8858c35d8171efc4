#include "worker/checkpoint/hugging_face_names.h"

#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "planner/problem/model_families.h"
#include "planner/program/action.h"

namespace lynx::worker {
namespace {

struct Names {
  Parameter parameter;
  const char* gpt;                   // the name after "transformer.", or after "transformer.h.N." in a layer
  bool matrix;                       // true for the matrix of a linear layer, which GPT-2 stores as (in, out)
  std::array<const char*, 3> llama;  // one name for each part of the rows; in a layer it follows "model.layers.N."
  const char* phi3 = nullptr;        // the name of the one tensor that holds all parts of the rows
};

constexpr std::array<Names, 30> kNames = {{
    {Parameter::kEmbedTok, "wte.weight", false, {"model.embed_tokens.weight"}},
    {Parameter::kEmbedPos, "wpe.weight", false, {}},
    {Parameter::kLn1Weight, "ln_1.weight", false, {"input_layernorm.weight"}},
    {Parameter::kLn1Bias, "ln_1.bias", false, {}},
    {Parameter::kQkvWeight,
     "attn.c_attn.weight",
     true,
     {"self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight"},
     "self_attn.qkv_proj.weight"},
    {Parameter::kQkvBias,
     "attn.c_attn.bias",
     false,
     {"self_attn.q_proj.bias", "self_attn.k_proj.bias", "self_attn.v_proj.bias"}},
    {Parameter::kLatentWeight, nullptr, false, {}},  // for these, see LatentTensorsOf
    {Parameter::kLatentNormWeight, nullptr, false, {}},
    {Parameter::kQueryWeight, nullptr, false, {}},
    {Parameter::kKeyValueWeight, nullptr, false, {}},
    {Parameter::kQNormWeight, nullptr, false, {"self_attn.q_norm.weight"}},
    {Parameter::kKNormWeight, nullptr, false, {"self_attn.k_norm.weight"}},
    {Parameter::kProjWeight, "attn.c_proj.weight", true, {"self_attn.o_proj.weight"}},
    {Parameter::kProjBias, "attn.c_proj.bias", false, {}},
    {Parameter::kLn2Weight, "ln_2.weight", false, {"post_attention_layernorm.weight"}},
    {Parameter::kLn2Bias, "ln_2.bias", false, {}},
    {Parameter::kFc1Weight, "mlp.c_fc.weight", true, {"mlp.gate_proj.weight", "mlp.up_proj.weight"}, "mlp.gate_up_proj.weight"},
    {Parameter::kFc1Bias, "mlp.c_fc.bias", false, {}},
    {Parameter::kFc2Weight, "mlp.c_proj.weight", true, {"mlp.down_proj.weight"}},
    {Parameter::kFc2Bias, "mlp.c_proj.bias", false, {}},
    {Parameter::kHeadLnWeight, "ln_f.weight", false, {"model.norm.weight"}},
    {Parameter::kHeadLnBias, "ln_f.bias", false, {}},
    {Parameter::kHeadOutWeight, "lm_head.weight", false, {"lm_head.weight"}},
    {Parameter::kRouterWeight, nullptr, false, {}},  // for these, see kExpertNames
    {Parameter::kSharedFc1Weight, nullptr, false, {}},
    {Parameter::kSharedFc2Weight, nullptr, false, {}},
    {Parameter::kSharedGateWeight, nullptr, false, {}},
    {Parameter::kExpertsFc1Weight, nullptr, false, {}},
    {Parameter::kExpertsFc2Weight, nullptr, false, {}},
    {Parameter::kRouterBias, nullptr, false, {}},
}};

constexpr bool InEnumOrder() {
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (static_cast<size_t>(kNames[i].parameter) != i) return false;
  }
  return true;
}
static_assert(InEnumOrder(), "kNames is indexed by Parameter");

// The names in a layer with experts, after "model.layers.N.". Names of an expert follow `experts`, its number and "."; those of
// the block that every token passes follow `shared`. Null: the family has no such tensor.
struct ExpertNames {
  const char *router, *experts, *gate, *up, *down;
  const char *shared = nullptr, *shared_gate = nullptr, *router_bias = nullptr;
};
constexpr ExpertNames kMixtralNames = {"block_sparse_moe.gate.weight", "block_sparse_moe.experts.", "w1.weight", "w3.weight",
                                       "w2.weight"};
constexpr ExpertNames kQwen3MoeNames = {"mlp.gate.weight", "mlp.experts.", "gate_proj.weight", "up_proj.weight",
                                        "down_proj.weight"};
constexpr ExpertNames kQwen2MoeNames = {"mlp.gate.weight",
                                        "mlp.experts.",
                                        "gate_proj.weight",
                                        "up_proj.weight",
                                        "down_proj.weight",
                                        "mlp.shared_expert.",
                                        "mlp.shared_expert_gate.weight"};
constexpr ExpertNames kGlm4MoeNames = {"mlp.gate.weight",
                                       "mlp.experts.",
                                       "gate_proj.weight",
                                       "up_proj.weight",
                                       "down_proj.weight",
                                       "mlp.shared_experts.",
                                       nullptr,
                                       "mlp.gate.e_score_correction_bias"};  // also those of DeepSeek

const ExpertNames& ExpertNamesOf(WeightNames weights) {
  switch (weights) {
    case WeightNames::kMixtral: return kMixtralNames;
    case WeightNames::kQwen3Moe:
    case WeightNames::kOlmoe: return kQwen3MoeNames;
    case WeightNames::kQwen2Moe: return kQwen2MoeNames;
    case WeightNames::kGlm4Moe:
    case WeightNames::kDeepseekV2:
    case WeightNames::kDeepseekV3: return kGlm4MoeNames;
    default: break;
  }
  LYNX_CHECK(!"a family without experts");
  return kMixtralNames;
}

std::string NameIn(ModelFamily family, const ParameterSlot& slot, const char* name) {
  const bool gpt = family == ModelFamily::kGpt;
  if (slot.layer >= 0) return absl::StrCat(gpt ? "transformer.h." : "model.layers.", slot.layer, ".", name);
  const bool plain = !gpt || slot.parameter == Parameter::kHeadOutWeight;
  return plain ? name : absl::StrCat("transformer.", name);
}

bool IsOfExperts(Parameter parameter) { return parameter >= Parameter::kRouterWeight; }

// Returns the tensors of a router, of all experts of a layer, or of the block that every token passes in addition to them.
std::vector<HuggingFaceTensor> ExpertTensorsOf(const ParameterSlot& slot, const ModelSpec& model, const FamilyTraits& family) {
  const ExpertNames& names = ExpertNamesOf(family.weights);
  std::vector<HuggingFaceTensor> tensors;
  int64_t row = 0;
  const auto append = [&](const std::string& name, int64_t rows) {
    tensors.push_back({.name = NameIn(family.base, slot, name.c_str()),
                       .shape = {rows, slot.global_columns},
                       .piece = {row, rows, 0, slot.global_columns, 0}});
    row += rows;
  };
  const auto append_block = [&](const std::string& prefix, int64_t width) {
    const bool first = slot.parameter == Parameter::kExpertsFc1Weight || slot.parameter == Parameter::kSharedFc1Weight;
    if (!first) return append(prefix + names.down, model.hidden);
    append(prefix + names.gate, width);
    append(prefix + names.up, width);
  };
  switch (slot.parameter) {
    case Parameter::kRouterWeight: append(names.router, model.moe.experts); break;
    case Parameter::kRouterBias:
      append(names.router_bias, 1);
      tensors.back().shape = {slot.global_columns};
      break;
    case Parameter::kSharedGateWeight: append(names.shared_gate, 1); break;
    case Parameter::kSharedFc1Weight:
    case Parameter::kSharedFc2Weight: append_block(names.shared, model.moe.shared_ffn); break;
    default:
      for (int32_t expert = 0; expert < model.moe.experts; ++expert) {
        append_block(absl::StrCat(names.experts, expert, "."), model.expert_ffn());
      }
  }
  LYNX_CHECK(row == slot.global_rows);
  return tensors;
}

bool IsOfLatents(Parameter parameter) {
  return parameter >= Parameter::kLatentWeight && parameter <= Parameter::kKeyValueWeight;
}

// Appends the places of t rows of rotated elements that begin at row `first` of a tensor: Lynx rotates the pairs (i, i + t/2),
// DeepSeek the pairs (2i, 2i + 1).
void AppendRotated(int64_t first, int64_t t, std::vector<int64_t>& rows) {
  for (int64_t i = 0; i < t; ++i) rows.push_back(first + (i < t / 2 ? 2 * i : 2 * (i - t / 2) + 1));
}

// Appends the places of `count` rows that begin at row `first` of a tensor.
void AppendRows(int64_t first, int64_t count, std::vector<int64_t>& rows) {
  for (int64_t i = 0; i < count; ++i) rows.push_back(first + i);
}

// Returns the tensors of a parameter of latent attention.
std::vector<HuggingFaceTensor> LatentTensorsOf(const ParameterSlot& slot, const ModelSpec& model, const FamilyTraits& family) {
  const int64_t p = model.latent.query_rank, r = model.latent.kv_rank, t = model.rotary.dims;
  const int64_t d = model.head_size(), e = model.latent.value_dim, heads = model.heads, columns = slot.global_columns;
  std::vector<HuggingFaceTensor> tensors;
  const auto append = [&](const char* name, int64_t first, int64_t count, std::vector<int64_t> rows) {
    if (count == 0) return;
    const ParameterPiece piece =
        slot.vector ? ParameterPiece{0, 1, first, count, 0} : ParameterPiece{first, count, 0, columns, 0};
    tensors.push_back({.name = NameIn(family.base, slot, name),
                       .shape = slot.vector ? std::vector<int64_t>{count} : std::vector<int64_t>{count, columns},
                       .piece = piece,
                       .rows = std::move(rows)});
  };
  std::vector<int64_t> rows;
  switch (slot.parameter) {
    case Parameter::kLatentWeight:
      append("self_attn.q_a_proj.weight", 0, p, {});
      AppendRows(0, r, rows);
      AppendRotated(r, t, rows);
      append("self_attn.kv_a_proj_with_mqa.weight", p, r + t, std::move(rows));
      break;
    case Parameter::kLatentNormWeight:
      append("self_attn.q_a_layernorm.weight", 0, p, {});
      append("self_attn.kv_a_layernorm.weight", p, r, {});
      break;
    case Parameter::kQueryWeight:
      for (int64_t head = 0; head < heads; ++head) {
        AppendRotated(head * d + d - t, t, rows);
        AppendRows(head * d, d - t, rows);
      }
      append(p == 0 ? "self_attn.q_proj.weight" : "self_attn.q_b_proj.weight", 0, slot.global_rows, std::move(rows));
      break;
    default:
      for (int64_t head = 0; head < heads; ++head) AppendRows(head * (d - t + e), d - t, rows);
      for (int64_t head = 0; head < heads; ++head) AppendRows(head * (d - t + e) + d - t, e, rows);
      append("self_attn.kv_b_proj.weight", 0, slot.global_rows, std::move(rows));
  }
  return tensors;
}

}  // namespace

std::vector<HuggingFaceTensor> HuggingFaceTensorsOf(const ParameterSlot& slot, const ModelSpec& model,
                                                    const FamilyTraits& family) {
  if (IsOfLatents(slot.parameter)) return LatentTensorsOf(slot, model, family);
  if (IsOfExperts(slot.parameter)) return ExpertTensorsOf(slot, model, family);
  const Names& names = kNames[static_cast<size_t>(slot.parameter)];
  const bool gpt = family.base == ModelFamily::kGpt;
  const bool together = gpt || (family.weights == WeightNames::kPhi3 && names.phi3 != nullptr);
  // The slot of a whole parameter has one piece for each part of its rows (or of its length, if it is a vector). With
  // `together`, the family stores all parts in one tensor, so one piece describes all of them.
  std::vector<ParameterPiece> pieces = slot.pieces;
  if (together) pieces = {{0, slot.global_rows, 0, slot.global_columns, 0}};
  std::vector<HuggingFaceTensor> tensors;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const ParameterPiece& piece = pieces[i];
    HuggingFaceTensor tensor;
    LYNX_CHECK(together || (i < names.llama.size() && names.llama[i] != nullptr));
    const char* const name = gpt ? names.gpt : together ? names.phi3 : names.llama[i];
    LYNX_CHECK(name != nullptr);
    tensor.name = NameIn(family.base, slot, name);
    tensor.piece = piece;
    tensor.transposed = family.weights == WeightNames::kGpt2 && names.matrix;
    tensor.shape = slot.vector         ? std::vector<int64_t>{piece.columns}
                   : tensor.transposed ? std::vector<int64_t>{piece.columns, piece.rows}
                                       : std::vector<int64_t>{piece.rows, piece.columns};
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

bool IsHuggingFaceConstant(const std::string& name) {
  for (const std::string_view suffix : {".attn.bias", ".attn.masked_bias", ".rotary_emb.inv_freq"}) {
    if (name.ends_with(suffix)) return true;
  }
  return false;
}

namespace {

using Config = nlohmann::ordered_json;

// Returns the rotary scaling in the form of transformers' rope_scaling, or null if the model has no scaling.
Config RopeScalingConfig(const ModelSpec& model) {
  const RotarySpec& r = model.rotary;
  Config scaling = {{"rope_type", EnumName(r.scaling)}, {"factor", r.factor}};
  switch (r.scaling) {
    case RopeScaling::kNone: return nullptr;
    case RopeScaling::kLinear: break;
    case RopeScaling::kDynamic: scaling["original_max_position_embeddings"] = r.original_seq; break;
    case RopeScaling::kLlama3:
      scaling["original_max_position_embeddings"] = r.original_seq;
      scaling["low_freq_factor"] = r.low_freq_factor;
      scaling["high_freq_factor"] = r.high_freq_factor;
      break;
    case RopeScaling::kYarn:
      scaling["original_max_position_embeddings"] = r.original_seq;
      scaling["beta_fast"] = r.beta_fast;
      scaling["beta_slow"] = r.beta_slow;
      // The classes of DeepSeek multiply cosines and sines by the quotient of the factors of mscale and mscale_all_dim, and the
      // scores by the square of the latter.
      if (r.mscale_all_dim > 0) scaling["mscale_all_dim"] = r.mscale_all_dim;
      if (r.mscale_all_dim > 0 && r.attention_factor == 1) {
        scaling["mscale"] = r.mscale_all_dim;
      } else if (r.attention_factor > 0) {
        scaling["attention_factor"] = r.attention_factor;
      }
      break;
  }
  return scaling;
}

// Returns the value of max_position_embeddings for the exported model. For dynamic scaling, transformers computes the scaling
// from this value, and from the real length if a sequence is longer. For yarn, some versions of transformers ignore `factor`
// and compute it as this value divided by the original number of positions.
int64_t PositionsOf(const ModelSpec& model) {
  const RotarySpec& rotary = model.rotary;
  if (rotary.scaling == RopeScaling::kDynamic) return rotary.original_seq;
  if (rotary.scaling == RopeScaling::kYarn) return std::llround(rotary.factor * rotary.original_seq);
  return model.seq;
}

// Returns the share of a head's elements that is rotated.
double RotaryShare(const ModelSpec& model) {
  return static_cast<double>(model.rotary.dims == 0 ? model.head_size() : model.rotary.dims) / model.head_size();
}

Config GptConfig(const ModelSpec& model, const FamilyTraits& family) {
  Config config = {{"n_layer", model.layers},
                   {"n_embd", model.hidden},
                   {"n_head", model.heads},
                   {"n_inner", model.ffn},
                   {"n_positions", model.seq},
                   {"vocab_size", model.vocab},
                   {"activation_function", family.weights == WeightNames::kGpt2 ? "gelu_new" : "gelu_pytorch_tanh"},
                   {"layer_norm_epsilon", model.norm_epsilon},
                   {"resid_pdrop", model.dropout},
                   {"embd_pdrop", model.dropout},
                   {"attn_pdrop", model.dropout}};
  if (family.weights == WeightNames::kGptBigCode) config["multi_query"] = true;
  return config;
}

// Adds the fields of experts. transformers takes the means of its balancing loss over the tokens of all layers together, and
// counts all choices of a token; so its factor is that of Lynx times layers / top_k (see cli/spec/model_config.cc). Its
// classes for GLM-4.5 and DeepSeek have no such loss.
void AddExperts(const ModelSpec& model, const FamilyTraits& family, Config& config) {
  const MoeSpec& moe = model.moe;
  config["num_experts_per_tok"] = moe.top_k;
  // The classes of Mixtral and OLMoE have no layers without experts, so their intermediate_size is the width of an expert.
  const bool plain_width = family.weights == WeightNames::kMixtral || family.weights == WeightNames::kOlmoe;
  config[plain_width ? "intermediate_size" : "moe_intermediate_size"] = model.expert_ffn();
  if (family.weights == WeightNames::kMixtral) {
    config["num_local_experts"] = moe.experts;
  } else {
    config["norm_topk_prob"] = moe.normalized;
  }
  if (family.latent) {
    config["n_routed_experts"] = moe.experts;
    config["n_shared_experts"] = moe.shared_ffn / model.expert_ffn();
    config["first_k_dense_replace"] = moe.dense_layers;
    config["moe_layer_freq"] = 1;
    config["routed_scaling_factor"] = moe.weight_scale;
    config["n_group"] = 1;  // a token chooses among all experts
    config["topk_group"] = 1;
    config["scoring_func"] = EnumName(moe.scores);
    config["topk_method"] = moe.scores == RouterScores::kSigmoid ? "noaux_tc" : "greedy";
    return;
  }
  if (family.weights == WeightNames::kGlm4Moe) {
    config["n_routed_experts"] = moe.experts;
    config["n_shared_experts"] = moe.shared_ffn / model.expert_ffn();
    config["first_k_dense_replace"] = moe.dense_layers;
    config["routed_scaling_factor"] = moe.weight_scale;
    config["n_group"] = 1;  // a token chooses among all experts
    config["topk_group"] = 1;
    config["attention_bias"] = model.qkv_bias;
    config["use_qk_norm"] = model.qk_norm;
    config["partial_rotary_factor"] = RotaryShare(model);
    return;
  }
  if (family.weights == WeightNames::kOlmoe) {
    config["num_experts"] = moe.experts;
    config["clip_qkv"] = nullptr;
  } else if (family.weights != WeightNames::kMixtral) {
    config["num_experts"] = moe.experts;
    config["decoder_sparse_step"] = 1;  // every layer has experts
    config["mlp_only_layers"] = Config::array();
  }
  if (family.weights == WeightNames::kQwen2Moe) config["shared_expert_intermediate_size"] = moe.shared_ffn;
  config["router_aux_loss_coef"] = moe.aux_loss * model.layers / moe.top_k;
}

Config LlamaConfig(const ModelSpec& model, const FamilyTraits& family) {
  Config config = {{"num_hidden_layers", model.layers},
                   {"hidden_size", model.hidden},
                   {"num_attention_heads", model.heads},
                   {"num_key_value_heads", model.key_heads()},
                   {"head_dim", model.head_size()},
                   {"intermediate_size", model.ffn},
                   {"max_position_embeddings", PositionsOf(model)},
                   {"vocab_size", model.vocab},
                   {"hidden_act", "silu"},
                   {"rms_norm_eps", model.norm_epsilon},
                   {"rope_theta", model.rotary.theta},
                   {"rope_scaling", RopeScalingConfig(model)}};
  if (family.weights == WeightNames::kPhi3) {
    config.erase("head_dim");  // this family's configuration class has no head_dim
    config["partial_rotary_factor"] = RotaryShare(model);
    config["original_max_position_embeddings"] = PositionsOf(model);
  } else if (family.latent) {
    config["attention_bias"] = false;
    config["head_dim"] = model.rotary.dims;  // in these classes, the rotated elements of a head
    config["qk_rope_head_dim"] = model.rotary.dims;
    config["qk_nope_head_dim"] = model.head_size() - model.rotary.dims;
    config["v_head_dim"] = model.latent.value_dim;
    config["kv_lora_rank"] = model.latent.kv_rank;
    config["q_lora_rank"] = model.latent.query_rank == 0 ? Config(nullptr) : Config(model.latent.query_rank);
    config["rope_interleave"] = true;
  } else if (family.weights == WeightNames::kOlmoe) {
    config.erase("head_dim");
    config["attention_bias"] = false;
  } else if (!family.qkv_bias) {
    config["attention_bias"] = false;
    config["mlp_bias"] = false;
  }
  if (family.window == WindowField::kIfUsed) config["use_sliding_window"] = model.window != 0;
  if (family.window == WindowField::kIfUsed && model.window != 0) config["max_window_layers"] = 0;
  if (family.window != WindowField::kNone)
    config["sliding_window"] = model.window == 0 ? Config(nullptr) : Config(model.window);
  if (model.moe.any()) AddExperts(model, family, config);
  return config;
}

}  // namespace

std::string HuggingFaceConfigText(const ModelSpec& model, const FamilyTraits& family) {
  Config config = {{"architectures", {family.model_class}}, {"model_type", family.model_type}};
  config.update(model.family == ModelFamily::kGpt ? GptConfig(model, family) : LlamaConfig(model, family));
  config["tie_word_embeddings"] = model.tied_embeddings;
  config["torch_dtype"] = "float32";
  // Lynx trains on token ids and has no special tokens.
  config["bos_token_id"] = nullptr;
  config["eos_token_id"] = nullptr;
  return config.dump(2) + "\n";
}

}  // namespace lynx::worker
