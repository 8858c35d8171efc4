// Reads runs of torchtitan from their job configurations in TOML. The names of the keys and their defaults are from
// torchtitan/config/job_config.py of versions up to 0.2.2, the flavors of models from torchtitan/models/llama3/__init__.py.
// Later versions have configurations in Python, which are not read.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "cli/frameworks/imported_run.h"
#include "cli/frameworks/toml_values.h"
#include "cli/spec/model_config.h"
#include "common/real_text.h"
#include "common/status.h"
#include "planner/frameworks/layer_repeat.h"

namespace lynx::cli {
namespace {

// llama3's flavors. The vocabulary is that of Llama 3's tokenizer, except for debugmodel.
struct Flavor {
  const char* name;
  int32_t hidden, layers, heads, kv_heads, ffn, vocab;
};
constexpr Flavor kFlavors[] = {
    {"debugmodel", 256, 6, 16, 16, 768, 2048},
    {"8B", 4096, 32, 32, 8, 14336, 128256},
    {"70B", 8192, 80, 64, 8, 28672, 128256},
    {"405B", 16384, 126, 128, 8, 53248, 128256},
};

struct MissingKey {
  const char* path;
  const char* why;
  const char* neutral;
};
constexpr char kEightBits[] = "8-bit products are counted as 16-bit ones; --set model.matmulType=float8 or mxfp8 plans them";
constexpr MissingKey kMissing[] = {
    {"model.converters", kEightBits, ""},
    {"parallelism.enable_async_tensor_parallel", "not counted: the plan exposes collectives of tensor parallelism", "false"},
    {"parallelism.enable_compiled_autograd", "the plan counts no time for launches", "false"},
    {"training.enable_cpu_offload", "the plan keeps states and weights on the device", "false"},
    {"training.dtype", "the plan counts states in 32 bits", "float32"},
    {"float8.enable_fsdp_float8_all_gather", kEightBits, "false"},
    {"float8.precompute_float8_dynamic_scale_for_fsdp", kEightBits, "false"},
    {"checkpoint.initial_load_path", "Lynx does not read checkpoints of torchtitan", ""},
    {"optimizer.early_step_in_backward", "the plan steps after the backward pass", "false"},
};

// Keys that have no effect on a plan. A key that ends in a point stands for all keys below it.
constexpr const char* kOthers[] = {
    "job.",
    "profiling.",
    "metrics.",
    "comm.",
    "experimental.",
    "fault_tolerance.",
    "memory_estimation.",
    "validation.",
    "debug.",
    "checkpoint.",
    "compile.",
    "float8.",
    "mx.",
    "quantize.",
    "model.tokenizer_path",
    "model.hf_assets_path",
    "model.print_after_conversion",
    "training.dataset",
    "training.dataset_path",
    "training.compile",
    "training.gc_freq",
    "training.gc_debug",
    "training.deterministic",
    "training.debug_moe_force_load_balance",
    "optimizer.implementation",
    "lr_scheduler.",
    "parallelism.disable_loss_parallel",
    "parallelism.context_parallel_rotate_method",
    "parallelism.context_parallel_load_balancer",
    "activation_checkpoint.per_op_sac_force_recompute_mm_shapes_by_fqns",
    "activation_checkpoint.early_stop",
};

class TorchtitanReader {
 public:
  TorchtitanReader(const std::vector<TomlValue>& values, const ImportRequest& request) : request_(request), job_(run_.job) {
    for (const TomlValue& value : values) values_[value.path] = value;
  }

  absl::StatusOr<ImportedRun> Run() {
    run_.framework = Framework::kTorchtitan;
    run_.traits = TraitsOf(Framework::kTorchtitan);
    LYNX_RETURN_IF_ERROR(Model());
    LYNX_RETURN_IF_ERROR(Degrees());
    LYNX_RETURN_IF_ERROR(Experts());
    LYNX_RETURN_IF_ERROR(Schedule());
    LYNX_RETURN_IF_ERROR(Batches());
    LYNX_RETURN_IF_ERROR(Recomputation());
    Gradients();
    Training();
    Others();
    LYNX_RETURN_IF_ERROR(FinishImport(request_, run_));
    return std::move(run_);
  }

 private:
  absl::Status Error(const std::string& why) const {
    return absl::InvalidArgumentError(absl::StrCat(request_.file, ": ", why));
  }

