// The config.json of encoders (BERT, RoBERTa).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/spec/job_file.h"
#include "cli/spec/model_config.h"
#include "planner/problem/layer_graph.h"
#include "tests/cli/spec/model_config_texts.h"

namespace lynx::cli {
namespace {

using ::testing::HasSubstr;

TEST(ModelConfig, ReadsEncoders) {
  const std::string bert = R"({"model_type": "bert", "hidden_act": "gelu", "hidden_size": 768, "intermediate_size": 3072,
      "max_position_embeddings": 512, "num_attention_heads": 12, "num_hidden_layers": 12, "hidden_dropout_prob": 0.1,
      "attention_probs_dropout_prob": 0.1, "layer_norm_eps": 1e-12, "type_vocab_size": 2, "vocab_size": 30522})";
  const auto model = ParseModelConfig(bert, "config.json");
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->family, ModelFamily::kGpt);
  EXPECT_EQ(model->plan_only,
            Bit(PlanOnlyFeature::kEncoder) | Bit(PlanOnlyFeature::kPostNorms) | Bit(PlanOnlyFeature::kExactGelu));
  EXPECT_EQ(model->seq, 512);
  EXPECT_EQ(model->dropout, 0.1);
  EXPECT_EQ(ModelParameters(*model), 109'514'298) << "those of BertForMaskedLM";
  // RoBERTa's two first positions are of no token. It has one type of tokens where BERT has two.
  std::string text = Replaced(Replaced(bert, "\"bert\"", "\"roberta\""), "30522", "50265");
  text = Replaced(text, "\"max_position_embeddings\": 512", "\"max_position_embeddings\": 514");
  const auto roberta = ParseModelConfig(text, "config.json");
  ASSERT_TRUE(roberta.ok()) << roberta.status();
  EXPECT_EQ(roberta->seq, 512);
  EXPECT_EQ(ModelParameters(*roberta), 124'697'433 - (2 - 1) * 768);
  EXPECT_THAT(ErrorOf(Replaced(bert, "\"hidden_size\"", "\"is_decoder\": true, \"hidden_size\"")),
              HasSubstr("is_decoder is true: such a model is no encoder"));
  EXPECT_THAT(ErrorOf(Replaced(text, "514", "2")), HasSubstr("no position is left"));
  EXPECT_THAT(ErrorOf(Replaced(bert, "attention_probs_dropout_prob\": 0.1", "attention_probs_dropout_prob\": 0.2")),
              HasSubstr("must equal hidden_dropout_prob"));
  const auto relative = ParseModelConfig(
      Replaced(bert, "\"hidden_size\"", "\"position_embedding_type\": \"relative_key\", \"hidden_size\""), "config.json");
  ASSERT_TRUE(relative.ok()) << relative.status();
  EXPECT_NE(relative->plan_only & Bit(PlanOnlyFeature::kOtherPositions), 0U);
  const auto weights = ParseModelConfigOfWeights(bert, "config.json");
  EXPECT_THAT(std::string(weights.status().message()), HasSubstr("encoder (attention in both directions"));
  const std::string job =
      "apiVersion: lynx/v1\nkind: TrainingJob\nname: bert\nmodel: {config: config.json, family: FAMILY}\ndata: {path: "
      "/data/a}\n"
      "train: {steps: 5, globalBatch: 16}\nresources: {ranks: 1}\n";
  const auto status = [&](const char* family) {
    return ParseJobFile(Replaced(job, "FAMILY", family), "job.yaml", "/", {}, [&](const std::string&) { return bert; })
        .status();
  };
  EXPECT_EQ(status("gpt"), absl::OkStatus());
  EXPECT_THAT(std::string(status("llama").message()), HasSubstr("model.planOnly is encoder: is for model.family gpt"));
}

}  // namespace
}  // namespace lynx::cli
