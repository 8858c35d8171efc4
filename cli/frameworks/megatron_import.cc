// Reads runs of Megatron-LM. What the arguments mean, and their defaults, is in megatron_arguments.h; how they depend on each
// other is as in the function validate_args of megatron/training/arguments.py.
#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/frameworks/megatron_experts.h"
#include "cli/frameworks/megatron_import.h"
#include "cli/frameworks/megatron_latent.h"
#include "cli/frameworks/megatron_layout.h"
#include "cli/frameworks/megatron_modules.h"
#include "cli/frameworks/shell_script.h"
#include "common/real_text.h"
#include "common/status.h"

namespace lynx::cli {
namespace {

// The vocabulary of GPT-2's files, which examples of Megatron-LM use (Radford et al. 2019).
constexpr int64_t kGpt2Vocabulary = 50257;
constexpr int32_t kMaxDevices = 1 << 20;

class Converter {
 public:
  Converter(const MegatronArguments& values, const ImportRequest& request, Launch launch, ImportedRun& run)
      : v_(values), request_(request), launch_(std::move(launch)), run_(run), model_(run.job.model), job_(run.job) {}

  absl::Status Run() {
    LYNX_RETURN_IF_ERROR(Program());
    LYNX_RETURN_IF_ERROR(Devices());
    LYNX_RETURN_IF_ERROR(Shape());
    LYNX_RETURN_IF_ERROR(Encoder());
    Layers();
    LYNX_RETURN_IF_ERROR(PositionRows());
    if (model_.family == ModelFamily::kLlama) LYNX_RETURN_IF_ERROR(Rotary());
    LYNX_RETURN_IF_ERROR(Window());
    Dropout();
    LYNX_RETURN_IF_ERROR(TypeAndAttention());
    LYNX_RETURN_IF_ERROR(Vocabulary());
    LYNX_RETURN_IF_ERROR(Stages());
    LYNX_RETURN_IF_ERROR(Replicas());
    LYNX_RETURN_IF_ERROR(ReadMegatronLatent(v_, launch_.place, run_));
    LYNX_RETURN_IF_ERROR(ReadMegatronExperts(v_, launch_.place, run_));
    LYNX_RETURN_IF_ERROR(Recomputation());
    LYNX_RETURN_IF_ERROR(Batches());
    Training();
    Files();
    return absl::OkStatus();
  }

 private:
  absl::Status Error(const std::string& why) const {
    return absl::InvalidArgumentError(absl::StrCat(launch_.place, ": ", why));
  }
  void Miss(const std::string& text) { run_.not_taken.push_back(text); }
  void Assume(const std::string& text) { run_.assumed.push_back(text); }

  // Reads a count, which must be above zero.
  absl::Status Need(const char* flag, const MegatronArguments::Count& value, int32_t& out) const {
    if (!value) return Error(absl::StrCat(flag, " is missing; it is required"));
    return Fits(flag, *value, out);
  }
  absl::Status Optional(const char* flag, const MegatronArguments::Count& value, int32_t& out) const {
    return value ? Fits(flag, *value, out) : absl::OkStatus();
  }
  absl::Status Fits(const char* flag, int64_t value, int32_t& out) const {
    constexpr int64_t kMaxCount = 1 << 30;
    if (value < 1 || value > kMaxCount) {
      return Error(absl::StrCat(flag, " is ", value, ": must be from 1 to ", kMaxCount));
    }
    out = static_cast<int32_t>(value);
    return absl::OkStatus();
  }

  // Refuses programs of Megatron-LM for models that neither pretrain_gpt.py nor pretrain_bert.py can train.
  absl::Status Program() const {
    for (const char* other : {"t5", "ict", "retro", "vision", "mamba", "hybrid", "vlm"}) {
      if (absl::StrContains(launch_.program, absl::StrCat("_", other))) {
        return Error(absl::StrCat(
            launch_.program,
            " trains other models than pretrain_gpt.py and pretrain_bert.py; only those of these two are planned"));
      }
    }
    return absl::OkStatus();
  }

