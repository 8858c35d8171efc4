// Job specs and their enums. See convert.h.
#include "proto/convert.h"

#include <array>
#include <utility>

#include "common/status.h"
#include "proto/bounds.h"

namespace lynx {
namespace {

template <class Wire, class Domain, size_t N>
absl::StatusOr<Domain> FromTable(const std::array<std::pair<Wire, Domain>, N>& table, Wire value,
                                 const std::string& path, const char* choices) {
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

constexpr std::array<std::pair<v1::RecomputeMode, RecomputeMode>, 5> kRecomputeModes = {{
    {v1::RECOMPUTE_MODE_AUTO, RecomputeMode::kAuto},
    {v1::RECOMPUTE_MODE_NONE, RecomputeMode::kNone},
    {v1::RECOMPUTE_MODE_FULL, RecomputeMode::kFull},
    {v1::RECOMPUTE_MODE_FULL_KEEP_COLLECTIVES, RecomputeMode::kFullKeepCollectives},
    {v1::RECOMPUTE_MODE_SELECTIVE, RecomputeMode::kSelective},
}};
constexpr std::array<std::pair<v1::DataKind, DataKind>, 2> kDataKinds = {{
    {v1::DATA_KIND_TEXT, DataKind::kText},
    {v1::DATA_KIND_MEGATRON, DataKind::kMegatron},
}};
constexpr std::array<std::pair<v1::LrSchedule, LrSchedule>, 3> kLrSchedules = {{
    {v1::LR_SCHEDULE_CONSTANT, LrSchedule::kConstant},
    {v1::LR_SCHEDULE_LINEAR, LrSchedule::kLinear},
    {v1::LR_SCHEDULE_COSINE, LrSchedule::kCosine},
}};

ModelSpec ModelFromProto(const v1::ModelSpec& message) {
  return {.layers = message.layers(), .hidden = message.hidden(), .heads = message.heads(), .ffn = message.ffn(),
          .seq = message.seq(), .vocab = message.vocab(), .dropout = message.dropout()};
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
  return message;
}

absl::StatusOr<TrainSpec> TrainFromProto(const v1::TrainSpec& message) {
  TrainSpec train;
  train.steps = message.steps();
  train.global_batch = message.global_batch();
  train.micro_batch = message.micro_batch();
  const v1::OptimizerSpec& optimizer = message.optimizer();
  train.optimizer = {.lr = optimizer.lr(), .beta1 = optimizer.beta1(), .beta2 = optimizer.beta2(),
                     .eps = optimizer.eps(), .weight_decay = optimizer.weight_decay(),
                     .clip_norm = optimizer.clip_norm()};
  LYNX_ASSIGN_OR_RETURN(train.schedule, FromTable(kLrSchedules, message.schedule(), "train.schedule",
                                                  "constant (1), linear (2), cosine (3)"));
  train.warmup_steps = message.warmup_steps();
  train.min_lr = message.min_lr();
  train.seed = message.seed();
  return train;
}

}  // namespace

v1::RecomputeMode ToProto(RecomputeMode mode) { return ToTable(kRecomputeModes, mode); }

absl::StatusOr<RecomputeMode> FromProto(v1::RecomputeMode mode, const std::string& path) {
  return FromTable(kRecomputeModes, mode, path,
                   "auto (1), none (2), full (3), full-keep-collectives (4), selective (5)");
}

v1::ModelSpec ToProto(const ModelSpec& model) {
  v1::ModelSpec message;
  message.set_layers(model.layers);
  message.set_hidden(model.hidden);
  message.set_heads(model.heads);
  message.set_ffn(model.ffn);
  message.set_seq(model.seq);
  message.set_vocab(model.vocab);
  message.set_dropout(model.dropout);
  return message;
}

v1::JobSpec ToProto(const JobSpec& spec) {
  v1::JobSpec message;
  message.set_name(spec.name);
  *message.mutable_model() = ToProto(spec.model);
  message.mutable_data()->set_kind(ToTable(kDataKinds, spec.data.kind));
  message.mutable_data()->set_path(spec.data.path);
  *message.mutable_train() = TrainToProto(spec.train);
  message.mutable_resources()->set_min_ranks(spec.resources.min_ranks);
  message.mutable_resources()->set_max_ranks(spec.resources.max_ranks);
  message.mutable_resources()->set_activation_memory_per_rank_bytes(spec.resources.activation_memory_per_rank.value);
  message.mutable_parallel()->set_tp(spec.parallel.tp);
  message.mutable_parallel()->set_pp(spec.parallel.pp);
  message.mutable_parallel()->set_dp(spec.parallel.dp);
  message.set_recompute(ToProto(spec.recompute));
  message.mutable_checkpoint()->set_directory(spec.checkpoint.directory);
  message.mutable_checkpoint()->set_every_steps(spec.checkpoint.every_steps);
  message.mutable_checkpoint()->set_keep(spec.checkpoint.keep);
  message.set_max_restarts(spec.max_restarts);
  return message;
}

absl::StatusOr<JobSpec> FromProto(const v1::JobSpec& message) {
  JobSpec spec;
  spec.name = message.name();
  spec.model = ModelFromProto(message.model());
  LYNX_ASSIGN_OR_RETURN(spec.data.kind,
                        FromTable(kDataKinds, message.data().kind(), "data.kind", "text (1), megatron (2)"));
  spec.data.path = message.data().path();
  LYNX_ASSIGN_OR_RETURN(spec.train, TrainFromProto(message.train()));
  spec.resources.min_ranks = message.resources().min_ranks();
  spec.resources.max_ranks = message.resources().max_ranks();
  spec.resources.activation_memory_per_rank = Bytes(message.resources().activation_memory_per_rank_bytes());
  spec.parallel = {message.parallel().tp(), message.parallel().pp(), message.parallel().dp()};
  LYNX_ASSIGN_OR_RETURN(spec.recompute, FromProto(message.recompute(), "recompute"));
  spec.checkpoint.directory = message.checkpoint().directory();
  spec.checkpoint.every_steps = message.checkpoint().every_steps();
  spec.checkpoint.keep = message.checkpoint().keep();
  spec.max_restarts = message.max_restarts();
  Normalize(spec);
  LYNX_RETURN_IF_ERROR(ValidateJobSpec(spec));
  LYNX_RETURN_IF_ERROR(CheckRange("resources.activationMemoryPerRank",
                                  spec.resources.activation_memory_per_rank.value, 0, kMaxWireBytes));
  LYNX_RETURN_IF_ERROR(CheckAbsolutePath("data.path", spec.data.path));
  if (!spec.checkpoint.directory.empty()) {
    LYNX_RETURN_IF_ERROR(CheckAbsolutePath("checkpoint.directory", spec.checkpoint.directory));
  }
  return spec;
}

v1::ParallelLayout ToProto(const ParallelLayout& layout) {
  v1::ParallelLayout message;
  message.set_tp(layout.tp);
  message.set_pp(layout.pp);
  message.set_dp(layout.dp);
  return message;
}

absl::StatusOr<ParallelLayout> FromProto(const v1::ParallelLayout& message, const std::string& path) {
  LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(path, "tp"), message.tp(), 1, kMaxWireRanks));
  LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(path, "pp"), message.pp(), 1, kMaxWireRanks));
  LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(path, "dp"), message.dp(), 1, kMaxWireRanks));
  // Each factor is at most 2^16, so the product of three fits.
  const int64_t ranks = int64_t{message.tp()} * message.pp() * message.dp();
  LYNX_RETURN_IF_ERROR(CheckRange(FieldPath(path, "tp * pp * dp"), ranks, 1, kMaxWireRanks));
  return ParallelLayout{message.tp(), message.pp(), message.dp()};
}

}  // namespace lynx
