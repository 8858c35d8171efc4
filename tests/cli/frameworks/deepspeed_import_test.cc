#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "cli/frameworks/audit.h"
#include "tests/planner/export/export_cases.h"

namespace lynx::cli {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kModel[] = R"({
  "model_type": "llama", "hidden_act": "silu", "hidden_size": 2048, "intermediate_size": 5632, "max_position_embeddings": 4096,
  "num_attention_heads": 16, "num_hidden_layers": 24, "num_key_value_heads": 8, "rms_norm_eps": 1e-05, "torch_dtype": "float32",
  "tie_word_embeddings": false, "vocab_size": 32000})";
constexpr char kConfig[] = R"({
  "train_batch_size": 64,
  "train_micro_batch_size_per_gpu": 2,
  "gradient_accumulation_steps": 4,
  "steps_per_print": 10,
  "gradient_clipping": 1.0,
  "bf16": {"enabled": true},
  "zero_optimization": {"stage": 2, "overlap_comm": true, "reduce_bucket_size": 5e8, "contiguous_gradients": true},
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1}},
  "scheduler": {"type": "WarmupCosineLR", "params": {"total_num_steps": 1000, "warmup_num_steps": 100, "cos_min_ratio": 0.1}},
  "wall_clock_breakdown": false
})";

ImportRequest RequestOf(const std::string& text) {
  ImportRequest request;
  request.text = text;
  request.file = "ds_config.json";
  request.folder = "/runs";
  request.model = kModel;
  request.model_file = "config.json";
  return request;
}
ImportedRun Imported(const ImportRequest& request) {
  absl::StatusOr<ImportedRun> run = ImportRun(Framework::kDeepspeed, request);
  EXPECT_TRUE(run.ok()) << run.status() << "\n" << request.text;
  return run.ok() ? *std::move(run) : ImportedRun();
}
std::string ErrorOf(const ImportRequest& request) {
  const absl::StatusOr<ImportedRun> run = ImportRun(Framework::kDeepspeed, request);
  EXPECT_EQ(run.status().code(), absl::StatusCode::kInvalidArgument) << request.text;
  return std::string(run.status().message());
}
std::string With(const std::string& from, const std::string& to) {
  EXPECT_THAT(kConfig, HasSubstr(from));
  return absl::StrReplaceAll(kConfig, {{from, to}});
}

TEST(ImportDeepspeed, ReadsAConfiguration) {
  const ImportedRun run = Imported(RequestOf(kConfig));
  EXPECT_EQ(run.devices, 8) << "64 / (2 * 4)";
  EXPECT_EQ(run.job.model.layers, 24);
  EXPECT_EQ(run.job.model.dtype, DataType::kBfloat16);
  EXPECT_EQ(run.job.parallel.dp, 8);
  EXPECT_EQ(run.job.parallel.zero, ZeroStage::kGradients);
  EXPECT_EQ(run.job.parallel.rank_order, RankOrder::kTpDpPp);
  EXPECT_TRUE(run.traits.overlaps_data_reduction);
  EXPECT_EQ(run.job.train.micro_batch, 2);
  EXPECT_EQ(run.job.train.global_batch, 64);
  EXPECT_EQ(run.job.train.steps, 1000);
  EXPECT_EQ(run.job.train.schedule, LrSchedule::kCosine);
  EXPECT_EQ(run.job.train.optimizer.beta2, 0.95);
  EXPECT_EQ(run.job.recompute, RecomputeMode::kNone);
  EXPECT_THAT(run.unknown, IsEmpty());
  EXPECT_THAT(run.not_taken, IsEmpty());
  EXPECT_THAT(run.assumed, Contains(HasSubstr("model.seq 4096, the longest")));
  EXPECT_THAT(run.assumed, Contains(HasSubstr("gradient checkpointing")));
}

