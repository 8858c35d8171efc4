// Names of the enums, normalization and validation of job specs. See job_spec.h.
#include "planner/problem/job_spec.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/limits.h"
#include "common/status.h"
#include "planner/problem/batch_split.h"
#include "planner/problem/field_rules.h"
#include "planner/problem/model_rules.h"
#include "planner/schedule/custom_schedule.h"

namespace lynx {
namespace {

// Upper limits. They are far above what the planner is made for, and far below the values with which arithmetic could overflow.
constexpr int64_t kMaxSteps = 1'000'000'000'000;
constexpr int64_t kMaxBatch = 1 << 20;
constexpr int64_t kMaxRanks = 1 << 16;
constexpr int64_t kMaxVirtualStages = 64;
constexpr int64_t kMaxKeep = 1'000'000;
constexpr int64_t kMaxRestarts = 1'000'000;
constexpr int64_t kMaxPriority = 1000;
constexpr size_t kMaxDependencies = 100;
constexpr size_t kMaxFailureRules = 32;
constexpr size_t kMaxFailureText = 256;
constexpr Nanos kMaxTimeLimit{int64_t{366} * 86'400 * 1'000'000'000};
constexpr size_t kMaxNameLength = 48;
constexpr size_t kMaxPathLength = 4096;

absl::Status ValidateData(const DataSpec& data, const ModelSpec& model) {
  if (data.path.empty() || data.path.size() > kMaxPathLength) {
    return Bad("data.path", absl::StrCat("\"", data.path.substr(0, 64), "\""),
               absl::StrCat("must name a file in 1 to ", kMaxPathLength, " characters"));
  }
  if (data.validation_path.size() > kMaxPathLength) {
    return Bad("data.validationPath", absl::StrCat("\"", data.validation_path.substr(0, 64), "\""),
               absl::StrCat("must name a file in at most ", kMaxPathLength, " characters"));
  }
  if (data.kind == DataKind::kText && model.vocab < 256) {
    return Bad("model.vocab", model.vocab, "must be at least 256 for data.kind text, whose tokens are bytes");
  }
  return absl::OkStatus();
}

absl::Status ValidateOptimizer(const OptimizerSpec& optimizer) {
  if (!(optimizer.lr > 0) || !std::isfinite(optimizer.lr)) {
    return Bad("train.optimizer.lr", optimizer.lr, "must be above 0");
  }
  for (const auto& [field, beta] :
       {std::pair("train.optimizer.beta1", optimizer.beta1), std::pair("train.optimizer.beta2", optimizer.beta2)}) {
    if (!(beta >= 0 && beta < 1)) return Bad(field, beta, "must be at least 0 and below 1");
  }
  if (!(optimizer.eps > 0) || !std::isfinite(optimizer.eps)) {
    return Bad("train.optimizer.eps", optimizer.eps, "must be above 0");
  }
  LYNX_RETURN_IF_ERROR(InRealRange("train.optimizer.weightDecay", optimizer.weight_decay, 0, 1e9, "must be at least 0"));
  return InRealRange("train.optimizer.clipNorm", optimizer.clip_norm, 0, 1e9, "must be at least 0 (0 = no clipping)");
}

absl::Status ValidateTrain(const TrainSpec& train) {
  LYNX_RETURN_IF_ERROR(InRange("train.steps", train.steps, 1, kMaxSteps));
  LYNX_RETURN_IF_ERROR(InRange("train.globalBatch", train.global_batch, 1, kMaxBatch));
  LYNX_RETURN_IF_ERROR(InRange("train.microBatch", train.micro_batch, 0, train.global_batch));
  LYNX_RETURN_IF_ERROR(ValidateOptimizer(train.optimizer));
  LYNX_RETURN_IF_ERROR(InRange("train.warmupSteps", train.warmup_steps, 0, train.steps));
  return InRealRange("train.minLr", train.min_lr, 0, train.optimizer.lr, "must be from 0 to train.optimizer.lr");
}

// The times and FLOPs of an op are 64-bit numbers. Each field alone is limited so that they do not overflow, but all fields
// together could still make them overflow. So this is checked here.
absl::Status ValidateLargestOp(const JobSpec& spec) {
  constexpr double kMaxFlops = 1e18;
  const ModelSpec& m = spec.model;
  const double samples = std::max(1, spec.train.micro_batch), tokens = samples * m.seq;
  const double width = double{1} * m.heads * std::max(m.head_size(), m.latent.value_dim);
  const double experts = m.moe.any() ? 2.0 * m.expert_ffn() * m.moe.experts : 0;  // all rows on one rank
  const double latents = 2.0 * m.latent.query_rank + m.latent.kv_rank, shared = 2.0 * m.moe.shared_ffn;
  // The inputs of qkv are at most as wide as hidden and latents together.
  const double widest =
      std::max({3 * width * (1 + latents / m.hidden), 2.0 * m.ffn, double{1} * m.vocab, experts, shared, latents});
  const double flops = std::max(2 * tokens * m.hidden * widest, 10 * tokens * m.seq * width);
  if (flops <= kMaxFlops) return absl::OkStatus();
  return Bad("train.microBatch", samples,
             absl::StrCat("with sequences of ", m.seq, " tokens, one op of this model has about ", flops, " FLOPs; at most ",
                          kMaxFlops, " can be planned: use a smaller micro-batch, sequence or model"));
}

absl::Status ValidateEvaluation(const JobSpec& spec) {
  const TrainSpec& train = spec.train;
  LYNX_RETURN_IF_ERROR(InRange("train.evalEvery", train.eval_every, 0, kMaxSteps));
  LYNX_RETURN_IF_ERROR(InRange("train.evalBatches", train.eval_batches, 1, kMaxBatch));
  if ((train.eval_every > 0) != spec.data.validation_path.empty()) return absl::OkStatus();
  return Bad("train.evalEvery", train.eval_every,
             train.eval_every > 0 ? "needs held-out data: data.validationPath"
                                  : "must be above 0 where there is a data.validationPath");
}

absl::Status ValidateResources(const ResourceSpec& resources) {
  LYNX_RETURN_IF_ERROR(InRange("resources.ranks (least)", resources.min_ranks, 1, kMaxRanks));
  LYNX_RETURN_IF_ERROR(InRange("resources.ranks (most)", resources.max_ranks, resources.min_ranks, kMaxRanks));
  if (resources.activation_memory_per_rank < Bytes(0)) {
    return Bad("resources.activationMemoryPerRank", resources.activation_memory_per_rank.value,
               "must be at least 0 bytes (0 = what the device has left)");
  }
  return absl::OkStatus();
}

absl::Status ValidateCustomSchedule(const ParallelSpec& p) {
  const absl::StatusOr<SharedSchedule> custom = ReadCustomSchedule(p.schedule_text);
  if (!custom.ok()) return Annotate(custom.status(), "parallel.schedule");
  const auto same = [](const char* field, int32_t value, int32_t wanted, const char* what) {
    if (value == wanted) return absl::OkStatus();
    return Bad(field, value, absl::StrCat("must be ", wanted, " or auto: the schedule's text has ", wanted, what));
  };
  LYNX_RETURN_IF_ERROR(same("parallel.pp", p.pp, custom->schedule->shape.ranks, " ranks"));
  return same("parallel.virtualStages", p.virtual_stages, VirtualStagesOf(*custom->schedule), " chunks that it can place");
}

absl::Status ValidateZeroGroup(const ParallelSpec& p) {
  constexpr char kField[] = "parallel.zeroGroup";
  LYNX_RETURN_IF_ERROR(InRange(kField, p.zero_group, 0, kMaxRanks));
  if (p.zero_group == 0) return absl::OkStatus();
  if (p.zero_group == 1) return Bad(kField, 1, "a group of one replica shards nothing: use parallel.zero none without it");
  if (p.zero == ZeroStage::kNone) {
    return Bad(kField, p.zero_group, "says how many replicas shard the states, but parallel.zero is none");
  }
  return p.dp == 0 ? absl::OkStatus() : Divides("parallel.dp", p.dp, kField, p.zero_group);
}

// The number of pieces into which the model is divided. The job may give a number of layers for each. 0: any multiple of pp.
int64_t PiecesOf(const ParallelSpec& p) {
  switch (p.schedule) {
    case ScheduleKind::kCustom: return ReadCustomSchedule(p.schedule_text)->schedule->shape.pieces();
    case ScheduleKind::kZeroBubbleV: return int64_t{2} * p.pp;
    case ScheduleKind::kAuto:
    case ScheduleKind::kInterleaved: return int64_t{p.virtual_stages} * p.pp;
    default: return p.pp;
  }
}

// Requires that the schedule is valid.
absl::Status ValidateStageLayers(const ParallelSpec& p, int32_t model_layers) {
  const std::vector<int32_t>& layers = p.stage_layers;
  if (layers.empty()) return absl::OkStatus();
  constexpr char kField[] = "parallel.stageLayers";
  if (layers.size() > static_cast<size_t>(kMaxLayers)) {
    return Bad(kField, absl::StrCat(layers.size(), " numbers long"), absl::StrCat("must be at most ", kMaxLayers));
  }
  const std::string text = absl::StrJoin(layers, " ");
  if (p.partition != PartitionMethod::kExact) {
    return Bad("parallel.partition", EnumName(p.partition), absl::StrCat("must be left out beside ", kField, " ", text));
  }
  if (p.pp == 0) {
    return Bad(kField, text, "says the layers of each stage, so it needs their number: give parallel.pp");
  }
  const int64_t pieces = PiecesOf(p), count = static_cast<int64_t>(layers.size());
  if (pieces > 0 ? count != pieces : count % p.pp != 0) {
    const std::string what =
        pieces == 0      ? absl::StrCat("a multiple of parallel.pp, which is ", p.pp)
        : pieces == p.pp ? absl::StrCat("parallel.pp = ", p.pp)
        : p.virtual_stages > 1
            ? absl::StrCat("parallel.pp * parallel.virtualStages = ", p.pp, " * ", p.virtual_stages, " = ", pieces)
            : absl::StrCat(pieces, ", one for each chunk of parallel.schedule ", EnumName(p.schedule));
    return Bad(kField, text, absl::StrCat("has ", count, " numbers, but must have ", what));
  }
  const auto less = std::find_if(layers.begin(), layers.end(), [](int32_t n) { return n < 1; });
  if (less != layers.end())
    return Bad(kField, text, absl::StrCat("every stage needs a layer, but number ", less - layers.begin() + 1, " is ", *less));
  const int64_t sum = std::accumulate(layers.begin(), layers.end(), int64_t{0});
  if (sum == model_layers) return absl::OkStatus();
  return Bad(kField, text, absl::StrCat("the sum is ", sum, ", but model.layers is ", model_layers));
}

absl::Status ValidateSchedule(const ParallelSpec& p) {
  if (p.schedule == ScheduleKind::kCustom) return ValidateCustomSchedule(p);
  if (!p.schedule_text.empty()) {
    return Bad("parallel.schedule", EnumName(p.schedule), "only a custom schedule has a text");
  }
  const bool interleaved = p.schedule == ScheduleKind::kInterleaved || p.schedule == ScheduleKind::kAuto;
  if (p.virtual_stages > 1 && !interleaved) {
    return Bad("parallel.virtualStages", p.virtual_stages,
               "only parallel.schedule interleaved, or one of your own, has more than 1");
  }
  return absl::OkStatus();
}

// Checks that degrees and modes do not exclude each other, and that cp (and tp with sequence parallelism) divide the sequence.
absl::Status ValidateModes(const JobSpec& spec) {
  const ParallelSpec& p = spec.parallel;
  LYNX_RETURN_IF_ERROR(InRange("parallel.cp", p.cp, 0, kMaxRanks));
  if (p.cp > 1) LYNX_RETURN_IF_ERROR(Divides("model.seq", spec.model.seq, "2 * parallel.cp", 2 * int64_t{p.cp}));
  LYNX_RETURN_IF_ERROR(InRange("parallel.virtualStages", p.virtual_stages, 0, kMaxVirtualStages));
  LYNX_RETURN_IF_ERROR(ValidateSchedule(p));
  if (p.sequence_parallel == Choice::kOn && p.tp > 0) {
    LYNX_RETURN_IF_ERROR(Divides("model.seq", spec.model.seq, "parallel.tp * parallel.cp (parallel.sequenceParallel)",
                                 int64_t{p.tp} * std::max(p.cp, 1)));
  }
  const RecomputeOptions& options = spec.recompute_options;
  LYNX_RETURN_IF_ERROR(InRange("recomputeOptions.layers", options.layers, 0, kMaxLayers));
  if (options.layers > 0 && spec.recompute != RecomputeMode::kUniform && spec.recompute != RecomputeMode::kBlock) {
    return Bad("recomputeOptions.layers", options.layers, "is for recompute uniform or block");
  }
  if (!options.modules.empty() && spec.recompute != RecomputeMode::kSelective) {
    return Bad("recomputeOptions.modules", EnumName(options.modules.front()), "is for recompute selective");
  }
  if (options.forbids_offload && options.offload_permille != 0) {
    return Bad("recomputeOptions.offloadShare (thousandths)", options.offload_permille,
               "must be 0, for recomputeOptions.forbid has offload");
  }
  return InRange("recomputeOptions.offloadShare (thousandths)", options.offload_permille, 0, 1000);
}

// Checks the batch against the number of replicas. The batch need not be a multiple of that number
// (planner/problem/batch_split.h).
absl::Status ValidateBatch(const TrainSpec& train, int32_t replicas) {
  if (replicas > train.global_batch) {
    return Bad("train.globalBatch", train.global_batch,
               absl::StrCat("must be at least parallel.dp, which is ", replicas, ", because every replica needs a sample"));
  }
  const BatchSplit split{train.global_batch, replicas, std::max(train.micro_batch, 1)};
  if (split.Possible()) return absl::OkStatus();
  return Bad("train.microBatch", train.micro_batch,
             absl::StrCat("must be at most ", split.MaxSamples(), ", the samples of a replica: train.globalBatch ",
                          train.global_batch, " / parallel.dp ", replicas));
}

// Checks expert parallelism. The degrees must be in their ranges.
absl::Status ValidateExpertParallel(const JobSpec& spec) {
  const ParallelSpec& p = spec.parallel;
  const MoeSpec& moe = spec.model.moe;
  if (!moe.any()) {
    return p.ep <= 1 ? absl::OkStatus() : Bad("parallel.ep", p.ep, "is for models with experts (model.moe.experts)");
  }
  if (p.sequence_parallel == Choice::kOff && p.tp > 1) {
    return Bad(
        "parallel.sequenceParallel", "off",
        "must be on or auto for a model with experts with parallel.tp above 1: each rank routes its share of the tokens");
  }
  // Expert groups need exactly one copy of the model on each rank. Chimera and custom schedules in both directions have two
  // copies.
  const bool custom = p.schedule == ScheduleKind::kCustom;
  const bool both =
      custom ? ReadCustomSchedule(p.schedule_text)->schedule->shape.bidirectional() : p.schedule == ScheduleKind::kChimera;
  if (both) {
    return Bad("parallel.schedule", EnumName(p.schedule),
               "holds two copies of the model, and does not train models with experts: use another schedule");
  }
  if (p.zero > ZeroStage::kOptimizer) {
    return Bad("parallel.zero", EnumName(p.zero), "must be none, optimizer or auto for a model with experts");
  }
  if (p.zero_group != 0) return Bad("parallel.zeroGroup", p.zero_group, "must be left out for a model with experts");
  if (p.ep == 0) return absl::OkStatus();
  LYNX_RETURN_IF_ERROR(Divides("model.moe.experts", moe.experts, "parallel.ep", p.ep));
  if (p.tp == 0 || p.dp == 0) return absl::OkStatus();
  return Divides("parallel.tp * parallel.cp * parallel.dp", int64_t{p.tp} * std::max(p.cp, 1) * p.dp, "parallel.ep", p.ep);
}

// Checks the model, the batch and the ranks against the pinned degrees of parallelism.
absl::Status ValidateParallel(const JobSpec& spec) {
  const ParallelSpec& p = spec.parallel;
  LYNX_RETURN_IF_ERROR(ValidateModes(spec));
  LYNX_RETURN_IF_ERROR(InRange("parallel.tp", p.tp, 0, kMaxRanks));
  LYNX_RETURN_IF_ERROR(InRange("parallel.pp", p.pp, 0, kMaxRanks));
  LYNX_RETURN_IF_ERROR(InRange("parallel.dp", p.dp, 0, kMaxRanks));
  LYNX_RETURN_IF_ERROR(InRange("parallel.ep", p.ep, 0, kMaxRanks));
  LYNX_RETURN_IF_ERROR(ValidateExpertParallel(spec));
  if (p.tp > 0) {
    LYNX_RETURN_IF_ERROR(Divides("model.heads", spec.model.heads, "parallel.tp", p.tp));
    LYNX_RETURN_IF_ERROR(Divides("model.kvHeads", spec.model.key_heads(), "parallel.tp", p.tp));
    if (spec.model.HasDenseBlock()) LYNX_RETURN_IF_ERROR(Divides("model.ffn", spec.model.ffn, "parallel.tp", p.tp));
    if (p.tp > spec.model.vocab) {
      return Bad("parallel.tp", p.tp, absl::StrCat("must be at most model.vocab, which is ", spec.model.vocab));
    }
  }
  if (p.pp > spec.model.layers) {
    return Bad("parallel.pp", p.pp,
               absl::StrCat("every stage needs a layer, so it must be at most model.layers, which is ", spec.model.layers));
  }
  LYNX_RETURN_IF_ERROR(ValidateStageLayers(p, spec.model.layers));
  LYNX_RETURN_IF_ERROR(ValidateZeroGroup(p));
  if (p.dp > 0) LYNX_RETURN_IF_ERROR(ValidateBatch(spec.train, p.dp));
  const auto at_least_one = [](int32_t n) { return int64_t{n == 0 ? 1 : n}; };
  const int64_t product = at_least_one(p.tp) * at_least_one(p.cp) * at_least_one(p.pp) * at_least_one(p.dp);
  const std::string rule = absl::StrCat("parallel.tp * ", p.cp > 1 ? "parallel.cp * " : "",
                                        "parallel.pp * parallel.dp (auto counted as 1) is ", product);
  if (product > spec.resources.max_ranks) {
    return Bad("resources.ranks (most)", spec.resources.max_ranks, absl::StrCat("must be at least ", product, ": ", rule));
  }
  if (p.tp > 0 && p.cp > 0 && p.pp > 0 && p.dp > 0 && product < spec.resources.min_ranks) {
    return Bad("resources.ranks (least)", spec.resources.min_ranks, absl::StrCat("must be at most ", product, ": ", rule));
  }
  return absl::OkStatus();
}

absl::Status ValidateScheduling(const SchedulingSpec& scheduling) {
  LYNX_RETURN_IF_ERROR(ValidateName(scheduling.queue, "scheduling.queue"));
  LYNX_RETURN_IF_ERROR(InRange("scheduling.priority", scheduling.priority, -kMaxPriority, kMaxPriority));
  if (scheduling.after.size() > kMaxDependencies) {
    return Bad("scheduling.after", absl::StrCat(scheduling.after.size(), " jobs long"),
               absl::StrCat("must be at most ", kMaxDependencies));
  }
  for (const std::string& job : scheduling.after) LYNX_RETURN_IF_ERROR(ValidateName(job, "scheduling.after"));
  if (scheduling.time_limit < Nanos(0) || scheduling.time_limit > kMaxTimeLimit) {
    return Bad("scheduling.timeLimit", FormatDuration(scheduling.time_limit), "must be from 0 (none) to 366 days");
  }
  return absl::OkStatus();
}

absl::Status ValidateFailureRules(const std::vector<FailureRule>& rules) {
  if (rules.size() > kMaxFailureRules) {
    return Bad("onFailure", absl::StrCat(rules.size(), " rules long"), absl::StrCat("must be at most ", kMaxFailureRules));
  }
  for (const FailureRule& rule : rules) {
    if (rule.log.empty()) {
      LYNX_RETURN_IF_ERROR(InRange("onFailure (exit code)", rule.exit_code, 0, 255));
    } else if (rule.exit_code != -1) {
      return Bad("onFailure", absl::StrCat("exit ", rule.exit_code, " and log ", rule.log.substr(0, kMaxFailureText)),
                 "a rule is for an exit code or for a text, not for both");
    } else if (rule.log.size() > kMaxFailureText || rule.log.find('\n') != std::string::npos) {
      return Bad("onFailure", absl::StrCat("log ", rule.log.substr(0, kMaxFailureText)),
                 absl::StrCat("a rule's text must be one line of at most ", kMaxFailureText, " bytes"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ValidateName(const std::string& name, const char* field) {
  constexpr std::string_view kAllowed = "abcdefghijklmnopqrstuvwxyz0123456789-";
  if (!name.empty() && name.size() <= kMaxNameLength && name.find_first_not_of(kAllowed) == std::string::npos) {
    return absl::OkStatus();
  }
  return Bad(field, absl::StrCat("\"", name.substr(0, 2 * kMaxNameLength), "\""),
             absl::StrCat("must be 1 to ", kMaxNameLength, " of the characters a-z, 0-9 and -"));
}

void Normalize(JobSpec& spec) {
  ModelSpec& model = spec.model;
  if (model.ffn == 0 && model.hidden <= kMaxHidden) {
    const bool gated = model.family == ModelFamily::kLlama;
    model.ffn = gated ? (8 * model.hidden / 3 + 255) / 256 * 256 : 4 * model.hidden;
  }
  if (model.kv_heads == model.heads) model.kv_heads = 0;
  if (model.moe.ffn == model.ffn) model.moe.ffn = 0;
  if (model.heads > 0 && int64_t{model.head_dim} * model.heads == model.hidden) model.head_dim = 0;
  if (model.heads > 0 && model.rotary.dims == model.head_size() && !model.latent.any()) model.rotary.dims = 0;
  ParallelSpec& parallel = spec.parallel;
  if (parallel.schedule == ScheduleKind::kCustom) {
    const absl::StatusOr<SharedSchedule> custom = ReadCustomSchedule(parallel.schedule_text);
    if (custom.ok()) {
      parallel.schedule_text = ScheduleText(*custom->schedule);
      if (parallel.pp == 0) parallel.pp = custom->schedule->shape.ranks;
      if (parallel.virtual_stages == 0) parallel.virtual_stages = VirtualStagesOf(*custom->schedule);
    }
  }
  if (parallel.zero_group == parallel.dp) parallel.zero_group = 0;
  const bool chooses_chunks = parallel.schedule == ScheduleKind::kAuto || parallel.schedule == ScheduleKind::kInterleaved;
  const auto pieces = static_cast<int64_t>(parallel.stage_layers.size());
  if (pieces > 0 && pieces <= kMaxLayers && chooses_chunks && parallel.virtual_stages == 0 && parallel.pp > 0 &&
      pieces % parallel.pp == 0) {
    parallel.virtual_stages = static_cast<int32_t>(pieces / parallel.pp);
  }
  std::vector<RecomputeMode>& forbidden = spec.recompute_options.forbidden;
  std::sort(forbidden.begin(), forbidden.end());
  forbidden.erase(std::unique(forbidden.begin(), forbidden.end()), forbidden.end());
  std::vector<RecomputeModule>& modules = spec.recompute_options.modules;
  std::sort(modules.begin(), modules.end());
  modules.erase(std::unique(modules.begin(), modules.end()), modules.end());
}

absl::Status ValidateJobSpec(const JobSpec& spec) {
  LYNX_RETURN_IF_ERROR(ValidateName(spec.name, "name"));
  LYNX_RETURN_IF_ERROR(ValidateModel(spec.model));
  LYNX_RETURN_IF_ERROR(ValidateData(spec.data, spec.model));
  LYNX_RETURN_IF_ERROR(ValidateTrain(spec.train));
  LYNX_RETURN_IF_ERROR(ValidateLargestOp(spec));
  LYNX_RETURN_IF_ERROR(ValidateEvaluation(spec));
  LYNX_RETURN_IF_ERROR(ValidateResources(spec.resources));
  LYNX_RETURN_IF_ERROR(ValidateParallel(spec));
  if (spec.checkpoint.directory.size() > kMaxPathLength) {
    return Bad("checkpoint.directory", absl::StrCat(spec.checkpoint.directory.size(), " characters long"),
               absl::StrCat("must be at most ", kMaxPathLength));
  }
  if (spec.checkpoint.from.size() > kMaxPathLength) {
    return Bad("checkpoint.from", absl::StrCat(spec.checkpoint.from.size(), " characters long"),
               absl::StrCat("must be at most ", kMaxPathLength));
  }
  if (spec.checkpoint.weights_only && spec.checkpoint.from.empty()) {
    return Bad("checkpoint.weightsOnly", "true", "says what to take of checkpoint.from, which is missing");
  }
  LYNX_RETURN_IF_ERROR(InRange("checkpoint.everySteps", spec.checkpoint.every_steps, 0, kMaxSteps));
  if (spec.checkpoint.copy_every_steps < kCopiesAuto || spec.checkpoint.copy_every_steps > kMaxSteps) {
    return Bad("checkpoint.copyEverySteps", absl::StrCat(spec.checkpoint.copy_every_steps),
               absl::StrCat("must be auto, or from 0 to ", int64_t{kMaxSteps}));
  }
  LYNX_RETURN_IF_ERROR(InRange("checkpoint.keep", spec.checkpoint.keep, 1, kMaxKeep));
  LYNX_RETURN_IF_ERROR(InRange("maxRestarts", spec.max_restarts, 0, kMaxRestarts));
  LYNX_RETURN_IF_ERROR(ValidateScheduling(spec.scheduling));
  return ValidateFailureRules(spec.on_failure);
}

}  // namespace lynx
