// Reads runs of DeepSpeed from ds_config.json. The names of the keys and their defaults are from DeepSpeed's configuration
// reference (docs/_pages/config-json.md), runtime/config.py and runtime/zero/config.py. The file does not describe the model,
// which comes from a Hugging Face config.json, and some values only the training script knows ("auto").
#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "cli/frameworks/imported_run.h"
#include "cli/spec/model_config.h"
#include "common/real_text.h"
#include "common/status.h"

namespace lynx::cli {
namespace {

using Json = nlohmann::json;

// Keys that change a run, but for which a job has no field. `neutral`: a value with which the key changes nothing.
struct MissingKey {
  const char* path;
  const char* why;
  const char* neutral = "false";
};
constexpr char kOffload[] = "the plan keeps states and weights on the device";
constexpr char kQuantized[] = "the plan counts transfers in the type of the weights and gradients";
constexpr char kStates[] = "the plan counts gradients, master weights and optimizer states as without this key";
constexpr MissingKey kMissing[] = {
    {"zero_optimization.offload_optimizer.device", kOffload, "\"none\""},
    {"zero_optimization.offload_param.device", kOffload, "\"none\""},
    {"zero_optimization.cpu_offload", kOffload},
    {"zero_optimization.zero_hpz_partition_size", "the plan shards weights over all replicas", "1"},
    {"zero_optimization.zero_quantized_weights", kQuantized},
    {"zero_optimization.zero_quantized_gradients", kQuantized},
    {"communication_data_type", kQuantized, "null"},
    {"activation_checkpointing.cpu_checkpointing", "the plan keeps activations on the device"},
    {"activation_checkpointing.partition_activations", "the plan counts the input of a recomputed layer whole on each rank"},
    {"sequence_parallel_size", "Ulysses is not planned", "1"},
    {"bf16.bf16_master_weights_and_grads", kStates},
    {"bf16.bf16_optimizer_states", kStates},
    {"fp16.fp16_master_weights_and_grads", kStates},
    {"amp.enabled", "mixed precision of Apex is not planned"},
};

// Keys that have no effect on a plan. A key that ends in a point stands for all keys below it.
constexpr const char* kOthers[] = {
    "comment",
    "steps_per_print",
    "wall_clock_breakdown",
    "memory_breakdown",
    "dump_state",
    "prescale_gradients",
    "gradient_predivide_factor",
    "sparse_gradients",
    "zero_allow_untested_optimizer",
    "zero_force_ds_cpu_optimizer",
    "tensorboard.",
    "wandb.",
    "csv_monitor.",
    "comet.",
    "comms_logger.",
    "flops_profiler.",
    "checkpoint.",
    "aio.",
    "dataloader_drop_last",
    "autotuning.",
    "elasticity.",
    "seed",
    "zero_optimization.allgather_partitions",
    "zero_optimization.reduce_scatter",
    "zero_optimization.contiguous_gradients",
    "zero_optimization.round_robin_gradients",
    "zero_optimization.stage3_",
    "zero_optimization.sub_group_size",
    "zero_optimization.ignore_unused_parameters",
    "zero_optimization.load_from_fp32_weights",
    "zero_optimization.elastic_checkpoint",
    "zero_optimization.legacy_stage1",
    "zero_optimization.use_multi_rank_bucket_allreduce",
    "zero_optimization.offload_optimizer.",
    "zero_optimization.offload_param.",
    "fp16.enabled",
    "fp16.auto_cast",
    "fp16.loss_scale",
    "fp16.initial_scale_power",
    "fp16.loss_scale_window",
    "fp16.hysteresis",
    "fp16.consecutive_hysteresis",
    "fp16.min_loss_scale",
    "bf16.enabled",
    "bf16.immediate_grad_update",
    "bf16.check_grad_overflow",
    "activation_checkpointing.contiguous_memory_optimization",
    "activation_checkpointing.synchronize_checkpoint_boundary",
    "activation_checkpointing.profile",
    "pipeline.",
    "tensor_parallel.",
    "optimizer.params.",
    "optimizer.legacy_fusion",
    "scheduler.params.",
    "disable_allgather",
};

// The maximum depth of objects inside objects. Real configurations have only a few levels.
constexpr int kMaxDepth = 16;

void Flatten(const Json& json, const std::string& path, int depth, std::map<std::string, Json>& values) {
  if (!json.is_object() || depth > kMaxDepth) {
    values[path] = json;
    return;
  }
  for (const auto& [key, value] : json.items())
    Flatten(value, path.empty() ? key : absl::StrCat(path, ".", key), depth + 1, values);
}

class DeepSpeedReader {
 public:
  DeepSpeedReader(std::map<std::string, Json> values, const ImportRequest& request)
      : values_(std::move(values)), request_(request), job_(run_.job) {}