  absl::Status Devices() {
    ParallelSpec& parallel = job_.parallel;
    parallel.tp = parallel.pp = parallel.cp = 1;
    LYNX_RETURN_IF_ERROR(Optional("--tensor-model-parallel-size", v_.tp, parallel.tp));
    LYNX_RETURN_IF_ERROR(Optional("--pipeline-model-parallel-size", v_.pp, parallel.pp));
    LYNX_RETURN_IF_ERROR(Optional("--context-parallel-size", v_.cp, parallel.cp));
    if (launch_.devices == 0) {
      return Error("neither the command nor the file says on how many devices the run is; give --devices N");
    }
    // With this limit for each size, their product below cannot overflow.
    for (const int32_t size : {parallel.tp, parallel.pp, parallel.cp}) {
      if (size > kMaxDevices) return Error(absl::StrCat("a parallel size of ", size, ": must be at most ", kMaxDevices));
    }
    const int64_t model_ranks = int64_t{parallel.tp} * parallel.pp * parallel.cp;
    if (launch_.devices % model_ranks != 0) {
      return Error(absl::StrCat(launch_.devices, " devices are no multiple of tp ", parallel.tp, " * pp ", parallel.pp,
                                " * cp ", parallel.cp, "; correct the sizes, or give --devices N"));
    }
    run_.devices = launch_.devices;
    parallel.dp = static_cast<int32_t>(launch_.devices / model_ranks);
    job_.resources.min_ranks = job_.resources.max_ranks = launch_.devices;
    job_.resources.device = DeviceKind::kCuda;
    return absl::OkStatus();
  }

  // pretrain_bert.py trains encoders with a head for masked tokens, and another one that tells whether two texts follow each
  // other.
  absl::Status Encoder() {
    if (!absl::StrContains(launch_.program, "_bert")) return absl::OkStatus();
    if (v_.swiglu) return Error("--swiglu: encoders are planned with GELU only; leave it out");
    model_.plan_only |= Bit(PlanOnlyFeature::kEncoder);
    if (!v_.no_binary_head) {
      Miss("no --bert-no-binary-head: the head that tells whether two texts follow each other is not planned");
    }
    return absl::OkStatus();
  }

  absl::Status Shape() {
    model_.family = v_.swiglu ? ModelFamily::kLlama : ModelFamily::kGpt;
    LYNX_RETURN_IF_ERROR(Need("--num-layers", v_.layers, model_.layers));
    LYNX_RETURN_IF_ERROR(Need("--hidden-size", v_.hidden, model_.hidden));
    LYNX_RETURN_IF_ERROR(Need("--num-attention-heads", v_.heads, model_.heads));
    LYNX_RETURN_IF_ERROR(Need("--seq-length", v_.seq, model_.seq));
    const int64_t hidden = model_.hidden;
    model_.ffn = static_cast<int32_t>(v_.swiglu ? 4 * hidden * 2 / 3 / 64 * 64 : 4 * hidden);
    LYNX_RETURN_IF_ERROR(Optional("--ffn-hidden-size", v_.ffn, model_.ffn));
    LYNX_RETURN_IF_ERROR(Optional("--kv-channels", v_.kv_channels, model_.head_dim));
    if (v_.grouped) {
      model_.kv_heads = 1;
      LYNX_RETURN_IF_ERROR(Optional("--num-query-groups", v_.groups, model_.kv_heads));
    } else if (v_.groups) {
      Miss(absl::StrCat("--num-query-groups ", *v_.groups,
                        ": Megatron-LM ignores it without --group-query-attention, and so does the job"));
    }
    model_.tied_embeddings = !v_.untied;
    if (v_.norm_epsilon) model_.norm_epsilon = *v_.norm_epsilon;
    return absl::OkStatus();
  }

  std::string Positions() const {
    if (v_.positions) return *v_.positions;
    return v_.old_rotary ? "rope" : v_.no_positions ? "none" : "learned_absolute";
  }

