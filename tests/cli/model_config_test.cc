#include "cli/model_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lynx {
namespace {

using ::testing::HasSubstr;

// As published with the models, less what is not looked at.
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

std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

std::string ErrorOf(const std::string& text) {
  const absl::StatusOr<ModelSpec> model = ParseModelConfig(text, "config.json");
  EXPECT_EQ(model.status().code(), absl::StatusCode::kInvalidArgument) << text;
  return std::string(model.status().message());
}

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
                               .dtype = DataType::kBfloat16}));
  // As many key heads as heads is the default, and written as such.
  const auto whole =
      ParseModelConfig(Replaced(kLlama, "\"num_key_value_heads\": 8", "\"num_key_value_heads\": 64"), "c");
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_EQ(whole->kv_heads, 0);
  const auto absent = ParseModelConfig(Replaced(kLlama, "\"num_key_value_heads\": 8, ", ""), "c");
  ASSERT_TRUE(absent.ok()) << absent.status();
  EXPECT_EQ(absent->kv_heads, 0);
}

TEST(ModelConfig, ReadsMistralWithoutASlidingWindow) {
  const absl::StatusOr<ModelSpec> model = ParseModelConfig(kMistral, "config.json");
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->ffn, 14336);
  EXPECT_EQ(model->kv_heads, 8);
  EXPECT_THAT(ErrorOf(Replaced(kMistral, "\"sliding_window\": null", "\"sliding_window\": 4096")),
              HasSubstr("config.json: sliding_window is 4096: must be null"));
  EXPECT_THAT(ErrorOf(Replaced(kMistral, "\"sliding_window\": null, ", "")), HasSubstr("missing, which means 4096"));
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
        BadConfig{"NoType", kGpt2, "\"model_type\": \"gpt2\", ", "",
                  "model_type: missing; families that are taken: gpt2"},
        BadConfig{"TypeNotText", kGpt2, "\"gpt2\"", "7", "model_type is 7: must be a string"},
        BadConfig{"KnownButNotTaken", kGpt2, "\"gpt2\"", "\"gpt_neox\"",
                  "model_type is \"gpt_neox\": rotary positions with LayerNorm, and parallel residuals are not"},
        BadConfig{"Qwen", kLlama, "\"llama\"", "\"qwen2\"", "biases of the query, key and value projections are not"},
        BadConfig{"Unknown", kGpt2, "\"gpt2\"", "\"frobnicator\"", "\"frobnicator\": not known here; families"},
        BadConfig{"Missing", kGpt2, "\"n_layer\": 12, ", "", "n_layer: missing; it is required"},
        BadConfig{"NotWhole", kGpt2, "\"n_layer\": 12", "\"n_layer\": 12.5",
                  "n_layer is 12.5: must be a whole number"},
        BadConfig{"Negative", kGpt2, "\"n_layer\": 12", "\"n_layer\": -12", "n_layer is -12: must be a whole number"},
        BadConfig{"Huge", kGpt2, "\"n_layer\": 12", "\"n_layer\": 18446744073709551615", "n_layer is 1844"},
        BadConfig{"List", kGpt2, "\"n_layer\": 12", "\"n_layer\": [12]", "n_layer is a list: must be"},
        BadConfig{"Relu", kGpt2, "gelu_new", "relu", "activation_function is \"relu\": must be a form of gelu"},
        BadConfig{"TwoRates", kGpt2, "\"attn_pdrop\": 0.1", "\"attn_pdrop\": 0.2",
                  "attn_pdrop is 0.2: must equal resid_pdrop"},
        BadConfig{"RateOfOne", kGpt2, "\"resid_pdrop\": 0.1", "\"resid_pdrop\": 1",
                  "resid_pdrop is 1: must be a number from 0"},
        BadConfig{"CrossAttention", kGpt2, "\"n_layer\"", "\"add_cross_attention\": true, \"n_layer\"",
                  "add_cross_attention is true: cross-attention blocks are not in Lynx's layers"},
        BadConfig{"Unscaled", kGpt2, "\"n_layer\"", "\"scale_attn_weights\": false, \"n_layer\"",
                  "scale_attn_weights is false"},
        BadConfig{"LayerScales", kGpt2, "\"n_layer\"", "\"scale_attn_by_inverse_layer_idx\": true, \"n_layer\"",
                  "scale_attn_by_inverse_layer_idx is true"},
        BadConfig{"FlagNotBool", kGpt2, "\"n_layer\"", "\"tie_word_embeddings\": 1, \"n_layer\"",
                  "tie_word_embeddings is 1: must be true or false"},
        BadConfig{"Gelu", kLlama, "\"silu\"", "\"gelu\"", "hidden_act is \"gelu\": must be silu"},
        BadConfig{"HeadDim", kLlama, "\"rms_norm_eps\"", "\"head_dim\": 64, \"rms_norm_eps\"",
                  "head_dim is 64: must be hidden_size"},
        BadConfig{"AttentionBias", kLlama, "\"rms_norm_eps\"", "\"attention_bias\": true, \"rms_norm_eps\"",
                  "attention_bias is true: biases of the attention projections are not"},
        BadConfig{"MlpBias", kLlama, "\"rms_norm_eps\"", "\"mlp_bias\": true, \"rms_norm_eps\"", "mlp_bias is true"},
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
  EXPECT_THAT(ErrorOf("{\"model_type\": \"gpt2\", \"n_layer\": " + std::string(100'000, '[') +
                      std::string(100'000, ']') + "}"),
              HasSubstr("n_layer is a list"));
  EXPECT_THAT(ErrorOf("{\"model_type\": \"\xff\"}"), HasSubstr("not valid JSON"));
}

}  // namespace
}  // namespace lynx