  absl::StatusOr<ImportedRun> Run() {
    run_.framework = Framework::kDeepspeed;
    LYNX_RETURN_IF_ERROR(Model());
    LYNX_RETURN_IF_ERROR(Zero());
    LYNX_RETURN_IF_ERROR(Batches());
    LYNX_RETURN_IF_ERROR(Recomputation());
    Training();
    Buckets();
    Others();
    LYNX_RETURN_IF_ERROR(FinishImport(request_, run_));
    return std::move(run_);
  }

 private:
  absl::Status Error(const std::string& why) const {
    return absl::InvalidArgumentError(absl::StrCat(request_.file, ": ", why));
  }
  static std::string Text(const Json& value) { return value.dump(-1, ' ', false, Json::error_handler_t::replace); }

  // Returns the value of a key; nullptr if the key is absent or its value is "auto". Keys whose value is "auto" are reported.
  const Json* Find(const std::string& path) {
    const auto found = values_.find(path);
    used_.push_back(path);
    if (found == values_.end() || found->second.is_null()) return nullptr;
    if (found->second != "auto") return &found->second;
    run_.assumed.push_back(absl::StrCat(path, " is auto: only the training script knows it"));
    return nullptr;
  }
  absl::StatusOr<std::optional<int64_t>> Count(const std::string& path, int64_t least) {
    const Json* value = Find(path);
    if (value == nullptr) return std::optional<int64_t>();
    constexpr int64_t kMaxCount = 1 << 20;
    const bool whole = value->is_number_integer() && (!value->is_number_unsigned() || value->get<uint64_t>() <= kMaxCount);
    if (whole && value->get<int64_t>() >= least && value->get<int64_t>() <= kMaxCount)
      return std::optional(value->get<int64_t>());
    return Error(absl::StrCat(path, " is ", Text(*value), ": must be a whole number from ", least, " to ", kMaxCount));
  }
  void Real(const std::string& path, double& out) {
    if (const Json* value = Find(path); value != nullptr && value->is_number() && std::isfinite(value->get<double>())) {
      out = value->get<double>();
    }
  }
  bool True(const std::string& path) {
    const Json* value = Find(path);
    return value != nullptr && value->is_boolean() && value->get<bool>();
  }
  // The value that --set gives a field of the job; 0 if it gives none.
  int32_t Overridden(const std::string& field) const {
    int32_t value = 0;
    for (const std::string& text : request_.overrides) {
      if (absl::StartsWith(text, field + "=") && !absl::SimpleAtoi(text.substr(field.size() + 1), &value)) value = 0;
    }
    return value;
  }

  absl::Status Model() {
    if (request_.model.empty()) {
      return Error("ds_config.json does not describe the model; give its Hugging Face configuration with --model config.json");
    }
    LYNX_ASSIGN_OR_RETURN(job_.model, ParseModelConfig(request_.model, request_.model_file));
    const bool half = values_.count("fp16.enabled") > 0 && values_.at("fp16.enabled") == true;
    const bool automatic = (values_.count("bf16.enabled") > 0 && values_.at("bf16.enabled") == "auto") ||
                           (values_.count("fp16.enabled") > 0 && values_.at("fp16.enabled") == "auto");
    const bool bf16 = True("bf16.enabled") || True("bfloat16.enabled");
    if (half) run_.not_taken.push_back("fp16: planned as bfloat16, which has as many bits; there is no loss scaling");
    if (!automatic || bf16 || half) job_.model.dtype = bf16 || half ? DataType::kBfloat16 : DataType::kFloat32;
    if (Overridden("model.seq") == 0) {
      run_.assumed.push_back(absl::StrCat("model.seq ", job_.model.seq,
                                          ", the longest that the model was made for; --set model.seq=N "
                                          "says how long the run's samples are"));
    }
    job_.data = {DataKind::kMegatron, "data", ""};
    return absl::OkStatus();
  }