  const TomlValue* Find(const std::string& path) {
    used_.insert(path);
    const auto found = values_.find(path);
    return found == values_.end() ? nullptr : &found->second;
  }
  std::string Text(const std::string& path, const std::string& otherwise) {
    const TomlValue* value = Find(path);
    return value == nullptr ? otherwise : value->text;
  }
  // Reads a count, which must be at least `least`, into `out`. Does not change `out` if the key is absent.
  absl::Status Count(const std::string& path, int32_t least, int32_t& out) {
    const TomlValue* value = Find(path);
    if (value == nullptr) return absl::OkStatus();
    int32_t count = 0;
    if (!absl::SimpleAtoi(value->text, &count) || count < least || count > (1 << 20)) {
      return Error(absl::StrCat(path, " is ", value->text, ": must be a whole number of at least ", least));
    }
    out = count;
    return absl::OkStatus();
  }
  void Real(const std::string& path, double& out) {
    double value = 0;
    if (const TomlValue* found = Find(path);
        found != nullptr && absl::SimpleAtod(found->text, &value) && std::isfinite(value)) {
      out = value;
    }
  }

  absl::Status Model() {
    ModelSpec& model = job_.model;
    const std::string name = Text("model.name", "llama3"), flavor = Text("model.flavor", "debugmodel");
    const auto known =
        std::find_if(std::begin(kFlavors), std::end(kFlavors), [&](const Flavor& one) { return flavor == one.name; });
    if (!request_.model.empty()) {
      LYNX_ASSIGN_OR_RETURN(model, ParseModelConfig(request_.model, request_.model_file));
    } else if (const std::string module = Text("experimental.custom_import", ""); !module.empty()) {
      LYNX_RETURN_IF_ERROR(CustomModel(module, flavor));
    } else if (name == "llama3" && known != std::end(kFlavors)) {
      model = {
          .layers = known->layers, .hidden = known->hidden, .heads = known->heads, .ffn = known->ffn, .vocab = known->vocab};
      model.kv_heads = known->kv_heads;
      model.rotary.theta = 500000;
      LlamaScaling(8, 8192);
    } else {
      return Error(absl::StrCat("model.name ", name, " with model.flavor ", flavor,
                                " is not known (llama3 with debugmodel, 8B, 70B or "
                                "405B is); give the model's Hugging Face configuration with --model config.json"));
    }
    if (request_.model.empty()) {
      model.family = ModelFamily::kLlama;
      model.attention = AttentionKernel::kFused;
    }
    model.dropout = 0;
    model.seq = 2048;
    LYNX_RETURN_IF_ERROR(Count("training.seq_len", 1, model.seq));
    const std::string type = Text("training.mixed_precision_param", "bfloat16");
    model.dtype = type == "float32" ? DataType::kFloat32 : DataType::kBfloat16;
    job_.data = {DataKind::kMegatron, "data", ""};
    run_.assumed.push_back("data.path data: torchtitan reads datasets by name; a plan needs none");
    return absl::OkStatus();
  }

  // Only FSDP reduces gradients in a type of its own. torchtitan itself takes float32 alone; programs that extend it take
  // others.
  void Gradients() {
    const std::string type = Text("training.mixed_precision_reduce", "float32");
    const bool sharded = job_.parallel.zero != ZeroStage::kNone;
    if (type != "float32" && sharded && job_.model.dtype == DataType::kBfloat16) {
      job_.model.gradient_dtype = DataType::kBfloat16;
    }
  }

  void LlamaScaling(double factor, int32_t original) {
    RotarySpec& rotary = job_.model.rotary;
    if (factor == 1) return;
    rotary.scaling = RopeScaling::kLlama3;
    rotary.factor = factor;
    rotary.original_seq = original;
  }

