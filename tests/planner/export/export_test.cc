#include "planner/export/export.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "planner/export/export_files.h"
#include "tests/golden/golden.h"
#include "tests/planner/export/export_cases.h"
#include "tests/planner/report/report_fixtures.h"

namespace lynx {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr ExportTarget kM{ExportFormat::kMegatron, 3};    // 0.19
constexpr ExportTarget kD{ExportFormat::kDeepSpeed, 3};   // 0.19
constexpr ExportTarget kT{ExportFormat::kTorchtitan, 0};  // 0.2.2
constexpr ExportTarget kMain{ExportFormat::kTorchtitan, 1};

struct FlagCase {
  std::string name;
  Case with;             // a plan that needs the flag
  Case without;          // a plan that does not need the flag
  std::string argument;  // the whole line of the argument
};
void PrintTo(const FlagCase& flag, std::ostream* out) { *out << flag.name; }

Case Interleaved(int32_t microbatches) {
  Case one({.pp = 2, .virtual_stages = 2, .schedule = ScheduleKind::kInterleaved});
  one.plan.microbatches = microbatches;
  return one;
}

Case Modules(const std::vector<RecomputeModule>& modules) { return Case().Recompute(RecomputeMode::kSelective, 0, modules); }

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

INSTANTIATE_TEST_SUITE_P(
    All, MegatronFlag,
    testing::Values(
        FlagCase{"GroupedQueries", Llama(), Case(), "--num-query-groups 4"},
        FlagCase{"GroupedQueriesOn", Llama(), Case(), "--group-query-attention"},
        FlagCase{"Rope", Llama(), Case(), "--position-embedding-type rope"},
        FlagCase{"LearnedPositions", Case(), Llama(), "--position-embedding-type learned_absolute"},
        FlagCase{"RmsNorm", Llama(), Case(), "--normalization RMSNorm"}, FlagCase{"Swiglu", Llama(), Case(), "--swiglu"},
        FlagCase{"NoBias", Llama(), Case(), "--disable-bias-linear"},
        FlagCase{"Untied", Case(), Llama(), "--untie-embeddings-and-output-weights"},
        FlagCase{"Flash", Llama(), Case(), "--attention-backend flash"},
        FlagCase{"Unfused", Case(), Llama(), "--attention-backend unfused"}, FlagCase{"Bfloat16", Llama(), Case(), "--bf16"},
        FlagCase{"ContextParallel", Case({.cp = 2}), Case(), "--context-parallel-size 2"},
        FlagCase{"SequenceParallel", Case({.tp = 2, .sequence_parallel = true}), Case({.tp = 2}), "--sequence-parallel"},
        FlagCase{"RankOrder", Case({.pp = 2, .dp = 2}), Case({.pp = 2}), "--use-tp-pp-dp-mapping"},
        FlagCase{"RanksOfReplicasFirst", Case({.pp = 2, .dp = 2}), Case({.pp = 2, .dp = 2, .rank_order = RankOrder::kTpDpPp}),
                 "--use-tp-pp-dp-mapping"},
        FlagCase{"UnevenStages", Case({.pp = 3}, {3, 5, 1}), Case({.pp = 3}), "--pipeline-model-parallel-layout 'Et*3|t*5|tL'"},
        FlagCase{"VirtualStages", Case({.pp = 2, .virtual_stages = 2, .schedule = ScheduleKind::kInterleaved}), Case({.pp = 2}),
                 "--num-virtual-stages-per-pipeline-rank 2"},
        FlagCase{"UnevenVirtualStages",
                 Case({.pp = 2, .virtual_stages = 2, .schedule = ScheduleKind::kInterleaved}, {1, 2, 3, 4}), Case({.pp = 2}),
                 "--pipeline-model-parallel-layout 'Et|t*2|t*3|t*4L'"},
        FlagCase{"GroupsOfMicrobatches", Interleaved(7), Interleaved(8),
                 "--microbatch-group-size-per-virtual-pipeline-stage 4"},
        FlagCase{"OverlapGradients", Case({.dp = 2}), Case(), "--overlap-grad-reduce"},
        FlagCase{"DistributedOptimizer", WithZero(ZeroStage::kOptimizer), WithZero(ZeroStage::kNone),
                 "--use-distributed-optimizer"},
        FlagCase{"OverlapParameters", WithZero(ZeroStage::kOptimizer), WithZero(ZeroStage::kNone), "--overlap-param-gather"},
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
        FlagCase{"Selective", Case().Recompute(RecomputeMode::kSelective), Case(), "--recompute-granularity selective"},
        FlagCase{"SelectiveModules", Case().Recompute(RecomputeMode::kSelective), Case(), "--recompute-modules core_attn"},
        FlagCase{"MlpModule", Modules({RecomputeModule::kMlp}), Case(), "--recompute-modules mlp"},
        FlagCase{"TwoModules", Modules({RecomputeModule::kCoreAttn, RecomputeModule::kMlp}), Modules({RecomputeModule::kMlp}),
                 "--recompute-modules core_attn mlp"}),
    [](const auto& info) { return info.param.name; });

TEST(ExportMegatron, SelectiveAndFullExcludeEachOthersFlags) {
  const auto selective = Arguments(Case().Recompute(RecomputeMode::kSelective));
  EXPECT_THAT(selective, Not(Contains(testing::StartsWith("--recompute-method"))));
  EXPECT_THAT(selective, Not(Contains(testing::StartsWith("--recompute-num-layers"))));
  EXPECT_THAT(Arguments(Case().Recompute(RecomputeMode::kFull)), Not(Contains(testing::StartsWith("--recompute-modules"))));
  EXPECT_THAT(Arguments(Case()), Not(Contains(testing::StartsWith("--recompute"))));
}

TEST(ExportMegatron, NamesWhatModulesDoOtherwise) {
  EXPECT_THAT(Modules({RecomputeModule::kMlp}).Export(kM).missing, Contains(HasSubstr("calls the whole block again")));
  Case latent = Deepseek().Model([](ModelSpec& m) { m.moe.dense_layers = 0; });
  latent.Recompute(RecomputeMode::kSelective, 0, {RecomputeModule::kMlaUpProj});
  EXPECT_THAT(Arguments(latent), Contains("--recompute-modules mla_up_proj"));
  EXPECT_THAT(latent.Export(kM).missing, Contains(HasSubstr("keeping the results of the norms of the latents")));
  EXPECT_EQ(SummaryOf(Modules({RecomputeModule::kLayernorm}).plan).kind, LayerRecompute::kMixed)
      << "the norms are part of the linears after them";
  EXPECT_EQ(SummaryOf(Modules({RecomputeModule::kMlp}).plan).modules, std::vector{RecomputeModule::kMlp});
  EXPECT_EQ(SummaryOf(Case().Recompute(RecomputeMode::kSelective, 2, {RecomputeModule::kMlp}).plan).kind,
            LayerRecompute::kMixed)
      << "modules are recomputed in all layers";
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
  EXPECT_THAT(Case({.tp = 2}).Text(kM), HasSubstr(line));
  EXPECT_THAT(Case({.cp = 2}).Text(kM), HasSubstr(line));
  EXPECT_THAT(Case({.pp = 2, .dp = 2}).Text(kM), Not(HasSubstr(line)));
  const Case sharded({.tp = 2, .dp = 2, .zero = ZeroStage::kWeights});
  EXPECT_THAT(sharded.Text(kM), Not(HasSubstr(line))) << "Megatron-FSDP refuses to start with it";
}

TEST(ExportMegatron, QuotesPathsForTheShell) {
  Case one;
  one.spec.data.path = "/data/it's here";
  EXPECT_THAT(Arguments(one), Contains("--data-path '/data/it'\\''s here'"));
}

struct MissingCase {
  std::string name;
  ExportTarget target;
  Case with, without;
  std::string sentence;  // a part of the expected sentence
};
void PrintTo(const MissingCase& missing, std::ostream* out) { *out << missing.name; }

class Missing : public testing::TestWithParam<MissingCase> {};

TEST_P(Missing, IsSaidExactlyWhenSo) {
  const MissingCase& missing = GetParam();
  EXPECT_THAT(missing.with.Export(missing.target).missing, Contains(HasSubstr(missing.sentence)));
  EXPECT_THAT(missing.without.Export(missing.target).missing, Not(Contains(HasSubstr(missing.sentence))));
}

Case Regenerated() {
  return Case().Model([](ModelSpec& m) { m.dropout_masks = DropoutMasks::kRegenerated; });
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

Case Undecayed() {
  Case one;
  one.spec.train.optimizer.weight_decay = 0;
  return one;
}
Case OneCheckpoint() {
  Case one = Checkpointed();
  one.spec.checkpoint.keep = 1;
  return one;
}
Case Tied(ParallelLayout layout) {
  return Case(layout).Model([](ModelSpec& m) { m.tied_embeddings = true; });
}
Case Sequence(int32_t length) {
  Case one;
  one.spec.model.seq = one.plan.model.seq = length;
  return one;
}
Case OddTokens() {
  Case one({.tp = 4, .sequence_parallel = true});
  one.spec.model.seq = one.plan.model.seq = 33;  // a microbatch has two sequences, so 66 tokens, which tp 4 does not divide
  return one;
}
Case Microbatches(ParallelLayout layout, int32_t count) {
  Case one(layout);
  one.plan.microbatches = count;
  return one;
}
Case Linear(int64_t warmup) {
  Case one = LinearTo(0);
  one.spec.train.warmup_steps = warmup;
  return one;
}
Case ConstantRate() {
  Case one;
  one.spec.train.schedule = LrSchedule::kConstant;
  one.spec.train.warmup_steps = 0;
  return one;
}
Case Seeded(uint64_t seed) {
  Case one;
  one.spec.train.seed = seed;
  return one;
}

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
        MissingCase{"MegatronWeave", kM, Case({.tp = 2, .weave = WeaveMode::kPairs}), Case({.tp = 2}),
                    "passes side by side (parallel.weave pairs)"},
        MissingCase{"DeepSpeedWeave", kD, Case({.tp = 2, .weave = WeaveMode::kQuads}), Case({.tp = 2}),
                    "passes side by side (parallel.weave quads)"},
        MissingCase{"TorchtitanWeave", kT, Case({.pp = 2, .weave = WeaveMode::kNeighbours}), Case({.pp = 2}),
                    "passes side by side (parallel.weave neighbours)"},
        MissingCase{"DeepSpeedRankOrder", kD, Case({.pp = 2, .dp = 2}),
                    Case({.pp = 2, .dp = 2, .rank_order = RankOrder::kTpDpPp}), "ranks in the order tp-pp-dp"},
        MissingCase{"TorchtitanRankOrder", kT, Case({.pp = 2, .dp = 2}),
                    Case({.pp = 2, .dp = 2, .rank_order = RankOrder::kTpDpPp}), "ranks in the order tp-pp-dp"},
        MissingCase{"MegatronFused", kM, Fused(), Llama(), "fused attention in 32 bits"},
        MissingCase{
            "MegatronInterleaving", kM, Interleaved(7), Interleaved(8),
            "interleaving of 7 microbatches over 2 stages in groups of 2: Megatron-LM takes groups of 4 here, and a rank "
            "holds up to 2 more chunks' activations"},
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
        MissingCase{"TorchtitanAttention", kT, Case(), Llama(), "attention that stores its scores"},
        MissingCase{"TorchtitanOddSequence", kT, Sequence(33), Case(), "sequences of 33 tokens"},
        MissingCase{"TorchtitanFewMicrobatches", kT, Microbatches({.pp = 2}, 1), Case({.pp = 2}), "at least as many as stages"},
        MissingCase{"TorchtitanRounds", kT, Interleaved(7), Case({.pp = 2}), "multiple of 3"},
        MissingCase{"TorchtitanDecay", kT, Case(), Undecayed(), "weight decay of matrices alone"},
        MissingCase{"TorchtitanCheckpoints", kT, OneCheckpoint(), Checkpointed(), "keeps two at least"},
        MissingCase{"TorchtitanMainTied", kMain, Tied({.pp = 2}), Tied({}), "tied embeddings beside pipeline parallelism"},
        MissingCase{"TorchtitanMainContext", kMain, Case({.cp = 2}), Case({.cp = 2, .zero = ZeroStage::kWeights}),
                    "context parallelism that shares no states"},
        MissingCase{"TorchtitanMainTokens", kMain, OddTokens(), Case({.tp = 2, .sequence_parallel = true}),
                    "microbatches of 66 tokens"},
        MissingCase{"DeepSpeedGradients", kD, Bfloat16({.dp = 2}), Bfloat16({.dp = 2, .zero = ZeroStage::kOptimizer}),
                    "weight gradients in 32 bits"},
        MissingCase{"DeepSpeedZero3AndTensor", kD, Case({.tp = 2, .dp = 2, .zero = ZeroStage::kWeights}),
                    Case({.dp = 2, .zero = ZeroStage::kWeights}), "ZeRO-3 beside tensor parallelism"},
        MissingCase{"DeepSpeedFirstStep", kD, Case(), ConstantRate(), "the learning rate of the first step"},
        MissingCase{"DeepSpeedLinearNoWarmup", kD, Linear(0), Linear(20), "a linear decay without warm-up"},
        MissingCase{"DeepSpeedOneWarmup", kD, Linear(1), Linear(2), "a warm-up of one step"},
        MissingCase{"DeepSpeedDecay", kD, Case(), Undecayed(), "weight decay of matrices alone"},
        MissingCase{"MegatronSeed", kM, Seeded(0), Seeded(1), "the seed 0"},
        MissingCase{"MegatronLargeSeed", kM, Seeded(uint64_t{1} << 40), Seeded(INT32_MAX), "the seed 1099511627776"},
        MissingCase{"TorchtitanChimera", kT, Case({.pp = 2, .schedule = ScheduleKind::kChimera}), Case({.pp = 2}),
                    "the schedule chimera"}),
    [](const auto& info) { return info.param.name; });

