#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "cli/frameworks/audit.h"
#include "cli/frameworks/megatron_arguments.h"
#include "cli/frameworks/nemo_keys.h"

namespace lynx::cli {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A configuration like those that people write.
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
  const std::string full =
      "activations_checkpoint_granularity: full\n  activations_checkpoint_method: uniform\n"
      "  activations_checkpoint_num_layers: 1";
  const JobSpec modules =
      Imported(With(full, "activations_checkpoint_granularity: selective\n  recompute_modules: [mlp, core_attn]")).job;
  EXPECT_EQ(modules.recompute, RecomputeMode::kSelective);
  EXPECT_EQ(modules.recompute_options.modules, (std::vector{RecomputeModule::kCoreAttn, RecomputeModule::kMlp}));
  EXPECT_THAT(Imported(With("precision: bf16-mixed", "precision: 16")).not_taken,
              Contains(HasSubstr("trainer.precision 16: planned")));
}

TEST(ImportNemo, RefusesReferencesThatItCannotFollow) {
  EXPECT_THAT(ErrorOf(With("sequence_parallel: True", "sequence_parallel: ${oc.env:SP}")),
              HasSubstr("gpt.yaml: model.sequence_parallel is ${oc.env:SP}, which is not a key of the file; write the value"));
  EXPECT_THAT(ErrorOf(With("bias: False", "bias: ${oc.env:BIAS}")), HasSubstr("model.bias is ${oc.env:BIAS}, which"));
  EXPECT_THAT(ErrorOf(With("precision: bf16-mixed", "precision: \"${oc.env:P}-mixed\"")),
              HasSubstr("trainer.precision is ${oc.env:P}-mixed, which is not a key of the file; write the value"));
  EXPECT_THAT(ErrorOf(With("normalization: rmsnorm", "normalization: ${oc.env:NORM}")), HasSubstr("model.normalization is ${"));
  EXPECT_EQ(Imported(With("[1.0, /data/corpus_text]", "${oc.env:DATA}")).job.data.path, "/runs/data") << "a plan reads none";
}

TEST(ImportNemo, ReadsTheTypeOfGradients) {
  const auto type = [](const std::string& precision, const std::string& sync) {
    const std::string text = absl::StrReplaceAll(
        kYaml, {{"precision: bf16-mixed", "precision: " + precision}, {"    lr: 2e-4", "    lr: 2e-4\n" + sync}});
    return Imported(text).job.model.gradient_dtype;
  };
  const std::string bf16 = "    grad_sync_dtype: bf16", fp16 = "    grad_sync_dtype: fp16", fp32 = "    grad_sync_dtype: fp32";
  EXPECT_EQ(type("bf16-mixed", ""), DataType::kFloat32);
  EXPECT_EQ(type("bf16-mixed", bf16), DataType::kBfloat16);
  EXPECT_EQ(type("bf16-mixed", fp32), DataType::kFloat32);
  EXPECT_EQ(type("16-mixed", ""), DataType::kFloat32);
  EXPECT_EQ(type("16-mixed", fp16), DataType::kBfloat16);
}

TEST(ImportNemo, NamesWhatHasNoCounterpart) {
  const auto missing = [](const std::string& line) {
    return absl::StrJoin(Imported(With("  bias: False", "  bias: False\n  " + line)).not_taken, "\n");
  };
  EXPECT_THAT(missing("num_micro_batches_with_partial_activation_checkpoints: 2"),
              HasSubstr("model.num_micro_batches_with_partial_activation_checkpoints 2: the plan recomputes"));
  EXPECT_THAT(missing("activations_checkpoint_layers_per_pipeline: 1"),
              HasSubstr("model.activations_checkpoint_layers_per_pipeline 1: the plan recomputes"));
  EXPECT_THAT(missing("megatron_amp_O2: False"), HasSubstr("model.megatron_amp_O2 False: the plan counts weights in 16 bits"));
  EXPECT_EQ(missing("megatron_amp_O2: True"), missing("gc_interval: 0"));
  const std::string learned =
      absl::StrReplaceAll(kYaml, {{"fast-swiglu", "gelu"},
                                  {"position_embedding_type: rope", "position_embedding_type: learned_absolute"},
                                  {"max_position_embeddings: ${.encoder_seq_length}", "max_position_embeddings: 8192"}});
  EXPECT_THAT(absl::StrJoin(Imported(learned).not_taken, "\n"),
              HasSubstr("model.max_position_embeddings 8192: the plan counts a table of positions of model.seq 4096 rows; each "
                        "rank of the first stage has 8388608 parameters more"));
}