  absl::Status Zero() {
    LYNX_ASSIGN_OR_RETURN(const std::optional<int64_t> stage, Count("zero_optimization.stage", 0));
    if (stage.value_or(0) > 3) return Error(absl::StrCat("zero_optimization.stage is ", *stage, ": must be from 0 to 3"));
    constexpr ZeroStage kStages[] = {ZeroStage::kNone, ZeroStage::kOptimizer, ZeroStage::kGradients, ZeroStage::kWeights};
    job_.parallel.zero = kStages[stage.value_or(0)];
    if (job_.model.dtype == DataType::kBfloat16) Gradients(stage.value_or(0) > 0);
    run_.traits = TraitsOf(Framework::kDeepspeed);
    // If the key is absent, only ZeRO-3 overlaps its communication (runtime/zero/config.py).
    const Json* overlap = Find("zero_optimization.overlap_comm");
    run_.traits.overlaps_data_reduction = overlap != nullptr ? *overlap == true : job_.parallel.zero == ZeroStage::kWeights;
    LYNX_ASSIGN_OR_RETURN(const std::optional<int64_t> tp, Count("tensor_parallel.autotp_size", 0));
    ParallelSpec& parallel = job_.parallel;
    parallel.tp = static_cast<int32_t>(std::max<int64_t>(tp.value_or(1), 1));
    if (const int32_t given = Overridden("parallel.tp"); given > 0) parallel.tp = given;
    parallel.pp = std::max(1, Overridden("parallel.pp"));
    parallel.cp = parallel.virtual_stages = 1;
    parallel.sequence_parallel = Choice::kOff;
    parallel.schedule = ScheduleKind::kOneForwardOneBackward;
    parallel.weave = WeaveMode::kOff;
    parallel.rank_order = RankOrder::kTpDpPp;
    parallel.partition = PartitionMethod::kEven;
    return absl::OkStatus();
  }

  // The type in which a 16-bit model's gradients are summed over microbatches and replicas. If the key is absent, it is that of
  // the model, except for bfloat16 without ZeRO before version 0.18 (get_data_types of runtime/engine.py).
  void Gradients(bool shares) {
    const Json* type = Find("data_types.grad_accum_dtype");
    DataType& gradients = job_.model.gradient_dtype;
    if (type != nullptr) {
      if (!absl::StrContains(Text(*type), "32")) gradients = DataType::kBfloat16;
    } else if (shares || True("fp16.enabled")) {
      gradients = DataType::kBfloat16;
    } else {
      run_.assumed.push_back(
          "model.gradientDtype float32: without ZeRO and data_types.grad_accum_dtype, versions before 0.18 sum gradients so; "
          "--set model.gradientDtype=bfloat16 counts as later versions do");
    }
  }