TEST(ExportMegatron, Golden) {
  ExpectGolden(
      "exports/export_megatron_gpt.sh",
      Case({.tp = 2, .pp = 2, .dp = 2, .zero = ZeroStage::kOptimizer}, {3, 5}).Recompute(RecomputeMode::kSelective).Text(kM));
  ExpectGolden("exports/export_megatron_llama.sh", Llama().Text(kM));
}

TEST(ExportDeepSpeed, Golden) {
  ExpectGolden("exports/export_deepspeed.json",
               Case({.tp = 2, .dp = 4, .zero = ZeroStage::kGradients}).Recompute(RecomputeMode::kFull).Text(kD));
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
  ExpectGolden("exports/export_torchtitan_model.txt", Llama().Export(kT).files.at(1).text);
  ExpectGolden(
      "exports/export_torchtitan_config.txt",
      Case({.tp = 2, .pp = 2, .dp = 2, .zero = ZeroStage::kWeights}, {3, 5}).Recompute(RecomputeMode::kFull).Text(kMain));
  ExpectGolden("exports/export_torchtitan.toml",
               Case({.tp = 2, .pp = 2, .dp = 2, .zero = ZeroStage::kWeights}, {3, 5}).Recompute(RecomputeMode::kFull).Text(kT));
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
  EXPECT_THAT(Case({.pp = 2}).Text(kT), HasSubstr("local_batch_size = 16\n"));  // 8 microbatches of 2 sequences
  EXPECT_THAT(Case().Text(kT), HasSubstr("local_batch_size = 2\n"));
  EXPECT_THAT(Case({.pp = 2, .virtual_stages = 2, .schedule = ScheduleKind::kInterleaved}).Text(kT),
              HasSubstr("\"Interleaved1F1B\""));
  EXPECT_THAT(Case({.pp = 2, .schedule = ScheduleKind::kZeroBubbleV}).Text(kT), HasSubstr("\"ZBVZeroBubble\""));
}

