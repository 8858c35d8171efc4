#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "cli/frameworks/imported_run.h"
#include "cli/frameworks/megatron_arguments.h"
#include "tests/cli/frameworks/megatron_runs.h"
#include "tests/planner/export/export_cases.h"
#include "tests/planner/report/report_fixtures.h"

namespace lynx::cli {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// A script like those that people write: with arrays, variables with defaults, and arithmetic.
constexpr char kScript[] = R"(#!/bin/bash
export CUDA_DEVICE_MAX_CONNECTIONS=1
GPUS=8
NODES=${NODES:-4}
TP_SIZE=${TP_SIZE:-4}
PP=2
SAVE=$1
WORLD=$(($GPUS * NODES))

LAUNCH=(--nproc_per_node $GPUS --nnodes $NODES --master_addr $MASTER)
MODEL=(
    --num-layers 32   # of them 16 a stage
    --hidden-size 4096
    --ffn-hidden-size 14336
    --num-attention-heads 32
    --group-query-attention --num-query-groups 8
    --seq-length 8192 --max-position-embeddings 8192
    --position-embedding-type rope --rotary-base 500000
    --use-rope-scaling
    --swiglu --normalization RMSNorm --disable-bias-linear --untie-embeddings-and-output-weights
    --attention-dropout 0 --hidden-dropout 0
    --attention-backend auto
    --vocab-size 128256 --tokenizer-type HuggingFaceTokenizer --tokenizer-model $TOKENIZER
)
TRAIN=(--micro-batch-size 1 --global-batch-size $((WORLD * 4)) --train-iters 1000 --lr 3e-4 --min-lr 3e-5 --bf16
       --lr-decay-style cosine --lr-warmup-fraction .01 --clip-grad 1.0 --weight-decay 0.1 --adam-beta2 0.95)
SPLIT=(--tensor-model-parallel-size $TP_SIZE --pipeline-model-parallel-size $PP --sequence-parallel
       --use-distributed-optimizer --overlap-grad-reduce --num-layers-per-virtual-pipeline-stage 4)
SAVED=()
if [ "$TP_SIZE" -gt 1 ]; then
  SAVED+=(--recompute-granularity selective)
fi
mkdir -p "$SAVE"

torchrun ${LAUNCH[@]} pretrain_gpt.py \
    ${MODEL[@]} \
    ${TRAIN[@]} "${SPLIT[@]}" ${SAVED[@]} \
    --data-path /data/corpus_text_document --save $SAVE --save-interval 500 --log-interval 1
)";

TEST(ImportMegatron, ReadsAScriptOfArraysAndVariables) {
  const ImportedRun run = Imported(std::string(kScript));
  EXPECT_EQ(run.devices, 32);
  EXPECT_EQ(run.job.name, "train-8b");
  const ModelSpec& model = run.job.model;
  EXPECT_EQ(model.family, ModelFamily::kLlama);
  EXPECT_EQ(model.layers, 32);
  EXPECT_EQ(model.hidden, 4096);
  EXPECT_EQ(model.ffn, 14336);
  EXPECT_EQ(model.kv_heads, 8);
  EXPECT_EQ(model.seq, 8192);
  EXPECT_EQ(model.vocab, 128512) << "128256, padded to a multiple of 128 * tp";
  EXPECT_EQ(model.dtype, DataType::kBfloat16);
  EXPECT_EQ(model.attention, AttentionKernel::kFused);
  EXPECT_EQ(model.rotary.theta, 500000);
  EXPECT_EQ(model.rotary.scaling, RopeScaling::kLlama3);
  EXPECT_EQ(model.rotary.factor, 8);
  EXPECT_FALSE(model.tied_embeddings);
  EXPECT_EQ(model.plan_only, 0U);
  const ParallelSpec& parallel = run.job.parallel;
  EXPECT_EQ(parallel.tp, 4);
  EXPECT_EQ(parallel.pp, 2);
  EXPECT_EQ(parallel.dp, 4);
  EXPECT_EQ(parallel.cp, 1);
  EXPECT_EQ(parallel.virtual_stages, 4);
  EXPECT_EQ(parallel.schedule, ScheduleKind::kInterleaved);
  EXPECT_EQ(parallel.sequence_parallel, Choice::kOn);
  EXPECT_EQ(parallel.zero, ZeroStage::kOptimizer);
  EXPECT_EQ(parallel.rank_order, RankOrder::kTpDpPp);
  EXPECT_EQ(run.job.recompute, RecomputeMode::kSelective);
  EXPECT_EQ(run.job.train.global_batch, 128);
  EXPECT_EQ(run.job.train.warmup_steps, 10);
  EXPECT_EQ(run.job.checkpoint.every_steps, 500);
  EXPECT_EQ(run.job.data.path, "/data/corpus_text_document");
  EXPECT_THAT(run.not_taken, IsEmpty());
  EXPECT_THAT(run.unknown, IsEmpty());
  EXPECT_THAT(run.assumed, Contains(HasSubstr("$TOKENIZER (--tokenizer-model)")));
}

