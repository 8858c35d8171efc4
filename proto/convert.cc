// Job specs and their enums. See convert.h.
#include "proto/convert.h"

#include <array>
#include <utility>

#include "common/status.h"
#include "planner/problem/layout_schedule.h"
#include "proto/bounds.h"

namespace lynx {
namespace {

template <class Wire, class Domain, size_t N>
absl::StatusOr<Domain> FromTable(const std::array<std::pair<Wire, Domain>, N>& table, Wire value, const std::string& path,
                                 const char* choices) {
  for (const auto& [wire, domain] : table) {
    if (wire == value) return domain;
  }
  return BadField(path, absl::StrCat(static_cast<int>(value)), absl::StrCat("must be one of ", choices));
}

template <class Wire, class Domain, size_t N>
Wire ToTable(const std::array<std::pair<Wire, Domain>, N>& table, Domain value) {
  for (const auto& [wire, domain] : table) {
    if (domain == value) return wire;
  }
  return table[0].first;  // not reached: the tables are complete
}

constexpr std::array<std::pair<v1::RecomputeMode, RecomputeMode>, 11> kRecomputeModes = {{
    {v1::RECOMPUTE_MODE_AUTO, RecomputeMode::kAuto},
    {v1::RECOMPUTE_MODE_NONE, RecomputeMode::kNone},
    {v1::RECOMPUTE_MODE_FULL, RecomputeMode::kFull},
    {v1::RECOMPUTE_MODE_FULL_KEEP_COLLECTIVES, RecomputeMode::kFullKeepCollectives},
    {v1::RECOMPUTE_MODE_SELECTIVE, RecomputeMode::kSelective},
    {v1::RECOMPUTE_MODE_UNIFORM, RecomputeMode::kUniform},
    {v1::RECOMPUTE_MODE_BLOCK, RecomputeMode::kBlock},
    {v1::RECOMPUTE_MODE_BALANCED, RecomputeMode::kBalanced},
    {v1::RECOMPUTE_MODE_NO_OVERLAP, RecomputeMode::kNoOverlap},
    {v1::RECOMPUTE_MODE_HEU, RecomputeMode::kHeu},
    {v1::RECOMPUTE_MODE_OPT, RecomputeMode::kOpt},
}};
constexpr std::array<std::pair<v1::DataKind, DataKind>, 2> kDataKinds = {{
    {v1::DATA_KIND_TEXT, DataKind::kText},
    {v1::DATA_KIND_MEGATRON, DataKind::kMegatron},
}};
constexpr std::array<std::pair<v1::FailureAction, FailureAction>, 3> kFailureActions = {{
    {v1::FAILURE_ACTION_RETRY, FailureAction::kRetry},
    {v1::FAILURE_ACTION_EXCLUDE_NODE, FailureAction::kExcludeNode},
    {v1::FAILURE_ACTION_FAIL, FailureAction::kFail},
}};
constexpr std::array<std::pair<v1::NodeCheckPolicy, NodeCheckPolicy>, 3> kNodeCheckPolicies = {{
    {v1::NODE_CHECK_POLICY_AUTO, NodeCheckPolicy::kAuto},
    {v1::NODE_CHECK_POLICY_ALWAYS, NodeCheckPolicy::kAlways},
    {v1::NODE_CHECK_POLICY_NEVER, NodeCheckPolicy::kNever},
}};
constexpr std::array<std::pair<v1::LrSchedule, LrSchedule>, 3> kLrSchedules = {{
    {v1::LR_SCHEDULE_CONSTANT, LrSchedule::kConstant},
    {v1::LR_SCHEDULE_LINEAR, LrSchedule::kLinear},
    {v1::LR_SCHEDULE_COSINE, LrSchedule::kCosine},
}};

constexpr std::array<std::pair<v1::NonFinitePolicy, NonFinitePolicy>, 2> kNonFinitePolicies = {{
    {v1::NON_FINITE_POLICY_STOP, NonFinitePolicy::kStop},
    {v1::NON_FINITE_POLICY_SKIP, NonFinitePolicy::kSkip},
}};

constexpr std::array<std::pair<v1::RopeScaling, RopeScaling>, 5> kRopeScalings = {{
    {v1::ROPE_SCALING_NONE, RopeScaling::kNone},
    {v1::ROPE_SCALING_LINEAR, RopeScaling::kLinear},
    {v1::ROPE_SCALING_DYNAMIC, RopeScaling::kDynamic},
    {v1::ROPE_SCALING_LLAMA3, RopeScaling::kLlama3},
    {v1::ROPE_SCALING_YARN, RopeScaling::kYarn},
}};
constexpr std::array<std::pair<v1::ModelFamily, ModelFamily>, 2> kModelFamilies = {{
    {v1::MODEL_FAMILY_GPT, ModelFamily::kGpt},
    {v1::MODEL_FAMILY_LLAMA, ModelFamily::kLlama},
}};
constexpr std::array<std::pair<v1::AttentionKernel, AttentionKernel>, 2> kAttentionKernels = {{
    {v1::ATTENTION_KERNEL_UNFUSED, AttentionKernel::kUnfused},
    {v1::ATTENTION_KERNEL_FUSED, AttentionKernel::kFused},
}};
constexpr std::array<std::pair<v1::DataType, DataType>, 2> kDataTypes = {{
    {v1::DATA_TYPE_FLOAT32, DataType::kFloat32},
    {v1::DATA_TYPE_BFLOAT16, DataType::kBfloat16},
}};
constexpr std::array<std::pair<v1::DropoutMasks, DropoutMasks>, 2> kDropoutMasks = {{
    {v1::DROPOUT_MASKS_REGENERATED, DropoutMasks::kRegenerated},
    {v1::DROPOUT_MASKS_STORED, DropoutMasks::kStored},
}};
constexpr std::array<std::pair<v1::DeviceKind, DeviceKind>, 3> kDeviceKinds = {{
    {v1::DEVICE_KIND_ANY, DeviceKind::kAny},
    {v1::DEVICE_KIND_CPU, DeviceKind::kCpu},
    {v1::DEVICE_KIND_CUDA, DeviceKind::kCuda},
}};
constexpr std::array<std::pair<v1::Choice, Choice>, 3> kChoices = {{
    {v1::CHOICE_AUTO, Choice::kAuto},
    {v1::CHOICE_OFF, Choice::kOff},
    {v1::CHOICE_ON, Choice::kOn},
}};
constexpr std::array<std::pair<v1::ScheduleKind, ScheduleKind>, 8> kScheduleKinds = {{
    {v1::SCHEDULE_KIND_AUTO, ScheduleKind::kAuto},
    {v1::SCHEDULE_KIND_GPIPE, ScheduleKind::kGpipe},
    {v1::SCHEDULE_KIND_ONE_FORWARD_ONE_BACKWARD, ScheduleKind::kOneForwardOneBackward},
    {v1::SCHEDULE_KIND_INTERLEAVED, ScheduleKind::kInterleaved},
    {v1::SCHEDULE_KIND_ZERO_BUBBLE, ScheduleKind::kZeroBubble},
    {v1::SCHEDULE_KIND_CHIMERA, ScheduleKind::kChimera},
    {v1::SCHEDULE_KIND_ZERO_BUBBLE_V, ScheduleKind::kZeroBubbleV},
    {v1::SCHEDULE_KIND_CUSTOM, ScheduleKind::kCustom},
}};
constexpr std::array<std::pair<v1::ZeroStage, ZeroStage>, 5> kZeroStages = {{
    {v1::ZERO_STAGE_AUTO, ZeroStage::kAuto},
    {v1::ZERO_STAGE_NONE, ZeroStage::kNone},
    {v1::ZERO_STAGE_OPTIMIZER, ZeroStage::kOptimizer},
    {v1::ZERO_STAGE_GRADIENTS, ZeroStage::kGradients},
    {v1::ZERO_STAGE_WEIGHTS, ZeroStage::kWeights},
}};

constexpr std::array<std::pair<v1::PartitionMethod, PartitionMethod>, kPartitionMethodCount> kPartitionMethods = {{
    {v1::PARTITION_METHOD_EXACT, PartitionMethod::kExact},
    {v1::PARTITION_METHOD_EVEN, PartitionMethod::kEven},
    {v1::PARTITION_METHOD_COMPUTE, PartitionMethod::kCompute},
    {v1::PARTITION_METHOD_GREEDY, PartitionMethod::kGreedy},
}};

v1::ParallelSpec ParallelToProto(const ParallelSpec& parallel) {
  v1::ParallelSpec message;
  message.set_tp(parallel.tp);
  message.set_pp(parallel.pp);
  message.set_dp(parallel.dp);
  message.set_cp(parallel.cp);
  message.set_virtual_stages(parallel.virtual_stages);
  message.set_sequence_parallel(ToTable(kChoices, parallel.sequence_parallel));
  message.set_schedule(ToTable(kScheduleKinds, parallel.schedule));
  message.set_schedule_text(parallel.schedule_text);
  message.set_zero(ToTable(kZeroStages, parallel.zero));
  message.set_partition(ToTable(kPartitionMethods, parallel.partition));
  return message;
}

absl::StatusOr<ParallelSpec> ParallelFromProto(const v1::ParallelSpec& message) {
  ParallelSpec parallel{.tp = message.tp(),
                        .pp = message.pp(),
                        .dp = message.dp(),
                        .cp = message.cp(),
                        .virtual_stages = message.virtual_stages(),
                        .schedule_text = message.schedule_text()};
  LYNX_ASSIGN_OR_RETURN(parallel.sequence_parallel, FromTable(kChoices, message.sequence_parallel(),
                                                              "parallel.sequenceParallel", "auto (0), off (1), on (2)"));
  LYNX_ASSIGN_OR_RETURN(parallel.schedule,
                        FromTable(kScheduleKinds, message.schedule(), "parallel.schedule",
                                  "auto (0), gpipe (1), 1f1b (2), interleaved (3), zero-bubble (4), chimera (5), "
                                  "zero-bubble-v (6), custom (7)"));
  LYNX_ASSIGN_OR_RETURN(parallel.zero, FromTable(kZeroStages, message.zero(), "parallel.zero",
                                                 "auto (0), none (1), optimizer (2), gradients (3), weights (4)"));
  LYNX_ASSIGN_OR_RETURN(parallel.partition, FromTable(kPartitionMethods, message.partition(), "parallel.partition",
                                                      "exact (0), even (1), compute (2), greedy (3)"));
  return parallel;
}

v1::RecomputeOptions OptionsToProto(const RecomputeOptions& options) {
  v1::RecomputeOptions message;
  message.set_layers(options.layers);
  message.set_offload_permille(options.offload_permille);
  for (RecomputeMode mode : options.forbidden) message.add_forbidden(ToProto(mode));
  message.set_forbids_offload(options.forbids_offload);
  return message;
}

absl::StatusOr<RecomputeOptions> OptionsFromProto(const v1::RecomputeOptions& message) {
  RecomputeOptions options{.layers = message.layers(),
                           .offload_permille = message.offload_permille(),
                           .forbidden = {},
                           .forbids_offload = message.forbids_offload()};
  const std::string path = "recomputeOptions.forbid";
  LYNX_RETURN_IF_ERROR(CheckSize(path, message.forbidden().size(), 0, kRecomputeModes.size(), "entries"));
  for (int i = 0; i < message.forbidden_size(); ++i) {
    LYNX_ASSIGN_OR_RETURN(RecomputeMode mode, FromProto(message.forbidden(i), absl::StrCat(path, "[", i, "]")));
    options.forbidden.push_back(mode);
  }
  return options;
}

v1::TrainSpec TrainToProto(const TrainSpec& train) {
  v1::TrainSpec message;
  message.set_steps(train.steps);
  message.set_global_batch(train.global_batch);
  message.set_micro_batch(train.micro_batch);
  v1::OptimizerSpec& optimizer = *message.mutable_optimizer();
  optimizer.set_lr(train.optimizer.lr);
  optimizer.set_beta1(train.optimizer.beta1);
  optimizer.set_beta2(train.optimizer.beta2);
  optimizer.set_eps(train.optimizer.eps);
  optimizer.set_weight_decay(train.optimizer.weight_decay);
  optimizer.set_clip_norm(train.optimizer.clip_norm);
  message.set_schedule(ToTable(kLrSchedules, train.schedule));
  message.set_warmup_steps(train.warmup_steps);
  message.set_min_lr(train.min_lr);
  message.set_seed(train.seed);
  message.set_on_non_finite(ToTable(kNonFinitePolicies, train.on_non_finite));
  message.set_eval_every(train.eval_every);
  message.set_eval_batches(train.eval_batches);
  return message;
}

absl::StatusOr<TrainSpec> TrainFromProto(const v1::TrainSpec& message) {
  TrainSpec train;
  train.steps = message.steps();
  train.global_batch = message.global_batch();
  train.micro_batch = message.micro_batch();
  const v1::OptimizerSpec& optimizer = message.optimizer();
  train.optimizer = {.lr = optimizer.lr(),
                     .beta1 = optimizer.beta1(),
                     .beta2 = optimizer.beta2(),
                     .eps = optimizer.eps(),
                     .weight_decay = optimizer.weight_decay(),
                     .clip_norm = optimizer.clip_norm()};
  LYNX_ASSIGN_OR_RETURN(train.schedule,
                        FromTable(kLrSchedules, message.schedule(), "train.schedule", "constant (1), linear (2), cosine (3)"));
  train.warmup_steps = message.warmup_steps();
  train.min_lr = message.min_lr();
  train.seed = message.seed();
  LYNX_ASSIGN_OR_RETURN(train.on_non_finite,
                        FromTable(kNonFinitePolicies, message.on_non_finite(), "train.on_non_finite", "stop (0), skip (1)"));
  train.eval_every = message.eval_every();
  if (message.eval_batches() != 0) train.eval_batches = message.eval_batches();
  return train;
}

}  // namespace

v1::DeviceKind ToProto(DeviceKind kind) { return ToTable(kDeviceKinds, kind); }

absl::StatusOr<DeviceKind> FromProto(v1::DeviceKind kind, const std::string& path) {
  return FromTable(kDeviceKinds, kind, path, "any (0), cpu (1), cuda (2)");
}

v1::RecomputeMode ToProto(RecomputeMode mode) { return ToTable(kRecomputeModes, mode); }

absl::StatusOr<RecomputeMode> FromProto(v1::RecomputeMode mode, const std::string& path) {
  return FromTable(kRecomputeModes, mode, path,
                   "auto (1), none (2), full (3), full-keep-collectives (4), selective (5), uniform (6), block (7), "
                   "balanced (8), no-overlap (9), heu (10), opt (11)");
}

namespace {

v1::RotarySpec RotaryToProto(const RotarySpec& rotary) {
  v1::RotarySpec message;
  message.set_theta(rotary.theta);
  message.set_dims(rotary.dims);
  message.set_scaling(ToTable(kRopeScalings, rotary.scaling));
  message.set_factor(rotary.factor);
  message.set_original_seq(rotary.original_seq);
  message.set_low_freq_factor(rotary.low_freq_factor);
  message.set_high_freq_factor(rotary.high_freq_factor);
  message.set_beta_fast(rotary.beta_fast);
  message.set_beta_slow(rotary.beta_slow);
  message.set_attention_factor(rotary.attention_factor);
  return message;
}

absl::StatusOr<RotarySpec> RotaryFromProto(const v1::RotarySpec& message, const std::string& path) {
  RotarySpec rotary{.theta = message.theta(),
                    .dims = message.dims(),
                    .factor = message.factor(),
                    .original_seq = message.original_seq(),
                    .low_freq_factor = message.low_freq_factor(),
                    .high_freq_factor = message.high_freq_factor(),
                    .beta_fast = message.beta_fast(),
                    .beta_slow = message.beta_slow(),
                    .attention_factor = message.attention_factor()};
  LYNX_ASSIGN_OR_RETURN(rotary.scaling, FromTable(kRopeScalings, message.scaling(), FieldPath(path, "scaling"),
                                                  "none (0), linear (1), dynamic (2), llama3 (3), yarn (4)"));
  return rotary;
}

}  // namespace

v1::ModelSpec ToProto(const ModelSpec& model) {
  v1::ModelSpec message;
  message.set_layers(model.layers);
  message.set_hidden(model.hidden);
  message.set_heads(model.heads);
  message.set_ffn(model.ffn);
  message.set_seq(model.seq);
  message.set_vocab(model.vocab);
  message.set_dropout(model.dropout);
  message.set_family(ToTable(kModelFamilies, model.family));
  message.set_kv_heads(model.kv_heads);
  message.set_attention(ToTable(kAttentionKernels, model.attention));
  message.set_dtype(ToTable(kDataTypes, model.dtype));
  message.set_dropout_masks(ToTable(kDropoutMasks, model.dropout_masks));
  message.set_tied_embeddings(model.tied_embeddings);
  message.set_head_dim(model.head_dim);
  message.set_qkv_bias(model.qkv_bias);
  message.set_qk_norm(model.qk_norm);
  if (model.norm_epsilon != ModelSpec().norm_epsilon) message.set_norm_epsilon(model.norm_epsilon);
  if (!(model.rotary == RotarySpec())) *message.mutable_rotary() = RotaryToProto(model.rotary);
  message.set_window(model.window);
  message.set_plan_only(model.plan_only);
  return message;
}

absl::StatusOr<ModelSpec> ModelFromProto(const v1::ModelSpec& message, const std::string& path) {
  ModelSpec model{.layers = message.layers(),
                  .hidden = message.hidden(),
                  .heads = message.heads(),
                  .ffn = message.ffn(),
                  .seq = message.seq(),
                  .vocab = message.vocab(),
                  .dropout = message.dropout()};
  LYNX_ASSIGN_OR_RETURN(model.family,
                        FromTable(kModelFamilies, message.family(), FieldPath(path, "family"), "gpt (0), llama (1)"));
  model.kv_heads = message.kv_heads();
  LYNX_ASSIGN_OR_RETURN(model.attention, FromTable(kAttentionKernels, message.attention(), FieldPath(path, "attention"),
                                                   "unfused (0), fused (1)"));
  LYNX_ASSIGN_OR_RETURN(model.dtype,
                        FromTable(kDataTypes, message.dtype(), FieldPath(path, "dtype"), "float32 (0), bfloat16 (1)"));
  LYNX_ASSIGN_OR_RETURN(model.dropout_masks, FromTable(kDropoutMasks, message.dropout_masks(), FieldPath(path, "dropoutMasks"),
                                                       "regenerated (0), stored (1)"));
  model.tied_embeddings = message.tied_embeddings();
  model.head_dim = message.head_dim();
  model.qkv_bias = message.qkv_bias();
  model.qk_norm = message.qk_norm();
  if (message.norm_epsilon() != 0) model.norm_epsilon = message.norm_epsilon();
  if (message.has_rotary()) {
    LYNX_ASSIGN_OR_RETURN(model.rotary, RotaryFromProto(message.rotary(), FieldPath(path, "rotary")));
  }
  model.window = message.window();
  model.plan_only = message.plan_only();
  return model;
}

namespace {

v1::SchedulingSpec SchedulingToProto(const SchedulingSpec& scheduling) {
  v1::SchedulingSpec message;
  message.set_queue(scheduling.queue);
  message.set_priority(scheduling.priority);
  message.set_hold(scheduling.hold);
  for (const std::string& job : scheduling.after) message.add_after(job);
  message.set_time_limit_ns(scheduling.time_limit.value);
  message.set_not_preemptible(!scheduling.preemptible);
  return message;
}

SchedulingSpec SchedulingFromProto(const v1::SchedulingSpec& message) {
  SchedulingSpec scheduling{.priority = message.priority(),
                            .hold = message.hold(),
                            .after = {message.after().begin(), message.after().end()},
                            .time_limit = Nanos(message.time_limit_ns()),
                            .preemptible = !message.not_preemptible()};
  if (!message.queue().empty()) scheduling.queue = message.queue();
  return scheduling;
}

v1::FailureRule FailureRuleToProto(const FailureRule& rule) {
  v1::FailureRule message;
  if (rule.log.empty()) {
    message.set_exit_code(rule.exit_code);
  } else {
    message.set_log(rule.log);
  }
  message.set_action(ToTable(kFailureActions, rule.action));
  return message;
}

absl::StatusOr<FailureRule> FailureRuleFromProto(const v1::FailureRule& message, const std::string& path) {
  FailureRule rule;
  if (message.has_exit_code()) rule.exit_code = message.exit_code();
  rule.log = message.log();
  LYNX_ASSIGN_OR_RETURN(rule.action, FromTable(kFailureActions, message.action(), FieldPath(path, "action"),
                                               "retry (0), exclude-node (1), fail (2)"));
  return rule;
}

}  // namespace

v1::JobSpec ToProto(const JobSpec& spec) {
  v1::JobSpec message;
  message.set_name(spec.name);
  *message.mutable_model() = ToProto(spec.model);
  message.mutable_data()->set_kind(ToTable(kDataKinds, spec.data.kind));
  message.mutable_data()->set_path(spec.data.path);
  message.mutable_data()->set_validation_path(spec.data.validation_path);
  *message.mutable_train() = TrainToProto(spec.train);
  message.mutable_resources()->set_min_ranks(spec.resources.min_ranks);
  message.mutable_resources()->set_max_ranks(spec.resources.max_ranks);
  message.mutable_resources()->set_activation_memory_per_rank_bytes(spec.resources.activation_memory_per_rank.value);
  message.mutable_resources()->set_device(ToProto(spec.resources.device));
  *message.mutable_parallel() = ParallelToProto(spec.parallel);
  message.set_recompute(ToProto(spec.recompute));
  *message.mutable_recompute_options() = OptionsToProto(spec.recompute_options);
  message.mutable_checkpoint()->set_directory(spec.checkpoint.directory);
  message.mutable_checkpoint()->set_every_steps(spec.checkpoint.every_steps);
  message.mutable_checkpoint()->set_copy_every_steps(spec.checkpoint.copy_every_steps);
  message.mutable_checkpoint()->set_keep(spec.checkpoint.keep);
  message.mutable_checkpoint()->set_from(spec.checkpoint.from);
  message.mutable_checkpoint()->set_weights_only(spec.checkpoint.weights_only);
  message.set_max_restarts(spec.max_restarts);
  // Left out if nothing is asked for, so that specs from before scheduling existed keep their digests.
  if (spec.scheduling != SchedulingSpec()) *message.mutable_scheduling() = SchedulingToProto(spec.scheduling);
  for (const FailureRule& rule : spec.on_failure) *message.add_on_failure() = FailureRuleToProto(rule);
  message.set_node_check(ToTable(kNodeCheckPolicies, spec.node_check));
  return message;
}

absl::StatusOr<JobSpec> FromProto(const v1::JobSpec& message) {
  JobSpec spec;
  spec.name = message.name();
  LYNX_ASSIGN_OR_RETURN(spec.model, ModelFromProto(message.model(), "model"));
  LYNX_ASSIGN_OR_RETURN(spec.data.kind, FromTable(kDataKinds, message.data().kind(), "data.kind", "text (1), megatron (2)"));
  spec.data.path = message.data().path();
  spec.data.validation_path = message.data().validation_path();
  LYNX_ASSIGN_OR_RETURN(spec.train, TrainFromProto(message.train()));
  spec.resources.min_ranks = message.resources().min_ranks();
  spec.resources.max_ranks = message.resources().max_ranks();
  spec.resources.activation_memory_per_rank = Bytes(message.resources().activation_memory_per_rank_bytes());
  LYNX_ASSIGN_OR_RETURN(spec.resources.device, FromProto(message.resources().device(), "resources.device"));
  LYNX_ASSIGN_OR_RETURN(spec.parallel, ParallelFromProto(message.parallel()));
  LYNX_ASSIGN_OR_RETURN(spec.recompute, FromProto(message.recompute(), "recompute"));
  LYNX_ASSIGN_OR_RETURN(spec.recompute_options, OptionsFromProto(message.recompute_options()));
  spec.checkpoint.directory = message.checkpoint().directory();
  spec.checkpoint.every_steps = message.checkpoint().every_steps();
  spec.checkpoint.copy_every_steps = message.checkpoint().copy_every_steps();
  spec.checkpoint.keep = message.checkpoint().keep();
  spec.checkpoint.from = message.checkpoint().from();
  spec.checkpoint.weights_only = message.checkpoint().weights_only();
  spec.max_restarts = message.max_restarts();
  spec.scheduling = SchedulingFromProto(message.scheduling());
  for (int i = 0; i < message.on_failure_size(); ++i) {
    LYNX_ASSIGN_OR_RETURN(FailureRule rule, FailureRuleFromProto(message.on_failure(i), FieldPath("", "onFailure", i)));
    spec.on_failure.push_back(std::move(rule));
  }
  LYNX_ASSIGN_OR_RETURN(spec.node_check,
                        FromTable(kNodeCheckPolicies, message.node_check(), "node_check", "auto (0), always (1), never (2)"));
  Normalize(spec);
  LYNX_RETURN_IF_ERROR(ValidateJobSpec(spec));
  LYNX_RETURN_IF_ERROR(
      CheckRange("resources.activationMemoryPerRank", spec.resources.activation_memory_per_rank.value, 0, kMaxWireBytes));
  LYNX_RETURN_IF_ERROR(CheckAbsolutePath("data.path", spec.data.path));
  if (!spec.data.validation_path.empty()) {
    LYNX_RETURN_IF_ERROR(CheckAbsolutePath("data.validation_path", spec.data.validation_path));
  }
  if (!spec.checkpoint.directory.empty()) {
    LYNX_RETURN_IF_ERROR(CheckAbsolutePath("checkpoint.directory", spec.checkpoint.directory));
  }
  if (!spec.checkpoint.from.empty()) {
    LYNX_RETURN_IF_ERROR(CheckAbsolutePath("checkpoint.from", spec.checkpoint.from));
  }
  return spec;
}

v1::ParallelLayout ToProto(const ParallelLayout& layout) {
  v1::ParallelLayout message;
  message.set_tp(layout.tp);
  message.set_pp(layout.pp);
  message.set_dp(layout.dp);
  message.set_cp(layout.cp);
  message.set_virtual_stages(layout.virtual_stages);
  message.set_sequence_parallel(layout.sequence_parallel);
  message.set_zero(ToTable(kZeroStages, layout.zero));
  message.set_schedule(ToTable(kScheduleKinds, layout.schedule));
  message.set_schedule_text(CustomScheduleText(layout));
  return message;
}

absl::StatusOr<ParallelLayout> FromProto(const v1::ParallelLayout& message, const std::string& path) {
  LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(path, "tp"), message.tp(), 1, kMaxWireRanks));
  LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(path, "pp"), message.pp(), 1, kMaxWireRanks));
  LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(path, "dp"), message.dp(), 1, kMaxWireRanks));
  const int32_t cp = std::max(1, message.cp());
  LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(path, "cp"), message.cp(), 0, kMaxWireRanks));
  LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(path, "virtual_stages"), message.virtual_stages(), 0, kMaxPipelineChunks));
  // Each factor is at most 2^16, so the product of three fits.
  const int64_t replica = int64_t{message.tp()} * message.pp() * message.dp();
  LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(path, "tp * pp * dp"), replica, 1, kMaxWireRanks));
  LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(path, "tp * cp * pp * dp"), replica * cp, 1, kMaxWireRanks));
  ParallelLayout layout{.tp = message.tp(),
                        .pp = message.pp(),
                        .dp = message.dp(),
                        .cp = cp,
                        .virtual_stages = std::max(1, message.virtual_stages()),
                        .sequence_parallel = message.sequence_parallel()};
  LYNX_ASSIGN_OR_RETURN(layout.zero, FromTable(kZeroStages, message.zero(), FieldPath(path, "zero"),
                                               "none (1), optimizer (2), gradients (3), weights (4)"));
  if (layout.zero == ZeroStage::kAuto) layout.zero = ZeroStage::kNone;
  LYNX_ASSIGN_OR_RETURN(layout.schedule, FromTable(kScheduleKinds, message.schedule(), FieldPath(path, "schedule"),
                                                   "gpipe (1), 1f1b (2), interleaved (3), zero-bubble (4), chimera (5), "
                                                   "zero-bubble-v (6), custom (7)"));
  if (layout.schedule == ScheduleKind::kAuto) layout.schedule = ScheduleKind::kOneForwardOneBackward;
  LYNX_RETURN_IF_ERROR(Annotate(SetCustomSchedule(message.schedule_text(), layout), FieldPath(path, "schedule_text")));
  return layout;
}

}  // namespace lynx
