#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "cli/frameworks/audit.h"
#include "cli/frameworks/toml_values.h"
#include "tests/planner/export/export_cases.h"

namespace lynx::cli {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kConfig[] = R"(
# a run of people
[job]
description = "Llama 3 8B"

[metrics]
log_freq = 10

[model]
name = "llama3"
flavor = "8B"

[optimizer]
name = "AdamW"
lr = 3e-4

[lr_scheduler]
warmup_steps = 200

[training]
local_batch_size = 2
seq_len = 8_192
max_norm = 1.0
steps = 1000

[parallelism]
data_parallel_replicate_degree = 1
data_parallel_shard_degree = -1
tensor_parallel_degree = 2

[activation_checkpoint]
mode = "full"
)";

class ImportTorchtitan : public testing::Test {
 protected:
  void SetUp() override {
    if (!ReadsToml()) GTEST_SKIP() << "built without a parser of TOML (libtomlplusplus-dev)";
  }
};

ImportRequest RequestOf(const std::string& text, int32_t devices = 16) {
  ImportRequest request;
  request.text = text;
  request.file = "llama.toml";
  request.folder = "/runs";
  request.devices = devices;
  request.read = [](const std::string& path) { return absl::NotFoundError(path); };
  return request;
}
ImportedRun Imported(const ImportRequest& request) {
  absl::StatusOr<ImportedRun> run = ImportRun(Framework::kTorchtitan, request);
  EXPECT_TRUE(run.ok()) << run.status() << "\n" << request.text;
  return run.ok() ? *std::move(run) : ImportedRun();
}
std::string ErrorOf(const ImportRequest& request) {
  const absl::StatusOr<ImportedRun> run = ImportRun(Framework::kTorchtitan, request);
  EXPECT_EQ(run.status().code(), absl::StatusCode::kInvalidArgument) << request.text;
  return std::string(run.status().message());
}
std::string With(const std::string& from, const std::string& to) {
  EXPECT_THAT(kConfig, HasSubstr(from));
  return absl::StrReplaceAll(kConfig, {{from, to}});
}

TEST_F(ImportTorchtitan, OnlyFsdpReducesGradientsIn16Bits) {
  const std::string half =
      absl::StrReplaceAll(kConfig, {{"steps = 1000", "steps = 1000\nmixed_precision_reduce = \"bfloat16\""}});
  EXPECT_EQ(Imported(RequestOf(kConfig)).job.model.gradient_dtype, DataType::kFloat32);
  const ImportedRun sharded = Imported(RequestOf(half));
  EXPECT_EQ(sharded.job.model.gradient_dtype, DataType::kBfloat16);
  EXPECT_THAT(sharded.not_taken, testing::Not(Contains(HasSubstr("mixed_precision_reduce"))));
  EXPECT_EQ(Imported(RequestOf(half, 2)).job.model.gradient_dtype, DataType::kFloat32) << "one replica, nothing is sharded";
}

TEST_F(ImportTorchtitan, ReadsAConfiguration) {
  const ImportedRun run = Imported(RequestOf(kConfig));
  const ModelSpec& model = run.job.model;
  EXPECT_EQ(model.family, ModelFamily::kLlama);
  EXPECT_EQ(model.layers, 32);
  EXPECT_EQ(model.ffn, 14336);
  EXPECT_EQ(model.kv_heads, 8);
  EXPECT_EQ(model.vocab, 128256);
  EXPECT_EQ(model.seq, 8192);
  EXPECT_EQ(model.dtype, DataType::kBfloat16);
  EXPECT_EQ(model.rotary.scaling, RopeScaling::kLlama3);
  EXPECT_EQ(run.devices, 16);
  EXPECT_EQ(run.job.parallel.tp, 2);
  EXPECT_EQ(run.job.parallel.dp, 8);
  EXPECT_EQ(run.job.parallel.zero, ZeroStage::kWeights);
  EXPECT_EQ(run.job.parallel.sequence_parallel, Choice::kOn);
  EXPECT_EQ(run.job.recompute, RecomputeMode::kFull);
  EXPECT_EQ(run.job.train.micro_batch, 2);
  EXPECT_EQ(run.job.train.global_batch, 16);
  EXPECT_EQ(run.job.train.warmup_steps, 200);
  EXPECT_THAT(run.unknown, IsEmpty());
  EXPECT_THAT(run.not_taken, IsEmpty());
}

