#include "worker/checkpoint/hugging_face_names.h"

#include <array>
#include <nlohmann/json.hpp>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "planner/action.h"

namespace lynx {
namespace {

struct Names {
  Parameter parameter;
  const char* gpt;                   // after "transformer.", in a layer after "transformer.h.N."
  bool transposed;                   // in GPT-2
  std::array<const char*, 3> llama;  // for each part of the rows; in a layer after "model.layers.N."
};

constexpr std::array<Names, 17> kNames = {{
    {Parameter::kEmbedTok, "wte.weight", false, {"model.embed_tokens.weight"}},
    {Parameter::kEmbedPos, "wpe.weight", false, {}},
    {Parameter::kLn1Weight, "ln_1.weight", false, {"input_layernorm.weight"}},
    {Parameter::kLn1Bias, "ln_1.bias", false, {}},
    {Parameter::kQkvWeight,
     "attn.c_attn.weight",
     true,
     {"self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight"}},
    {Parameter::kQkvBias, "attn.c_attn.bias", false, {}},
    {Parameter::kProjWeight, "attn.c_proj.weight", true, {"self_attn.o_proj.weight"}},
    {Parameter::kProjBias, "attn.c_proj.bias", false, {}},
    {Parameter::kLn2Weight, "ln_2.weight", false, {"post_attention_layernorm.weight"}},
    {Parameter::kLn2Bias, "ln_2.bias", false, {}},
    {Parameter::kFc1Weight, "mlp.c_fc.weight", true, {"mlp.gate_proj.weight", "mlp.up_proj.weight"}},
    {Parameter::kFc1Bias, "mlp.c_fc.bias", false, {}},
    {Parameter::kFc2Weight, "mlp.c_proj.weight", true, {"mlp.down_proj.weight"}},
    {Parameter::kFc2Bias, "mlp.c_proj.bias", false, {}},
    {Parameter::kHeadLnWeight, "ln_f.weight", false, {"model.norm.weight"}},
    {Parameter::kHeadLnBias, "ln_f.bias", false, {}},
    {Parameter::kHeadOutWeight, "lm_head.weight", false, {"lm_head.weight"}},
}};

constexpr bool InEnumOrder() {
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (static_cast<size_t>(kNames[i].parameter) != i) return false;
  }
  return true;
}
static_assert(InEnumOrder(), "kNames is indexed by Parameter");

std::string NameIn(ModelFamily family, const ParameterSlot& slot, const char* name) {
  const bool gpt = family == ModelFamily::kGpt;
  if (slot.layer >= 0) return absl::StrCat(gpt ? "transformer.h." : "model.layers.", slot.layer, ".", name);
  const bool plain = !gpt || slot.parameter == Parameter::kHeadOutWeight;
  return plain ? name : absl::StrCat("transformer.", name);
}

}  // namespace

std::vector<HuggingFaceTensor> HuggingFaceTensorsOf(const ParameterSlot& slot, const ModelSpec& model) {
  const Names& names = kNames[static_cast<size_t>(slot.parameter)];
  const bool gpt = model.family == ModelFamily::kGpt;
  // A slot of the whole has a piece for each part of its rows. GPT-2 keeps them together.
  std::vector<ParameterPiece> pieces = slot.pieces;
  if (gpt) pieces = {{0, slot.global_rows, 0, slot.global_columns, 0}};
  std::vector<HuggingFaceTensor> tensors;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const ParameterPiece& piece = pieces[i];
    HuggingFaceTensor tensor;
    LYNX_CHECK(gpt || (i < names.llama.size() && names.llama[i] != nullptr));
    tensor.name = NameIn(model.family, slot, gpt ? names.gpt : names.llama[i]);
    tensor.piece = piece;
    tensor.transposed = gpt && names.transposed;
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

std::string HuggingFaceConfigText(const ModelSpec& model) {
  nlohmann::ordered_json config;
  if (model.family == ModelFamily::kGpt) {
    config = {{"architectures", {"GPT2LMHeadModel"}},
              {"model_type", "gpt2"},
              {"n_layer", model.layers},
              {"n_embd", model.hidden},
              {"n_head", model.heads},
              {"n_inner", model.ffn},
              {"n_positions", model.seq},
              {"vocab_size", model.vocab},
              {"activation_function", "gelu_new"},
              {"layer_norm_epsilon", 1e-5},
              {"resid_pdrop", model.dropout},
              {"embd_pdrop", model.dropout},
              {"attn_pdrop", model.dropout}};
  } else {
    config = {{"architectures", {"LlamaForCausalLM"}},
              {"model_type", "llama"},
              {"num_hidden_layers", model.layers},
              {"hidden_size", model.hidden},
              {"num_attention_heads", model.heads},
              {"num_key_value_heads", model.key_heads()},
              {"intermediate_size", model.ffn},
              {"max_position_embeddings", model.seq},
              {"vocab_size", model.vocab},
              {"hidden_act", "silu"},
              {"rms_norm_eps", 1e-5},
              {"rope_theta", 10000.0},
              {"attention_bias", false},
              {"mlp_bias", false}};
  }
  config["tie_word_embeddings"] = model.tied_embeddings;
  config["torch_dtype"] = "float32";
  // Lynx trains on ids and knows no special ones.
  config["bos_token_id"] = nullptr;
  config["eos_token_id"] = nullptr;
  return config.dump(2) + "\n";
}

}  // namespace lynx