TEST(ImportMegatron, SetGivesVariablesAndFields) {
  ImportRequest request = RequestOf(kScript);
  request.variables = {{"TP_SIZE", "1"}, {"NODES", "1"}};
  request.overrides = {"model.vocab=1000", "train.steps=2000"};
  const ImportedRun run = Imported(request);
  EXPECT_EQ(run.job.parallel.tp, 1);
  EXPECT_EQ(run.devices, 8);
  EXPECT_EQ(run.job.recompute, RecomputeMode::kNone) << "the test in the script says so";
  EXPECT_EQ(run.job.model.vocab, 1000);
  EXPECT_EQ(run.job.train.steps, 2000);
}

TEST(ImportMegatron, RefusesBatchesThatReplicasDoNotShare) {
  ImportRequest request = RequestOf(
      "torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 4 --hidden-size 512 --num-attention-heads 8 --seq-length 512 "
      "--micro-batch-size 1 --global-batch-size 64");
  request.overrides = {"train.globalBatch=60"};
  EXPECT_THAT(ErrorOf(request), HasSubstr("train.globalBatch 60 is no multiple of train.microBatch 1 * parallel.dp 8"));
  request.overrides = {"train.globalBatch=56"};
  EXPECT_EQ(Imported(request).job.train.global_batch, 56);
}

TEST(ImportMegatron, ReadsOtherWaysToStart) {
  const std::string arguments = Small().substr(Small().find("--num-layers"));
  EXPECT_EQ(Imported("srun -N 2 --ntasks-per-node=4 python -u pretrain_gpt.py " + arguments + "--global-batch-size 16").devices,
            8);
  EXPECT_EQ(Imported("mpirun -np 4 python pretrain_gpt.py " + arguments).devices, 4);
  EXPECT_EQ(Imported("#SBATCH --nodes=2\n#SBATCH --gpus-per-node=2\nsrun python pretrain_gpt.py " + arguments).devices, 4);
  EXPECT_EQ(Imported("CMD=\"python pretrain_gpt.py " + arguments + "\"\nmpirun -n 2 bash -c \"$CMD\"").devices, 2);
  EXPECT_EQ(Imported("options=\"" + arguments + "\"\ntorchrun --nproc-per-node=2 pretrain_gpt.py $options").devices, 2);
  ImportRequest bare = RequestOf(arguments);
  EXPECT_THAT(ErrorOf(bare), HasSubstr("on how many devices the run is; give --devices N"));
  bare.devices = 4;
  EXPECT_EQ(Imported(bare).job.parallel.dp, 4);
  EXPECT_THAT(ErrorOf("torchrun --nproc-per-node $GPUS pretrain_gpt.py " + arguments), HasSubstr("give the number of devices"));
  EXPECT_THAT(ErrorOf(Small() + "\n" + Small("--bf16")), HasSubstr("a second command with --num-layers"));
  EXPECT_THAT(ErrorOf("echo hello"), HasSubstr("found no command with a program that ends in .py"));
  EXPECT_THAT(ErrorOf("while true; do " + Small() + "; done"), HasSubstr("commands in loops"));
}

TEST(ImportMegatron, CountsTheDevicesOfNestedLaunchers) {
  const std::string arguments = " pretrain_gpt.py " + Small("--global-batch-size 64").substr(Small().find("--num-layers"));
  const auto devices = [&](const std::string& launcher) { return Imported(launcher + arguments).devices; };
  EXPECT_EQ(devices("srun --nodes=4 --ntasks-per-node=1 torchrun --nnodes=4 --nproc_per_node=8"), 32);
  EXPECT_EQ(devices("srun --nodes=4 --ntasks-per-node=1 --gpus-per-node=h100:8 python"), 32);
  EXPECT_EQ(devices("#SBATCH --nodes=4 --ntasks-per-node=1 --gpus-per-node=8\nsrun python"), 32);
  EXPECT_EQ(devices("deepspeed --num_nodes 4 --num_gpus 8"), 32);
  EXPECT_EQ(devices("deepspeed --num_gpus 8"), 8);
  EXPECT_EQ(devices("srun -n 32 --gpus-per-node=8 python"), 32) << "on how many nodes is not said";
}

TEST(ImportMegatron, ReadsACommandThatTheScriptShows) {
  const std::string command = "CMD=\"" + Small() + "\"\n";
  EXPECT_EQ(Imported(command + "echo $CMD; eval $CMD").devices, 2);
  EXPECT_EQ(Imported(command + "printf '%s ' $CMD; $CMD").devices, 2);
  EXPECT_EQ(Imported(command + "$CMD; $CMD").devices, 2) << "the same command again";
}

TEST(ImportMegatron, NamesTheVariableThatATestMayAddTo) {
  for (const std::string added : {"ARGS+=' --fp16'", "ARGS+=(--fp16)"}) {
    const std::string start = added.back() == ')' ? "ARGS=(--bf16)" : "ARGS='--bf16'";
    const std::string script = start + "\nif [ -n \"$WANDB\" ]; then " + added + "; fi\n" + Small("--save /x ${ARGS[@]}");
    EXPECT_THAT(ErrorOf(script), HasSubstr("the arguments hold $ARGS+=..., which the script adds only if a test holds"));
    ImportRequest request = RequestOf(script);
    request.variables["WANDB"] = "";
    EXPECT_EQ(Imported(request).devices, 2);
  }
}