TEST_F(ImportTorchtitan, KeysBecomeFields) {
  const auto job = [](const std::string& from, const std::string& to) { return Imported(RequestOf(With(from, to))).job; };
  const std::string tp = "tensor_parallel_degree = 2";
  EXPECT_EQ(job(tp, "context_parallel_degree = 4").parallel.cp, 4);
  EXPECT_EQ(job(tp, "fsdp_reshard_after_forward = \"never\"").parallel.zero, ZeroStage::kGradients);
  const ImportedRun whole = Imported(RequestOf(With("shard_degree = -1", "shard_degree = 1"), 0));
  EXPECT_EQ(whole.job.parallel.zero, ZeroStage::kNone);
  EXPECT_EQ(whole.devices, 2) << "the product of the degrees";
  const JobSpec staged = job(tp, "pipeline_parallel_degree = 4");
  EXPECT_EQ(staged.parallel.pp, 4);
  EXPECT_EQ(staged.parallel.zero, ZeroStage::kGradients) << "with a pipeline, gathered weights are kept";
  EXPECT_EQ(staged.train.micro_batch, 1) << "the default of pipeline_parallel_microbatch_size";
  const JobSpec interleaved = job(tp, "pipeline_parallel_degree = 4\npipeline_parallel_schedule = \"Interleaved1F1B\"");
  EXPECT_EQ(interleaved.parallel.virtual_stages, 2);
  EXPECT_EQ(interleaved.parallel.schedule, ScheduleKind::kInterleaved);
  EXPECT_EQ(job(tp, "pipeline_parallel_degree = 2\npipeline_parallel_schedule = \"GPipe\"").parallel.schedule,
            ScheduleKind::kGpipe);
  EXPECT_EQ(job("mode = \"full\"", "mode = \"none\"").recompute, RecomputeMode::kNone);
  EXPECT_EQ(job("mode = \"full\"", "mode = \"selective\"\nselective_ac_option = \"op\"").recompute, RecomputeMode::kBalanced);
  EXPECT_EQ(job("mode = \"full\"", "mode = \"selective\"\nselective_ac_option = \"4\"").recompute_options.layers, 8);
  EXPECT_EQ(job("mode = \"full\"", "mode = \"selective\"\nselective_ac_option = \"40\"").recompute, RecomputeMode::kNone)
      << "no layer is a fortieth one";
  EXPECT_EQ(job("flavor = \"8B\"", "flavor = \"70B\"").model.layers, 80);
}

TEST_F(ImportTorchtitan, SpreadsLayersAsTorchtitanDoes) {
  const std::string tp = "tensor_parallel_degree = 2";
  const auto parallel = [&](const std::string& to) { return Imported(RequestOf(With(tp, to))).job.parallel; };
  using Layers = std::vector<int32_t>;
  EXPECT_EQ(parallel("pipeline_parallel_degree = 4").stage_layers, (Layers{8, 9, 8, 7})) << "34 are 9 + 9 + 8 + 8";
  EXPECT_EQ(parallel("pipeline_parallel_degree = 4\npipeline_parallel_first_stage_less_layers = 0\n"
                     "pipeline_parallel_last_stage_less_layers = 4")
                .stage_layers,
            (Layers{9, 9, 9, 5}));
  EXPECT_EQ(parallel("pipeline_parallel_degree = 2").stage_layers, Layers()) << "16 and 16";
  const ParallelSpec each = parallel(
      "pipeline_parallel_degree = 4\npipeline_parallel_schedule = \"Interleaved1F1B\"\n"
      "pipeline_parallel_layers_per_stage = 3");
  EXPECT_EQ(each.virtual_stages, 3) << "34 / 3 are 12 stages";
  EXPECT_EQ(each.stage_layers, (Layers{2, 3, 3, 3, 3, 3, 3, 3, 3, 3, 2, 1}));
  EXPECT_THAT(ErrorOf(RequestOf(With(tp, "pipeline_parallel_degree = 4\npipeline_parallel_last_stage_less_layers = 40"))),
              HasSubstr("are too few for 4 stages"));
  ImportRequest none = RequestOf(
      absl::StrReplaceAll(With(tp,
                               "pipeline_parallel_degree = 4\npipeline_parallel_first_stage_less_layers = 0\n"
                               "pipeline_parallel_last_stage_less_layers = 0\npipeline_parallel_layers_per_stage = 3"),
                          {{"[model]", "[experimental]\ncustom_import = \"own\"\n[model]"}}));
  none.read = [](const std::string&) { return "llama3_args[\"8B\"] = TransformerModelArgs(\n)"; };
  EXPECT_THAT(ErrorOf(none), HasSubstr("0 layers in 0 stages: from 1 to 65536 are planned"));
}