  // Reads norms, biases, positions and the activation function. Lynx plans two kinds of layers: gated ones with RMSNorm, rotary
  // positions and no biases; and others with LayerNorm, learned positions and biases. Differences are noted in plan_only.
  void Layers() {
    const std::string positions = Positions(), norm = v_.normalization.value_or("LayerNorm");
    const bool rotary = positions == "rope" || positions == "yarn";
    const bool other = !rotary && positions != "learned_absolute";
    if (other) model_.plan_only |= Bit(PlanOnlyFeature::kOtherPositions);
    if (v_.norm_offset) model_.plan_only |= Bit(PlanOnlyFeature::kNormOffset);
    if (v_.squared_relu) model_.plan_only |= Bit(PlanOnlyFeature::kOtherActivation);
    if (model_.family == ModelFamily::kLlama) {
      if (norm == "LayerNorm") model_.plan_only |= Bit(PlanOnlyFeature::kLayerNorm);
      if (!v_.no_bias) model_.plan_only |= Bit(PlanOnlyFeature::kLinearBiases);
      if (positions == "learned_absolute") {
        Miss(
            "--position-embedding-type learned_absolute: layers with --swiglu are planned with rotary positions, without the "
            "table of positions");
      }
      model_.qkv_bias = v_.qkv_bias;
      model_.qk_norm = v_.qk_norm;
      return;
    }
    if (norm != "LayerNorm")
      Miss(absl::StrCat("--normalization ", norm, ": layers without --swiglu are planned with LayerNorm"));
    if (rotary) model_.plan_only |= Bit(PlanOnlyFeature::kRotaryWithLayerNorm);
    if (v_.no_bias) Miss("--disable-bias-linear: layers without --swiglu are planned with biases");
    if (v_.qk_norm) Miss("--qk-layernorm: layers without --swiglu are planned without norms of queries and keys");
  }

  // Every rank of the first stage has the whole table of learned positions.
  absl::Status PositionRows() {
    if (model_.family != ModelFamily::kGpt || Positions() != "learned_absolute") return absl::OkStatus();
    int32_t rows = model_.seq;
    LYNX_RETURN_IF_ERROR(Optional("--max-position-embeddings", v_.max_positions, rows));
    const int64_t more = int64_t{rows} - model_.seq;
    if (more == 0) return absl::OkStatus();
    Miss(absl::StrCat("--max-position-embeddings ", rows, ": the plan counts a table of positions of model.seq ", model_.seq,
                      " rows; each rank of the first stage has ", std::abs(more) * model_.hidden, " parameters ",
                      more > 0 ? "more" : "less"));
    return absl::OkStatus();
  }

  absl::Status Rotary() {
    RotarySpec& rotary = model_.rotary;
    if (v_.rotary_base) rotary.theta = *v_.rotary_base;
    if (v_.rotary_percent && *v_.rotary_percent != 1) {
      if (!(*v_.rotary_percent > 0 && *v_.rotary_percent < 1)) {
        return Error(absl::StrCat("--rotary-percent is ", RealText(*v_.rotary_percent), ": must be above 0 and at most 1"));
      }
      rotary.dims = static_cast<int32_t>(std::lround(model_.head_size() * *v_.rotary_percent));
    }
    if (Positions() == "yarn") model_.plan_only |= Bit(PlanOnlyFeature::kOtherRopeScaling);
    if (v_.rope_scaling) {
      // The scaling of rotary frequencies of Llama 3.1. Its parameters are constants in Megatron-LM.
      rotary.scaling = RopeScaling::kLlama3;
      rotary.factor = v_.rope_factor.value_or(8);
      rotary.original_seq = 8192;
    } else if (v_.rotary_interpolation) {
      rotary.scaling = RopeScaling::kLinear;
      rotary.factor = static_cast<double>(*v_.rotary_interpolation);
    }
    return absl::OkStatus();
  }

  // --window-size is a pair: how many positions a token sees before and after its own position. -1: all positions.
  absl::Status Window() {
    if (!v_.window) return absl::OkStatus();
    std::string left = v_.window->substr(0, v_.window->find(','));
    left.erase(std::remove(left.begin(), left.end(), '('), left.end());
    int64_t positions = 0;
    if (!absl::SimpleAtoi(left, &positions) || positions < -1 || positions > (1 << 30)) {
      return Error(absl::StrCat("--window-size is '", *v_.window, "': expected two numbers such as 4096,0"));
    }
    if (positions == -1) return absl::OkStatus();
    if (model_.family == ModelFamily::kGpt) {
      Miss("--window-size: layers without --swiglu are planned with attention to all positions");
    } else {
      model_.window = static_cast<int32_t>(positions) + 1;
    }
    return absl::OkStatus();
  }

