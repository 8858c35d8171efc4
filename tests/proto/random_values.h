// Makes random values for tests that convert a value and convert it back. The values depend only on the given generator.
#ifndef LYNX_TESTS_PROTO_RANDOM_VALUES_H_
#define LYNX_TESTS_PROTO_RANDOM_VALUES_H_

#include <algorithm>
#include <random>

#include "planner/cost/hardware_profile.h"
#include "planner/problem/job_spec.h"
#include "planner/schedule/schedule_generate.h"

namespace lynx::testing {

inline int64_t Pick(std::mt19937_64& random, int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(random);
}

// Sets features that only some models of a family have.
inline void RandomFeatures(std::mt19937_64& random, ModelSpec& model) {
  model.norm_epsilon = Pick(random, 0, 1) == 0 ? 1e-6 : 1e-5;
  model.plan_only =
      Pick(random, 0, 1) == 0 ? 0 : static_cast<PlanOnlyFeatures>(Pick(random, 1, (1 << kPlanOnlyFeatureCount) - 1));
  if (model.family != ModelFamily::kGpt) model.plan_only &= ~Bit(PlanOnlyFeature::kEncoder);
  if (model.family != ModelFamily::kLlama) return;
  model.head_dim = 2 * static_cast<int32_t>(Pick(random, 0, 4));
  model.qkv_bias = Pick(random, 0, 1) == 0;
  model.qk_norm = Pick(random, 0, 1) == 0;
  model.qk_norm_whole = model.qk_norm && Pick(random, 0, 1) == 0;
  model.window = static_cast<int32_t>(Pick(random, 0, 600));
  model.rotary = {.theta = static_cast<double>(Pick(random, 2, 1'000'000)), .dims = Pick(random, 0, 1) == 0 ? 0 : 2};
  model.rotary.scaling = static_cast<RopeScaling>(Pick(random, 0, 4));
  if (model.rotary.scaling == RopeScaling::kNone) return;
  model.rotary.factor = 1.5;
  if (model.rotary.scaling != RopeScaling::kLinear) model.rotary.original_seq = 128;
  if (model.rotary.scaling == RopeScaling::kLlama3) model.rotary.high_freq_factor = 3;
  if (model.rotary.scaling == RopeScaling::kLlama3) model.rotary.low_freq_factor = 0.5;
  if (model.rotary.scaling != RopeScaling::kYarn) return;
  model.rotary.beta_fast = 16;
  model.rotary.beta_slow = 2;
  model.rotary.attention_factor = 0.75;
}

// Gives latent attention to a Llama model with a probability of one half. Fields that exclude it get other values.
inline void RandomLatent(std::mt19937_64& random, ModelSpec& model) {
  if (model.family != ModelFamily::kLlama || Pick(random, 0, 1) == 0) return;
  model.latent = {.query_rank = static_cast<int32_t>(Pick(random, 0, 99)),
                  .kv_rank = static_cast<int32_t>(Pick(random, 1, 99)),
                  .value_dim = static_cast<int32_t>(Pick(random, 1, 99))};
  model.rotary.dims = 2;
  model.kv_heads = 0;
  if (model.rotary.scaling == RopeScaling::kYarn) model.rotary.mscale_all_dim = 0.5;
  model.qk_norm = model.qk_norm_whole = model.qkv_bias = false;
  model.attention = AttentionKernel::kFused;
  model.matmul_type = MatmulType::kModel;
}

// Gives experts to a Llama model with a probability of one half. The other fields must be set; those that exclude experts get
// other values.
inline void RandomExperts(std::mt19937_64& random, JobSpec& spec) {
  if (spec.model.family != ModelFamily::kLlama || Pick(random, 0, 1) == 0) return;
  ParallelSpec& parallel = spec.parallel;
  parallel.ep = static_cast<int32_t>(Pick(random, 0, 1)) * std::max(1, parallel.dp);
  const auto experts = static_cast<int32_t>(Pick(random, 2, 9)) * std::max(1, parallel.ep);
  spec.model.moe = {.experts = experts,
                    .top_k = static_cast<int32_t>(Pick(random, 1, experts)),
                    .ffn = static_cast<int32_t>(Pick(random, 0, 64)),
                    .normalized = Pick(random, 0, 1) == 0,
                    .capacity = Pick(random, 0, 1) == 0 ? 0 : 1.25,
                    .skew = 1.5,
                    .aux_loss = 0.01,
                    .z_loss = static_cast<double>(Pick(random, 0, 2)) / 1000,
                    .shared_ffn = static_cast<int32_t>(Pick(random, 0, 64)),
                    .dense_layers = static_cast<int32_t>(Pick(random, 0, spec.model.layers - 1))};
  spec.model.moe.shared_gate = spec.model.moe.shared_ffn > 0 && Pick(random, 0, 1) == 0;
  if (Pick(random, 0, 1) == 0) {
    spec.model.moe.scores = RouterScores::kSigmoid;
    spec.model.moe.weight_scale = 2.5;
    spec.model.moe.router_bias = Pick(random, 0, 1) == 0;
    spec.model.moe.bias_rate = spec.model.moe.router_bias ? 0.001 : 0;
  }
  spec.model.moe.dropless = spec.model.moe.capacity > 0 && Pick(random, 0, 1) == 0;
  spec.model.matmul_type = MatmulType::kModel;
  if (parallel.sequence_parallel == Choice::kOff) parallel.sequence_parallel = Choice::kAuto;
  if (parallel.zero > ZeroStage::kOptimizer) parallel.zero = ZeroStage::kOptimizer;
  parallel.zero_group = 0;
}

// Sets the fields that are not sizes: families, modes, policies.
inline void RandomModes(std::mt19937_64& random, JobSpec& spec) {
  const auto pick = [&](auto last) { return static_cast<decltype(last)>(Pick(random, 0, static_cast<int64_t>(last))); };
  ModelSpec& model = spec.model;
  model.family = pick(ModelFamily::kLlama);
  model.attention = pick(AttentionKernel::kFused);
  model.dtype = pick(DataType::kBfloat16);
  if (model.dtype == DataType::kBfloat16 && model.attention == AttentionKernel::kFused) {
    model.matmul_type = pick(MatmulType::kNvfp4);
  }
  if (model.dtype == DataType::kBfloat16) model.gradient_dtype = pick(DataType::kBfloat16);
  model.dropout_masks = pick(DropoutMasks::kStored);
  model.tied_embeddings = Pick(random, 0, 1) == 0;
  if (model.family == ModelFamily::kLlama) model.dropout = 0;
  RandomFeatures(random, model);
  spec.parallel.cp = static_cast<int32_t>(Pick(random, 0, 1));
  spec.parallel.sequence_parallel = pick(Choice::kOff);
  spec.parallel.zero = pick(ZeroStage::kWeights);
  if (spec.parallel.dp == 0 && spec.parallel.zero != ZeroStage::kNone) spec.parallel.zero_group = 4;
  spec.parallel.weave = pick(WeaveMode::kNeighbours);
  spec.parallel.rank_order = pick(RankOrder::kTpDpPp);
  spec.parallel.partition = pick(PartitionMethod::kGreedy);
  spec.parallel.schedule = pick(ScheduleKind::kInterleaved);
  if (spec.parallel.schedule == ScheduleKind::kInterleaved) spec.parallel.virtual_stages = 3;
  if (spec.parallel.pp > 0 && spec.parallel.schedule == ScheduleKind::kAuto && Pick(random, 0, 1) == 0) {
    spec.parallel.partition = PartitionMethod::kExact;
    std::vector<int32_t>& layers = spec.parallel.stage_layers;
    layers.assign(static_cast<size_t>(spec.parallel.pp), 1);
    layers.back() += model.layers - spec.parallel.pp;
    spec.parallel.virtual_stages = 1;  // the list says it
  } else if (spec.parallel.pp > 0 && Pick(random, 0, 3) == 0) {
    const absl::StatusOr<Schedule> schedule =
        GenerateSchedule(ScheduleKind::kOneForwardOneBackward, spec.parallel.pp, 1, static_cast<int32_t>(Pick(random, 1, 8)));
    spec.parallel.schedule = ScheduleKind::kCustom;
    spec.parallel.virtual_stages = 0;  // the text of the schedule says it
    spec.parallel.schedule_text = ScheduleText(*schedule);
  }
  spec.recompute = pick(RecomputeMode::kOpt);
  if (spec.recompute == RecomputeMode::kBlock) spec.recompute_options.layers = 2;
  spec.recompute_options.forbids_offload = Pick(random, 0, 1) == 0;
  if (!spec.recompute_options.forbids_offload) {
    spec.recompute_options.offload_permille = static_cast<int32_t>(Pick(random, 0, 1000));
  }
  if (Pick(random, 0, 1) == 0) spec.recompute_options.forbidden = {RecomputeMode::kFull, RecomputeMode::kBalanced};
  if (spec.recompute == RecomputeMode::kSelective) {
    for (const RecomputeModule module :
         {RecomputeModule::kCoreAttn, RecomputeModule::kLayernorm, RecomputeModule::kMoeAct, RecomputeModule::kMlaUpProj,
          RecomputeModule::kMlp, RecomputeModule::kMoe, RecomputeModule::kSharedExperts}) {
      if (Pick(random, 0, 1) == 0) spec.recompute_options.modules.push_back(module);
    }
  }
  RandomLatent(random, spec.model);
  RandomExperts(random, spec);
}

// Returns a specification that is normalized and valid.
inline JobSpec RandomSpec(std::mt19937_64& random) {
  JobSpec spec;
  spec.name = "job-" + std::to_string(Pick(random, 0, 1'000'000));
  const int32_t tp = 1 << Pick(random, 0, 2);
  const int32_t pp = static_cast<int32_t>(Pick(random, 1, 4));
  const int32_t dp = static_cast<int32_t>(Pick(random, 1, 3));
  spec.model.heads = tp * static_cast<int32_t>(Pick(random, 1, 4));
  spec.model.hidden = spec.model.heads * 2 * static_cast<int32_t>(Pick(random, 1, 16));  // rotary positions need pairs
  spec.model.layers = pp + static_cast<int32_t>(Pick(random, 0, 8));
  spec.model.ffn = tp * static_cast<int32_t>(Pick(random, 1, 64));
  spec.model.seq = static_cast<int32_t>(Pick(random, 1, 512));
  spec.model.vocab = static_cast<int32_t>(Pick(random, 256, 70'000));
  spec.model.dropout = static_cast<double>(Pick(random, 0, 99)) / 100;
  spec.data.kind = Pick(random, 0, 1) == 0 ? DataKind::kText : DataKind::kMegatron;
  spec.data.path = "/data/text " + std::to_string(Pick(random, 0, 99));
  spec.train.micro_batch = static_cast<int32_t>(Pick(random, 1, 8));
  spec.train.global_batch = spec.train.micro_batch * dp * static_cast<int32_t>(Pick(random, 1, 16));
  spec.train.steps = Pick(random, 1, 1'000'000);
  spec.train.optimizer = {.lr = 1.0 / static_cast<double>(Pick(random, 1, 10'000)),
                          .beta1 = 0.8,
                          .beta2 = 0.99,
                          .eps = 1e-7,
                          .weight_decay = 0.3,
                          .clip_norm = static_cast<double>(Pick(random, 0, 3))};
  spec.train.schedule = static_cast<LrSchedule>(Pick(random, 0, 2));
  spec.train.warmup_steps = Pick(random, 0, spec.train.steps);
  spec.train.min_lr = spec.train.optimizer.lr / 10;
  spec.train.seed = random();
  spec.train.on_non_finite = static_cast<NonFinitePolicy>(Pick(random, 0, 1));
  spec.train.eval_every = Pick(random, 0, 2);
  spec.train.eval_batches = static_cast<int32_t>(Pick(random, 1, 9));
  if (spec.train.eval_every > 0) spec.data.validation_path = "/data/held out";
  spec.resources.max_ranks = tp * pp * dp;
  spec.resources.min_ranks = static_cast<int32_t>(Pick(random, 1, spec.resources.max_ranks));
  spec.resources.activation_memory_per_rank = Bytes(Pick(random, 0, int64_t{1} << 40));
  spec.resources.device = static_cast<DeviceKind>(Pick(random, 0, 2));
  if (Pick(random, 0, 1) == 0) spec.parallel = {tp, pp, dp};
  RandomModes(random, spec);
  if (Pick(random, 0, 1) == 0) spec.checkpoint.directory = "/checkpoints/here";
  if (Pick(random, 0, 1) == 0) {
    spec.checkpoint.from = "/checkpoints/there/step-00000010";
    spec.checkpoint.weights_only = Pick(random, 0, 1) == 0;
  }
  spec.checkpoint.every_steps = Pick(random, 0, 1000);
  spec.checkpoint.copy_every_steps = Pick(random, -1, 1000);
  spec.checkpoint.keep = static_cast<int32_t>(Pick(random, 1, 9));
  spec.max_restarts = static_cast<int32_t>(Pick(random, 0, 9));
  spec.scheduling = {.queue = "q-" + std::to_string(Pick(random, 0, 9)),
                     .priority = static_cast<int32_t>(Pick(random, -1000, 1000)),
                     .hold = Pick(random, 0, 1) == 0,
                     .after = std::vector<std::string>(static_cast<size_t>(Pick(random, 0, 3)), "before"),
                     .time_limit = Nanos(Pick(random, 0, int64_t{1} << 50)),
                     .preemptible = Pick(random, 0, 1) == 0};
  for (int64_t i = Pick(random, 0, 2); i > 0; --i) {
    FailureRule rule{.action = static_cast<FailureAction>(Pick(random, 0, 2))};
    if (Pick(random, 0, 1) == 0) {
      rule.exit_code = static_cast<int32_t>(Pick(random, 0, 255));
    } else {
      rule.log = "ECC error: 7";
    }
    spec.on_failure.push_back(rule);
  }
  spec.node_check = static_cast<NodeCheckPolicy>(Pick(random, 0, 2));
  Normalize(spec);
  return spec;
}

inline HardwareProfile RandomProfile(std::mt19937_64& random) {
  HardwareProfile profile;
  profile.device_kind = "cpu: model " + std::to_string(Pick(random, 0, 99));
  const auto nanos = [&] { return Nanos(Pick(random, 0, 1'000'000'000)); };
  const int64_t shapes = Pick(random, 0, 5);
  for (int64_t i = 0; i < shapes; ++i) {
    ShapeTimes times;
    times.shape = ShapeOf(RandomSpec(random).model, ParallelLayout{}, static_cast<int32_t>(i + 1));
    times.shape.matmul_type = MatmulType::kModel;  // nobody measures what the engine does not compute
    times.shape.gradient_dtype = DataType::kFloat32;
    times.shape.encoder = false;
    for (const OpInfo& info : LayerGraph::Of(times.shape).ops()) {
      times.ops[static_cast<size_t>(info.op)] = {nanos(), nanos(), nanos()};
    }
    times.optimizer_per_mega_parameter = nanos();
    profile.measured.push_back(times);
  }
  profile.flops_per_second = Pick(random, 1, int64_t{1} << 50);
  profile.memory_bytes_per_second = Pick(random, 1, int64_t{1} << 50);
  profile.op_overhead = nanos();
  profile.intra_node = {nanos(), Pick(random, 1, int64_t{1} << 40)};
  profile.inter_node = {nanos(), Pick(random, 1, int64_t{1} << 40)};
  profile.adapters = static_cast<int32_t>(Pick(random, 1, 16));
  if (Pick(random, 0, 1) == 0) {
    profile.pod_nodes = static_cast<int32_t>(Pick(random, 1, 64));
    profile.oversubscription_permille = static_cast<int32_t>(Pick(random, 1000, 8000));
  }
  profile.bfloat16_flops_per_second = Pick(random, 0, int64_t{1} << 50);
  profile.float8_flops_per_second = Pick(random, 0, int64_t{1} << 50);
  profile.float4_flops_per_second = Pick(random, 0, int64_t{1} << 50);
  for (EfficiencyCurve& curve : profile.efficiency) {
    const int64_t points = Pick(random, 0, 4);
    for (int64_t i = 0; i < points; ++i) {
      curve.push_back({Pick(random, 1, 1000) + i * 1000, static_cast<int32_t>(Pick(random, 1, 1000))});
    }
  }
  if (Pick(random, 0, 1) == 0) profile.gemm_tiles = {static_cast<int32_t>(Pick(random, 1, 200)), 256, 128};
  if (Pick(random, 0, 1) == 0) profile.inner_links = {{2, {nanos(), 1'000'000}}, {4, {nanos(), 500'000}}};
  if (Pick(random, 0, 1) == 0) profile.host = {nanos(), 5'000'000, 4'000'000, 6'000'000, 1100};
  profile.overlap_slowdown_permille = static_cast<int32_t>(Pick(random, 1000, 5000));
  profile.communication_compute_permille = static_cast<int32_t>(Pick(random, 0, 1000));
  return profile;
}

}  // namespace lynx::testing

#endif  // LYNX_TESTS_PROTO_RANDOM_VALUES_H_