TEST_F(ImportTorchtitan, NamesWhatIsMissingAndUnknown) {
  const ImportedRun run = Imported(RequestOf(With("flavor = \"8B\"", "flavor = \"8B\"\nconverters = [\"float8\"]\nodd = 1")));
  EXPECT_THAT(run.not_taken, testing::ElementsAre(HasSubstr("model.converters float8: 8-bit")));
  EXPECT_THAT(run.unknown, testing::ElementsAre("model.odd: 1"));
  EXPECT_THAT(Imported(RequestOf(With("[activation_checkpoint]\nmode = \"full\"\n", ""))).assumed,
              Contains(HasSubstr("torchtitan's defaults")));
  const ImportedRun groups = Imported(RequestOf(With("replicate_degree = 1", "replicate_degree = 2")));
  EXPECT_EQ(groups.job.parallel.dp, 8);
  EXPECT_EQ(groups.job.parallel.zero_group, 4);
}

constexpr char kMixtral[] = R"({
  "model_type": "mixtral", "hidden_act": "silu", "hidden_size": 2048, "intermediate_size": 5632, "max_position_embeddings": 4096,
  "num_attention_heads": 16, "num_experts_per_tok": 2, "num_hidden_layers": 24, "num_key_value_heads": 8,
  "num_local_experts": 8, "vocab_size": 32000})";

TEST_F(ImportTorchtitan, ReadsExperts) {
  const std::string tp = "tensor_parallel_degree = 2";
  const auto with = [&](const std::string& degrees) {
    ImportRequest request = RequestOf(absl::StrReplaceAll(kConfig, {{tp, absl::StrCat(tp, "\n", degrees)},
                                                                    {"replicate_degree = 1", "replicate_degree = 8"},
                                                                    {"shard_degree = -1", "shard_degree = 1"}}));
    request.model = kMixtral;
    request.model_file = "config.json";
    return request;
  };
  const ImportedRun run = Imported(with("expert_parallel_degree = 4"));
  EXPECT_EQ(run.job.model.moe, (MoeSpec{.experts = 8, .top_k = 2}));
  EXPECT_EQ(run.job.parallel.ep, 4);
  EXPECT_THAT(run.not_taken, IsEmpty());
  const StepRequest step{.model = run.job.model, .layout = PinnedLayout(run.job.parallel)};
  EXPECT_THAT(SettingsOf(Framework::kTorchtitan, step), Contains(RunSetting{"parallelism.expert_parallel_degree", "4"}));
  // If the degree is not given, tensor parallelism shards the experts.
  EXPECT_EQ(Imported(with("")).job.parallel.ep, 2);
  EXPECT_THAT(Imported(with("")).not_taken, Contains(HasSubstr("planned with whole experts on 2 ranks (parallel.ep)")));
  EXPECT_EQ(Imported(with("expert_parallel_degree = 4\nexpert_tensor_parallel_degree = 2")).job.parallel.ep, 8);
  EXPECT_THAT(ErrorOf(with("expert_parallel_degree = 3")), HasSubstr("3 ranks do not share 8 whole experts evenly"));
  ImportRequest sharded = with("expert_parallel_degree = 4");
  sharded.text = absl::StrReplaceAll(
      sharded.text, {{"shard_degree = 1", "shard_degree = -1"}, {"replicate_degree = 8", "replicate_degree = 1"}});
  EXPECT_THAT(ErrorOf(sharded),
              HasSubstr("parallel.zero is weights: must be none, optimizer or auto for a model with experts"));
  EXPECT_THAT(Imported(RequestOf(With(tp, "expert_parallel_degree = 4"))).not_taken,
              Contains(HasSubstr("parallelism.expert_parallel_degree 4: the model has no experts")));
}