  void Dropout() {
    const double attention = v_.attention_dropout.value_or(0.1), hidden = v_.hidden_dropout.value_or(0.1);
    if (model_.family == ModelFamily::kLlama) {
      model_.dropout = 0;
      const auto said = [&](const char* flag, const MegatronArguments::Real& given, double rate) {
        if (rate == 0) return;
        Miss(absl::StrCat(flag, " ", RealText(rate), given ? "" : ", Megatron-LM's default",
                          ": layers with --swiglu are planned without dropout and its masks"));
      };
      said("--attention-dropout", v_.attention_dropout, attention);
      said("--hidden-dropout", v_.hidden_dropout, hidden);
      return;
    }
    model_.dropout = hidden;
    model_.dropout_masks = DropoutMasks::kStored;
    if (attention != hidden) {
      Miss(absl::StrCat("--attention-dropout ", RealText(attention), ": a model has one rate, taken from --hidden-dropout ",
                        RealText(hidden)));
    }
  }

  absl::Status TypeAndAttention() {
    model_.dtype = v_.bf16 || v_.fp16 ? DataType::kBfloat16 : DataType::kFloat32;
    if (v_.fp16) Miss("--fp16: planned as bfloat16, which has as many bits; there is no loss scaling");
    if (GradientsInSixteenBits()) model_.gradient_dtype = DataType::kBfloat16;
    LYNX_RETURN_IF_ERROR(NarrowProducts());
    if (v_.attention_backend) {
      const std::string& backend = *v_.attention_backend;
      const bool unfused = absl::StrContains(backend, "unfused") || absl::StrContains(backend, "local");
      model_.attention = unfused ? AttentionKernel::kUnfused : AttentionKernel::kFused;
    } else if (v_.flash) {
      model_.attention = AttentionKernel::kFused;
    } else if (v_.local || v_.transformer_impl == std::optional<std::string>("local")) {
      model_.attention = AttentionKernel::kUnfused;
    } else {
      const bool half = model_.dtype == DataType::kBfloat16;
      model_.attention = half ? AttentionKernel::kFused : AttentionKernel::kUnfused;
      Assume(
          absl::StrCat("model.attention ", EnumName(model_.attention), ": no --attention-backend is given, and auto is ",
                       half ? "fused in 16 bits (before Megatron Core 0.9, only --use-flash-attn was)" : "unfused in 32 bits"));
    }
    return absl::OkStatus();
  }

  // Products in 8 or 4 bits. Recipes differ in their scales: mxfp8 has one scale for 32 elements and nvfp4 one for 16, and both
  // move the scales with the elements.
  absl::Status NarrowProducts() {
    if (v_.fp4_format) {
      if (*v_.fp4_format != "e2m1") return Error(absl::StrCat("--fp4-format is '", *v_.fp4_format, "': expected e2m1"));
      if (v_.fp8_format || v_.fp8_hybrid || v_.fp8_e4m3) {
        return Error("--fp4-format and --fp8-format exclude each other; leave one out");
      }
      model_.matmul_type = MatmulType::kNvfp4;
      const std::string recipe = v_.fp4_recipe.value_or("nvfp4");
      if (recipe != "nvfp4") Miss(absl::StrCat("--fp4-recipe ", recipe, ": products are counted as model.matmulType nvfp4"));
      return absl::OkStatus();
    }
    EightBits();
    return absl::OkStatus();
  }

  // Gradients of bfloat16 models are summed in 32 bits unless a flag says otherwise, those of fp16 models only if a flag says
  // so (validate_args; get_model of megatron/training/training.py).
  bool GradientsInSixteenBits() const {
    if (v_.bf16) return v_.reduces_in_bf16 || (!v_.sums_in_fp32 && v_.main_gradients.value_or("fp32") != "fp32");
    return v_.fp16 && !v_.sums_in_fp32;
  }