TEST(ExportMegatron, VocabularyOfNullTokenizerByVersion) {
  const auto vocabulary = [](const char* version) {
    for (const std::string& line : Arguments(Case(), TargetOf(ExportFormat::kMegatron, version))) {
      if (line.starts_with("--vocab-size ")) return line.substr(13);
    }
    return std::string();
  };
  EXPECT_EQ(vocabulary("0.16"), "999") << "the tokenizer adds one";
  EXPECT_EQ(vocabulary("0.17"), "999");
  EXPECT_EQ(vocabulary("0.18"), "1000");
  EXPECT_EQ(vocabulary("0.19"), "1000");
}

TEST(ExportMegatron, SeedsThatItRefusesAreReplaced) {
  EXPECT_THAT(Arguments(Seeded(0)), Contains("--seed 1"));
  EXPECT_THAT(Arguments(Seeded(INT32_MAX)), Contains("--seed 2147483647"));
  EXPECT_THAT(Arguments(Seeded(uint64_t{INT32_MAX} + 4)), Contains("--seed 5"));
}

TEST(ExportDeepSpeed, NothingWarmsUpWhereTheJobDoesNot) {
  Case one;
  one.spec.train.warmup_steps = 0;
  const auto config = [&](LrSchedule schedule) {
    one.spec.train.schedule = schedule;
    return nlohmann::json::parse(one.Text(kD));
  };
  const auto cosine = config(LrSchedule::kCosine)["scheduler"]["params"];
  EXPECT_EQ(cosine["warmup_min_ratio"], 1);
  EXPECT_EQ(cosine["warmup_num_steps"], 2) << "0 and 1 are taken for 2, or refused";
  EXPECT_EQ(config(LrSchedule::kLinear)["scheduler"]["params"]["warmup_num_steps"], 2);
  EXPECT_FALSE(config(LrSchedule::kConstant).contains("scheduler"));
}