TEST_F(ImportTorchtitan, SaysWhatIsWrong) {
  EXPECT_THAT(ErrorOf(RequestOf("[model\nname = 1")), HasSubstr("llama.toml:1: not valid TOML: "));
  EXPECT_THAT(ErrorOf(RequestOf(kConfig, 0)), HasSubstr("give --devices N"));
  EXPECT_THAT(ErrorOf(RequestOf(kConfig, 15)), HasSubstr("the degrees of parallelism make 14 devices, not 15"));
  EXPECT_THAT(ErrorOf(RequestOf(With("\"8B\"", "\"9B\""))), HasSubstr("model.flavor 9B is not known"));
  EXPECT_THAT(ErrorOf(RequestOf(With("degree = 2", "degree = \"two\""))), HasSubstr("tensor_parallel_degree is two"));
  EXPECT_THAT(ErrorOf(RequestOf(With("mode = \"full\"", "mode = \"half\""))), HasSubstr("expected none, full, or selective"));
  EXPECT_THAT(ErrorOf(RequestOf(With("steps = 1000", "steps = 1000\nglobal_batch_size = 17"))), HasSubstr("is no multiple of"));
}

TEST_F(ImportTorchtitan, ReadsItsLogs) {
  const ImportedRun run = Imported(RequestOf(kConfig));
  const std::string line =
      "[titan] root - INFO - \x1b[31mstep: 10  \x1b[32mloss:  7.1  \x1b[33mgrad_norm: 1.0  \x1b[36mmemory: 40.50GiB(51.20%)  "
      "\x1b[34mtps: 4,096  \x1b[36mtflops: 210.50  \x1b[35mmfu: 21.28%\x1b[0m\n";
  const absl::StatusOr<RunLog> log = ReadRunLog(run, line, "log");
  ASSERT_TRUE(log.ok()) << log.status();
  EXPECT_EQ(log->steps.at(0).step, 10);
  EXPECT_EQ(log->steps.at(0).time, Nanos(2'000'000'000)) << "16 samples of 8192 tokens on 16 devices";
  EXPECT_EQ(log->most_allocated, Bytes(40LL * kGiB.value + kGiB.value / 2));
  EXPECT_EQ(log->tflops, 210.5);
}

// Reads files that Lynx has exported for version 0.2.2. torchtitan cannot shard optimizer states alone, or leave out sequence
// parallelism; the export says so.
TEST_F(ImportTorchtitan, ReadsExports) {
  const auto llama = [](const ParallelLayout& layout) {
    return Case(layout).Model([](ModelSpec& m) {
      m.family = ModelFamily::kLlama;
      m.kv_heads = 4;
      m.dropout = 0;
      m.attention = AttentionKernel::kFused;
      m.dtype = DataType::kBfloat16;
    });
  };
  const Case cases[] = {llama({}),
                        llama({.tp = 2, .dp = 2, .sequence_parallel = true, .zero = ZeroStage::kWeights}),
                        llama({.dp = 4, .zero = ZeroStage::kGradients}),
                        llama({.pp = 2, .dp = 2, .zero = ZeroStage::kGradients}),
                        llama({.pp = 2, .virtual_stages = 2, .schedule = ScheduleKind::kInterleaved}),
                        llama({.dp = 2}).Recompute(RecomputeMode::kFull)};
  for (const Case& one : cases) {
    const ExportedPlan exported = one.Export(TargetOf(ExportFormat::kTorchtitan, "0.2.2"));
    ImportRequest request = RequestOf(exported.files.at(0).text, 0);
    request.read = [&](const std::string& path) -> absl::StatusOr<std::string> {
      EXPECT_EQ(path, "/runs/" + exported.files.at(1).name);
      return exported.files.at(1).text;
    };
    const ImportedRun run = Imported(request);
    ModelSpec model = one.plan.model;
    model.dropout_masks = run.job.model.dropout_masks;
    EXPECT_EQ(run.job.model, model) << request.text;
    EXPECT_EQ(run.devices, one.plan.layout.ranks());
    EXPECT_EQ(run.job.parallel.tp, one.plan.layout.tp);
    EXPECT_EQ(run.job.parallel.pp, one.plan.layout.pp);
    EXPECT_EQ(run.job.parallel.dp, one.plan.layout.dp);
    EXPECT_EQ(run.job.parallel.virtual_stages, one.plan.layout.virtual_stages);
    EXPECT_EQ(run.job.parallel.zero, one.plan.layout.zero) << request.text;
    EXPECT_EQ(run.job.train.micro_batch, one.plan.micro_batch);
    EXPECT_EQ(run.job.train.global_batch, one.plan.samples());
    EXPECT_THAT(run.unknown, IsEmpty());
    EXPECT_THAT(run.not_taken, IsEmpty());
  }
}

}  // namespace
}  // namespace lynx::cli