  // train_batch_size = train_micro_batch_size_per_gpu * gradient_accumulation_steps * replicas. Two of them determine the
  // third.
  absl::Status Batches() {
    LYNX_ASSIGN_OR_RETURN(std::optional<int64_t> batch, Count("train_batch_size", 1));
    LYNX_ASSIGN_OR_RETURN(std::optional<int64_t> micro, Count("train_micro_batch_size_per_gpu", 1));
    LYNX_ASSIGN_OR_RETURN(std::optional<int64_t> steps, Count("gradient_accumulation_steps", 1));
    if (const int32_t given = Overridden("train.globalBatch"); given > 0) batch = given;
    if (const int32_t given = Overridden("train.microBatch"); given > 0) micro = given;
    const int64_t ranks = int64_t{job_.parallel.tp} * job_.parallel.pp;
    constexpr int64_t kMaxDevices = 1 << 20;
    if (ranks > kMaxDevices) return Error(absl::StrCat("tp * pp is ", ranks, ": must be at most ", kMaxDevices));
    int64_t devices = request_.devices;
    if (devices == 0 && batch && micro && steps) devices = *batch / (*micro * *steps) * ranks;
    if (devices == 0) return Error("the file does not say on how many devices the run is; give --devices N");
    if (devices > kMaxDevices) return Error(absl::StrCat(devices, " devices: at most ", kMaxDevices, " are planned"));
    const int64_t replicas = devices / ranks;
    if (replicas * ranks != devices || replicas < 1) {
      return Error(absl::StrCat(devices, " devices are no multiple of tp ", job_.parallel.tp, " * pp ", job_.parallel.pp));
    }
    if (!micro && batch) micro = *batch / (replicas * steps.value_or(1));
    if (!batch && micro) batch = *micro * replicas * steps.value_or(1);
    if (!batch || !micro || *micro < 1) {
      return Error(
          "train_batch_size and train_micro_batch_size_per_gpu are auto or absent; give --set train.globalBatch=N and --set "
          "train.microBatch=N");
    }
    if (*batch % (*micro * replicas) != 0 || (steps && *batch != *micro * *steps * replicas)) {
      return Error(absl::StrCat("train_batch_size ", *batch, " is not train_micro_batch_size_per_gpu ", *micro,
                                " * gradient_accumulation_steps * ", replicas, " replicas; is the number of devices right?"));
    }
    if (*batch > kMaxDevices)
      return Error(absl::StrCat("a batch of ", *batch, " samples: at most ", kMaxDevices, " are planned"));
    job_.train.global_batch = static_cast<int32_t>(*batch);
    job_.train.micro_batch = static_cast<int32_t>(*micro);
    job_.parallel.dp = static_cast<int32_t>(replicas);
    if (replicas == 1) job_.parallel.zero = ZeroStage::kNone;
    if (job_.model.moe.any() && Overridden("parallel.ep") == 0) {
      job_.parallel.ep = 1;
      run_.assumed.push_back(
          "parallel.ep 1: the file does not say how many ranks share the experts (ep_size of deepspeed.moe.layer.MoE in the "
          "script); --set parallel.ep=N does");
    }
    if (const Json* group = Find("zero_optimization.mics_shard_size"); group != nullptr && *group != -1) {
      LYNX_ASSIGN_OR_RETURN(const std::optional<int64_t> size, Count("zero_optimization.mics_shard_size", 1));
      if (job_.parallel.zero == ZeroStage::kWeights) job_.parallel.zero_group = static_cast<int32_t>(size.value_or(0));
    }
    run_.devices = static_cast<int32_t>(devices);
    job_.resources.min_ranks = job_.resources.max_ranks = run_.devices;
    job_.resources.device = DeviceKind::kCuda;
    return absl::OkStatus();
  }

  // The code of the model decides what is recomputed. The file may only give the number of checkpoints or layers per
  // checkpoint.
  absl::Status Recomputation() {
    LYNX_ASSIGN_OR_RETURN(const std::optional<int64_t> interval, Count("pipeline.activation_checkpoint_interval", 0));
    LYNX_ASSIGN_OR_RETURN(const std::optional<int64_t> count, Count("activation_checkpointing.number_checkpoints", 1));
    int64_t group = job_.parallel.pp > 1 ? interval.value_or(0) : 0;
    if (job_.parallel.pp == 1 && count) group = (job_.model.layers + *count - 1) / *count;
    job_.recompute = group == 0 ? RecomputeMode::kNone : group == 1 ? RecomputeMode::kFull : RecomputeMode::kUniform;
    if (group > 1) job_.recompute_options.layers = static_cast<int32_t>(std::min<int64_t>(group, job_.model.layers));
    if (group == 0) {
      run_.assumed.push_back(
          "no recomputation: the model's code says whether layers recompute (gradient checkpointing); if all do, "
          "give activation_checkpointing.number_checkpoints the number of layers");
    }
    return absl::OkStatus();
  }