TEST(ImportDeepspeed, KeysBecomeFields) {
  const auto job = [](const std::string& text) { return Imported(RequestOf(text)).job; };
  EXPECT_EQ(job(With("\"stage\": 2", "\"stage\": 0")).parallel.zero, ZeroStage::kNone);
  EXPECT_EQ(job(With("\"stage\": 2", "\"stage\": 1")).parallel.zero, ZeroStage::kOptimizer);
  EXPECT_EQ(job(With("\"stage\": 2", "\"stage\": 3")).parallel.zero, ZeroStage::kWeights);
  EXPECT_EQ(job(With("\"bf16\": {\"enabled\": true},", "")).model.dtype, DataType::kFloat32);
  EXPECT_EQ(job(With("\"steps_per_print\": 10", "\"tensor_parallel\": {\"autotp_size\": 2}")).parallel.tp, 2);
  EXPECT_EQ(job(With("\"steps_per_print\": 10", "\"activation_checkpointing\": {\"number_checkpoints\": 24}")).recompute,
            RecomputeMode::kFull);
  EXPECT_EQ(job(With("\"steps_per_print\": 10", "\"activation_checkpointing\": {\"number_checkpoints\": 12}"))
                .recompute_options.layers,
            2);
  EXPECT_FALSE(Imported(RequestOf(With("\"overlap_comm\": true,", ""))).traits.overlaps_data_reduction)
      << "only ZeRO-3 overlaps by default";
  ImportRequest staged = RequestOf(With("\"stage\": 2", "\"stage\": 1"));
  staged.overrides = {"parallel.pp=2", "model.seq=1024"};
  EXPECT_EQ(Imported(staged).devices, 16);
  EXPECT_EQ(Imported(staged).job.model.seq, 1024);
}

TEST(ImportDeepspeed, NamesWhatIsAutoMissingAndUnknown) {
  EXPECT_THAT(Imported(RequestOf(With("\"lr\": 1e-4", "\"lr\": \"auto\""))).assumed,
              Contains(HasSubstr("optimizer.params.lr is auto")));
  ImportRequest automatic = RequestOf(With("\"train_batch_size\": 64", "\"train_batch_size\": \"auto\""));
  EXPECT_THAT(ErrorOf(automatic), HasSubstr("on how many devices the run is; give --devices N"));
  automatic.devices = 4;
  EXPECT_EQ(Imported(automatic).job.train.global_batch, 32);
  automatic.text = absl::StrReplaceAll(
      automatic.text, {{"\"train_micro_batch_size_per_gpu\": 2", "\"train_micro_batch_size_per_gpu\": \"auto\""}});
  EXPECT_THAT(ErrorOf(automatic), HasSubstr("are auto or absent; give --set train.globalBatch=N"));
  automatic.overrides = {"train.microBatch=1"};
  EXPECT_EQ(Imported(automatic).job.train.global_batch, 16);
  const ImportedRun run = Imported(RequestOf(
      With("\"stage\": 2", "\"stage\": 3, \"offload_optimizer\": {\"device\": \"cpu\", \"pin_memory\": true}, \"odd\": 1")));
  EXPECT_THAT(run.not_taken, testing::ElementsAre(HasSubstr("zero_optimization.offload_optimizer.device \"cpu\": ")));
  EXPECT_THAT(run.unknown, testing::ElementsAre("zero_optimization.odd: 1"));
  EXPECT_THAT(Imported(RequestOf(With("\"bf16\"", "\"fp16\""))).not_taken, Contains(HasSubstr("fp16: planned as bfloat16")));
}

constexpr char kMixtral[] = R"({
  "model_type": "mixtral", "hidden_act": "silu", "hidden_size": 2048, "intermediate_size": 5632, "max_position_embeddings": 4096,
  "num_attention_heads": 16, "num_experts_per_tok": 2, "num_hidden_layers": 24, "num_key_value_heads": 8,
  "num_local_experts": 8, "vocab_size": 32000})";

// The training script decides which ranks share the experts.
TEST(ImportDeepspeed, ExpertsAreOnEveryRankUnlessToldOtherwise) {
  ImportRequest request = RequestOf(With("\"stage\": 2", "\"stage\": 1"));
  request.model = kMixtral;
  const ImportedRun run = Imported(request);
  EXPECT_EQ(run.job.model.moe, (MoeSpec{.experts = 8, .top_k = 2}));
  EXPECT_EQ(run.job.parallel.ep, 1);
  EXPECT_THAT(run.assumed, Contains(HasSubstr("parallel.ep 1: the file does not say how many ranks share the experts")));
  request.overrides = {"parallel.ep=4"};
  const ImportedRun told = Imported(request);
  EXPECT_EQ(told.job.parallel.ep, 4);
  EXPECT_THAT(told.assumed, testing::Not(Contains(HasSubstr("parallel.ep"))));
  const StepRequest step{.model = told.job.model, .layout = PinnedLayout(told.job.parallel)};
  EXPECT_THAT(SettingsOf(Framework::kDeepspeed, step), Contains(RunSetting{"MoE ep_size", "4"}));
  request.text = kConfig;
  EXPECT_THAT(ErrorOf(request),
              HasSubstr("parallel.zero is gradients: must be none, optimizer or auto for a model with experts"));
  EXPECT_EQ(Imported(RequestOf(kConfig)).job.parallel.ep, 0) << "a model without experts leaves it alone";
}

