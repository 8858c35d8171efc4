#include "planner/report/export.h"

#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "planner/report/export_files.h"
#include "tests/golden/golden.h"
#include "tests/planner/report_fixtures.h"

namespace lynx {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// A job and a plan by hand: four layers a stage, nothing recomputed.
struct Case {
  JobSpec spec;
  Plan plan;

  explicit Case(ParallelLayout layout = {}, std::vector<int32_t> layers = {}) {
    if (layers.empty()) layers.assign(static_cast<size_t>(PipelineOf(layout).pieces()), 4);
    spec.name = "job";
    spec.data = {DataKind::kMegatron, "/data/corpus_text"};
    spec.train.steps = 1000;
    spec.train.warmup_steps = 20;
    spec.train.min_lr = 3e-5;
    const int32_t all = std::accumulate(layers.begin(), layers.end(), 0);
    spec.model = {.layers = all, .hidden = 64, .heads = 8, .ffn = 256, .seq = 32, .vocab = 1000, .dropout = 0.1,
                  .dropout_masks = DropoutMasks::kStored};
    plan.model = spec.model;
    plan.layout = layout;
    plan.micro_batch = 2;
    plan.microbatches = 8;
    plan.mode = RecomputeMode::kNone;
    plan.step = Nanos(1'000'000'000);
    plan.digest = "0123456789abcdef";
    for (const StageContext& context : PipelineContexts(plan.model, layout, 2, 8, layers)) {
      StagePlan& stage = plan.stages.emplace_back();
      for (const StageSlice& slice : context.slices) {
        stage.slices.push_back({slice.stage, slice.first_layer, slice.end_layer, {}});
      }
    }
    Recompute(RecomputeMode::kNone);
  }

  // The first `layers` of each stage, all if 0; the others store everything.
  Case& Recompute(RecomputeMode mode, int32_t layers = 0) {
    const LayerGraph& graph = plan.ContextOf(0).graph();
    for (StagePlan& stage : plan.stages) {
      for (SlicePlan& slice : stage.slices) {
        const int32_t count = slice.layers();
        slice.policy = NamedPolicy(graph, RecomputeMode::kNone, count);
        const LayerPolicy policy = NamedPolicy(graph, mode, 1).layers[0];
        for (int32_t i = 0; i < (layers == 0 ? count : std::min(layers, count)); ++i) slice.policy.layers[i] = policy;
      }
    }
    return *this;
  }

  Case& Model(void (*change)(ModelSpec&)) {
    change(spec.model);
    plan.model = spec.model;
    return Recompute(RecomputeMode::kNone);
  }

  ExportedPlan Export(ExportFormat format) const {
    const auto exported = ExportPlan(format, {.spec = spec}, plan);
    EXPECT_TRUE(exported.ok()) << exported.status();
    return exported.value_or(ExportedPlan{});
  }
  std::string Text(ExportFormat format) const { return Export(format).files.front().text; }
};

// Words of the argument array.
std::vector<std::string> Arguments(const Case& one) {
  std::string text = one.Text(ExportFormat::kMegatron);
  text = text.substr(text.find("MEGATRON_ARGS=(") + 15);
  std::istringstream lines(text);
  std::vector<std::string> words;
  for (std::string line; std::getline(lines, line);) {
    line.erase(0, line.find_first_not_of(' '));
    if (line.empty() || line[0] == '#' || line[0] == ')') continue;
    words.push_back(line);
  }
  return words;
}

struct FlagCase {
  std::string name;
  Case with;               // a plan that needs the flag
  Case without;            // one that does not
  std::string argument;    // the whole line
};
void PrintTo(const FlagCase& flag, std::ostream* out) { *out << flag.name; }

class MegatronFlag : public testing::TestWithParam<FlagCase> {};

TEST_P(MegatronFlag, StandsExactlyWhenNeeded) {
  const FlagCase& flag = GetParam();
  EXPECT_THAT(Arguments(flag.with), Contains(flag.argument));
  const std::string name = flag.argument.substr(0, flag.argument.find(' '));
  EXPECT_THAT(Arguments(flag.without), Not(Contains(flag.argument)));
  if (flag.argument == name) {
    EXPECT_THAT(Arguments(flag.without), Not(Contains(testing::StartsWith(name))));
  }
}

Case Llama() {
  return Case({.tp = 2}).Model([](ModelSpec& m) {
    m.family = ModelFamily::kLlama;
    m.kv_heads = 4;
    m.dropout = 0;
    m.attention = AttentionKernel::kFused;
    m.dtype = DataType::kBfloat16;
    m.tied_embeddings = true;
  });
}
Case WithZero(ZeroStage zero) { return Case({.dp = 4, .zero = zero}); }

INSTANTIATE_TEST_SUITE_P(
    All, MegatronFlag,
    testing::Values(
        FlagCase{"GroupedQueries", Llama(), Case(), "--num-query-groups 4"},
        FlagCase{"GroupedQueriesOn", Llama(), Case(), "--group-query-attention"},
        FlagCase{"Rope", Llama(), Case(), "--position-embedding-type rope"},
        FlagCase{"LearnedPositions", Case(), Llama(), "--position-embedding-type learned_absolute"},
        FlagCase{"RmsNorm", Llama(), Case(), "--normalization RMSNorm"},
        FlagCase{"Swiglu", Llama(), Case(), "--swiglu"},
        FlagCase{"NoBias", Llama(), Case(), "--disable-bias-linear"},
        FlagCase{"Untied", Case(), Llama(), "--untie-embeddings-and-output-weights"},
        FlagCase{"Flash", Llama(), Case(), "--attention-backend flash"},
        FlagCase{"Unfused", Case(), Llama(), "--attention-backend unfused"},
        FlagCase{"Bfloat16", Llama(), Case(), "--bf16"},
        FlagCase{"ContextParallel", Case({.cp = 2}), Case(), "--context-parallel-size 2"},
        FlagCase{"SequenceParallel", Case({.tp = 2, .sequence_parallel = true}), Case({.tp = 2}), "--sequence-parallel"},
        FlagCase{"RankOrder", Case({.pp = 2, .dp = 2}), Case({.pp = 2}), "--use-tp-pp-dp-mapping"},
        FlagCase{"UnevenStages", Case({.pp = 3}, {3, 5, 1}), Case({.pp = 3}),
                 "--pipeline-model-parallel-layout 'Et*3|t*5|tL'"},
        FlagCase{"VirtualStages", Case({.pp = 2, .virtual_stages = 2, .schedule = ScheduleKind::kInterleaved}),
                 Case({.pp = 2}), "--num-virtual-stages-per-pipeline-rank 2"},
        FlagCase{"UnevenVirtualStages",
                 Case({.pp = 2, .virtual_stages = 2, .schedule = ScheduleKind::kInterleaved}, {1, 2, 3, 4}),
                 Case({.pp = 2}), "--pipeline-model-parallel-layout 'Et|t*2|t*3|t*4L'"},
        FlagCase{"OverlapGradients", Case({.dp = 2}), Case(), "--overlap-grad-reduce"},
        FlagCase{"DistributedOptimizer", WithZero(ZeroStage::kOptimizer), WithZero(ZeroStage::kNone),
                 "--use-distributed-optimizer"},
        FlagCase{"OverlapParameters", WithZero(ZeroStage::kOptimizer), WithZero(ZeroStage::kNone),
                 "--overlap-param-gather"},
        FlagCase{"ShardedGradients", WithZero(ZeroStage::kGradients), WithZero(ZeroStage::kWeights),
                 "--data-parallel-sharding-strategy optim_grads"},
        FlagCase{"ShardedWeights", WithZero(ZeroStage::kWeights), WithZero(ZeroStage::kGradients),
                 "--data-parallel-sharding-strategy optim_grads_params"},
        FlagCase{"Fsdp", WithZero(ZeroStage::kWeights), WithZero(ZeroStage::kOptimizer), "--use-megatron-fsdp"},
        FlagCase{"Full", Case().Recompute(RecomputeMode::kFull), Case(), "--recompute-granularity full"},
        FlagCase{"FullUniform", Case().Recompute(RecomputeMode::kFull), Case().Recompute(RecomputeMode::kFull, 2),
                 "--recompute-method uniform"},
        FlagCase{"FullLayers", Case().Recompute(RecomputeMode::kFull), Case().Recompute(RecomputeMode::kFull, 2),
                 "--recompute-num-layers 1"},
        FlagCase{"Block", Case().Recompute(RecomputeMode::kFull, 3), Case().Recompute(RecomputeMode::kFull),
                 "--recompute-method block"},
        FlagCase{"BlockLayers", Case().Recompute(RecomputeMode::kFull, 3), Case().Recompute(RecomputeMode::kFull),
                 "--recompute-num-layers 3"},
        FlagCase{"Selective", Case().Recompute(RecomputeMode::kSelective), Case(),
                 "--recompute-granularity selective"},
        FlagCase{"SelectiveModules", Case().Recompute(RecomputeMode::kSelective), Case(),
                 "--recompute-modules core_attn"}),
    [](const auto& info) { return info.param.name; });

TEST(ExportMegatron, SelectiveAndFullExcludeEachOthersFlags) {
  const auto selective = Arguments(Case().Recompute(RecomputeMode::kSelective));
  EXPECT_THAT(selective, Not(Contains(testing::StartsWith("--recompute-method"))));
  EXPECT_THAT(selective, Not(Contains(testing::StartsWith("--recompute-num-layers"))));
  EXPECT_THAT(Arguments(Case().Recompute(RecomputeMode::kFull)), Not(Contains(testing::StartsWith("--recompute-modules"))));
  EXPECT_THAT(Arguments(Case()), Not(Contains(testing::StartsWith("--recompute"))));
}

TEST(ExportMegatron, UniformGroupsOfLayers) {
  Case uniform;
  uniform.Recompute(RecomputeMode::kFull);
  uniform.plan.mode = RecomputeMode::kUniform;
  for (StagePlan& stage : uniform.plan.stages) {
    std::vector<bool>& made_again = stage.slices.at(0).policy.input_recomputed;
    for (int32_t layer = 0; layer < stage.slices.at(0).layers(); ++layer) made_again.push_back(layer % 2 == 1);
  }
  EXPECT_THAT(Arguments(uniform), testing::IsSupersetOf({"--recompute-method uniform", "--recompute-num-layers 2"}));
}

TEST(ExportMegatron, BlocksThatSomeStagesAreTooShortFor) {
  Case block({.pp = 2}, {5, 2});
  block.Recompute(RecomputeMode::kFull, 3);
  EXPECT_THAT(Arguments(block), testing::IsSupersetOf({"--recompute-method block", "--recompute-num-layers 3"}));
}

TEST(ExportMegatron, OneConnectionOnlyForTensorOrContextParallelism) {
  const std::string line = "export CUDA_DEVICE_MAX_CONNECTIONS=1";
  EXPECT_THAT(Case({.tp = 2}).Text(ExportFormat::kMegatron), HasSubstr(line));
  EXPECT_THAT(Case({.cp = 2}).Text(ExportFormat::kMegatron), HasSubstr(line));
  EXPECT_THAT(Case({.pp = 2, .dp = 2}).Text(ExportFormat::kMegatron), Not(HasSubstr(line)));
  const Case sharded({.tp = 2, .dp = 2, .zero = ZeroStage::kWeights});
  EXPECT_THAT(sharded.Text(ExportFormat::kMegatron), Not(HasSubstr(line))) << "Megatron-FSDP refuses to start with it";
}

TEST(ExportMegatron, QuotesPathsForTheShell) {
  Case one;
  one.spec.data.path = "/data/it's here";
  EXPECT_THAT(Arguments(one), Contains("--data-path '/data/it'\\''s here'"));
}

struct MissingCase {
  std::string name;
  ExportFormat format;
  Case with, without;
  std::string sentence;  // a part of it
};
void PrintTo(const MissingCase& missing, std::ostream* out) { *out << missing.name; }

class Missing : public testing::TestWithParam<MissingCase> {};

TEST_P(Missing, IsSaidExactlyWhenSo) {
  const MissingCase& missing = GetParam();
  EXPECT_THAT(missing.with.Export(missing.format).missing, Contains(HasSubstr(missing.sentence)));
  EXPECT_THAT(missing.without.Export(missing.format).missing, Not(Contains(HasSubstr(missing.sentence))));
}

Case Regenerated() {
  return Case().Model([](ModelSpec& m) { m.dropout_masks = DropoutMasks::kRegenerated; });
}
Case Bfloat16(ParallelLayout layout) {
  return Case(layout).Model([](ModelSpec& m) { m.dtype = DataType::kBfloat16; });
}
Case Fused() {
  return Case().Model([](ModelSpec& m) { m.attention = AttentionKernel::kFused; });
}
Case TextData() {
  Case one;
  one.spec.data = {DataKind::kText, "/data/corpus.txt"};
  return one;
}
Case Checkpointed() {
  Case one;
  one.spec.checkpoint.every_steps = 50;
  return one;
}
Case LinearTo(double min_lr) {
  Case one;
  one.spec.train.schedule = LrSchedule::kLinear;
  one.spec.train.min_lr = min_lr;
  return one;
}
Case Unclipped() {
  Case one;
  one.spec.train.optimizer.clip_norm = 0;
  return one;
}
Case FewMicrobatches() {
  Case one({.pp = 2, .virtual_stages = 2, .schedule = ScheduleKind::kInterleaved});
  one.plan.microbatches = 7;
  return one;
}

constexpr auto kM = ExportFormat::kMegatron;
constexpr auto kD = ExportFormat::kDeepSpeed;
constexpr auto kT = ExportFormat::kTorchtitan;

INSTANTIATE_TEST_SUITE_P(
    All, Missing,
    testing::Values(
        MissingCase{"MegatronMasks", kM, Regenerated(), Case(), "dropout masks"},
        MissingCase{"MegatronText", kM, TextData(), Case(), "tools/preprocess_data.py"},
        MissingCase{"MegatronCheckpoints", kM, Checkpointed(), Case(), "keeping the newest 2 checkpoints"},
        MissingCase{"MegatronGpipe", kM, Case({.pp = 2, .schedule = ScheduleKind::kGpipe}), Case({.pp = 2}),
                    "the schedule gpipe"},
        MissingCase{"MegatronZeroBubbleV", kM, Case({.pp = 2, .schedule = ScheduleKind::kZeroBubbleV}), Case({.pp = 2}),
                    "the schedule zero-bubble-v"},
        MissingCase{"MegatronFused", kM, Fused(), Llama(), "fused attention in 32 bits"},
        MissingCase{"MegatronInterleaving", kM, FewMicrobatches(), Case({.pp = 2}), "interleaving of 7 microbatches"},
        MissingCase{"MegatronConnections", kM, Case({.tp = 2, .dp = 2, .zero = ZeroStage::kWeights}),
                    Case({.dp = 2, .zero = ZeroStage::kWeights}), "CUDA_DEVICE_MAX_CONNECTIONS"},
        MissingCase{"MegatronCollectives", kM, Case({.tp = 2}).Recompute(RecomputeMode::kFullKeepCollectives),
                    Case({.tp = 2}).Recompute(RecomputeMode::kFull), "keeping the results of collectives"},
        MissingCase{"DeepSpeedZero", kD, Case({.pp = 2, .dp = 2, .zero = ZeroStage::kGradients}),
                    Case({.pp = 2, .dp = 2, .zero = ZeroStage::kOptimizer}), "ZeRO-2 beside pipeline parallelism"},
        MissingCase{"DeepSpeedTensorAndPipeline", kD, Case({.tp = 2, .pp = 2}), Case({.tp = 2}), "topology with tp 2"},
        MissingCase{"DeepSpeedUneven", kD, Case({.pp = 2}, {3, 5}), Case({.pp = 2}), "stages of 3, 5 layers"},
        MissingCase{"DeepSpeedSequence", kD, Case({.tp = 2, .sequence_parallel = true}), Case({.tp = 2}),
                    "sequence parallelism"},
        MissingCase{"DeepSpeedContext", kD, Case({.cp = 2}), Case(), "Ulysses"},
        MissingCase{"DeepSpeedSchedule", kD, Case({.pp = 2, .schedule = ScheduleKind::kGpipe}), Case({.pp = 2}),
                    "the schedule gpipe"},
        MissingCase{"DeepSpeedLayers", kD, Case().Recompute(RecomputeMode::kFull),
                    Case({.pp = 2}).Recompute(RecomputeMode::kFull), "deepspeed.checkpointing.checkpoint"},
        MissingCase{"DeepSpeedLinear", kD, LinearTo(1e-5), LinearTo(0), "WarmupDecayLR ends at 0"},
        MissingCase{"TorchtitanGpt", kT, Case(), Llama(), "LayerNorm, GELU"},
        MissingCase{"TorchtitanTied", kT, Llama(), Case(), "tied embeddings"},
        MissingCase{"TorchtitanSequence", kT, Case({.tp = 2}), Case({.tp = 2, .sequence_parallel = true}),
                    "without sequence parallelism"},
        MissingCase{"TorchtitanOptimizer", kT, WithZero(ZeroStage::kOptimizer), WithZero(ZeroStage::kWeights),
                    "optimizer states alone"},
        MissingCase{"TorchtitanReplicas", kT, Case({.pp = 2, .dp = 2}), Case({.dp = 2}), "DDP stands alone"},
        MissingCase{"TorchtitanReplicasOfShards", kT, Case({.pp = 2, .dp = 2}),
                    Case({.pp = 2, .dp = 2, .zero = ZeroStage::kWeights}), "DDP stands alone"},
        MissingCase{"TorchtitanContext", kT, Case({.cp = 2}), Case({.cp = 2, .zero = ZeroStage::kWeights}),
                    "context parallelism that shares no states"},
        MissingCase{"TorchtitanPrecision", kT, Bfloat16({.pp = 2}), Bfloat16({.dp = 2}), "bfloat16 without FSDP"},
        MissingCase{"TorchtitanZeroBubble", kT, Case({.pp = 2, .schedule = ScheduleKind::kZeroBubble}),
                    Case({.pp = 2, .schedule = ScheduleKind::kZeroBubbleV}), "the schedule zero-bubble"},
        MissingCase{"TorchtitanClipping", kT, Unclipped(), Case(), "no clipping"},
        MissingCase{"TorchtitanChimera", kT, Case({.pp = 2, .schedule = ScheduleKind::kChimera}), Case({.pp = 2}),
                    "the schedule chimera"}),
    [](const auto& info) { return info.param.name; });

TEST(ExportMegatron, Golden) {
  ExpectGolden("export_megatron_gpt.sh", Case({.tp = 2, .pp = 2, .dp = 2, .zero = ZeroStage::kOptimizer}, {3, 5})
                                             .Recompute(RecomputeMode::kSelective)
                                             .Text(kM));
  ExpectGolden("export_megatron_llama.sh", Llama().Text(kM));
}

TEST(ExportDeepSpeed, Golden) {
  ExpectGolden("export_deepspeed.json", Case({.tp = 2, .dp = 4, .zero = ZeroStage::kGradients})
                                            .Recompute(RecomputeMode::kFull)
                                            .Text(kD));
}

TEST(ExportDeepSpeed, IsJsonWhoseBatchesAgree) {
  const auto json = nlohmann::json::parse(Case({.pp = 2, .dp = 4}).Recompute(RecomputeMode::kFull).Text(kD));
  EXPECT_EQ(json["train_batch_size"], 64);
  EXPECT_EQ(json["train_micro_batch_size_per_gpu"].get<int>() * json["gradient_accumulation_steps"].get<int>() * 4, 64);
  EXPECT_EQ(json["pipeline"]["activation_checkpoint_interval"], 1);
  EXPECT_FALSE(json.contains("activation_checkpointing"));
  EXPECT_FALSE(json.contains("tensor_parallel"));
  EXPECT_FALSE(json.contains("bf16"));
  EXPECT_EQ(json["zero_optimization"]["stage"], 0);
  EXPECT_EQ(json["zero_optimization"]["overlap_comm"], true);
  const auto plain = nlohmann::json::parse(Case({.tp = 2}).Text(kD));
  EXPECT_EQ(plain["tensor_parallel"]["autotp_size"], 2);
  EXPECT_FALSE(plain.contains("pipeline"));
  EXPECT_FALSE(plain["zero_optimization"].contains("overlap_comm"));
  EXPECT_EQ(nlohmann::json::parse(Llama().Text(kD))["bf16"]["enabled"], true);
}

TEST(ExportDeepSpeed, SchedulersOfTheThreeKinds) {
  Case one;
  const auto scheduler = [&](LrSchedule schedule) {
    one.spec.train.schedule = schedule;
    return nlohmann::json::parse(one.Text(kD))["scheduler"];
  };
  EXPECT_EQ(scheduler(LrSchedule::kCosine)["type"], "WarmupCosineLR");
  EXPECT_NEAR(scheduler(LrSchedule::kCosine)["params"]["cos_min_ratio"].get<double>(), 0.1, 1e-9);
  EXPECT_EQ(scheduler(LrSchedule::kLinear)["type"], "WarmupDecayLR");
  EXPECT_EQ(scheduler(LrSchedule::kLinear)["params"]["total_num_steps"], 1000);
  EXPECT_EQ(scheduler(LrSchedule::kConstant)["type"], "WarmupLR");
  EXPECT_FALSE(scheduler(LrSchedule::kConstant)["params"].contains("total_num_steps"));
}

TEST(ExportTorchtitan, Golden) {
  ExpectGolden("export_torchtitan.toml", Case({.tp = 2, .pp = 2, .dp = 2, .zero = ZeroStage::kWeights}, {3, 5})
                                             .Recompute(RecomputeMode::kFull)
                                             .Text(kT));
}

TEST(ExportTorchtitan, ModesAndDegrees) {
  EXPECT_THAT(Case().Text(kT), HasSubstr("mode = \"none\""));
  EXPECT_THAT(Case().Recompute(RecomputeMode::kFull).Text(kT), HasSubstr("mode = \"full\""));
  EXPECT_THAT(Case({.dp = 4}).Text(kT), HasSubstr("data_parallel_replicate_degree = 4\ndata_parallel_shard_degree = 1\n"));
  EXPECT_THAT(Case({.pp = 2, .dp = 4}).Text(kT), HasSubstr("data_parallel_replicate_degree = 1\n"
                                                           "data_parallel_shard_degree = 4\n"
                                                           "fsdp_reshard_after_forward = \"never\"\n"));
  EXPECT_THAT(Case({.dp = 4, .cp = 2}).Text(kT), HasSubstr("data_parallel_replicate_degree = 4\n"
                                                           "data_parallel_shard_degree = 1\n"
                                                           "fsdp_reshard_after_forward = \"never\"\n"));
  EXPECT_THAT(WithZero(ZeroStage::kGradients).Text(kT),
              HasSubstr("data_parallel_replicate_degree = 1\ndata_parallel_shard_degree = 4\n"
                        "fsdp_reshard_after_forward = \"never\"\n"));
  EXPECT_THAT(Case().Text(kT), Not(HasSubstr("pipeline_parallel_schedule")));
  EXPECT_THAT(Case({.pp = 2}).Text(kT), HasSubstr("local_batch_size = 16\n"));  // 8 microbatches of 2
  EXPECT_THAT(Case().Text(kT), HasSubstr("local_batch_size = 2\n"));
  EXPECT_THAT(Case({.pp = 2, .virtual_stages = 2, .schedule = ScheduleKind::kInterleaved}).Text(kT),
              HasSubstr("\"Interleaved1F1B\""));
  EXPECT_THAT(Case({.pp = 2, .schedule = ScheduleKind::kZeroBubbleV}).Text(kT), HasSubstr("\"ZBVZeroBubble\""));
}

TEST(Export, NumbersHaveAllTheirDigits) {
  Case job;
  job.spec.train.optimizer.lr = 3.0517578125e-05;
  job.spec.train.optimizer.beta2 = 0.9999999;
  EXPECT_THAT(job.Text(kM), HasSubstr("--lr 3.0517578125e-05"));
  EXPECT_THAT(job.Text(kM), HasSubstr("--adam-beta2 0.9999999"));
  const auto parameters = nlohmann::json::parse(job.Text(kD))["optimizer"]["params"];
  EXPECT_EQ(parameters["lr"], 3.0517578125e-05);
  EXPECT_EQ(parameters["betas"][1], 0.9999999);
  EXPECT_THAT(job.Text(kT), HasSubstr("lr = 3.0517578125e-05\n"));
}

TEST(Export, FormatsHaveNames) {
  for (const ExportFormat format : {kM, kD, kT}) {
    ExportFormat parsed = kM;
    EXPECT_TRUE(ParseExportFormat(ExportFormatName(format), parsed));
    EXPECT_EQ(parsed, format);
  }
  ExportFormat unchanged = kD;
  EXPECT_FALSE(ParseExportFormat("Megatron", unchanged));
  EXPECT_EQ(unchanged, kD);
}

TEST(SummaryOf, TellsWhatFrameworksHaveWordsFor) {
  const auto kind = [](const Case& one) { return SummaryOf(one.plan).kind; };
  EXPECT_EQ(kind(Case()), LayerRecompute::kNothing);
  EXPECT_EQ(kind(Case().Recompute(RecomputeMode::kSelective)), LayerRecompute::kAttentionCore);
  EXPECT_EQ(kind(Case().Recompute(RecomputeMode::kFull)), LayerRecompute::kLayer);
  EXPECT_EQ(kind(Case({.tp = 2}).Recompute(RecomputeMode::kFullKeepCollectives)), LayerRecompute::kLayerButCollective);
  EXPECT_EQ(kind(Case().Recompute(RecomputeMode::kBalanced)), LayerRecompute::kNormsAndActivation);
  EXPECT_EQ(kind(Case().Recompute(RecomputeMode::kSelective, 2)), LayerRecompute::kMixed);
  Case last({.pp = 2});
  last.Recompute(RecomputeMode::kFull);
  std::swap(last.plan.stages[0].slices[0].policy.layers[0], last.plan.stages[0].slices[0].policy.layers[3]);
  EXPECT_EQ(kind(last), LayerRecompute::kLayer) << "equal policies may change places";
  last.plan.stages[0].slices[0].policy.layers[0] = Case().plan.stages[0].slices[0].policy.layers[0];
  EXPECT_EQ(kind(last), LayerRecompute::kMixed) << "the first layer stores everything, those after it recompute";
  Case uneven({.pp = 2}, {4, 6});
  uneven.Recompute(RecomputeMode::kFull);
  uneven.plan.stages[1].slices[0].policy.layers[5] = Case().plan.stages[0].slices[0].policy.layers[0];
  EXPECT_EQ(SummaryOf(uneven.plan).first_layers, 5);  // all four of stage 0, five of stage 1
  uneven.plan.stages[0].slices[0].policy.layers[3] = Case().plan.stages[0].slices[0].policy.layers[0];
  EXPECT_EQ(kind(uneven), LayerRecompute::kMixed) << "three of one stage and five of another is no one number";
}

// HEU's plan cannot be exported: the best that the framework has is, and the list says so.
TEST(Export, PutsTheBestThatFitsInPlaceOfWindows) {
  const auto fixture = SmallStep(kKiB * 1600);
  ASSERT_TRUE(SummaryOf(fixture->plan).windows);
  for (const ExportFormat format : {kM, kD, kT}) {
    const auto exported = ExportPlan(format, fixture->request, fixture->plan);
    ASSERT_TRUE(exported.ok()) << exported.status();
    EXPECT_THAT(exported->missing, Contains(HasSubstr("windows: Lynx hides")));
    EXPECT_THAT(exported->missing, Contains(testing::ContainsRegex("predicted step .* instead of .* \\(\\+")));
  }
  const auto exported = ExportPlan(kM, fixture->request, fixture->plan);
  EXPECT_THAT(exported->files[0].text, HasSubstr("--recompute-granularity"));
  EXPECT_THAT(exported->files[0].text, HasSubstr("tp2 pp2 dp1"));
}

// Megatron-LM can leave some layers of a stage alone where there is memory for them; the others have all or none.
TEST(Export, RecomputesNoMoreLayersThanItMust) {
  PlanRequest request = SmallRequest(kKiB * 1600);
  request.spec.resources.min_ranks = request.spec.resources.max_ranks = 2;
  request.spec.parallel.pp = 1;
  const auto fixture = PlannedStep(request);
  const auto megatron = ExportPlan(kM, fixture->request, fixture->plan);
  ASSERT_TRUE(megatron.ok()) << megatron.status();
  EXPECT_THAT(megatron->files[0].text, HasSubstr("--recompute-method block\n  --recompute-num-layers 3\n"));
  EXPECT_THAT(megatron->missing, Contains(HasSubstr("recomputing the first 3 layers of each stage in full")));
  EXPECT_THAT(ExportPlan(kT, fixture->request, fixture->plan)->missing, Contains(HasSubstr("every layer in full")));
}

TEST(MakePlanFor, ChoosesAmongTheFrameworksSchedules) {
  PlanRequest request = SmallRequest(kKiB * 1600);
  request.target = PlanTarget::kAnyFramework;
  const auto planned = [&](ExportFormat format) {
    const absl::StatusOr<PlanResult> result = MakePlanFor(format, request);
    EXPECT_TRUE(result.ok() && std::holds_alternative<Plan>(*result)) << result.status();
    return std::get<Plan>(*result);
  };
  EXPECT_EQ(planned(kD).layout.schedule, ScheduleKind::kOneForwardOneBackward);
  EXPECT_THAT(planned(kM).layout.schedule,
              testing::AnyOf(ScheduleKind::kOneForwardOneBackward, ScheduleKind::kInterleaved));
  EXPECT_LE(planned(kM).step, planned(kD).step) << "it may choose among more";
  EXPECT_LE(planned(kT).step, planned(kM).step);
  request.spec.parallel.schedule = ScheduleKind::kChimera;
  EXPECT_EQ(planned(kM).layout.schedule, ScheduleKind::kChimera) << "what the job says stands";
  request.spec.parallel = {.tp = 2, .pp = 2, .dp = 1, .virtual_stages = 2};
  EXPECT_EQ(planned(kM).layout.schedule, ScheduleKind::kInterleaved) << "1F1B has no virtual stages";
  request.spec.parallel = {.tp = 8, .pp = 2, .dp = 1};
  EXPECT_EQ(MakePlanFor(kM, request).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(Export, SaysWhenNothingThatTheFrameworkHasFits) {
  const auto fixture = SmallStep(kKiB * 1000);
  ASSERT_TRUE(SummaryOf(fixture->plan).windows);
  fixture->request.spec.resources.activation_memory_per_rank = kKiB * 100;
  const auto exported = ExportPlan(kT, fixture->request, fixture->plan);
  ASSERT_FALSE(exported.ok());
  EXPECT_EQ(exported.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(exported.status().message()), HasSubstr("torchtitan has no policy with which this job fits"));
  EXPECT_THAT(std::string(exported.status().message()), HasSubstr("allow more memory or ranks"));
}

TEST(Export, PlansThatAFrameworkHasAreExportedAsTheyAre) {
  PlanRequest request = SmallRequest(Bytes(0));
  request.spec.data = {DataKind::kMegatron, "/data/x"};
  request.spec.model.dropout_masks = DropoutMasks::kRegenerated;
  const auto fixture = PlannedStep(request);
  const auto exported = ExportPlan(kM, fixture->request, fixture->plan);
  ASSERT_TRUE(exported.ok()) << exported.status();
  EXPECT_THAT(exported->missing, testing::ElementsAre(HasSubstr("dropout masks")));
  EXPECT_THAT(exported->files[0].text, Not(HasSubstr("--recompute")));
}

}  // namespace
}  // namespace lynx