  // Reads the Python module that Lynx writes next to an exported configuration. Modules that people write are not read, because
  // they are programs.
  absl::Status CustomModel(const std::string& module, const std::string& flavor) {
    const absl::StatusOr<std::string> text = request_.read(absl::StrCat(request_.folder, "/", module, ".py"));
    const std::string call = absl::StrCat("llama3_args[\"", flavor, "\"] = TransformerModelArgs(");
    const size_t at = text.ok() ? text->find(call) : std::string::npos;
    if (at == std::string::npos) {
      return Error(absl::StrCat("experimental.custom_import ", module, ": the file is not beside this one, or has no ", call,
                                "; give the model's Hugging Face configuration with --model config.json"));
    }
    std::map<std::string, double> numbers;
    for (const absl::string_view line : absl::StrSplit(absl::string_view(*text).substr(at + call.size()), '\n')) {
      const std::vector<std::string> parts = absl::StrSplit(absl::StripAsciiWhitespace(line.substr(0, line.find(','))), '=');
      double value = 0;
      if (parts.size() == 2 && absl::SimpleAtod(parts[1], &value) && std::isfinite(value)) numbers[parts[0]] = value;
    }
    ModelSpec& model = job_.model;
    const auto count = [&](const char* name) {
      const double value = numbers.count(name) > 0 ? numbers[name] : 0;
      return value >= 1 && value < 1e9 ? static_cast<int32_t>(value) : 0;
    };
    model.hidden = count("dim");
    model.layers = count("n_layers");
    model.heads = count("n_heads");
    model.kv_heads = count("n_kv_heads");
    model.vocab = count("vocab_size");
    model.ffn = count("multiple_of");
    if (numbers.count("norm_eps") > 0) model.norm_epsilon = numbers["norm_eps"];
    if (numbers.count("rope_theta") > 0) model.rotary.theta = numbers["rope_theta"];
    if (numbers.count("scaling_factor") > 0) LlamaScaling(numbers["scaling_factor"], count("original_max_position_embeddings"));
    return absl::OkStatus();
  }

  absl::Status Degrees() {
    ParallelSpec& parallel = job_.parallel;
    parallel.tp = parallel.pp = parallel.cp = 1;
    int32_t replicas = 1, shards = -1;
    LYNX_RETURN_IF_ERROR(Count("parallelism.tensor_parallel_degree", 1, parallel.tp));
    LYNX_RETURN_IF_ERROR(Count("parallelism.pipeline_parallel_degree", 1, parallel.pp));
    LYNX_RETURN_IF_ERROR(Count("parallelism.context_parallel_degree", 1, parallel.cp));
    LYNX_RETURN_IF_ERROR(Count("parallelism.data_parallel_replicate_degree", 1, replicas));
    LYNX_RETURN_IF_ERROR(Count("parallelism.data_parallel_shard_degree", -1, shards));
    constexpr int64_t kMaxDevices = 1 << 20;
    int64_t others = 1;
    for (const int32_t degree : {parallel.tp, parallel.pp, parallel.cp, replicas}) {
      others *= degree;
      if (others > kMaxDevices)
        return Error(absl::StrCat("the degrees of parallelism make more than ", kMaxDevices, " devices"));
    }
    if (shards == -1) {
      if (request_.devices == 0) {
        return Error("parallelism.data_parallel_shard_degree is -1, which means all devices that are left; give --devices N");
      }
      shards = static_cast<int32_t>(std::max<int64_t>(request_.devices / others, 1));
    }
    const int64_t devices = others * std::max(shards, 1);
    if (devices > kMaxDevices || (request_.devices > 0 && devices != request_.devices)) {
      return Error(absl::StrCat("the degrees of parallelism make ", devices, " devices, not ", request_.devices));
    }
    run_.devices = static_cast<int32_t>(devices);
    parallel.dp = replicas * std::max(shards, 1);
    job_.resources.min_ranks = job_.resources.max_ranks = run_.devices;
    job_.resources.device = DeviceKind::kCuda;
    Sharding(replicas, std::max(shards, 1));
    return absl::OkStatus();
  }

  // torchtitan takes the ranks that share experts from those of a stage. It can also shard each expert over tp ranks. Here more
  // ranks then hold whole experts, which take the same memory.
  absl::Status Experts() {
    int32_t ep = 1, shards = 1;
    LYNX_RETURN_IF_ERROR(Count("parallelism.expert_parallel_degree", 1, ep));
    LYNX_RETURN_IF_ERROR(Count("parallelism.expert_tensor_parallel_degree", 1, shards));
    const int32_t experts = job_.model.moe.experts;
    ParallelSpec& parallel = job_.parallel;
    if (experts == 0) {
      if (ep > 1)
        run_.not_taken.push_back(absl::StrCat("parallelism.expert_parallel_degree ", ep, ": the model has no experts"));
      return absl::OkStatus();
    }
    if (ep == 1) shards = parallel.tp;
    const int64_t ranks = int64_t{ep} * shards;
    if (ranks > run_.devices || experts % ranks != 0) {
      return Error(absl::StrCat("parallelism.expert_parallel_degree ", ep, ", with each expert on ", shards, " ranks: ", ranks,
                                " ranks do not share ", experts,
                                " whole experts evenly, as a plan wants; correct the degrees"));
    }
    if (shards > 1) {
      run_.not_taken.push_back(absl::StrCat("experts sharded over ", shards,
                                            " ranks by tensor parallelism: planned with whole experts on ", ranks,
                                            " ranks (parallel.ep), which hold as many weights"));
    }
    parallel.ep = static_cast<int32_t>(ranks);
    return absl::OkStatus();
  }