TEST(ExportDeepSpeed, ZeroThatStartsBesideTensorParallelism) {
  const Case one({.tp = 2, .dp = 2, .zero = ZeroStage::kWeights});
  EXPECT_EQ(nlohmann::json::parse(one.Text(kD))["zero_optimization"]["stage"], 2);
}

TEST(ExportTorchtitan, GradientsAreNotClippedWhereTheJobDoesNot) {
  EXPECT_THAT(Unclipped().Text(kT), HasSubstr("max_norm = inf\n"));
  EXPECT_THAT(Unclipped().Text(kMain), HasSubstr("max_norm=float(\"inf\")"));
}

TEST(ExportTorchtitan, SchedulesRunAllStagesOfARank) {
  EXPECT_THAT(Case({.pp = 2, .virtual_stages = 2, .schedule = ScheduleKind::kCustom}).Text(kT),
              HasSubstr("\"Interleaved1F1B\""));
  EXPECT_THAT(Case({.pp = 2, .schedule = ScheduleKind::kCustom}).Text(kT), HasSubstr("\"1F1B\""));
}

// TorchTitan 0.2.2 cannot combine plain replicas with tensor parallelism, and its tensor parallelism always shards the norms
// (sequence parallelism). The main branch can combine them, and it can switch sequence parallelism off.
TEST(ExportTorchtitan, MainHasReplicasBesideOthers) {
  const std::string text = Case({.tp = 2, .dp = 4}).Text(kMain);
  EXPECT_THAT(text, HasSubstr("data_parallel_replicate_degree=4,\n            data_parallel_shard_degree=1,\n"));
  EXPECT_THAT(text, HasSubstr("enable_sequence_parallel=False"));
  EXPECT_THAT(text, Not(HasSubstr("fsdp_reshard_after_forward")));
  EXPECT_THAT(text, HasSubstr("num_tokens_per_train_step=2048,\n"));  // 2 x 8 sequences of 32 on 4 replicas
  EXPECT_THAT(text, Not(HasSubstr("disable_cuda_graphs")));
  EXPECT_THAT(Case({.pp = 2}).Text(kMain), HasSubstr("disable_cuda_graphs=True"));
}