  void EightBits() {
    if (!v_.fp8_format && !v_.fp8_hybrid && !v_.fp8_e4m3) return;
    const std::string recipe = v_.fp8_recipe.value_or("delayed");
    model_.matmul_type = recipe == "mxfp8" ? MatmulType::kMxfp8 : MatmulType::kFloat8;
    if (recipe != "mxfp8" && recipe != "delayed" && recipe != "tensorwise") {
      Miss(absl::StrCat("--fp8-recipe ", recipe,
                        ": products are counted as model.matmulType float8, with one scale for a tensor"));
    }
  }

  // The size of the vocabulary is rounded up to a multiple of --make-vocab-size-divisible-by times tp.
  absl::Status Vocabulary() {
    const bool given = std::any_of(request_.overrides.begin(), request_.overrides.end(),
                                   [](const std::string& text) { return absl::StartsWith(text, "model.vocab="); });
    if (given) return absl::OkStatus();
    int64_t vocab = kGpt2Vocabulary;
    const std::string tokenizer = v_.tokenizer.value_or("");
    if (v_.vocab) {
      vocab = *v_.vocab;
    } else if (tokenizer.empty() || tokenizer == "GPT2BPETokenizer") {
      Assume(absl::StrCat("--vocab-size ", vocab, ": the vocabulary of GPT-2's files; --set model.vocab=N says another"));
    } else {
      return Error(absl::StrCat("--vocab-size is missing, for the files of ", tokenizer, " say it; give --set model.vocab=N"));
    }
    int32_t divisor = 128;
    LYNX_RETURN_IF_ERROR(Optional("--make-vocab-size-divisible-by", v_.vocab_multiple, divisor));
    const int64_t multiple = int64_t{divisor} * job_.parallel.tp;
    const auto padded = [&](int64_t size) { return (size + multiple - 1) / multiple * multiple; };
    if (tokenizer == "NullTokenizer" && padded(vocab) != padded(vocab + 1)) {
      // Up to Megatron Core 0.17, NullTokenizer adds a token that ends documents.
      const bool adds = absl::StrContains(request_.text, "Written for Megatron Core 0.16") ||
                        absl::StrContains(request_.text, "Written for Megatron Core 0.17");
      if (adds) ++vocab;
      if (!absl::StrContains(request_.text, "Written for Megatron Core")) {
        Assume(absl::StrCat("a vocabulary of ", padded(vocab),
                            ": up to Megatron Core 0.17, NullTokenizer adds one token, which ", "makes ", padded(vocab + 1)));
      }
    }
    return Fits("--vocab-size", padded(vocab), model_.vocab);
  }

  absl::Status Stages() {
    ParallelSpec& parallel = job_.parallel;
    parallel.weave = WeaveMode::kOff;
    parallel.partition = PartitionMethod::kEven;
    parallel.sequence_parallel = v_.sequence_parallel && parallel.tp > 1 ? Choice::kOn : Choice::kOff;
    parallel.rank_order = v_.replica_order ? RankOrder::kTpPpDp : RankOrder::kTpDpPp;
    parallel.virtual_stages = 1;
    if (v_.layout) {
      LYNX_RETURN_IF_ERROR(Layout());
    } else if (v_.virtual_stages) {
      LYNX_RETURN_IF_ERROR(Fits("--num-virtual-stages-per-pipeline-rank", *v_.virtual_stages, parallel.virtual_stages));
    } else if (v_.layers_per_virtual) {
      int32_t each = 1;
      LYNX_RETURN_IF_ERROR(Fits("--num-layers-per-virtual-pipeline-stage", *v_.layers_per_virtual, each));
      // If their flags are given, the embedding and the loss count as one layer each.
      const int64_t counted = int64_t{model_.layers} + (v_.embedding_counts ? 1 : 0) + (v_.loss_counts ? 1 : 0);
      if (counted % (int64_t{each} * parallel.pp) != 0) {
        return Error(absl::StrCat("--num-layers ", model_.layers,
                                  counted > model_.layers ? ", with the embedding and the loss as far as they count," : "",
                                  " is no multiple of pp ", parallel.pp, " * --num-layers-per-virtual-pipeline-stage ", each));
      }
      parallel.virtual_stages = static_cast<int32_t>(counted / parallel.pp / each);
    }
    const bool interleaved = parallel.pp > 1 && parallel.virtual_stages > 1;
    if (!interleaved) parallel.virtual_stages = 1;
    parallel.schedule = interleaved ? ScheduleKind::kInterleaved : ScheduleKind::kOneForwardOneBackward;
    if (!v_.layout) LYNX_RETURN_IF_ERROR(Ends());
    return absl::OkStatus();
  }