  void Training() {
    TrainSpec& train = job_.train;
    double total = 0, warmup = 0;
    Real("optimizer.params.lr", train.optimizer.lr);
    Real("optimizer.params.eps", train.optimizer.eps);
    Real("optimizer.params.weight_decay", train.optimizer.weight_decay);
    train.optimizer.clip_norm = 0;
    Real("gradient_clipping", train.optimizer.clip_norm);
    Real("scheduler.params.total_num_steps", total);
    Real("scheduler.params.warmup_num_steps", warmup);
    if (const Json* betas = Find("optimizer.params.betas"); betas != nullptr && betas->is_array() && betas->size() == 2) {
      if ((*betas)[0].is_number()) train.optimizer.beta1 = (*betas)[0].get<double>();
      if ((*betas)[1].is_number()) train.optimizer.beta2 = (*betas)[1].get<double>();
    }
    constexpr double kMaxSteps = 1e12;
    train.steps = total >= 1 && total <= kMaxSteps ? static_cast<int64_t>(total) : 1;
    if (train.steps == 1) run_.assumed.push_back("train.steps 1: only the training script says how long it trains");
    train.warmup_steps = static_cast<int64_t>(std::clamp(warmup, 0.0, static_cast<double>(train.steps)));
    const Json* type = Find("scheduler.type");
    const std::string scheduler = type != nullptr && type->is_string() ? type->get<std::string>() : "";
    train.schedule = absl::StrContains(scheduler, "Cosine")  ? LrSchedule::kCosine
                     : absl::StrContains(scheduler, "Decay") ? LrSchedule::kLinear
                                                             : LrSchedule::kConstant;
    if (const Json* optimizer = Find("optimizer.type"); optimizer != nullptr && *optimizer != "AdamW" && *optimizer != "Adam") {
      run_.not_taken.push_back(absl::StrCat("optimizer.type ", Text(*optimizer), ": the plan counts the states of Adam"));
    }
  }

  // DeepSpeed's defaults are buckets of 5e8 elements (runtime/zero/config.py).
  void Buckets() {
    constexpr double kDefaultElements = 5e8;
    for (const char* path : {"zero_optimization.reduce_bucket_size", "zero_optimization.allgather_bucket_size"}) {
      double elements = 0;
      Real(path, elements);
      if (elements > kDefaultElements) {
        run_.not_taken.push_back(
            absl::StrCat(path, " ", RealText(elements), ": the plan counts no memory for buckets of more than 5e8 elements"));
      }
    }
  }

  static bool Covers(const std::string& known, const std::string& path) {
    const bool prefix = known.back() == '.' || known.back() == '_';
    return prefix ? absl::StartsWith(path, known) : path == known;
  }

  void Others() {
    for (const auto& [path, value] : values_) {
      if (std::find(used_.begin(), used_.end(), path) != used_.end()) continue;
      const auto missing =
          std::find_if(std::begin(kMissing), std::end(kMissing), [&](const MissingKey& key) { return path == key.path; });
      if (missing != std::end(kMissing)) {
        if (Text(value) != missing->neutral && Text(value) != "false") {
          run_.not_taken.push_back(absl::StrCat(path, " ", Text(value), ": ", missing->why));
        }
        continue;
      }
      const bool other =
          std::any_of(std::begin(kOthers), std::end(kOthers), [&](const char* known) { return Covers(known, path); });
      if (!other) run_.unknown.push_back(absl::StrCat(path, ": ", Text(value)));
    }
  }

  const std::map<std::string, Json> values_;
  const ImportRequest& request_;
  ImportedRun run_;
  JobSpec& job_;
  std::vector<std::string> used_;
};

}  // namespace

absl::StatusOr<ImportedRun> ImportDeepspeed(const ImportRequest& request) {
  if (!request.variables.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--set ", request.variables.begin()->first,
                     ": a JSON file has no variables; name a field of the job, such as model.seq"));
  }
  const Json root = Json::parse(request.text, nullptr, /*allow_exceptions=*/false);
  if (root.is_discarded() || !root.is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(request.file, ": not a JSON object; expected a ds_config.json"));
  }
  std::map<std::string, Json> values;
  Flatten(root, "", 0, values);
  return DeepSpeedReader(std::move(values), request).Run();
}

}  // namespace lynx::cli