TEST(ExportVersions, AreFoundByNameOrListed) {
  EXPECT_EQ(TargetOf(ExportFormat::kMegatron, "0.17"), (ExportTarget{ExportFormat::kMegatron, 1}));
  EXPECT_EQ(NewestTarget(ExportFormat::kDeepSpeed), TargetOf(ExportFormat::kDeepSpeed, "0.19"));
  const auto unknown = FindTarget(ExportFormat::kMegatron, "0.20");
  EXPECT_EQ(unknown.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(unknown.status().message()), HasSubstr("known versions: 0.16, 0.17, 0.18, 0.19"));
}

TEST(ExportVersions, FilesSayForWhichTheyAre) {
  for (const ExportFormat format : {ExportFormat::kMegatron, ExportFormat::kDeepSpeed, ExportFormat::kTorchtitan}) {
    for (size_t i = 0; i < ExportVersions(format).size(); ++i) {
      for (const ExportedFile& file : Case().Export(ExportTarget{format, i}).files) {
        EXPECT_THAT(file.text, HasSubstr(absl::StrCat("Written for ", ExportTargetText({format, i})))) << file.name;
      }
    }
  }
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
  for (const ExportFormat format : {ExportFormat::kMegatron, ExportFormat::kDeepSpeed, ExportFormat::kTorchtitan}) {
    ExportFormat parsed = ExportFormat::kMegatron;
    EXPECT_TRUE(ParseEnum(EnumName(format), parsed));
    EXPECT_EQ(parsed, format);
  }
  ExportFormat unchanged = ExportFormat::kDeepSpeed;
  EXPECT_FALSE(ParseEnum("Megatron", unchanged));
  EXPECT_EQ(unchanged, ExportFormat::kDeepSpeed);
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
  EXPECT_EQ(SummaryOf(uneven.plan).first_layers, 5);  // all four layers of stage 0, and five of stage 1
  uneven.plan.stages[0].slices[0].policy.layers[3] = Case().plan.stages[0].slices[0].policy.layers[0];
  EXPECT_EQ(kind(uneven), LayerRecompute::kMixed) << "three of one stage and five of another is no one number";
}