  // Sets the number of layers of each stage, if the stages differ in it.
  void Spread(const std::vector<int32_t>& layers, const char* flag) {
    ParallelSpec& parallel = job_.parallel;
    if (std::adjacent_find(layers.begin(), layers.end(), std::not_equal_to<>()) == layers.end()) return;
    if (std::find(layers.begin(), layers.end(), 0) == layers.end()) {
      parallel.stage_layers = layers;
      parallel.partition = PartitionMethod::kExact;  // the field's default; stage_layers decides
      return;
    }
    parallel.partition = PartitionMethod::kExact;
    Miss(absl::StrCat(flag, ": stages of ", absl::StrJoin(layers, ", "),
                      " layers; a job has no stages without layers, so the planner spreads them itself (parallel.partition)"));
  }

  // The first and the last stage may have their own numbers of layers, or one layer less because they have the embedding or
  // loss.
  absl::Status Ends() {
    ParallelSpec& parallel = job_.parallel;
    const bool counts = v_.embedding_counts || v_.loss_counts;
    if ((!v_.first_layers && !v_.last_layers && !counts) || parallel.pp == 1) return absl::OkStatus();
    if (parallel.virtual_stages > 1 && (v_.first_layers || v_.last_layers)) {
      Miss(
          "--decoder-first-pipeline-num-layers, --decoder-last-pipeline-num-layers, --account-for-embedding-in-pipeline-split "
          "or "
          "--account-for-loss-in-pipeline-split: beside virtual stages they are not read; stages have the same number of "
          "layers");
      return absl::OkStatus();
    }
    const int64_t first = v_.first_layers.value_or(0), last = v_.last_layers.value_or(0);
    const int64_t all = int64_t{parallel.pp} * parallel.virtual_stages;
    const int64_t stages = all - (v_.first_layers ? 1 : 0) - (v_.last_layers ? 1 : 0);
    const int64_t rest = model_.layers - first - last + (v_.embedding_counts ? 1 : 0) + (v_.loss_counts ? 1 : 0);
    if (rest < 0 || (stages == 0 ? rest != 0 : rest % stages != 0)) {
      return Error(absl::StrCat("--num-layers ", model_.layers, " cannot be spread over ", all,
                                " stages with these numbers of layers of the first and the last stage"));
    }
    std::vector<int32_t> layers(static_cast<size_t>(all), static_cast<int32_t>(stages == 0 ? 0 : rest / stages));
    if (v_.first_layers) layers.front() = static_cast<int32_t>(first);
    if (v_.last_layers) layers.back() = static_cast<int32_t>(last);
    if (v_.embedding_counts) --layers.front();
    if (v_.loss_counts) --layers.back();
    Spread(layers, counts ? "--account-for-embedding-in-pipeline-split or --account-for-loss-in-pipeline-split"
                          : "--decoder-first-pipeline-num-layers");
    return absl::OkStatus();
  }

  absl::Status Layout() {
    ParallelSpec& parallel = job_.parallel;
    const absl::StatusOr<std::vector<int32_t>> layers = LayersOfLayout(*v_.layout);
    if (!layers.ok()) return Error(absl::StrCat("--pipeline-model-parallel-layout is ", layers.status().message()));
    int64_t sum = 0;
    for (const int32_t count : *layers) sum += count;
    if (sum != model_.layers || layers->size() % static_cast<size_t>(parallel.pp) != 0) {
      return Error(absl::StrCat("--pipeline-model-parallel-layout has ", sum, " layers in ", layers->size(),
                                " stages: expected --num-layers ", model_.layers, " in a multiple of pp ", parallel.pp));
    }
    parallel.virtual_stages = static_cast<int32_t>(layers->size()) / parallel.pp;
    Spread(*layers, "--pipeline-model-parallel-layout");
    return absl::OkStatus();
  }