  // Without a pipeline, FSDP frees the gathered weights after the forward pass, and with a pipeline it keeps them, unless the
  // configuration says otherwise.
  void Sharding(int32_t replicas, int32_t shards) {
    ParallelSpec& parallel = job_.parallel;
    const std::string reshard = Text("parallelism.fsdp_reshard_after_forward", "default");
    const bool drops = reshard == "always" || (reshard == "default" && parallel.pp == 1);
    const bool sharded = shards > 1 || parallel.cp > 1;
    parallel.zero = !sharded ? ZeroStage::kNone : drops ? ZeroStage::kWeights : ZeroStage::kGradients;
    if (replicas > 1 && shards > 1) parallel.zero_group = shards;
    parallel.sequence_parallel = parallel.tp > 1 ? Choice::kOn : Choice::kOff;
    parallel.weave = WeaveMode::kOff;
    parallel.rank_order = RankOrder::kTpDpPp;
    parallel.partition = PartitionMethod::kEven;
    parallel.virtual_stages = 1;
  }

  absl::Status Schedule() {
    ParallelSpec& parallel = job_.parallel;
    parallel.schedule = ScheduleKind::kOneForwardOneBackward;
    const std::string schedule = Text("parallelism.pipeline_parallel_schedule", "1F1B");
    const TomlValue* modules = Find("parallelism.module_fqns_per_model_part");
    int32_t each = 0;
    LYNX_RETURN_IF_ERROR(Count("parallelism.pipeline_parallel_layers_per_stage", 1, each));
    int32_t first = 1, last = 1;
    LYNX_RETURN_IF_ERROR(Count("parallelism.pipeline_parallel_first_stage_less_layers", 0, first));
    LYNX_RETURN_IF_ERROR(Count("parallelism.pipeline_parallel_last_stage_less_layers", 0, last));
    if (parallel.pp == 1) return absl::OkStatus();
    const int32_t counted = job_.model.layers + first + last;
    int32_t stages = schedule == "1F1B" || schedule == "GPipe" ? parallel.pp : 2 * parallel.pp;
    if (each > 0) stages = static_cast<int32_t>((int64_t{counted} + each - 1) / each);
    const bool named = modules != nullptr && !modules->lists.empty();
    if (named) stages = static_cast<int32_t>(modules->lists.size());
    if (stages % parallel.pp != 0) {
      return Error(absl::StrCat(stages, " stages are no multiple of parallelism.pipeline_parallel_degree ", parallel.pp));
    }
    parallel.virtual_stages = stages / parallel.pp;
    std::vector<int32_t> layers;
    if (named) {
      layers = LayersOf(*modules);
    } else {
      LYNX_ASSIGN_OR_RETURN(layers, SpreadLayers(stages, first, last));
    }
    Spread(layers, named ? "parallelism.module_fqns_per_model_part" : "torchtitan's split of the layers");
    if (schedule == "GPipe") {
      parallel.schedule = ScheduleKind::kGpipe;
    } else if (schedule == "ZBVZeroBubble") {
      parallel.schedule = ScheduleKind::kZeroBubbleV;
      parallel.virtual_stages = 1;  // the schedule itself gives each rank two chunks
    } else if (parallel.virtual_stages > 1) {
      parallel.schedule = ScheduleKind::kInterleaved;
    }
    if (schedule != "1F1B" && schedule != "GPipe" && schedule != "Interleaved1F1B" && schedule != "ZBVZeroBubble") {
      run_.not_taken.push_back(
          absl::StrCat("parallelism.pipeline_parallel_schedule ", schedule, ": the plan has ", EnumName(parallel.schedule)));
    }
    return absl::OkStatus();
  }