TEST(ImportDeepspeed, NamesKeysThatChangeMemory) {
  const auto missing = [](const std::string& from, const std::string& to) {
    return Imported(RequestOf(With(from, to))).not_taken;
  };
  const std::string bf16 = "\"bf16\": {\"enabled\": true", print = "\"steps_per_print\": 10";
  EXPECT_THAT(missing(bf16, bf16 + ", \"bf16_master_weights_and_grads\": true, \"bf16_optimizer_states\": true"),
              testing::ElementsAre(HasSubstr("bf16.bf16_master_weights_and_grads true: the plan counts"),
                                   HasSubstr("bf16.bf16_optimizer_states true: the plan counts")));
  EXPECT_THAT(missing(print, "\"fp16\": {\"enabled\": false, \"fp16_master_weights_and_grads\": true, \"loss_scale\": 0}"),
              testing::ElementsAre(HasSubstr("fp16.fp16_master_weights_and_grads true: ")));
  EXPECT_THAT(missing("\"reduce_bucket_size\": 5e8", "\"reduce_bucket_size\": 2e9, \"allgather_bucket_size\": 1000000000"),
              testing::ElementsAre(HasSubstr("zero_optimization.reduce_bucket_size 2e+09: the plan counts no memory"),
                                   HasSubstr("zero_optimization.allgather_bucket_size 1e+09: ")));
}

TEST(ImportDeepspeed, ReadsTheTypeOfGradients) {
  const auto type = [](const std::string& from, const std::string& to) {
    const ImportedRun run = Imported(RequestOf(With(from, to)));
    EXPECT_THAT(run.not_taken, testing::Not(Contains(HasSubstr("grad_accum_dtype"))));
    return run.job.model.gradient_dtype;
  };
  const std::string print = "\"steps_per_print\": 10", bf16 = "\"bf16\": {\"enabled\": true}";
  EXPECT_EQ(type(print, "\"data_types\": {\"grad_accum_dtype\": \"bf16\"}"), DataType::kBfloat16);
  EXPECT_EQ(type(print, "\"data_types\": {\"grad_accum_dtype\": \"fp32\"}"), DataType::kFloat32);
  EXPECT_EQ(type(print, "\"data_types\": {\"grad_accum_dtype\": null}"), DataType::kBfloat16) << "with ZeRO, the model's";
  EXPECT_EQ(type("\"stage\": 2", "\"stage\": 0"), DataType::kFloat32);
  EXPECT_THAT(Imported(RequestOf(With("\"stage\": 2", "\"stage\": 0"))).assumed,
              Contains(HasSubstr("model.gradientDtype float32: without ZeRO and data_types.grad_accum_dtype")));
  EXPECT_EQ(type(bf16, "\"bf16\": {\"enabled\": false}"), DataType::kFloat32);
  ImportRequest half = RequestOf(With("\"stage\": 2", "\"stage\": 0"));
  half.text = absl::StrReplaceAll(half.text, {{bf16, "\"fp16\": {\"enabled\": true}"}});
  EXPECT_EQ(Imported(half).job.model.gradient_dtype, DataType::kBfloat16);
}