  absl::Status Replicas() {
    ZeroStage& zero = job_.parallel.zero;
    zero = v_.distributed_optimizer ? ZeroStage::kOptimizer : ZeroStage::kNone;
    if (v_.fsdp) {
      const std::string shards = v_.shards.value_or("optim_grads_params");
      if (shards == "optim_grads_params") {
        zero = ZeroStage::kWeights;
      } else if (shards == "optim_grads") {
        zero = ZeroStage::kGradients;
      } else if (shards == "optim") {
        zero = ZeroStage::kOptimizer;
      } else if (shards == "no_shard") {
        zero = ZeroStage::kNone;
      } else {
        return Error(absl::StrCat("--data-parallel-sharding-strategy is '", shards,
                                  "': expected no_shard, optim, optim_grads or optim_grads_params"));
      }
    }
    if (job_.parallel.dp * job_.parallel.cp == 1) zero = ZeroStage::kNone;
    int32_t instances = 1;
    LYNX_RETURN_IF_ERROR(Optional("--num-distributed-optimizer-instances", v_.instances, instances));
    if (instances > 1 && zero != ZeroStage::kNone) {
      if (job_.parallel.dp % instances != 0) {
        return Error(
            absl::StrCat("--num-distributed-optimizer-instances ", instances, " does not divide dp ", job_.parallel.dp));
      }
      job_.parallel.zero_group = job_.parallel.dp / instances;
      if (job_.parallel.zero_group == 1) {  // each replica holds all optimizer states
        job_.parallel.zero_group = 0;
        zero = ZeroStage::kNone;
      }
    }
    // Megatron-FSDP always overlaps its transfers, without a flag.
    run_.traits = TraitsOf(run_.framework);
    run_.traits.overlaps_data_reduction = v_.overlap_reduce || v_.fsdp;
    run_.traits.hides_weight_gather = v_.overlap_gather || v_.fsdp;
    run_.traits.rank_order = job_.parallel.rank_order;
    if (v_.local || v_.transformer_impl == std::optional<std::string>("local")) run_.traits.fuses_norms = false;
    return absl::OkStatus();
  }

  absl::Status Recomputation() {
    job_.recompute = RecomputeMode::kNone;
    const bool selective = v_.recompute_activations || v_.moe_recompute;
    const std::string granularity = v_.granularity.value_or(selective ? "selective" : "");
    if (granularity == "selective") return ReadMegatronModules(v_, launch_.place, run_);
    if (granularity.empty()) return absl::OkStatus();
    if (granularity != "full") {
      return Error(absl::StrCat("--recompute-granularity is '", granularity, "': expected full or selective"));
    }
    const std::string method = v_.method.value_or("uniform");
    int32_t layers = 1;
    LYNX_RETURN_IF_ERROR(Optional("--recompute-num-layers", v_.recompute_layers, layers));
    if (method == "block") {
      job_.recompute = RecomputeMode::kBlock;
    } else if (method == "uniform") {
      job_.recompute = layers == 1 ? RecomputeMode::kFull : RecomputeMode::kUniform;
    } else {
      return Error(absl::StrCat("--recompute-method is '", method, "': expected uniform or block"));
    }
    if (job_.recompute != RecomputeMode::kFull) job_.recompute_options.layers = layers;
    return absl::OkStatus();
  }

  absl::Status Batches() {
    TrainSpec& train = job_.train;
    LYNX_RETURN_IF_ERROR(Need("--micro-batch-size", v_.micro_batch, train.micro_batch));
    const int64_t replicas = int64_t{train.micro_batch} * job_.parallel.dp;
    LYNX_RETURN_IF_ERROR(Fits("--global-batch-size", v_.global_batch.value_or(replicas), train.global_batch));
    if (train.global_batch % replicas != 0) {
      return Error(absl::StrCat("--global-batch-size ", train.global_batch, " is no multiple of --micro-batch-size ",
                                train.micro_batch, " * dp ", job_.parallel.dp, "; is the number of devices (", run_.devices,
                                ") right?"));
    }
    return absl::OkStatus();
  }

