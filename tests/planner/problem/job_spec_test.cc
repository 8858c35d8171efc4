#include "planner/problem/job_spec.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "planner/problem/layout.h"

namespace lynx {
namespace {

JobSpec GoodSpec() {
  JobSpec spec;
  spec.name = "gpt-bytes";
  spec.model = {.layers = 4, .hidden = 64, .heads = 4, .seq = 32};
  spec.data.path = "/data/text";
  spec.train.steps = 10;
  spec.train.global_batch = 16;
  spec.resources.max_ranks = 8;
  Normalize(spec);
  return spec;
}

TEST(JobSpecTest, NormalizeFillsFfnOnce) {
  JobSpec spec = GoodSpec();
  EXPECT_EQ(spec.model.ffn, 256);
  spec.model.ffn = 100;
  Normalize(spec);
  EXPECT_EQ(spec.model.ffn, 100);
  spec.model.ffn = 0;
  spec.model.hidden = std::numeric_limits<int32_t>::max();  // Normalize must not overflow; validation rejects the value
  Normalize(spec);
  EXPECT_FALSE(ValidateJobSpec(spec).ok());
}

TEST(JobSpecTest, AcceptsGoodSpecs) {
  EXPECT_TRUE(ValidateJobSpec(GoodSpec()).ok()) << ValidateJobSpec(GoodSpec());
  JobSpec pinned = GoodSpec();
  pinned.parallel = {.tp = 2, .pp = 2, .dp = 2};
  pinned.train.micro_batch = 2;
  pinned.resources.min_ranks = 8;
  EXPECT_TRUE(ValidateJobSpec(pinned).ok()) << ValidateJobSpec(pinned);
  pinned.model.kv_heads = 2;  // GPT may have grouped queries, too
  EXPECT_TRUE(ValidateJobSpec(pinned).ok()) << ValidateJobSpec(pinned);
  EXPECT_EQ(CheckEngineRuns(pinned.model, PinnedLayout(pinned.parallel)), absl::OkStatus());
}

// Turns the model of GoodSpec into a Llama of the same sizes, and then applies `change` to it.
std::function<void(JobSpec&)> Llama(std::function<void(ModelSpec&)> change) {
  return [change = std::move(change)](JobSpec& spec) {
    spec.model.family = ModelFamily::kLlama;
    spec.model.dropout = 0;
    change(spec.model);
  };
}

// Sets `parallel`, with these numbers of layers of the stages.
std::function<void(JobSpec&)> Stages(std::vector<int32_t> layers, ParallelSpec parallel) {
  parallel.stage_layers = std::move(layers);
  return [parallel](JobSpec& spec) { spec.parallel = parallel; };
}

TEST(JobSpecTest, AGroupOfAllReplicasIsNone) {
  JobSpec spec = GoodSpec();
  spec.parallel = {.dp = 8, .zero_group = 8};
  Normalize(spec);
  EXPECT_EQ(spec.parallel.zero_group, 0);
}

TEST(JobSpecTest, LayersOfStagesFixTheVirtualStages) {
  JobSpec spec = GoodSpec();
  Stages({1, 1, 1, 1}, {.pp = 2})(spec);
  Normalize(spec);
  EXPECT_TRUE(ValidateJobSpec(spec).ok()) << ValidateJobSpec(spec);
  EXPECT_EQ(spec.parallel.virtual_stages, 2);
  Stages({1, 3}, {.pp = 2, .schedule = ScheduleKind::kChimera})(spec);
  Normalize(spec);
  EXPECT_TRUE(ValidateJobSpec(spec).ok()) << ValidateJobSpec(spec);
  EXPECT_EQ(spec.parallel.virtual_stages, 0);
}

struct BadCase {
  std::function<void(JobSpec&)> change;
  const char* message;  // how the error begins
};

TEST(JobSpecTest, NamesTheFieldTheValueAndTheRule) {
  const double nan = std::nan("");
  const double infinity = std::numeric_limits<double>::infinity();
  const BadCase cases[] = {
      {[](JobSpec& s) { s.name = ""; }, "name is \"\": must be 1 to 48"},
      {[](JobSpec& s) { s.name = "Upper"; }, "name is \"Upper\""},
      {[](JobSpec& s) { s.name = std::string(49, 'a'); }, "name is \"aaa"},
      {[](JobSpec& s) { s.model.layers = 0; }, "model.layers is 0: must be from 1 to 1000"},
      {[](JobSpec& s) { s.model.layers = 1001; }, "model.layers is 1001"},
      {[](JobSpec& s) { s.model.hidden = -64; }, "model.hidden is -64"},
      {[](JobSpec& s) { s.model.heads = 0; }, "model.heads is 0"},
      {[](JobSpec& s) { s.model.heads = 5; }, "model.hidden is 64: must be a multiple of model.heads, which is 5"},
      {[](JobSpec& s) { s.model.ffn = -1; }, "model.ffn is -1"},
      {[](JobSpec& s) { s.model.seq = 0; }, "model.seq is 0"},
      {[](JobSpec& s) { s.model.vocab = 1; }, "model.vocab is 1"},
      {[](JobSpec& s) { s.model.vocab = 255; }, "model.vocab is 255: must be at least 256 for data.kind text"},
      {[](JobSpec& s) { s.model.family = ModelFamily::kLlama; }, "model.dropout is 0.1: must be 0 for model.family llama"},
      {[](JobSpec& s) {
         s.model.family = ModelFamily::kLlama;
         s.model.dropout = 0;
         s.model.hidden = 60;
       },
       "model.hidden is 60: must be an even multiple of model.heads (4)"},
      {[](JobSpec& s) {
         s.model.family = ModelFamily::kLlama;
         s.model.dropout = 0;
         s.model.kv_heads = 2;
         s.parallel.tp = 4;
       },
       "model.kvHeads is 2: must be a multiple of parallel.tp, which is 4"},
      {[](JobSpec& s) { s.model.head_dim = -1; }, "model.headDim is -1"},
      {[](JobSpec& s) { s.model.norm_epsilon = 0; }, "model.normEpsilon is 0: must be above 0 and below 1"},
      {[=](JobSpec& s) { s.model.norm_epsilon = nan; }, "model.normEpsilon is nan"},
      {[](JobSpec& s) { s.model.window = -1; }, "model.window is -1"},
      {[](JobSpec& s) { s.model.qkv_bias = true; }, "model.qkvBias is true: is for model.family llama"},
      {[](JobSpec& s) { s.model.qk_norm = true; }, "model.qkNorm is true: is for model.family llama"},
      {[](JobSpec& s) { s.model.qk_norm_whole = true; }, "model.qkNormWhole is true: needs model.qkNorm true"},
      {[](JobSpec& s) { s.model.window = 8; }, "model.window is 8: is for model.family llama"},
      {[](JobSpec& s) { s.model.rotary.theta = 5e5; }, "model.rope is for model.family llama"},
      {[](JobSpec& s) { s.model.plan_only = PlanOnlyFeatures{1} << 60; }, "model.planOnly is "},
      {[](JobSpec& s) { s.model.matmul_type = MatmulType::kFloat8; }, "model.matmulType is float8: needs model.dtype bfloat16"},
      {[](JobSpec& s) {
         s.model.matmul_type = MatmulType::kMxfp8;
         s.model.dtype = DataType::kBfloat16;
       },
       "model.matmulType is mxfp8: needs model.attention fused"},
      {[](JobSpec& s) { s.model.gradient_dtype = DataType::kBfloat16; },
       "model.gradientDtype is bfloat16: needs model.dtype bfloat16"},
      {Llama([](ModelSpec& m) { m.rotary.theta = 1; }), "model.rope.theta is 1: must be a number above 1"},
      {Llama([=](ModelSpec& m) { m.rotary.theta = infinity; }), "model.rope.theta is inf"},
      {Llama([](ModelSpec& m) { m.rotary.dims = 3; }), "model.rope.dims is 3: must be even"},
      {Llama([](ModelSpec& m) { m.rotary.dims = 18; }), "model.rope.dims is 18: must be from 0 to 16"},
      {Llama([](ModelSpec& m) { m.head_dim = 7; }), "model.headDim is 7: must be even"},
      {Llama([](ModelSpec& m) { m.rotary.factor = 2; }), "model.rope.factor is 2: means nothing with model.rope.scaling none"},
      {Llama([](ModelSpec& m) { m.rotary = {.scaling = RopeScaling::kLinear, .factor = 0.5}; }),
       "model.rope.factor is 0.5: must be from 1"},
      {Llama([](ModelSpec& m) { m.rotary = {.scaling = RopeScaling::kLinear, .factor = 2, .original_seq = 8}; }),
       "model.rope.originalSeq is 8: means nothing with model.rope.scaling linear"},
      {Llama([](ModelSpec& m) { m.rotary = {.scaling = RopeScaling::kYarn, .factor = 2}; }),
       "model.rope.originalSeq is 0: must be from 1"},
      {Llama([](ModelSpec& m) {
         m.rotary = {.scaling = RopeScaling::kLlama3, .factor = 2, .original_seq = 8, .low_freq_factor = 5};
       }),
       "model.rope.highFreqFactor is 4: must be above model.rope.lowFreqFactor, which is 5"},
      {Llama([](ModelSpec& m) { m.rotary = {.scaling = RopeScaling::kYarn, .factor = 2, .original_seq = 8, .beta_fast = 1}; }),
       "model.rope.betaFast is 1: must be above model.rope.betaSlow"},
      {Llama([](ModelSpec& m) { m.rotary.attention_factor = 1; }), "model.rope.attentionFactor is 1: means nothing"},
      {[](JobSpec& s) { s.model.dropout = 1; }, "model.dropout is 1"},
      {[](JobSpec& s) { s.model.dropout = -0.1; }, "model.dropout is -0.1"},
      {[=](JobSpec& s) { s.model.dropout = nan; }, "model.dropout is nan"},
      {[](JobSpec& s) { s.data.path = ""; }, "data.path is \"\""},
      {[](JobSpec& s) { s.recompute_options = {.offload_permille = 500, .forbidden = {}, .forbids_offload = true}; },
       "recomputeOptions.offloadShare (thousandths) is 500: must be 0, for recomputeOptions.forbid has offload"},
      {[](JobSpec& s) { s.recompute_options.modules = {RecomputeModule::kMlp}; },
       "recomputeOptions.modules is mlp: is for recompute selective"},
      {[](JobSpec& s) { s.train.steps = 0; }, "train.steps is 0"},
      {[](JobSpec& s) {
         s.model = {.layers = 4, .hidden = 65536, .heads = 512, .ffn = 262144, .seq = 1 << 20, .vocab = 256000, .dropout = 0};
         s.train.global_batch = s.train.micro_batch = 64;
       },
       "train.microBatch is 64: with sequences of 1048576 tokens, one op of this model has about 4.6"},
      {[](JobSpec& s) { s.train.global_batch = 0; }, "train.globalBatch is 0"},
      {[](JobSpec& s) { s.train.micro_batch = -1; }, "train.microBatch is -1: must be from 0 to 16"},
      {[](JobSpec& s) { s.train.micro_batch = 17; }, "train.microBatch is 17"},
      {[](JobSpec& s) { s.train.optimizer.lr = 0; }, "train.optimizer.lr is 0"},
      {[=](JobSpec& s) { s.train.optimizer.lr = infinity; }, "train.optimizer.lr is inf"},
      {[](JobSpec& s) { s.train.optimizer.beta1 = 1; }, "train.optimizer.beta1 is 1"},
      {[](JobSpec& s) { s.train.optimizer.beta2 = -1; }, "train.optimizer.beta2 is -1"},
      {[](JobSpec& s) { s.train.optimizer.eps = 0; }, "train.optimizer.eps is 0"},
      {[](JobSpec& s) { s.train.optimizer.weight_decay = -1; }, "train.optimizer.weightDecay is -1"},
      {[=](JobSpec& s) { s.train.optimizer.clip_norm = nan; }, "train.optimizer.clipNorm is nan"},
      {[](JobSpec& s) { s.train.warmup_steps = 11; }, "train.warmupSteps is 11: must be from 0 to 10"},
      {[](JobSpec& s) { s.train.min_lr = 1; }, "train.minLr is 1"},
      {[](JobSpec& s) { s.train.eval_every = -1; }, "train.evalEvery is -1"},
      {[](JobSpec& s) { s.train.eval_batches = 0; }, "train.evalBatches is 0"},
      {[](JobSpec& s) { s.train.eval_every = 5; }, "train.evalEvery is 5: needs held-out data: data.validationPath"},
      {[](JobSpec& s) { s.data.validation_path = "/held/out"; }, "train.evalEvery is 0: must be above 0"},
      {[](JobSpec& s) { s.data.validation_path = std::string(5000, 'v'); }, "data.validationPath is "},
      {[](JobSpec& s) { s.resources.min_ranks = 0; }, "resources.ranks (least) is 0"},
      {[](JobSpec& s) { s.resources.min_ranks = 9; }, "resources.ranks (most) is 8: must be from 9"},
      {[](JobSpec& s) { s.resources.activation_memory_per_rank = Bytes(-1); }, "resources.activationMemoryPerRank is -1"},
      {[](JobSpec& s) { s.parallel.tp = -1; }, "parallel.tp is -1"},
      {[](JobSpec& s) { s.parallel.tp = 3; }, "model.heads is 4: must be a multiple of parallel.tp, which is 3"},
      {[](JobSpec& s) { s.parallel.tp = 4, s.model.ffn = 6; }, "model.ffn is 6: must be a multiple of parallel.tp, which is 4"},
      {[](JobSpec& s) { s.parallel.pp = 5; },
       "parallel.pp is 5: every stage needs a layer, so it must be at most model.layers, which is 4"},
      {[](JobSpec& s) { s.parallel.dp = 17; },
       "train.globalBatch is 16: must be at least parallel.dp, which is 17, because every replica needs a sample"},
      {[](JobSpec& s) { s.parallel.dp = 7, s.train.micro_batch = 4; },
       "train.microBatch is 4: must be at most 3, the samples of a replica: train.globalBatch 16 / parallel.dp 7"},
      {Stages({1, 3}, {}),
       "parallel.stageLayers is 1 3: says the layers of each stage, so it needs their number: give parallel.pp"},
      {Stages({1, 2}, {.pp = 2}), "parallel.stageLayers is 1 2: the sum is 3, but model.layers is 4"},
      {Stages({4, 0}, {.pp = 2}), "parallel.stageLayers is 4 0: every stage needs a layer, but number 2 is 0"},
      {Stages({1, 1, 2}, {.pp = 2}),
       "parallel.stageLayers is 1 1 2: has 3 numbers, but must have a multiple of parallel.pp, which is 2"},
      {Stages({1, 1, 2}, {.pp = 2, .schedule = ScheduleKind::kGpipe}),
       "parallel.stageLayers is 1 1 2: has 3 numbers, but must have parallel.pp = 2"},
      {Stages({2, 2}, {.pp = 2, .virtual_stages = 2}),
       "parallel.stageLayers is 2 2: has 2 numbers, but must have parallel.pp * parallel.virtualStages = 2 * 2 = 4"},
      {Stages({2, 2}, {.pp = 2, .schedule = ScheduleKind::kZeroBubbleV}),
       "parallel.stageLayers is 2 2: has 2 numbers, but must have 4, one for each chunk of parallel.schedule zero-bubble-v"},
      {Stages({2, 2}, {.pp = 2, .partition = PartitionMethod::kEven}),
       "parallel.partition is even: must be left out beside parallel.stageLayers 2 2"},
      {Stages(std::vector<int32_t>(1001, 1), {.pp = 2}), "parallel.stageLayers is 1001 numbers long: must be at most 1000"},
      {[](JobSpec& s) { s.parallel.zero_group = -1; }, "parallel.zeroGroup is -1: must be from 0"},
      {[](JobSpec& s) { s.parallel.zero_group = 1; }, "parallel.zeroGroup is 1: a group of one replica shards nothing"},
      {[](JobSpec& s) { s.parallel = {.zero = ZeroStage::kNone, .zero_group = 2}; },
       "parallel.zeroGroup is 2: says how many replicas shard the states, but parallel.zero is none"},
      {[](JobSpec& s) { s.parallel = {.dp = 8, .zero_group = 3}; },
       "parallel.dp is 8: must be a multiple of parallel.zeroGroup, which is 3"},
      {[](JobSpec& s) { s.parallel = {.tp = 4, .pp = 4}; }, "resources.ranks (most) is 8: must be at least 16"},
      {[](JobSpec& s) { s.parallel = {.tp = 1, .pp = 1, .dp = 1, .cp = 1}, s.resources.min_ranks = 2; },
       "resources.ranks (least) is 2: must be at most 1"},
      {[](JobSpec& s) { s.checkpoint.directory = std::string(5000, 'd'); }, "checkpoint.directory is 5000 char"},
      {[](JobSpec& s) { s.checkpoint.from = std::string(5000, 'd'); }, "checkpoint.from is 5000 char"},
      {[](JobSpec& s) { s.checkpoint.weights_only = true; }, "checkpoint.weightsOnly is true"},
      {[](JobSpec& s) { s.checkpoint.every_steps = -1; }, "checkpoint.everySteps is -1"},
      {[](JobSpec& s) { s.checkpoint.copy_every_steps = -2; }, "checkpoint.copyEverySteps is -2: must be auto"},
      {[](JobSpec& s) { s.checkpoint.keep = 0; }, "checkpoint.keep is 0"},
      {[](JobSpec& s) { s.max_restarts = -1; }, "maxRestarts is -1"},
  };
  for (const BadCase& c : cases) {
    JobSpec spec = GoodSpec();
    c.change(spec);
    const absl::Status status = ValidateJobSpec(spec);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.message;
    EXPECT_EQ(std::string(status.message()).find(c.message), 0u) << status << "\nexpected " << c.message;
  }
}

// Turns the model of GoodSpec into a Llama with 8 experts, 2 of them for each token, and then applies `change` to the job.
std::function<void(JobSpec&)> Experts(std::function<void(JobSpec&)> change) {
  return [change = std::move(change)](JobSpec& spec) {
    Llama([](ModelSpec& m) { m.moe = {.experts = 8, .top_k = 2}; })(spec);
    change(spec);
  };
}

TEST(JobSpecTest, NamesWhatIsWrongWithExperts) {
  const double nan = std::nan("");
  const BadCase cases[] = {
      {[](JobSpec& s) { s.model.moe.experts = 8; }, "model.moe.experts is 8: is for model.family llama"},
      {Experts([](JobSpec& s) { s.model.moe.experts = -1; }), "model.moe.experts is -1: must be from 0 to 4096"},
      {Experts([](JobSpec& s) { s.model.moe.experts = 4097; }), "model.moe.experts is 4097: must be from 0 to 4096"},
      {Experts([](JobSpec& s) { s.model.moe.experts = 1; }), "model.moe.experts is 1: must be from 2 to 4096"},
      {Experts([](JobSpec& s) { s.model.moe = {.top_k = 2}; }),
       "model.moe says how experts work, but the model has none: give model.moe.experts"},
      {Experts([](JobSpec& s) { s.model.moe = {.normalized = false}; }), "model.moe says how experts work"},
      {Experts([](JobSpec& s) { s.model.moe = {.z_loss = 0.1}; }), "model.moe says how experts work"},
      {Experts([](JobSpec& s) { s.model.moe.top_k = 0; }), "model.moe.topK is 0: must be from 1 to 8"},
      {Experts([](JobSpec& s) { s.model.moe.top_k = 9; }), "model.moe.topK is 9: must be from 1 to 8"},
      {Experts([](JobSpec& s) { s.model.moe.ffn = -1; }), "model.moe.ffn is -1: must be from 0 to 1048576"},
      {Experts([](JobSpec& s) { s.model.moe.ffn = (1 << 20) + 1; }), "model.moe.ffn is 1048577"},
      {Experts([](JobSpec& s) { s.model.moe.capacity = 0.0001; }),
       "model.moe.capacity is 0.0001: must be 0 (no limit), or from 0.001 to model.moe.experts"},
      {Experts([](JobSpec& s) { s.model.moe.capacity = 8.5; }), "model.moe.capacity is 8.5"},
      {Experts([=](JobSpec& s) { s.model.moe.capacity = nan; }), "model.moe.capacity is nan"},
      {Experts([](JobSpec& s) { s.model.moe.dropless = true; }),
       "model.moe.dropless is true, but model.moe.capacity is 0: give model.moe.capacity"},
      {[](JobSpec& s) { s.model.moe.dropless = true; }, "model.moe says how experts work, but the model has none"},
      {Experts([](JobSpec& s) { s.model.moe.skew = 0.5; }),
       "model.moe.skew is 0.5: must be from 1 (an even load) to model.moe.experts"},
      {Experts([](JobSpec& s) { s.model.moe.skew = 9; }), "model.moe.skew is 9"},
      {Experts([](JobSpec& s) { s.model.moe.aux_loss = -1; }), "model.moe.auxLoss is -1: must be from 0 to 1e6"},
      {Experts([=](JobSpec& s) { s.model.moe.z_loss = nan; }), "model.moe.zLoss is nan: must be from 0 to 1e6"},
      {Experts([](JobSpec& s) {
         s.model.dtype = DataType::kBfloat16;
         s.model.attention = AttentionKernel::kFused;
         s.model.matmul_type = MatmulType::kFloat8;
         s.model.moe.shared_ffn = 64;
       }),
       "model.matmulType is float8: cannot be planned for models with model.moe.sharedFfn or model.moe.denseLayers"},
      {Experts([](JobSpec& s) {
         s.model.dtype = DataType::kBfloat16;
         s.model.attention = AttentionKernel::kFused;
         s.model.matmul_type = MatmulType::kMxfp8;
         s.model.moe.dense_layers = 1;
       }),
       "model.matmulType is mxfp8: cannot be planned for models with model.moe.sharedFfn or model.moe.denseLayers"},
      {Experts([](JobSpec& s) { s.model.moe.weight_scale = 0; }), "model.moe.weightScale is 0: must be a number above 0"},
      {Experts([](JobSpec& s) { s.model.moe.weight_scale = 1e7; }), "model.moe.weightScale is 1e+07: must be from 1e-6 to 1e6"},
      {Experts([](JobSpec& s) { s.model.moe.router_bias = true; }),
       "model.moe.routerBias is true: needs model.moe.scores sigmoid"},
      {Experts([](JobSpec& s) { s.model.moe.bias_rate = 0.001; }),
       "model.moe.biasRate is 0.001: means nothing without model.moe.routerBias"},
      {Experts([](JobSpec& s) {
         s.model.moe.scores = RouterScores::kSigmoid;
         s.model.moe.router_bias = true;
         s.model.moe.bias_rate = 2;
       }),
       "model.moe.biasRate is 2: must be from 0"},
      {Experts([](JobSpec& s) { s.model.moe.shared_gate = true; }), "model.moe.sharedGate is true: needs model.moe.sharedFfn"},
      {Experts([](JobSpec& s) { s.model.moe.shared_ffn = -1; }), "model.moe.sharedFfn is -1: must be from 0 to 1048576"},
      {Experts([](JobSpec& s) { s.model.moe.shared_ffn = (1 << 20) + 1; }), "model.moe.sharedFfn is 1048577"},
      {Experts([](JobSpec& s) { s.model.moe.dense_layers = -1; }), "model.moe.denseLayers is -1: must be from 0 to "},
      {Experts([](JobSpec& s) { s.model.moe.dense_layers = s.model.layers; }), "model.moe.denseLayers is "},
      {Experts([](JobSpec& s) { s.model.moe = {.shared_ffn = 8}; }), "model.moe says how experts work"},
      {Experts([](JobSpec& s) { s.model.moe = {.dense_layers = 1}; }), "model.moe says how experts work"},
      {[](JobSpec& s) { s.parallel.ep = -1; }, "parallel.ep is -1"},
      {[](JobSpec& s) { s.parallel.ep = 2; }, "parallel.ep is 2: is for models with experts (model.moe.experts)"},
      {Experts([](JobSpec& s) { s.parallel = {.tp = 2, .sequence_parallel = Choice::kOff}; }),
       "parallel.sequenceParallel is off: must be on or auto for a model with experts with parallel.tp above 1"},
      {Experts([](JobSpec& s) { s.parallel.schedule = ScheduleKind::kChimera; }),
       "parallel.schedule is chimera: holds two copies of the model, and does not train models with experts"},
      {Experts([](JobSpec& s) { s.parallel.zero = ZeroStage::kGradients; }),
       "parallel.zero is gradients: must be none, optimizer or auto for a model with experts"},
      {Experts([](JobSpec& s) { s.parallel = {.dp = 8, .zero = ZeroStage::kOptimizer, .zero_group = 4}; }),
       "parallel.zeroGroup is 4: must be left out for a model with experts"},
      {Experts([](JobSpec& s) { s.parallel.ep = 3; }), "model.moe.experts is 8: must be a multiple of parallel.ep, which is 3"},
      {Experts([](JobSpec& s) { s.parallel = {.tp = 2, .dp = 1, .ep = 4}; }),
       "parallel.tp * parallel.cp * parallel.dp is 2: must be a multiple of parallel.ep, which is 4"},
      {Experts([](JobSpec& s) {
         s.model.moe.experts = 1 << 12, s.model.moe.top_k = 1, s.model.ffn = 1 << 20, s.model.hidden = 1 << 16;
         s.model.seq = 256, s.train.micro_batch = 16;
       }),
       "train.microBatch is 16: with sequences of 256 tokens, one op of this model has about "},
  };
  for (const BadCase& c : cases) {
    JobSpec spec = GoodSpec();
    c.change(spec);
    const absl::Status status = ValidateJobSpec(spec);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.message;
    EXPECT_EQ(std::string(status.message()).find(c.message), 0u) << status << "\nexpected " << c.message;
  }
}

// Turns the model of GoodSpec into a Llama with latent attention, and then applies `change` to the model.
std::function<void(JobSpec&)> Latent(const std::function<void(ModelSpec&)>& change) {
  return Llama([change](ModelSpec& m) {
    m.kv_heads = 0, m.head_dim = 12, m.attention = AttentionKernel::kFused, m.dtype = DataType::kBfloat16;
    m.rotary.dims = 4;
    m.latent = {.query_rank = 24, .kv_rank = 8, .value_dim = 6};
    change(m);
  });
}

TEST(JobSpecTest, NamesWhatIsWrongWithLatentAttention) {
  const BadCase cases[] = {
      {[](JobSpec& s) { s.model.latent.kv_rank = 8; }, "model.latent.kvRank is 8: is for model.family llama"},
      {Latent([](ModelSpec& m) { m.latent.kv_rank = -1; }), "model.latent.kvRank is -1: must be from 0 to "},
      {Latent([](ModelSpec& m) { m.latent.kv_rank = (1 << 20) + 1; }), "model.latent.kvRank is 1048577"},
      {Latent([](ModelSpec& m) { m.latent.kv_rank = 0; }),
       "model.latent says how latent attention works, but the model has none: give model.latent.kvRank"},
      {Latent([](ModelSpec& m) { m.latent = {.value_dim = 6}; }), "model.latent says how latent attention works"},
      {Latent([](ModelSpec& m) { m.latent.query_rank = -1; }), "model.latent.queryRank is -1: must be from 0 to "},
      {Latent([](ModelSpec& m) { m.latent.value_dim = 0; }), "model.latent.valueDim is 0: must be from 1 to "},
      {Latent([](ModelSpec& m) { m.rotary.dims = 0; }), "model.rope.dims is 0: must be from 2 to 12"},
      {Latent([](ModelSpec& m) { m.rotary.dims = 14; }), "model.rope.dims is 14: must be from 2 to 12"},
      {Latent([](ModelSpec& m) { m.rotary.dims = 3; }), "model.rope.dims is 3: must be even"},
      {Latent([](ModelSpec& m) { m.kv_heads = m.heads / 2; }), "model.kvHeads is "},
      {Latent([](ModelSpec& m) { m.qk_norm = true; }),
       "model.qkNorm is true: cannot be planned with latent attention, which norms the latents"},
      {Latent([](ModelSpec& m) { m.qkv_bias = true; }), "model.qkvBias is true: cannot be planned with latent attention"},
      {Latent([](ModelSpec& m) { m.attention = AttentionKernel::kUnfused; }),
       "model.attention is unfused: must be fused with latent attention"},
      {Llama([](ModelSpec& m) {
         m.rotary = {.scaling = RopeScaling::kYarn, .factor = 4, .original_seq = 64, .mscale_all_dim = 1};
       }),
       "model.rope.mscaleAllDim is 1: is for latent attention"},
      {Latent([](ModelSpec& m) { m.rotary.mscale_all_dim = 1; }),
       "model.rope.mscaleAllDim is 1: means nothing with model.rope.scaling none"},
      {Latent([](ModelSpec& m) {
         m.rotary = {.dims = 4, .scaling = RopeScaling::kYarn, .factor = 4, .original_seq = 64, .mscale_all_dim = -1};
       }),
       "model.rope.mscaleAllDim is -1: must be from 0 (none) to 1e3"},
      {Latent([](ModelSpec& m) { m.matmul_type = MatmulType::kFloat8; }),
       "model.matmulType is float8: cannot be planned with latent attention"},
      {[](JobSpec& s) {
         Latent([](ModelSpec& m) { m.hidden = 1 << 16, m.heads = 1 << 10, m.latent.value_dim = 1 << 17, m.seq = 1 << 11; })(s);
         s.train.micro_batch = 16;
       },
       "train.microBatch is 16: with sequences of 2048 tokens, one op of this model has about "},
  };
  for (const BadCase& c : cases) {
    JobSpec spec = GoodSpec();
    c.change(spec);
    const absl::Status status = ValidateJobSpec(spec);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.message;
    EXPECT_EQ(std::string(status.message()).find(c.message), 0u) << status << "\nexpected " << c.message;
  }
}

TEST(JobSpecTest, AcceptsLatentAttention) {
  const std::function<void(ModelSpec&)> cases[] = {
      [](ModelSpec&) {},
      [](ModelSpec& m) { m.latent.query_rank = 0; },
      [](ModelSpec& m) { m.rotary.dims = 12; },  // every element of a head is rotated; this is not written as 0
      [](ModelSpec& m) { m.kv_heads = m.heads; },
      [](ModelSpec& m) {
        m.rotary = {.dims = 4, .scaling = RopeScaling::kYarn, .factor = 4, .original_seq = 64, .mscale_all_dim = 0.7};
      },
      [](ModelSpec& m) { m.moe = {.experts = 8, .top_k = 2, .shared_ffn = 8, .dense_layers = m.layers - 1}; },
  };
  for (const auto& change : cases) {
    JobSpec spec = GoodSpec();
    Latent(change)(spec);
    Normalize(spec);
    EXPECT_EQ(ValidateJobSpec(spec), absl::OkStatus());
    EXPECT_GT(spec.model.rotary.dims, 0);
    spec.model.moe.capacity = spec.model.moe.any() ? 1 : 0;
    EXPECT_EQ(CheckEngineRuns(spec.model, {}), absl::OkStatus());
  }
}

TEST(JobSpecTest, TheEngineRefusesWhatOnlyPlansHaveByTheirFields) {
  const auto refusal = [&](const std::function<void(ModelSpec&)>& change) {
    JobSpec spec = GoodSpec();
    Experts([&](JobSpec& s) {
      s.model.moe.capacity = 1.25;
      change(s.model);
    })(spec);
    return std::string(CheckEngineRuns(spec.model, {}).message());
  };
  EXPECT_EQ(refusal([](ModelSpec& m) { m.moe.shared_ffn = 8; }), "");
  EXPECT_EQ(refusal([](ModelSpec& m) { m.moe.dense_layers = 1; }), "");
  EXPECT_EQ(refusal([](ModelSpec& m) { m.moe.capacity = 0; }).find("model.moe.capacity 0 (no limit) can be planned"), 0u);
}

TEST(JobSpecTest, AcceptsExperts) {
  const std::function<void(JobSpec&)> cases[] = {
      [](JobSpec&) {},
      [](JobSpec& s) { s.model.moe = {.experts = 4096, .top_k = 4096, .ffn = 12, .capacity = 4096, .skew = 4096}; },
      [](JobSpec& s) { s.parallel = {.tp = 2, .pp = 2, .dp = 2, .ep = 4}; },
      // Tensor parallelism does not shard experts, so it need not divide their width, which takes the place of model.ffn.
      [](JobSpec& s) { s.parallel.tp = 4, s.model.ffn = 6; },
      [](JobSpec& s) { s.parallel = {.tp = 1, .ep = 4, .sequence_parallel = Choice::kOff}; },
      [](JobSpec& s) { s.parallel = {.dp = 4, .zero = ZeroStage::kOptimizer}; },
  };
  for (const auto& change : cases) {
    JobSpec spec = GoodSpec();
    Experts(change)(spec);
    Normalize(spec);
    EXPECT_EQ(ValidateJobSpec(spec), absl::OkStatus());
  }
}

TEST(JobSpecTest, TheEngineTrainsExpertsWithACapacity) {
  JobSpec spec = GoodSpec();
  Experts([](JobSpec&) {})(spec);
  const auto refusal = [&](const ParallelLayout& layout) { return std::string(CheckEngineRuns(spec.model, layout).message()); };
  EXPECT_EQ(refusal({}).find("model.moe.capacity 0 (no limit) can be planned"), 0u) << refusal({});
  spec.model.moe.capacity = 1.25;
  EXPECT_EQ(refusal({}), "");
  EXPECT_EQ(refusal({.tp = 2, .dp = 2, .ep = 4, .sequence_parallel = true}), "");
  EXPECT_EQ(refusal({.tp = 2}).find("parallel.sequenceParallel off can be planned"), 0u);
  EXPECT_EQ(refusal({.pp = 2, .schedule = ScheduleKind::kChimera}).find("parallel.schedule chimera can be planned"), 0u);
}

TEST(JobSpecTest, AnExpertAsWideAsTheModelSaysNothing) {
  JobSpec spec = GoodSpec();
  Experts([](JobSpec& s) { s.model.moe.ffn = s.model.ffn; })(spec);
  Normalize(spec);
  EXPECT_EQ(spec.model.moe.ffn, 0);
  EXPECT_EQ(spec.model.expert_ffn(), spec.model.ffn);
  spec.model.moe.ffn = 12;
  Normalize(spec);
  EXPECT_EQ(spec.model.expert_ffn(), 12);
}

TEST(LayoutTest, ExpertGroupsAreInItsTextAndPinned) {
  const ParallelSpec parallel{
      .tp = 2, .pp = 2, .dp = 4, .ep = 8, .sequence_parallel = Choice::kOn, .zero = ZeroStage::kOptimizer};
  const ParallelLayout layout = PinnedLayout(parallel);
  EXPECT_EQ(layout.ep, 8);
  EXPECT_EQ(LayoutText(layout), "tp2 pp2 dp4 ep8 sp zero-optimizer");
  EXPECT_EQ(SpecOf(layout, {}).ep, 8);
  EXPECT_EQ(PinnedLayout(SpecOf(layout, {})), layout);
  EXPECT_EQ(PinnedLayout({}).ep, 1);
  EXPECT_EQ(LayoutText(PinnedLayout({})), "tp1 pp1 dp1");
}

// Groups are consecutive among the ranks of a stage, whatever the order in which ranks are numbered.
TEST(LayoutTest, ExpertGroupsAreConsecutiveRanksOfAStage) {
  for (const RankOrder order : {RankOrder::kTpPpDp, RankOrder::kTpDpPp}) {
    const ParallelLayout layout{.tp = 2, .pp = 3, .dp = 4, .cp = 2, .ep = 4, .rank_order = order};
    EXPECT_EQ(RanksOfStage(layout), 16);
    EXPECT_EQ(ExpertReplicas(layout), 4);
    for (int32_t rank = 0; rank < layout.ranks(); ++rank) {
      const RankCoordinates at = CoordinatesOf(layout, rank);
      const int32_t number = NumberInStage(layout, at);
      EXPECT_EQ(number, (at.dp * 2 + at.cp) * 2 + at.tp);
      EXPECT_EQ(RankInStage(layout, at.stage, number), rank);
    }
  }
}

TEST(JobSpecTest, WhatSaysNothingIsDropped) {
  JobSpec spec = GoodSpec();
  spec.model.family = ModelFamily::kLlama;
  spec.model.dropout = 0;
  spec.model.head_dim = spec.model.hidden / spec.model.heads;
  spec.model.rotary.dims = spec.model.head_dim;
  Normalize(spec);
  EXPECT_EQ(spec.model.head_dim, 0);
  EXPECT_EQ(spec.model.rotary.dims, 0);
  spec.model.head_dim = 6;
  Normalize(spec);
  EXPECT_EQ(spec.model.head_dim, 6);
  EXPECT_EQ(ValidateJobSpec(spec), absl::OkStatus());
}

TEST(JobSpecTest, EnumNamesParseBack) {
  for (const char* name : {"none", "linear", "dynamic", "llama3", "yarn"}) {
    RopeScaling scaling;
    ASSERT_TRUE(ParseEnum(name, scaling));
    EXPECT_STREQ(EnumName(scaling), name);
  }
  for (const char* name : {"auto", "none", "full", "full-keep-collectives", "selective"}) {
    RecomputeMode mode;
    ASSERT_TRUE(ParseEnum(name, mode));
    EXPECT_STREQ(EnumName(mode), name);
  }
  for (const char* name : {"constant", "linear", "cosine"}) {
    LrSchedule schedule;
    ASSERT_TRUE(ParseEnum(name, schedule));
    EXPECT_STREQ(EnumName(schedule), name);
  }
  for (const char* name : {"stop", "skip"}) {
    NonFinitePolicy policy;
    ASSERT_TRUE(ParseEnum(name, policy));
    EXPECT_STREQ(EnumName(policy), name);
  }
  for (const char* name : {"text", "megatron"}) {
    DataKind kind;
    ASSERT_TRUE(ParseEnum(name, kind));
    EXPECT_STREQ(EnumName(kind), name);
  }
  RecomputeMode mode;
  LrSchedule schedule;
  DataKind kind;
  EXPECT_FALSE(ParseEnum("Auto", mode));
  EXPECT_FALSE(ParseEnum("", schedule));
  EXPECT_FALSE(ParseEnum("texts", kind));
}

}  // namespace
}  // namespace lynx
