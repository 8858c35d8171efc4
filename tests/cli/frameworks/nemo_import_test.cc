#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "cli/frameworks/audit.h"
#include "cli/frameworks/megatron_arguments.h"
#include "cli/frameworks/nemo_keys.h"

namespace lynx::cli {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A configuration in the manner of those that people keep.
constexpr char kYaml[] = R"(
name: gpt
trainer: {devices: 8, num_nodes: 2, accelerator: gpu, precision: bf16-mixed, max_steps: 500, gradient_clip_val: 1.0, logger: false}
exp_manager:
  name: gpt
model:
  micro_batch_size: 2
  global_batch_size: 128
  tensor_model_parallel_size: 4
  pipeline_model_parallel_size: 2
  virtual_pipeline_model_parallel_size: null
  sequence_parallel: True
  encoder_seq_length: 4096
  max_position_embeddings: ${.encoder_seq_length}
  num_layers: 24
  hidden_size: 2048
  ffn_hidden_size: 5632
  num_attention_heads: 16
  num_query_groups: 8
  hidden_dropout: 0.0
  attention_dropout: 0.0
  normalization: rmsnorm
  layernorm_epsilon: 1e-5
  bias: False
  activation: fast-swiglu
  position_embedding_type: rope
  rotary_percentage: 1.0
  share_embeddings_and_output_weights: False
  use_flash_attention: True
  make_vocab_size_divisible_by: 128
  activations_checkpoint_granularity: full
  activations_checkpoint_method: uniform
  activations_checkpoint_num_layers: 1
  tokenizer: {library: megatron, type: GPT2BPETokenizer, vocab_file: v.json}
  optim:
    name: distributed_fused_adam
    lr: 2e-4
    betas: [0.9, 0.95]
    sched: {name: CosineAnnealing, warmup_steps: 50, min_lr: 2e-5}
  data:
    data_prefix: [1.0, /data/corpus_text]
)";

ImportRequest RequestOf(const std::string& text) {
  ImportRequest request;
  request.text = text;
  request.file = "gpt.yaml";
  request.folder = "/runs";
  return request;
}
ImportedRun Imported(const std::string& text) {
  absl::StatusOr<ImportedRun> run = ImportRun(Framework::kNemo, RequestOf(text));
  EXPECT_TRUE(run.ok()) << run.status() << "\n" << text;
  return run.ok() ? *std::move(run) : ImportedRun();
}
std::string ErrorOf(const std::string& text) {
  const absl::StatusOr<ImportedRun> run = ImportRun(Framework::kNemo, RequestOf(text));
  EXPECT_EQ(run.status().code(), absl::StatusCode::kInvalidArgument) << text;
  return std::string(run.status().message());
}
std::string With(const std::string& from, const std::string& to) {
  EXPECT_THAT(kYaml, HasSubstr(from));
  return absl::StrReplaceAll(kYaml, {{from, to}});
}

TEST(ImportNemo, ReadsAConfiguration) {
  const ImportedRun run = Imported(kYaml);
  EXPECT_EQ(run.framework, Framework::kNemo);
  EXPECT_EQ(run.devices, 16);
  const ModelSpec& model = run.job.model;
  EXPECT_EQ(model.family, ModelFamily::kLlama);
  EXPECT_EQ(model.layers, 24);
  EXPECT_EQ(model.hidden, 2048);
  EXPECT_EQ(model.ffn, 5632);
  EXPECT_EQ(model.kv_heads, 8);
  EXPECT_EQ(model.seq, 4096);
  EXPECT_EQ(model.vocab, 50688) << "50257, padded to a multiple of 128 * 4";
  EXPECT_EQ(model.dtype, DataType::kBfloat16);
  EXPECT_EQ(model.attention, AttentionKernel::kFused);
  EXPECT_EQ(model.plan_only, 0U);
  EXPECT_FALSE(model.tied_embeddings);
  EXPECT_EQ(run.job.parallel.tp, 4);
  EXPECT_EQ(run.job.parallel.pp, 2);
  EXPECT_EQ(run.job.parallel.dp, 2);
  EXPECT_EQ(run.job.parallel.zero, ZeroStage::kOptimizer);
  EXPECT_EQ(run.job.parallel.sequence_parallel, Choice::kOn);
  EXPECT_TRUE(run.traits.overlaps_data_reduction);
  EXPECT_EQ(run.job.recompute, RecomputeMode::kFull);
  EXPECT_EQ(run.job.train.steps, 500);
  EXPECT_EQ(run.job.train.schedule, LrSchedule::kCosine);
  EXPECT_EQ(run.job.train.optimizer.beta2, 0.95);
  EXPECT_THAT(run.unknown, IsEmpty());
}