  void Training() {
    TrainSpec& train = job_.train;
    train.steps = v_.steps.value_or(v_.samples.value_or(0) / train.global_batch);
    if (train.steps < 1) {
      train.steps = 1;
      Assume("train.steps 1: neither --train-iters nor --train-samples says how long to train");
    }
    OptimizerSpec& optimizer = train.optimizer;
    optimizer.lr = v_.lr.value_or(optimizer.lr);
    optimizer.beta1 = v_.beta1.value_or(0.9);
    optimizer.beta2 = v_.beta2.value_or(0.999);
    optimizer.eps = v_.eps.value_or(1e-8);
    optimizer.weight_decay = v_.weight_decay.value_or(0.01);
    optimizer.clip_norm = v_.clip_grad.value_or(1);
    train.min_lr = std::min(v_.min_lr.value_or(0), optimizer.lr);
    const std::string style = v_.decay_style.value_or("linear");
    if (!ParseEnum(style, train.schedule)) Miss(absl::StrCat("--lr-decay-style ", style, ": the job has cosine"));
    double warmup = static_cast<double>(v_.warmup_steps.value_or(v_.warmup_samples.value_or(0) / train.global_batch));
    if (v_.warmup_fraction) warmup = *v_.warmup_fraction * static_cast<double>(train.steps);
    train.warmup_steps = static_cast<int64_t>(std::clamp(warmup, 0.0, static_cast<double>(train.steps)));
    if (v_.seed) train.seed = static_cast<uint64_t>(*v_.seed);
    if (v_.optimizer && *v_.optimizer != "adam" && *v_.optimizer != "adamw") {
      Miss(absl::StrCat("--optimizer ", *v_.optimizer, ": the plan counts the states of Adam"));
    }
  }

  // Data and checkpoints. A plan reads none of these files.
  void Files() {
    job_.data.kind = DataKind::kMegatron;
    job_.data.path = "data";
    if (v_.data_path.size() == 1 && !HasUnknown(v_.data_path[0])) {
      job_.data.path = v_.data_path[0];
    } else if (v_.data_path.size() > 1) {
      Miss("--data-path: a blend of several; a job has one data.path, here a name that stands for it");
    } else {
      Assume("data.path data: the arguments name no file; a plan needs none");
    }
    job_.checkpoint.every_steps = v_.save_interval.value_or(0);
    if (v_.save && !HasUnknown(*v_.save)) job_.checkpoint.directory = *v_.save;
  }

  const MegatronArguments& v_;
  const ImportRequest& request_;
  const Launch launch_;
  ImportedRun& run_;
  ModelSpec& model_;
  JobSpec& job_;
};

}  // namespace

absl::Status JobOfMegatron(const ReadMegatronArguments& read, const ImportRequest& request, const Launch& launch,
                           ImportedRun& run) {
  run.not_taken = read.not_taken;
  run.unknown = read.unknown;
  if (!read.unset.empty()) {
    run.assumed.push_back(
        absl::StrCat("these variables, which the script does not set, are one value each, without effect on a "
                     "plan: ",
                     absl::StrJoin(read.unset, ", ")));
  }
  return Converter(read.values, request, launch, run).Run();
}

absl::StatusOr<ImportedRun> ImportMegatron(const ImportRequest& request) {
  LYNX_ASSIGN_OR_RETURN(const ShellScript script, ReadShellScript(request.text, request.file, request.variables));
  LYNX_ASSIGN_OR_RETURN(const Launch launch, FindLaunch(script, request.text, request.file, "--num-layers", request.devices));
  LYNX_ASSIGN_OR_RETURN(const ReadMegatronArguments read, ReadArguments(launch.arguments, launch.place));
  ImportedRun run;
  run.framework = Framework::kMegatron;
  LYNX_RETURN_IF_ERROR(JobOfMegatron(read, request, launch, run));
  for (const std::string& name : script.sourced) {
    run.assumed.push_back(absl::StrCat(name, " is not read; it may set variables (give them with --set NAME=VALUE)"));
  }
  LYNX_RETURN_IF_ERROR(FinishImport(request, run));
  return run;
}

}  // namespace lynx::cli