TEST(ImportMegatron, SaysWhatItDidNotRead) {
  EXPECT_THAT(Imported("source env.sh\n" + Small()).assumed, Contains(HasSubstr("env.sh is not read; it may set variables")));
  const std::string error = ErrorOf("CMD=\"" + Small("--tensor-model-parallel-size $TP") + "\"\nsh -c \"$CMD\"");
  EXPECT_THAT(error, HasSubstr("$TP"));
  EXPECT_EQ(error.find_first_of("\x01\x02"), std::string::npos) << error;
}

TEST(ImportMegatron, InstancesOfTheOptimizerAreGroupsOfReplicas) {
  const auto parallel = [](int instances) {
    ImportRequest request =
        RequestOf(Small(absl::StrCat("--use-distributed-optimizer --num-distributed-optimizer-instances ", instances)));
    request.devices = 4;
    return Imported(request).job.parallel;
  };
  EXPECT_EQ(parallel(1).zero_group, 0);
  EXPECT_EQ(parallel(2).zero_group, 2);
  EXPECT_EQ(parallel(2).zero, ZeroStage::kOptimizer);
  EXPECT_EQ(parallel(4).zero, ZeroStage::kNone) << "every replica holds all states";
  EXPECT_THAT(ErrorOf(Small("--use-distributed-optimizer --num-distributed-optimizer-instances 3")),
              HasSubstr("does not divide dp 2"));
}

TEST(ImportMegatron, GptHasItsDefaults) {
  const ImportedRun run = Imported(Small());
  const ModelSpec& model = run.job.model;
  EXPECT_EQ(model.family, ModelFamily::kGpt);
  EXPECT_EQ(model.ffn, 2048);
  EXPECT_EQ(model.dropout, 0.1);
  EXPECT_EQ(model.dropout_masks, DropoutMasks::kStored);
  EXPECT_EQ(model.dtype, DataType::kFloat32);
  EXPECT_TRUE(model.tied_embeddings);
  EXPECT_EQ(model.vocab, 1024);
  EXPECT_EQ(run.job.parallel.dp, 2);
  EXPECT_EQ(run.job.parallel.zero, ZeroStage::kNone);
  EXPECT_EQ(run.job.recompute, RecomputeMode::kNone);
  EXPECT_EQ(run.job.train.optimizer.beta2, 0.999);
  EXPECT_EQ(run.job.train.schedule, LrSchedule::kLinear);
}

struct FieldCase {
  std::string name;
  std::string arguments;
  std::function<bool(const JobSpec&)> holds;
};
void PrintTo(const FieldCase& one, std::ostream* out) { *out << one.name; }

class MegatronField : public testing::TestWithParam<FieldCase> {};