TEST(ImportNemo, FollowsReferencesAndNames) {
  EXPECT_EQ(Imported(With("ffn_hidden_size: 5632", "ffn_hidden_size: ${model.encoder_seq_length}")).job.model.ffn, 4096);
  EXPECT_THAT(ErrorOf(With("ffn_hidden_size: 5632", "ffn_hidden_size: ${multiply:2,3}")),
              HasSubstr("model.ffn_hidden_size is ${multiply:2,3}, which is not a key of the file"));
  const ImportedRun run = Imported(With("  bias: False", "  bias: False\n  fp8: True\n  odd_key: 3"));
  EXPECT_EQ(run.job.model.matmul_type, MatmulType::kFloat8);
  EXPECT_THAT(run.unknown, testing::ElementsAre("model.odd_key: 3"));
  EXPECT_THAT(Imported(With("precision: bf16-mixed", "precision: 16")).not_taken,
              Contains(HasSubstr("trainer.precision 16: planned")));
}

TEST(ImportNemo, SaysWhatIsWrongByKey) {
  EXPECT_THAT(ErrorOf(With("  hidden_size: 2048\n", "")), HasSubstr("gpt.yaml: model.hidden_size is missing"));
  EXPECT_THAT(ErrorOf(With("devices: 8", "devices: auto")), HasSubstr("give --devices N"));
  EXPECT_THAT(ErrorOf(With("  bias: False", "  bias: False\n  num_moe_experts: 8")),
              HasSubstr("model.num_moe_experts 8: mixtures"));
  EXPECT_THAT(ErrorOf(With("fast-swiglu", "reglu")), HasSubstr("model.activation is reglu"));
  EXPECT_THAT(ErrorOf("trainer: {devices: 1}"), HasSubstr("has no 'model'"));
  ImportRequest request = RequestOf(kYaml);
  request.variables = {{"TP", "1"}};
  EXPECT_THAT(std::string(ImportRun(Framework::kNemo, request).status().message()), HasSubstr("a YAML file has no variables"));
}

TEST(ImportNemo, ReadsItsLogs) {
  const ImportedRun run = Imported(kYaml);
  const absl::StatusOr<RunLog> old = ReadRunLog(
      run, "Epoch 0: :   3%|x| 90/3015 [v_num=0, reduced_train_loss=7.1, global_step=9e+1, train_step_timing in s=0.615]\n",
      "log");
  ASSERT_TRUE(old.ok()) << old.status();
  EXPECT_EQ(old->steps.at(0).step, 90);
  EXPECT_EQ(old->steps.at(0).time, Nanos(615'000'000));
  const absl::StatusOr<RunLog> recent = ReadRunLog(
      run,
      "Training epoch 0, iteration 7/9 | lr: 3e-05 | global_step: 7 | reduced_train_loss: 1.2 | train_step_timing in s: 1.25\n",
      "log");
  ASSERT_TRUE(recent.ok()) << recent.status();
  EXPECT_EQ(recent->steps.at(0).step, 7);
  EXPECT_EQ(recent->steps.at(0).time, Nanos(1'250'000'000));
}

TEST(ImportNemo, SettingsHaveItsNames) {
  const ImportedRun run = Imported(kYaml);
  const StepRequest request{
      .model = run.job.model, .layout = PinnedLayout(run.job.parallel), .recompute = RecomputeMode::kFull};
  const std::vector<RunSetting> settings = SettingsOf(Framework::kNemo, request);
  EXPECT_THAT(settings, Contains(RunSetting{"model.tensor_model_parallel_size", "4"}));
  EXPECT_THAT(settings, Contains(RunSetting{"model.sequence_parallel", "True"}));
  EXPECT_THAT(settings, Contains(RunSetting{"model.optim.name", "distributed_fused_adam"}));
  EXPECT_EQ(SettingText(Framework::kNemo, settings[0]), "model.tensor_model_parallel_size: 4");
}

TEST(NemoKeys, NameFlagsOfMegatron) {
  for (const NemoKey& key : NemoKeys()) {
    bool known = false;
    for (const MegatronFlag& flag : MegatronFlags()) known = known || std::string(flag.flag) == key.flag;
    for (const MegatronMissing& flag : MegatronMissingFlags()) known = known || std::string(flag.flag) == key.flag;
    EXPECT_TRUE(known) << key.flag;
  }
}

}  // namespace
}  // namespace lynx::cli