  // Without names, torchtitan counts the embedding as `first` layers and the end of the model as `last`, and gives one layer
  // more to the first stages (generate_llm_fqn_per_model_part of torchtitan/distributed/pipeline_parallel.py, version 0.2.2).
  absl::StatusOr<std::vector<int32_t>> SpreadLayers(int32_t stages, int32_t first, int32_t last) const {
    constexpr int32_t kMaxStages = 1 << 16;
    if (stages < 1 || stages > kMaxStages) {
      return Error(absl::StrCat(job_.model.layers, " layers in ", stages, " stages: from 1 to ", kMaxStages, " are planned"));
    }
    const int32_t counted = job_.model.layers + first + last;
    const int32_t each = counted / stages;
    if (each == 0 || first > each || last > each) {
      return Error(absl::StrCat(job_.model.layers, " layers, with ", first, " for the embedding and ", last,
                                " for the end of the model, are too few for ", stages,
                                " stages; torchtitan refuses them too. Correct the keys parallelism.pipeline_parallel_degree, "
                                "_layers_per_stage, _first_stage_less_layers or _last_stage_less_layers"));
    }
    std::vector<int32_t> layers(static_cast<size_t>(stages), each);
    for (int32_t i = 0; i < counted % stages; ++i) ++layers[static_cast<size_t>(i)];
    layers.front() -= first;
    layers.back() -= last;
    return layers;
  }

  static std::vector<int32_t> LayersOf(const TomlValue& modules) {
    std::vector<int32_t> layers;
    for (const std::string& names : modules.lists) {
      int32_t count = 0;
      for (const absl::string_view name : absl::StrSplit(names, ' ')) count += absl::StartsWith(name, "layers.") ? 1 : 0;
      layers.push_back(count);
    }
    return layers;
  }

  // Sets the number of layers of each stage, if the stages differ in it.
  void Spread(const std::vector<int32_t>& layers, const char* key) {
    if (std::adjacent_find(layers.begin(), layers.end(), std::not_equal_to<>()) == layers.end()) return;
    if (std::find(layers.begin(), layers.end(), 0) == layers.end()) {
      job_.parallel.stage_layers = layers;
      job_.parallel.partition = PartitionMethod::kExact;  // the field's default; stage_layers decides
    } else {
      job_.parallel.partition = PartitionMethod::kExact;
      run_.not_taken.push_back(absl::StrCat(key, ": stages of ", absl::StrJoin(layers, ", "),
                                            " layers; a job has no stages without layers, so the planner spreads them itself "
                                            "(parallel.partition)"));
    }
  }

  // A replica processes local_batch_size samples at a time. With a pipeline, these samples are divided into microbatches.
  absl::Status Batches() {
    TrainSpec& train = job_.train;
    int32_t local = 8, global = -1, micro = 1;
    LYNX_RETURN_IF_ERROR(Count("training.batch_size", 1, local));
    LYNX_RETURN_IF_ERROR(Count("training.local_batch_size", 1, local));
    LYNX_RETURN_IF_ERROR(Count("training.global_batch_size", -1, global));
    LYNX_RETURN_IF_ERROR(Count("parallelism.pipeline_parallel_microbatch_size", 1, micro));
    train.micro_batch = job_.parallel.pp > 1 ? micro : local;
    const int64_t batch = global > 0 ? global : int64_t{local} * job_.parallel.dp;
    if (batch > (1 << 20) || batch % (int64_t{local} * job_.parallel.dp) != 0 || local % train.micro_batch != 0) {
      return Error(absl::StrCat("training.global_batch_size ", batch, " is no multiple of training.local_batch_size ", local,
                                " * ", job_.parallel.dp, " replicas, or these are no multiple of microbatches of ",
                                train.micro_batch));
    }
    train.global_batch = static_cast<int32_t>(batch);
    return absl::OkStatus();
  }