TEST_P(MegatronField, FollowsFromItsFlag) {
  const std::string& arguments = GetParam().arguments;
  const bool gated = arguments.rfind("llama ", 0) == 0;
  const ImportedRun with = Imported(gated ? SmallLlama(arguments.substr(6)) : Small(arguments));
  const ImportedRun without = Imported(gated ? SmallLlama() : Small());
  EXPECT_TRUE(GetParam().holds(with.job)) << JobFileText(with.job);
  EXPECT_FALSE(GetParam().holds(without.job)) << "without the flag";
  EXPECT_THAT(with.unknown, IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(
    All, MegatronField,
    testing::Values(
        FieldCase{"Heads", "--kv-channels 128", [](const JobSpec& j) { return j.model.head_dim == 128; }},
        FieldCase{"Groups", "llama --group-query-attention --num-query-groups 2",
                  [](const JobSpec& j) { return j.model.kv_heads == 2; }},
        FieldCase{"Half", "--fp16", [](const JobSpec& j) { return j.model.dtype == DataType::kBfloat16; }},
        FieldCase{"Flash", "--use-flash-attn", [](const JobSpec& j) { return j.model.attention == AttentionKernel::kFused; }},
        FieldCase{"Unfused", "llama --attention-backend unfused",
                  [](const JobSpec& j) { return j.model.attention == AttentionKernel::kUnfused; }},
        FieldCase{"Local", "llama --transformer-impl local",
                  [](const JobSpec& j) { return j.model.attention == AttentionKernel::kUnfused; }},
        FieldCase{"Tied", "--untie-embeddings-and-output-weights", [](const JobSpec& j) { return !j.model.tied_embeddings; }},
        FieldCase{"Padding", "--make-vocab-size-divisible-by 1", [](const JobSpec& j) { return j.model.vocab == 1000; }},
        FieldCase{"PaddingOfRanks", "--tensor-model-parallel-size 2 --make-vocab-size-divisible-by 64",
                  [](const JobSpec& j) { return j.model.vocab == 1024 && j.parallel.tp == 2; }},
        FieldCase{"Dropout", "--hidden-dropout 0 --attention-dropout 0", [](const JobSpec& j) { return j.model.dropout == 0; }},
        FieldCase{"QueryNorms", "llama --qk-layernorm", [](const JobSpec& j) { return j.model.qk_norm; }},
        FieldCase{"QueryBiases", "llama --add-qkv-bias", [](const JobSpec& j) { return j.model.qkv_bias; }},
        FieldCase{"PartOfAHead", "llama --rotary-percent 0.5", [](const JobSpec& j) { return j.model.rotary.dims == 32; }},
        FieldCase{
            "Interpolation", "llama --rotary-seq-len-interpolation-factor 4",
            [](const JobSpec& j) { return j.model.rotary.scaling == RopeScaling::kLinear && j.model.rotary.factor == 4; }},
        FieldCase{"Window", "llama --window-size 127,0", [](const JobSpec& j) { return j.model.window == 128; }},
        FieldCase{"Offset", "--apply-layernorm-1p",
                  [](const JobSpec& j) { return (j.model.plan_only & Bit(PlanOnlyFeature::kNormOffset)) != 0; }},
        FieldCase{"SquaredRelu", "--squared-relu",
                  [](const JobSpec& j) { return (j.model.plan_only & Bit(PlanOnlyFeature::kOtherActivation)) != 0; }},
        FieldCase{"RotaryGpt", "--use-rotary-position-embeddings",
                  [](const JobSpec& j) { return (j.model.plan_only & Bit(PlanOnlyFeature::kRotaryWithLayerNorm)) != 0; }},
        FieldCase{"NoPositions", "--position-embedding-type none",
                  [](const JobSpec& j) { return (j.model.plan_only & Bit(PlanOnlyFeature::kOtherPositions)) != 0; }},
        FieldCase{"Pipeline", "--pipeline-model-parallel-size 2",
                  [](const JobSpec& j) { return j.parallel.pp == 2 && j.parallel.dp == 1; }},
        FieldCase{"Context", "--context-parallel-size 2", [](const JobSpec& j) { return j.parallel.cp == 2; }},
        FieldCase{"VirtualStages", "--pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2",
                  [](const JobSpec& j) { return j.parallel.virtual_stages == 2; }},
        FieldCase{
            "LayoutOfStages", "--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout 'E(tt|)*3ttL'",
            [](const JobSpec& j) { return j.parallel.virtual_stages == 2 && j.parallel.partition == PartitionMethod::kEven; }},
        FieldCase{"UnevenLayout", "--pipeline-model-parallel-size=2 --pipeline-model-parallel-layout='Et*3|t*5L'",
                  [](const JobSpec& j) {
                    return j.parallel.stage_layers == std::vector<int32_t>{3, 5};
                  }},
        FieldCase{"FirstStage", "--pipeline-model-parallel-size 2 --decoder-first-pipeline-num-layers 3",
                  [](const JobSpec& j) {
                    return j.parallel.stage_layers == std::vector<int32_t>{3, 5};
                  }},
        FieldCase{"LastStage", "--pipeline-model-parallel-size 2 --decoder-last-pipeline-num-layers 2",
                  [](const JobSpec& j) {
                    return j.parallel.stage_layers == std::vector<int32_t>{6, 2};
                  }},
        FieldCase{"StageOfEmbedding",
                  "--num-layers 7 --pipeline-model-parallel-size 2 --account-for-embedding-in-pipeline-split",
                  [](const JobSpec& j) {
                    return j.parallel.stage_layers == std::vector<int32_t>{3, 4};
                  }},
        FieldCase{"Order", "--use-tp-pp-dp-mapping",
                  [](const JobSpec& j) { return j.parallel.rank_order == RankOrder::kTpPpDp; }},
        FieldCase{"ShardedOptimizer", "--use-distributed-optimizer",
                  [](const JobSpec& j) { return j.parallel.zero == ZeroStage::kOptimizer; }},
        FieldCase{"ShardedWeights", "--use-megatron-fsdp",
                  [](const JobSpec& j) { return j.parallel.zero == ZeroStage::kWeights; }},
        FieldCase{"ShardedGradients", "--use-custom-fsdp --data-parallel-sharding-strategy optim_grads",
                  [](const JobSpec& j) { return j.parallel.zero == ZeroStage::kGradients; }},
        FieldCase{"Selective", "--recompute-activations",
                  [](const JobSpec& j) { return j.recompute == RecomputeMode::kSelective; }},
        FieldCase{"Full", "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1",
                  [](const JobSpec& j) { return j.recompute == RecomputeMode::kFull; }},
        FieldCase{"Uniform", "--recompute-granularity full --recompute-method uniform --recompute-num-layers 2",
                  [](const JobSpec& j) { return j.recompute == RecomputeMode::kUniform && j.recompute_options.layers == 2; }},
        FieldCase{"Block", "--recompute-granularity full --recompute-method block --recompute-num-layers 3",
                  [](const JobSpec& j) { return j.recompute == RecomputeMode::kBlock && j.recompute_options.layers == 3; }},
        FieldCase{"Modules", "--recompute-granularity selective --recompute-modules mlp core_attn mlp",
                  [](const JobSpec& j) {
                    return j.recompute == RecomputeMode::kSelective &&
                           j.recompute_options.modules == std::vector{RecomputeModule::kCoreAttn, RecomputeModule::kMlp};
                  }},
        FieldCase{"LocalNorms", "--transformer-impl local --recompute-granularity selective --recompute-modules layernorm",
                  [](const JobSpec& j) { return j.recompute_options.modules == std::vector{RecomputeModule::kLayernorm}; }},
        FieldCase{"Samples", "--train-samples 800 --lr-warmup-samples 80",
                  [](const JobSpec& j) { return j.train.warmup_steps == 10; }},
        FieldCase{"EightBits", "llama --fp8-format hybrid --fp8-recipe tensorwise",
                  [](const JobSpec& j) { return j.model.matmul_type == MatmulType::kFloat8; }},
        FieldCase{"EightBitBlocks", "llama --fp8-format e4m3 --fp8-recipe mxfp8",
                  [](const JobSpec& j) { return j.model.matmul_type == MatmulType::kMxfp8; }},
        FieldCase{"FourBits", "llama --fp4-format e2m1 --fp4-recipe nvfp4",
                  [](const JobSpec& j) { return j.model.matmul_type == MatmulType::kNvfp4; }},
        FieldCase{"FourBitsByDefault", "llama --fp4-format e2m1",
                  [](const JobSpec& j) { return j.model.matmul_type == MatmulType::kNvfp4; }},
        FieldCase{"Bf16SumsIn16Bits", "--bf16 --grad-reduce-in-bf16",
                  [](const JobSpec& j) { return j.model.gradient_dtype == DataType::kBfloat16; }},
        FieldCase{"MainGradients", "--bf16 --main-grads-dtype bf16",
                  [](const JobSpec& j) { return j.model.gradient_dtype == DataType::kBfloat16; }},
        FieldCase{"Fp16SumsIn16Bits", "--fp16", [](const JobSpec& j) { return j.model.gradient_dtype == DataType::kBfloat16; }},
        FieldCase{"Seed", "--seed 7", [](const JobSpec& j) { return j.train.seed == 7; }}),
    [](const auto& info) { return info.param.name; });

TEST(ImportMegatron, GradientsOf32BitsAreWhatTheFlagsSay) {
  for (const char* flags : {"", "--bf16", "--bf16 --main-grads-dtype fp32", "--bf16 --accumulate-allreduce-grads-in-fp32",
                            "--fp16 --accumulate-allreduce-grads-in-fp32", "--grad-reduce-in-bf16"}) {
    EXPECT_EQ(Imported(Small(flags)).job.model.gradient_dtype, DataType::kFloat32) << flags;
  }
}

TEST(ImportMegatron, ARecipeAloneIsNoFormat) {
  EXPECT_EQ(Imported(SmallLlama("--fp8-recipe mxfp8")).job.model.matmul_type, MatmulType::kModel);
}

TEST(ImportMegatron, SaysHowMuchLargerATableOfPositionsIs) {
  const auto said = [](const std::string& script) { return absl::StrJoin(Imported(script).not_taken, "\n"); };
  EXPECT_THAT(said(Small("--max-position-embeddings 1024")),
              HasSubstr("--max-position-embeddings 1024: the plan counts a table of positions of model.seq 256 rows; each rank "
                        "of the first stage has 393216 parameters more"));
  EXPECT_THAT(said(Small("--max-position-embeddings 256")), Not(HasSubstr("--max-position-embeddings")));
  EXPECT_THAT(said(SmallLlama("--max-position-embeddings 1024")), Not(HasSubstr("--max-position-embeddings")));
}

TEST(ImportMegatron, VirtualStagesCountTheEmbeddingAndTheLoss) {
  const std::string script =
      "torchrun --nproc-per-node 4 pretrain_gpt.py --num-layers 62 --hidden-size 512 --num-attention-heads 8 --seq-length 256 "
      "--micro-batch-size 1 --global-batch-size 16 --pipeline-model-parallel-size 4 "
      "--num-layers-per-virtual-pipeline-stage 4 --account-for-embedding-in-pipeline-split ";
  const ImportedRun run = Imported(script + "--account-for-loss-in-pipeline-split");
  EXPECT_EQ(run.job.parallel.virtual_stages, 4) << "(62 + 2) / 4 / 4";
  std::vector<int32_t> layers(16, 4);
  layers.front() = layers.back() = 3;
  EXPECT_EQ(run.job.parallel.stage_layers, layers);
  EXPECT_THAT(run.not_taken, Not(Contains(HasSubstr("beside virtual stages"))));
  EXPECT_THAT(ErrorOf(script),
              HasSubstr("--num-layers 62, with the embedding and the loss as far as they count, is no multiple"));
}

TEST(ImportMegatron, SaysWhatHasNoCounterpart) {
  const auto missing = [](const std::string& arguments) { return Imported(arguments).not_taken; };
  EXPECT_THAT(missing(SmallLlama("--fp8-format hybrid --fp8-param-gather")),
              Contains(HasSubstr("--fp8-param-gather: weights")));
  EXPECT_THAT(missing(SmallLlama("--fp8-format hybrid --fp8-recipe blockwise")),
              Contains(HasSubstr("--fp8-recipe blockwise: products are counted as model.matmulType float8")));
  EXPECT_THAT(missing(SmallLlama("--fp4-format e2m1 --fp4-param-gather")),
              Contains(HasSubstr("--fp4-param-gather: weights are counted in 16 bits, beside their copies in 4 bits")));
  EXPECT_THAT(missing(SmallLlama("--fp4-format e2m1 --fp4-recipe custom --first-last-layers-bf16")),
              testing::IsSupersetOf({HasSubstr("--fp4-recipe custom: products are counted as model.matmulType nvfp4"),
                                     HasSubstr("--first-last-layers-bf16: the products of all layers")}));
  EXPECT_THAT(missing(SmallLlama("--exp-avg-dtype bf16")), Contains(HasSubstr("--exp-avg-dtype bf16: ")));
  EXPECT_THAT(missing(Small("--fp16")), Contains(HasSubstr("--fp16: planned as bfloat16")));
  EXPECT_THAT(missing(Small("--swiglu --hidden-dropout 0")),
              Contains(HasSubstr("--attention-dropout 0.1, Megatron-LM's default")));
  EXPECT_THAT(missing(Small("--hidden-dropout 0")), Contains(HasSubstr("one rate, taken from --hidden-dropout 0")));
  EXPECT_THAT(missing(Small("--normalization RMSNorm")), Contains(HasSubstr("--normalization RMSNorm")));
  EXPECT_THAT(missing(Small("--disable-bias-linear")), Contains(HasSubstr("--disable-bias-linear")));
  EXPECT_THAT(missing(Small("--num-query-groups 2")), Contains(HasSubstr("ignores it without --group-query-attention")));
  EXPECT_THAT(missing(Small("--optimizer sgd")), Contains(HasSubstr("--optimizer sgd")));
  EXPECT_THAT(missing(Small("--rampup-batch-size 4 4 100")), Contains(HasSubstr("--rampup-batch-size 4 4 100: ")));
  const std::string modules = "--recompute-granularity selective --recompute-modules ";
  for (const auto& [module, why] : std::vector<std::pair<std::string, std::string>>{
           {"layernorm", "with --transformer-impl transformer_engine the norms are part of the linears after them"},
           {"moe_act", "the model has no experts"},
           {"moe", "the model has no experts"},
           {"shared_experts", "the model has no shared experts"},
           {"mla_up_proj", "the model has no latent attention"},
           {"gdn_norm_out", "planned models have no such layers"}}) {
    const ImportedRun run = Imported(Small(modules + module));
    EXPECT_THAT(run.not_taken, Contains("--recompute-modules " + module + ": recomputes nothing, for " + why));
    EXPECT_EQ(run.job.recompute, RecomputeMode::kNone);
  }
  EXPECT_THAT(missing(Small("--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout 'E|t*8L'")),
              Contains(HasSubstr("stages of 0, 8 layers; a job has no stages without layers")));
  EXPECT_THAT(missing(Small("--expert-model-parallel-size 1")), Not(Contains(HasSubstr("expert")))) << "1 changes nothing";
  EXPECT_THAT(missing(Small("--expert-model-parallel-size 2")),
              Contains(HasSubstr("--expert-model-parallel-size 2: there is no --num-experts")));
  EXPECT_THAT(Imported(Small("--moe-shared-expert-intermediate-size 512")).not_taken,
              Contains(HasSubstr("--moe-shared-expert-intermediate-size 512: there is no --num-experts")));
}

TEST(ImportMegatron, NamesWhatItDoesNotKnow) {
  const ImportedRun run = Imported(Small("--log-interval 1 --my-own-flag a b --tensorboard-dir $LOGS"));
  EXPECT_THAT(run.unknown, testing::ElementsAre("--my-own-flag a b"));
  EXPECT_THAT(run.not_taken, IsEmpty());
  EXPECT_THAT(run.assumed, Contains(HasSubstr("$LOGS (--tensorboard-dir)")));
  const std::string file = ImportedJobFile(run, "run.sh");
  EXPECT_THAT(file, HasSubstr("# unknown to Lynx, and left out:\n#   - --my-own-flag a b\n"));
  const absl::StatusOr<JobSpec> read = ParseJobFile(file, "job.yaml", "/");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, run.job);
}

TEST(ImportMegatron, RefusesModelsThatAreNotPlanned) {
  for (const char* flag : {"--mtp-num-layers 1", "--hybrid-layer-pattern M-*", "--yaml-cfg x.yaml", "--quick-geglu"}) {
    EXPECT_THAT(ErrorOf(Small(flag)), HasSubstr(absl::StrCat("runs/Train 8B.sh:1: ", flag, ": "))) << flag;
  }
}

TEST(ImportMegatron, RefusesOtherPrograms) {
  EXPECT_THAT(ErrorOf(absl::StrReplaceAll(Small(), {{"pretrain_gpt", "pretrain_t5"}})),
              HasSubstr("pretrain_t5.py trains other models than pretrain_gpt.py and pretrain_bert.py"));
}

TEST(ImportMegatron, ReadsEncoders) {
  const auto bert = [](const std::string& script) { return absl::StrReplaceAll(script, {{"pretrain_gpt", "pretrain_bert"}}); };
  const ImportedRun run = Imported(bert(Small("--bert-no-binary-head")));
  EXPECT_EQ(run.job.model.plan_only, Bit(PlanOnlyFeature::kEncoder));
  EXPECT_THAT(run.not_taken, IsEmpty());
  EXPECT_THAT(Imported(bert(Small())).not_taken, Contains(HasSubstr("no --bert-no-binary-head")));
  EXPECT_THAT(ErrorOf(bert(SmallLlama())), HasSubstr("--swiglu: encoders are planned with GELU only"));
}

TEST(ImportMegatron, SaysWhatIsWrong) {
  EXPECT_THAT(ErrorOf(absl::StrReplaceAll(Small(), {{"--hidden-size 512", ""}})), HasSubstr("--hidden-size is missing"));
  EXPECT_THAT(ErrorOf(absl::StrReplaceAll(Small(), {{"--hidden-size 512", "--hidden-size"}})),
              HasSubstr("--hidden-size has no value"));
  EXPECT_THAT(ErrorOf(absl::StrReplaceAll(Small(), {{"512", "5x2"}})),
              HasSubstr("--hidden-size is '5x2': expected a whole number"));
  EXPECT_THAT(ErrorOf(absl::StrReplaceAll(Small(), {{"512", "$HIDDEN"}})),
              HasSubstr("--hidden-size is $HIDDEN, and the script does not set $HIDDEN; give it with --set NAME=VALUE"));
  EXPECT_THAT(ErrorOf(absl::StrReplaceAll(Small(), {{"512", "511"}})), HasSubstr("model.hidden is 511"));
  EXPECT_THAT(ErrorOf(Small("--bf16 $EXTRA")), HasSubstr("does not set $EXTRA, which stands among the arguments"));
  EXPECT_THAT(ErrorOf(Small("--bf16 stray")), HasSubstr("'stray' follows no flag"));
  EXPECT_THAT(ErrorOf(Small("--tensor-model-parallel-size 4")), HasSubstr("2 devices are no multiple of tp 4"));
  EXPECT_THAT(ErrorOf(Small("--global-batch-size 6")), HasSubstr("is no multiple of --micro-batch-size 2 * dp 2"));
  EXPECT_THAT(ErrorOf(absl::StrReplaceAll(Small("--tokenizer-type Llama3Tokenizer"), {{"--vocab-size 1000", ""}})),
              HasSubstr("--vocab-size is missing, for the files of Llama3Tokenizer say it; give --set model.vocab=N"));
  EXPECT_THAT(ErrorOf(Small("--pipeline-model-parallel-size 2 --decoder-first-pipeline-num-layers 9")),
              HasSubstr("--num-layers 8 cannot be spread over 2 stages"));
  EXPECT_THAT(ErrorOf(SmallLlama("--fp4-format e3m0")), HasSubstr("--fp4-format is 'e3m0': expected e2m1"));
  EXPECT_THAT(ErrorOf(SmallLlama("--fp4-format e2m1 --fp8-format hybrid")),
              HasSubstr("--fp4-format and --fp8-format exclude each other"));
  EXPECT_THAT(ErrorOf(Small("--recompute-granularity some")), HasSubstr("expected full or selective"));
  EXPECT_THAT(ErrorOf(Small("--recompute-granularity selective --recompute-modules mlp mlp_act")),
              HasSubstr("--recompute-modules has 'mlp_act': expected core_attn, layernorm, moe_act, mla_up_proj, mlp, moe, "
                        "shared_experts"));
  EXPECT_THAT(ErrorOf(Small("--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout EttL")),
              HasSubstr("has 2 layers in 1 stages: expected --num-layers 8"));
  EXPECT_THAT(ErrorOf(Small("--pipeline-model-parallel-layout EttxL")), HasSubstr("expected E, t, L, | or ("));
  ImportRequest modelled = RequestOf(Small());
  modelled.model = "{}";
  modelled.model_file = "config.json";
  EXPECT_THAT(ErrorOf(modelled), HasSubstr("--model config.json: runs of megatron describe the model themselves"));
  EXPECT_EQ(ImportRun(Framework::kLynx, RequestOf(Small())).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(ImportMegatron, EveryFlagIsInOneListOnly) {
  std::set<std::string> seen;
  const auto once = [&](const char* flag) { EXPECT_TRUE(seen.insert(flag).second) << flag << " is listed twice"; };
  for (const MegatronFlag& flag : MegatronFlags()) once(flag.flag);
  for (const MegatronMissing& flag : MegatronMissingFlags()) once(flag.flag);
  for (const char* flag : MegatronOtherFlags()) once(flag);
}

// Reads files that Lynx has exported.
TEST(ImportMegatron, ReadsExports) {
  const Case cases[] = {Case(),
                        Llama(),
                        Case({.tp = 2, .pp = 2, .sequence_parallel = true}),
                        Case({.pp = 2, .dp = 2}),
                        Case({.pp = 2, .dp = 2, .rank_order = RankOrder::kTpDpPp}),
                        Case({.pp = 2, .virtual_stages = 2, .schedule = ScheduleKind::kInterleaved}),
                        Case({.cp = 2}),
                        Mixture(),
                        Mixture({.pp = 2, .dp = 2, .ep = 2, .rank_order = RankOrder::kTpDpPp}),
                        Mixture({.dp = 2}).Model([](ModelSpec& m) {
                          m.moe = {.experts = 4, .top_k = 2, .normalized = false, .aux_loss = 0.01, .z_loss = 0.001};
                        }),
                        Deepseek(),
                        Deepseek({.dp = 2}).Model([](ModelSpec& m) {
                          m.latent.query_rank = 0;
                          m.rotary = {.dims = 8, .scaling = RopeScaling::kYarn, .factor = 40, .original_seq = 4096};
                        }),
                        Case({.pp = 3}, {3, 5, 1}),
                        WithZero(ZeroStage::kNone),
                        WithZero(ZeroStage::kOptimizer),
                        WithZero(ZeroStage::kGradients),
                        WithZero(ZeroStage::kWeights)};
  for (const Case& one : cases) {
    for (const ExportVersion& version : ExportVersions(ExportFormat::kMegatron)) {
      ImportRequest request = RequestOf(one.Text(TargetOf(ExportFormat::kMegatron, version.name)));
      const ImportedRun run = Imported(request);
      ModelSpec model = one.plan.model;
      if (model.dropout == 0) model.dropout_masks = run.job.model.dropout_masks;  // there are none
      EXPECT_EQ(run.job.model, model) << request.text;
      EXPECT_EQ(run.devices, one.plan.layout.ranks());
      EXPECT_EQ(run.job.parallel.tp, one.plan.layout.tp);
      EXPECT_EQ(run.job.parallel.pp, one.plan.layout.pp);
      EXPECT_EQ(run.job.parallel.dp, one.plan.layout.dp);
      EXPECT_EQ(run.job.parallel.cp, one.plan.layout.cp);
      EXPECT_EQ(std::max(1, run.job.parallel.ep), one.plan.layout.ep);
      EXPECT_EQ(run.job.parallel.virtual_stages, one.plan.layout.virtual_stages);
      EXPECT_EQ(run.job.parallel.zero, one.plan.layout.zero) << request.text;
      if (one.plan.layout.pp == 3) EXPECT_EQ(run.job.parallel.stage_layers, (std::vector<int32_t>{3, 5, 1}));
      EXPECT_EQ(ValidateJobSpec(run.job), absl::OkStatus()) << "the job can be planned";
      EXPECT_EQ(run.job.train.micro_batch, one.plan.micro_batch);
      EXPECT_EQ(run.job.train.global_batch, one.plan.samples());
      EXPECT_THAT(run.unknown, IsEmpty());
      EXPECT_THAT(run.not_taken, IsEmpty());
    }
  }
}

// Lines of an exported file without the comment that has the plan's digest.
std::string Arguments(const std::string& text) { return text.substr(text.find("MEGATRON_ARGS=(")); }

// Exports a plan, imports the file and exports the result. Both files must have the same layout, batches and recomputation.
TEST(ImportMegatron, ExportsOfImportsAreTheSame) {
  for (const RecomputeMode mode :
       {RecomputeMode::kNone, RecomputeMode::kFull, RecomputeMode::kSelective, RecomputeMode::kBlock}) {
    for (const ParallelSpec& parallel :
         {ParallelSpec{.tp = 2, .pp = 2, .dp = 1}, ParallelSpec{.tp = 1, .pp = 2, .dp = 2, .zero = ZeroStage::kOptimizer},
          ParallelSpec{.tp = 1, .pp = 2, .dp = 2, .virtual_stages = 3}}) {
      PlanRequest request = SmallRequest(Bytes(0));
      request.target = PlanTarget::kAnyFramework;
      request.spec.data = {DataKind::kMegatron, "/data/x"};
      request.spec.model.dropout_masks = DropoutMasks::kStored;
      request.spec.parallel = parallel;
      request.spec.parallel.partition = PartitionMethod::kEven;
      request.spec.recompute = mode;
      if (mode == RecomputeMode::kBlock) request.spec.recompute_options.layers = 1;
      const auto exported = [&](const PlanRequest& wanted) {
        const absl::StatusOr<PlanResult> plan = MakePlanFor(ExportFormat::kMegatron, wanted);
        EXPECT_TRUE(plan.ok() && std::holds_alternative<Plan>(*plan)) << plan.status();
        const auto files = ExportPlan(NewestTarget(ExportFormat::kMegatron), wanted, std::get<Plan>(*plan));
        EXPECT_TRUE(files.ok()) << files.status();
        return files->files.at(0).text;
      };
      const std::string first = exported(request);
      PlanRequest again = request;
      again.spec = Imported(first).job;
      EXPECT_EQ(Arguments(exported(again)), Arguments(first));
    }
  }
}

}  // namespace
}  // namespace lynx::cli