// A plan that recomputes in windows cannot be exported. Instead, the best plan that the framework supports is exported, and
// `missing` says so.
TEST(Export, PutsTheBestThatFitsInPlaceOfWindows) {
  const auto fixture = SmallStep(kKiB * 1600);
  ASSERT_TRUE(SummaryOf(fixture->plan).windows);
  for (const ExportTarget& target : {kM, kD, kT, kMain}) {
    const auto exported = ExportPlan(target, fixture->request, fixture->plan);
    ASSERT_TRUE(exported.ok()) << exported.status();
    EXPECT_THAT(exported->missing, Contains(HasSubstr("windows: Lynx hides")));
    EXPECT_THAT(exported->missing, Contains(testing::ContainsRegex("predicted step .* instead of .* \\(\\+")));
  }
  const auto exported = ExportPlan(kM, fixture->request, fixture->plan);
  EXPECT_THAT(exported->files[0].text, HasSubstr("--recompute-granularity"));
  EXPECT_THAT(exported->files[0].text, HasSubstr("tp2 pp2 dp1"));
}

// If there is enough memory, Megatron-LM can leave some layers of a stage without recomputation. The other layers recompute
// everything.
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
  EXPECT_EQ(planned(ExportFormat::kDeepSpeed).layout.schedule, ScheduleKind::kOneForwardOneBackward);
  EXPECT_THAT(planned(ExportFormat::kMegatron).layout.schedule,
              testing::AnyOf(ScheduleKind::kOneForwardOneBackward, ScheduleKind::kInterleaved));
  EXPECT_LE(planned(ExportFormat::kMegatron).step, planned(ExportFormat::kDeepSpeed).step) << "it may choose among more";
  EXPECT_LE(planned(ExportFormat::kTorchtitan).step, planned(ExportFormat::kMegatron).step);
  request.spec.parallel.schedule = ScheduleKind::kChimera;
  EXPECT_EQ(planned(ExportFormat::kMegatron).layout.schedule, ScheduleKind::kChimera) << "what the job says stands";
  request.spec.parallel = {.tp = 2, .pp = 2, .dp = 1, .virtual_stages = 2};
  EXPECT_EQ(planned(ExportFormat::kMegatron).layout.schedule, ScheduleKind::kInterleaved) << "1F1B has no virtual stages";
  request.spec.parallel = {.tp = 8, .pp = 2, .dp = 1};
  EXPECT_EQ(MakePlanFor(ExportFormat::kMegatron, request).status().code(), absl::StatusCode::kInvalidArgument);
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