  absl::Status Recomputation() {
    const std::string mode = Text("activation_checkpoint.mode", "selective");
    const std::string option = Text("activation_checkpoint.selective_ac_option", "2");
    if (Find("activation_checkpoint.mode") == nullptr) {
      run_.assumed.push_back("activation_checkpoint.mode selective with selective_ac_option 2: torchtitan's defaults");
    }
    int32_t nth = 0;
    if (mode == "none") {
      job_.recompute = RecomputeMode::kNone;
    } else if (mode == "full" || (mode == "selective" && option == "1")) {
      job_.recompute = RecomputeMode::kFull;
    } else if (mode == "selective" && option == "op") {
      job_.recompute = RecomputeMode::kBalanced;
      if (CheckpointsByOp(ShapeOf(job_.model, {}, 1), run_.traits)) {
        run_.not_taken.push_back(
            "activation_checkpoint.selective_ac_option op: the job recomputes norms and activation functions (balanced), "
            "since Lynx recomputes no part of a tensor; the audit counts torchtitan's rule, which also recomputes every second "
            "matrix product");
      } else {
        run_.not_taken.push_back(
            "activation_checkpoint.selective_ac_option op: counted as recomputing norms and activation functions "
            "(balanced); torchtitan also recomputes every second matrix product");
      }
    } else if (mode == "selective" && absl::SimpleAtoi(option, &nth) && nth >= 1) {
      const int32_t stages = job_.parallel.pp * job_.parallel.virtual_stages;
      const int32_t layers = (job_.model.layers + stages - 1) / stages;
      job_.recompute = RecomputeMode::kNone;
      if (layers < nth) return absl::OkStatus();  // no layer is an nth one
      job_.recompute = RecomputeMode::kBlock;
      job_.recompute_options.layers = layers / nth;
      run_.not_taken.push_back(absl::StrCat("activation_checkpoint.selective_ac_option ", nth,
                                            ": the job recomputes the first ", job_.recompute_options.layers,
                                            " layers of each stage, torchtitan as many, every ", nth, "th"));
    } else {
      return Error(absl::StrCat("activation_checkpoint.mode is ", mode, " with selective_ac_option ", option,
                                ": expected none, full, or selective with a number or op"));
    }
    return absl::OkStatus();
  }

  void Training() {
    TrainSpec& train = job_.train;
    double steps = 10000, warmup = 200, factor = 0;
    Real("training.steps", steps);
    Real("training.max_norm", train.optimizer.clip_norm);
    Real("optimizer.lr", train.optimizer.lr);
    Real("optimizer.beta1", train.optimizer.beta1);
    Real("optimizer.beta2", train.optimizer.beta2);
    Real("optimizer.eps", train.optimizer.eps);
    Real("optimizer.weight_decay", train.optimizer.weight_decay);
    Real("lr_scheduler.warmup_steps", warmup);
    Real("lr_scheduler.min_lr_factor", factor);
    constexpr double kMaxSteps = 1e12;
    train.steps = static_cast<int64_t>(std::clamp(steps, 1.0, kMaxSteps));
    train.warmup_steps = static_cast<int64_t>(std::clamp(warmup, 0.0, static_cast<double>(train.steps)));
    train.min_lr = std::clamp(factor, 0.0, 1.0) * train.optimizer.lr;
    const std::string decay = Text("lr_scheduler.decay_type", "linear");
    if (!ParseEnum(decay, train.schedule)) train.schedule = LrSchedule::kLinear;
    int64_t seed = 0;
    if (const TomlValue* value = Find("debug.seed"); value != nullptr && absl::SimpleAtoi(value->text, &seed)) {
      train.seed = static_cast<uint64_t>(seed);
    }
    const std::string optimizer = Text("optimizer.name", "AdamW");
    if (optimizer != "AdamW" && optimizer != "Adam") {
      run_.not_taken.push_back(absl::StrCat("optimizer.name ", optimizer, ": the plan counts the states of Adam"));
    }
  }

  void Others() {
    for (const auto& [path, value] : values_) {
      if (used_.count(path) > 0) continue;
      const auto missing =
          std::find_if(std::begin(kMissing), std::end(kMissing), [&](const MissingKey& key) { return path == key.path; });
      if (missing != std::end(kMissing)) {
        if (value.text != missing->neutral) run_.not_taken.push_back(absl::StrCat(path, " ", value.text, ": ", missing->why));
        continue;
      }
      const bool other = std::any_of(std::begin(kOthers), std::end(kOthers), [&](const std::string& known) {
        return known.back() == '.' ? absl::StartsWith(path, known) : path == known;
      });
      if (!other) run_.unknown.push_back(absl::StrCat(path, ": ", value.text));
    }
  }

  const ImportRequest& request_;
  ImportedRun run_;
  JobSpec& job_;
  std::map<std::string, TomlValue> values_;
  std::set<std::string> used_;
};

}  // namespace

absl::StatusOr<ImportedRun> ImportTorchtitan(const ImportRequest& request) {
  if (!request.variables.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--set ", request.variables.begin()->first,
                     ": a TOML file has no variables; name a field of the job, such as model.seq"));
  }
  LYNX_ASSIGN_OR_RETURN(const std::vector<TomlValue> values, ParseToml(request.text, request.file));
  return TorchtitanReader(values, request).Run();
}

}  // namespace lynx::cli