TEST(ImportNemo, ReadsExperts) {
  const ImportedRun run = Imported(With("  bias: False",
                                        "  bias: False\n  num_moe_experts: 8\n  moe_router_topk: 4\n  moe_grouped_gemm: True\n"
                                        "  moe_aux_loss_coeff: 0.01\n  moe_router_load_balancing_type: aux_loss\n"
                                        "  moe_token_dispatcher_type: alltoall\n  expert_model_parallel_size: 2\n"
                                        "  expert_tensor_parallel_size: 1\n"));
  EXPECT_EQ(run.job.model.moe, (MoeSpec{.experts = 8, .top_k = 4, .aux_loss = 0.01}));
  EXPECT_EQ(run.job.parallel.ep, 2);
}

TEST(ImportNemo, ReadsLatentAttentionAndSharedExperts) {
  const std::string latent =
      "  bias: False\n  num_moe_experts: 8\n  moe_grouped_gemm: True\n  moe_shared_expert_intermediate_size: 64\n"
      "  moe_layer_freq: '([0]*1+[1]*23)'\n  multi_latent_attention: True\n  q_lora_rank: 96\n  kv_lora_rank: 48\n"
      "  qk_head_dim: 40\n  qk_pos_emb_head_dim: 24\n  v_head_dim: 20\n  rotary_scaling_factor: 40\n  mscale: 1.0\n"
      "  mscale_all_dim: 1.0\n";
  EXPECT_THAT(ErrorOf(With("  bias: False", latent)),
              HasSubstr("model.multi_latent_attention with --group-query-attention: NeMo refuses both together"));
  const ImportedRun run = Imported(absl::StrReplaceAll(kYaml, {{"  bias: False", latent}, {"  num_query_groups: 8\n", ""}}));
  EXPECT_EQ(run.job.model.moe, (MoeSpec{.experts = 8, .top_k = 2, .shared_ffn = 64, .dense_layers = 1}));
  EXPECT_EQ(run.job.model.latent, (LatentSpec{.query_rank = 96, .kv_rank = 48, .value_dim = 20}));
  EXPECT_EQ(run.job.model.head_dim, 64);
  EXPECT_EQ(run.job.model.rotary.dims, 24);
  EXPECT_EQ(run.job.model.rotary.scaling, RopeScaling::kYarn);
  EXPECT_EQ(run.job.model.rotary.mscale_all_dim, 1);
  EXPECT_EQ(run.job.model.plan_only, 0u);
  const std::string list = absl::StrReplaceAll(kYaml, {{"num_layers: 24", "num_layers: 4\n  moe_layer_freq: [0, 0, 1, 1]"},
                                                       {"  bias: False", "  bias: False\n  num_moe_experts: 8"}});
  EXPECT_EQ(Imported(list).job.model.moe.dense_layers, 2);
}

TEST(ImportNemo, SaysWhatIsWrongByKey) {
  EXPECT_THAT(ErrorOf(With("  hidden_size: 2048\n", "")), HasSubstr("gpt.yaml: model.hidden_size is missing"));
  EXPECT_THAT(ErrorOf(With("devices: 8", "devices: auto")), HasSubstr("give --devices N"));
  EXPECT_THAT(ErrorOf(With("  bias: False", "  bias: False\n  num_moe_experts: 8\n  moe_layer_freq: 2")),
              HasSubstr("model.moe_layer_freq 2: layers without experts between"));
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

TEST(ImportNemo, ReadsAProgressBar) {
  const std::string text =
      "Epoch 0: 1%| 1/90 [global_step=1.0, train_step_timing in s=9.0]\rEpoch 0: 1%| 1/90 [global_step=1.0, "
      "train_step_timing in s=8.0]\rEpoch 0: 2%| 2/90 [global_step=2.0, train_step_timing in s=1.5]\r";
  const absl::StatusOr<RunLog> log = ReadRunLog(Imported(kYaml), text, "log");
  ASSERT_TRUE(log.ok()) << log.status();
  ASSERT_EQ(log->steps.size(), 2U);
  EXPECT_EQ(log->steps[0].time, Nanos(8'000'000'000)) << "the last state of the step";
  EXPECT_EQ(log->steps[1].step, 2);
  EXPECT_EQ(log->steps[1].time, Nanos(1'500'000'000));
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