TEST(ImportDeepspeed, SaysWhatIsWrong) {
  ImportRequest request = RequestOf(kConfig);
  request.model = "";
  EXPECT_THAT(ErrorOf(request), HasSubstr("give its Hugging Face configuration with --model config.json"));
  EXPECT_THAT(ErrorOf(RequestOf("[1")), HasSubstr("not a JSON object"));
  EXPECT_THAT(ErrorOf(RequestOf(With("\"stage\": 2", "\"stage\": 4"))), HasSubstr("must be from 0 to 3"));
  EXPECT_THAT(ErrorOf(RequestOf(With("\"stage\": 2", "\"stage\": \"two\""))), HasSubstr("zero_optimization.stage is \"two\""));
  request = RequestOf(kConfig);
  request.devices = 16;
  EXPECT_THAT(ErrorOf(request), HasSubstr("is the number of devices right?"));
  request = RequestOf(kConfig);
  request.variables = {{"X", "1"}};
  EXPECT_THAT(ErrorOf(request), HasSubstr("a JSON file has no variables"));
}

TEST(ImportDeepspeed, ReadsItsLogs) {
  const ImportedRun run = Imported(RequestOf(kConfig));
  const absl::StatusOr<RunLog> log =
      ReadRunLog(run,
                 "[INFO] [timer.py:215:stop] epoch=0/micro_step=34/global_step=34, RunningAvgSamplesPerSec=7.8, "
                 "CurrSamplesPerSec=32.0, MemAllocated=59.65GB, MaxMemAllocated=63.5GB\n"
                 "steps: 35 loss: 2.5 iter time (s): 1.500 samples/sec: 42.6\n",
                 "log");
  ASSERT_TRUE(log.ok()) << log.status();
  ASSERT_EQ(log->steps.size(), 2U);
  EXPECT_EQ(log->steps[0].step, 34);
  EXPECT_EQ(log->steps[0].time, Nanos(2'000'000'000)) << "64 samples at 32 a second";
  EXPECT_EQ(log->steps[1].time, Nanos(1'500'000'000));
  EXPECT_EQ(log->most_allocated, Bytes(63LL * kGiB.value + kGiB.value / 2));
}

TEST(ImportDeepspeed, CountsAStepOfAPipelineOnce) {
  const std::string rate = "global_step=34, RunningAvgSamplesPerSec=7.8, CurrSamplesPerSec=32.0\n";
  const std::string time = "steps: 34 loss: 2.5 iter time (s): 1.500 samples/sec: 42.6\n";
  for (const std::string& text : {rate + time, time + rate}) {
    const absl::StatusOr<RunLog> log = ReadRunLog(Imported(RequestOf(kConfig)), text, "log");
    ASSERT_TRUE(log.ok()) << log.status();
    ASSERT_EQ(log->steps.size(), 1U);
    EXPECT_EQ(log->steps[0].time, Nanos(1'500'000'000));
  }
}

// Reads files that Lynx has exported: the layout, the batches and the recomputation must be the same. The file does not contain
// the model.
TEST(ImportDeepspeed, ReadsExports) {
  const Case cases[] = {Case(),
                        Case({.tp = 2}),
                        Case({.tp = 2, .dp = 2}),
                        WithZero(ZeroStage::kNone),
                        WithZero(ZeroStage::kOptimizer),
                        WithZero(ZeroStage::kGradients),
                        WithZero(ZeroStage::kWeights),
                        Case({.dp = 2}).Recompute(RecomputeMode::kFull)};
  for (const Case& one : cases) {
    for (const ExportVersion& version : ExportVersions(ExportFormat::kDeepSpeed)) {
      const ImportRequest request = RequestOf(one.Text(TargetOf(ExportFormat::kDeepSpeed, version.name)));
      const ImportedRun run = Imported(request);
      EXPECT_EQ(run.devices, one.plan.layout.ranks());
      EXPECT_EQ(run.job.parallel.tp, one.plan.layout.tp);
      EXPECT_EQ(run.job.parallel.dp, one.plan.layout.dp);
      EXPECT_EQ(run.job.parallel.zero, one.plan.layout.zero) << request.text;
      EXPECT_EQ(run.job.train.micro_batch, one.plan.micro_batch);
      EXPECT_EQ(run.job.train.global_batch, one.plan.samples());
      EXPECT_THAT(run.unknown, IsEmpty());
      EXPECT_THAT(run.not_taken, IsEmpty());
    }
  }
  ImportRequest staged = RequestOf(Case({.pp = 2, .dp = 2}).Text(TargetOf(ExportFormat::kDeepSpeed, "0.19")));
  staged.overrides = {"parallel.pp=2"};
  EXPECT_EQ(Imported(staged).devices, 4);
}

}  // namespace
}  // namespace lynx::cli
