#include "tests/validation/published_run.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/check.h"
#include "planner/problem/flops.h"
#include "tests/validation/mixture_recipe.h"

namespace lynx::validation {
namespace {

constexpr double kGigabyte = 1e9;
constexpr double kTera = 1e12;

// What is known about all runs of one publication. A row belongs to the first Publication whose `framework` and `gpu` are the
// beginnings of the row's columns "framework" and "gpu".
struct Publication {
  const char* framework;
  const char* gpu;
  const char* name;  // in docs/validation.md
  Framework traits_of;
  // The runs are older than the traits: Megatron-LM before overlapped reductions, with unfused attention and dropout.
  bool before_2023 = false;
  double network_gbits_of_node = 0;
  int32_t adapters = 0;
  // The value that was fitted for FrameworkTraits::attention_permille of the kernel that ran; 0: use the value of the traits.
  int32_t attention_permille = 0;
  bool no_accumulation = false;  // if no batch is published, a replica has one microbatch
  // The recipes run the distributed optimizer (ZeRO-1), although the publication does not say so. The recipes of mixtures are
  // model_configs/benchmarking/*.yaml of Megatron-MoE-ModelZoo.
  bool distributed_optimizer = false;
};

constexpr Publication kPublications[] = {
    {"megatron-deepspeed", "A100 (one node)", "vTrain, one node", Framework::kMegatronDeepspeed, true},
    {"megatron-deepspeed", "", "vTrain, several nodes", Framework::kMegatronDeepspeed, true, 800, 8},
    {"llm-foundry", "A100-80GB", "llm-foundry, A100 80GB", Framework::kFsdp, false, 1600, 8, kOldAttentionOnA100},
    {"llm-foundry", "", "llm-foundry, H100", Framework::kFsdp, false, 0, 0, kOldAttentionOnH100},
    {"internevo", "", "InternEvo", Framework::kInternevo, false, 400, 4, kOldAttentionOnA100},
    {"megatron-lm 0.14", "", "Megatron-LM, B200 (SimuMax)", Framework::kMegatron},
    {"megatron-lm dev", "", "Megatron-LM, mixtures", Framework::kMegatron},
    {"megatron-lm CI", "", "Megatron-LM, 7B in its CI", Framework::kMegatron},
    {"megatron-lm", "V100", "Megatron-LM README 2020", Framework::kMegatron, true},
    {"megatron-lm", "A100-40GB", "Megatron-LM README 2020", Framework::kMegatron, true},
    {"megatron-lm", "A100-80GB", "Megatron-LM README 2021", Framework::kMegatron, true},
    {.framework = "megatron-lm",
     .gpu = "",
     .name = "Megatron-LM, Llama 3",
     .traits_of = Framework::kMegatron,
     .distributed_optimizer = true},
    {.framework = "megatron-core dev",
     .gpu = "",
     .name = "Megatron-LM, mixtures",
     .traits_of = Framework::kMegatron,
     .distributed_optimizer = true},
    {"megatron-core", "", "Megatron-LM README 2024", Framework::kMegatron},
    {.framework = "megatron-bridge",
     .gpu = "",
     .name = "Megatron-Bridge",
     .traits_of = Framework::kNemo,
     .distributed_optimizer = true},
    {"nemo-megatron", "", "NeMo 2023", Framework::kNemo},
    {"nemo-automodel", "", "NeMo Automodel", Framework::kFsdp},
    {.framework = "nemo", .gpu = "", .name = "NeMo", .traits_of = Framework::kNemo, .distributed_optimizer = true},
    {"torchtitan", "", "torchtitan", Framework::kTorchtitan, false, 0, 0, 0, true},
    {.framework = "MLPerf", .gpu = "", .name = "MLPerf", .traits_of = Framework::kNemo, .distributed_optimizer = true},
    {"pax", "", "JAX (Pax, MaxText)", Framework::kLynx},
    {"maxtext", "", "JAX (Pax, MaxText)", Framework::kLynx},
    {"aceso", "", "Aceso and Megatron-LM (Mist)", Framework::kMegatron, true},
    {"megatron (Mist", "", "Aceso and Megatron-LM (Mist)", Framework::kMegatron, true},
    {"primus", "", "Primus (AMD)", Framework::kMegatron},
};

const Publication& PublicationOf(const Row& row) {
  for (const Publication& one : kPublications) {
    if (absl::StartsWith(row.at("framework"), one.framework) && absl::StartsWith(row.at("gpu"), one.gpu)) return one;
  }
  LYNX_CHECK(!"a published run has a framework that kPublications does not have");
  return kPublications[0];
}

struct Machine {
  const char* gpu;
  const char* cluster;
};
constexpr Machine kMachines[] = {
    {"A100 (one node)", "a100-80gb-nvlink"},
    {"A100-80GB", "a100-80gb-nvlink"},
    {"A100", "a100-80gb-nvlink"},
    {"H100-SXM", "h100"},
    {"H100", "h100"},
    {"H200", "h200"},
    {"V100-32GB", "v100-dgx2"},
    {"A100-40GB", "a100-40gb-nvlink"},
    {"B200", "b200"},
    {"B300", "b300"},
    {"GB200", "gb200"},
    {"GB300", "gb300"},
    {"L4-24GB", "l4"},
    {"A10G-24GB", "a10g"},
    {"MI300X", "mi300x"},
    {"MI325X", "mi325x"},
    {"MI355X", "mi355x"},
};

std::string ClusterOf(const std::string& gpu) {
  for (const Machine& machine : kMachines) {
    if (gpu == machine.gpu) return machine.cluster;
  }
  return "";
}

// The number in a column; nullopt if it is empty.
std::optional<double> Maybe(const Row& row, const char* column) {
  const std::string& text = row.at(column);
  double number = 0;
  if (text.empty()) return std::nullopt;
  LYNX_CHECK(absl::SimpleAtod(text, &number));
  return number;
}

int32_t Or(const Row& row, const char* column, int32_t absent) {
  return static_cast<int32_t>(Maybe(row, column).value_or(absent));
}

// The experts of a model. The rows do not describe them, so this is taken from the model's config.json on Hugging Face.
struct Mixture {
  const char* model;  // the column "model" of its rows begins with this text
  int32_t experts, top_k, ffn, head_dim;
  bool qk_norm;
};
constexpr Mixture kMixtures[] = {
    {"Qwen3-30B-A3B", 128, 8, 768, 128, true},
    {"Qwen3-235B-A22B", 128, 8, 1536, 128, true},
    {"GPT-OSS-120B", 128, 4, 2880, 64, false},
    {"Mixtral-8x22B", 8, 2, 16384, 0, false},
};

const Mixture* MixtureOf(const std::string& model) {
  const auto* found = std::find_if(std::begin(kMixtures), std::end(kMixtures),
                                   [&](const Mixture& m) { return absl::StartsWith(model, m.model); });
  return found == std::end(kMixtures) ? nullptr : found;
}

bool IsLlama(const std::string& model) {
  if (MixtureOf(model) != nullptr) return true;

  return absl::StartsWith(model, "LLAMA") || absl::StartsWith(model, "llama") || absl::StartsWith(model, "InternLM");
}
bool IsGpt(const std::string& model) {
  return MixtureOf(model) == nullptr && (absl::StartsWith(model, "GPT") || absl::StartsWith(model, "MPT"));
}

// Frameworks pad the vocabulary to a multiple of 128 for each tensor-parallel rank.
int32_t Padded(int32_t vocab, int32_t tp) {
  const int32_t multiple = 128 * tp;
  return (vocab + multiple - 1) / multiple * multiple;
}

// The pieces of Llama's 80 layers in Megatron-Bridge's recipes for H100, written as Megatron Core's layout.
constexpr char kUnevenPieces[] = "none; layout Et*2|(t*2|)*34,t*3|(t*2|)*3,tL";
std::vector<int32_t> UnevenPieces() {
  std::vector<int32_t> layers(40, 2);
  layers[35] = 3;
  layers[39] = 1;
  return layers;
}

Obstacle ReadRecompute(const std::string& text, Framework framework, StepRequest& request) {
  using enum RecomputeModule;
  const auto modules = [&](std::vector<RecomputeModule> list) {
    request.recompute = RecomputeMode::kSelective;
    request.modules = std::move(list);
  };
  if (text.empty() || text == "none") {
    request.recompute = RecomputeMode::kNone;
  } else if (text == "full" || absl::StartsWith(text, "full (")) {
    request.recompute = RecomputeMode::kFull;
  } else if (text == "norm, act") {
    modules({kLayernorm, kMoeAct});  // of a mixture
  } else if (text == kUnevenPieces) {
    request.stage_layers = UnevenPieces();
    const auto pieces = static_cast<size_t>(request.layout.pp) * static_cast<size_t>(request.layout.virtual_stages);
    if (request.stage_layers.size() != pieces) return Obstacle::kSchedule;
  } else if (text == "layernorm moe") {
    modules({kLayernorm, kMoe});
  } else if (text == "mlp") {
    modules({kMlp});
  } else if (framework == Framework::kTorchtitan && absl::StartsWith(text, "selective")) {
    // llama3's configurations of 8B have selective_ac_option "op" (torchtitan/models/llama3/train_configs/llama3_8b.toml).
    request.recompute = RecomputeMode::kBalanced;
  } else {
    return Obstacle::kPolicy;
  }
  return Obstacle::kNone;
}

void ReadZero(const Row& row, const Publication& publication, ParallelLayout& layout) {
  const std::string text = row.at("zero").empty() && publication.distributed_optimizer ? "1" : row.at("zero");
  layout.zero = text.empty() || layout.dp * layout.cp == 1 ? ZeroStage::kNone
                : text[0] == '1'                           ? ZeroStage::kOptimizer
                : text[0] == '2'                           ? ZeroStage::kGradients
                                                           : ZeroStage::kWeights;
  int32_t group = 0;
  if (absl::StrContains(text, "within") && absl::SimpleAtoi(text.substr(text.rfind(' ') + 1), &group) && group < layout.dp) {
    layout.zero_group = group;
  }
}

Obstacle ReadLayout(const Row& row, const Publication& publication, RunOfFramework& run) {
  StepRequest& request = run.request;
  if (!Maybe(row, "num_gpus") || !Maybe(row, "tp") || !Maybe(row, "pp")) return Obstacle::kIncomplete;
  ParallelLayout& layout = request.layout;
  layout.tp = Or(row, "tp", 1);
  layout.pp = Or(row, "pp", 1);
  layout.cp = Or(row, "cp", 1);
  const int32_t devices = Or(row, "num_gpus", 0);
  const int32_t replica = layout.tp * layout.pp * layout.cp;
  if (devices % replica != 0) return Obstacle::kIncomplete;
  layout.dp = devices / replica;
  layout.sequence_parallel = layout.tp > 1 && !publication.before_2023 && publication.traits_of != Framework::kInternevo;
  layout.virtual_stages = Or(row, "vp", 1);
  if (layout.virtual_stages > 1) layout.schedule = ScheduleKind::kInterleaved;
  const std::string& schedule = row.at("schedule");
  if (!schedule.empty() && schedule != "1f1b" && schedule != "interleaved") return Obstacle::kSchedule;
  ReadZero(row, publication, layout);
  return Obstacle::kNone;
}

Obstacle ReadBatch(const Row& row, const Publication& publication, RunOfFramework& run) {
  StepRequest& request = run.request;
  run.tuned_micro_batch = !Maybe(row, "micro_batch") && publication.traits_of == Framework::kMegatron;
  if (!Maybe(row, "micro_batch") && !run.tuned_micro_batch) return Obstacle::kIncomplete;
  request.micro_batch = Or(row, "micro_batch", 1);
  const bool one = publication.no_accumulation && request.layout.pp == 1;
  if (!Maybe(row, "global_batch") && !one) return Obstacle::kIncomplete;
  const int32_t samples = Or(row, "global_batch", request.micro_batch * request.layout.dp);
  if (samples % (request.layout.dp * request.micro_batch) != 0) return Obstacle::kIncomplete;
  request.microbatches = samples / request.layout.dp / request.micro_batch;
  run.tuned_virtual_stages = run.tuned_micro_batch && request.layout.pp > 1 && !Maybe(row, "vp");
  return Obstacle::kNone;
}

Obstacle ReadModel(const Row& row, const Publication& publication, RunOfFramework& run) {
  const std::string& name = row.at("model");
  const Mixture* const mixture = MixtureOf(name);
  if (mixture == nullptr && (Or(row, "ep", 1) > 1 || absl::StrContains(name, "8x"))) return Obstacle::kExperts;
  if (!IsLlama(name) && !IsGpt(name)) return Obstacle::kEncoder;
  if (absl::StrContains(name, "LoRA")) return Obstacle::kEncoder;
  for (const char* needed : {"layers", "hidden", "heads", "ffn", "seq", "vocab"}) {
    if (!Maybe(row, needed)) return Obstacle::kIncomplete;
  }
  ModelSpec& model = run.request.model;
  model = {.layers = Or(row, "layers", 0),
           .hidden = Or(row, "hidden", 0),
           .heads = Or(row, "heads", 0),
           .ffn = Or(row, "ffn", 0),
           .seq = Or(row, "seq", 0),
           .vocab = Padded(Or(row, "vocab", 0), run.request.layout.tp),
           .dropout = publication.before_2023 ? 0.1 : 0.0,
           .family = IsLlama(name) ? ModelFamily::kLlama : ModelFamily::kGpt,
           .attention = publication.before_2023 ? AttentionKernel::kUnfused : AttentionKernel::kFused,
           .dtype = DataType::kBfloat16,
           .dropout_masks = publication.before_2023 ? DropoutMasks::kStored : DropoutMasks::kRegenerated,
           .tied_embeddings = !IsLlama(name)};
  const int32_t key_heads = Or(row, "kv_heads", model.heads);
  if (key_heads != model.heads) model.kv_heads = key_heads;
  if (mixture != nullptr) {
    model.moe = {.experts = mixture->experts, .top_k = mixture->top_k};
    if (mixture->ffn != model.ffn) model.moe.ffn = mixture->ffn;
    model.qk_norm = mixture->qk_norm;
    if (mixture->head_dim * model.heads != model.hidden) model.head_dim = mixture->head_dim;
    ParallelLayout& layout = run.request.layout;
    layout.ep = Or(row, "ep", 1);
    if (layout.ep > RanksOfStage(layout) || RanksOfStage(layout) % layout.ep != 0) return Obstacle::kIncomplete;
    if (layout.zero > ZeroStage::kOptimizer || row.at("notes") == "FSDP") return Obstacle::kExperts;
  }
  const std::string& precision = row.at("precision");
  if (precision.empty()) return Obstacle::kIncomplete;
  if (absl::StrContains(precision, "fp4")) model.matmul_type = MatmulType::kNvfp4;
  if (!absl::StrContains(precision, "fp8")) return Obstacle::kNone;
  const bool blocks = absl::StrContains(precision, "mx");
  model.matmul_type = blocks ? MatmulType::kMxfp8 : MatmulType::kFloat8;
  return Obstacle::kNone;
}

// The measured time of a step: the published time, or the time that follows from tokens per second or from FLOP/s of a device.
double MeasuredSeconds(const Row& row, const StepRequest& request) {
  if (const std::optional<double> step = Maybe(row, "step_s")) return *step;
  const double devices = request.layout.ranks();
  const double samples = static_cast<double>(request.micro_batch) * request.microbatches * request.layout.dp;
  if (const std::optional<double> tokens = Maybe(row, "tokens_per_s_per_gpu")) {
    return samples * request.model.seq / (*tokens * devices);
  }
  const std::optional<double> rate = Maybe(row, "tflops_per_gpu");
  if (!rate) return 0;
  // Megatron-LM counts only the half of the scores that a causal mask leaves (num_floating_point_operations in
  // megatron/training/training.py). Its runs of before 2025 state times.
  const bool causal = absl::StartsWith(row.at("framework"), "megatron-core dev");
  double flops = StepFlops(request.model, static_cast<int64_t>(samples), causal ? FlopCount::kModelCausal : FlopCount::kModel);
  if (absl::StrContains(row.at("notes"), "HFU, 96")) {
    // The published FLOPs follow equation 3 of Narayanan et al. 2021, which counts the second forward pass of each layer.
    flops = StepFlops(request.model, static_cast<int64_t>(samples), FlopCount::kFullRecompute);
  }
  return flops / (*rate * kTera * devices);
}

// Reads the part of a mixture's recipe that is not in the columns of its row.
Obstacle ReadRecipe(const Row& row, const Publication& publication, RunOfFramework& run) {
  StepRequest& request = run.request;
  const std::string& notes = row.at("notes");
  MixtureRecipe recipe =
      RecipeOf(row.at("framework"), row.at("model"), row.at("gpu"), request.model.matmul_type != MatmulType::kModel);
  if (recipe.slowed) return Obstacle::kFault;
  if (absl::StrContains(notes, "EP overlap on") || absl::StrContains(notes, "a2a overlap")) recipe.beside = true;
  if (recipe.beside) request.layout.weave = WeaveMode::kNeighbours;
  // best_practice/qwen3/readme.md of Megatron-MoE-ModelZoo: all but one of its runs sent rows with DeepEP.
  const bool deep_ep = absl::StartsWith(publication.framework, "megatron-core dev") && notes != "alltoall";
  if (recipe.known || deep_ep) {
    request.traits.rows_once_per_node = recipe.once_per_node || deep_ep;
    request.traits.sorts_rows = !request.traits.rows_once_per_node;
  }
  request.expert_biases = absl::StartsWith(row.at("model"), "GPT-OSS");
  if (recipe.whole_graph) {
    request.expert_biases = false;  // with use_transformer_engine_op_fuser, the kernels of products add biases
    request.traits.expert_product_host_nanos = 0;
  }
  // If rows beyond a capacity are dropped, the host knows all sizes. So it need not wait for the device.
  if (absl::StrContains(notes, "tokendrop")) request.traits.expert_product_host_nanos = 0;
  if (recipe.norms_and_activation) {
    request.recompute = RecomputeMode::kSelective;
    request.modules = {RecomputeModule::kLayernorm, RecomputeModule::kMoeAct};
  }
  run.states_recompute = run.states_recompute || recipe.known;
  return Obstacle::kNone;
}

// Reads the settings of all recipes of Megatron-Bridge (NVIDIA-NeMo/Megatron-Bridge): grad_reduce_in_fp32 is off
// (scripts/performance/configs), and fp8_param_gather is on for all formats of 8 bits but "sc"
// (src/megatron/bridge/training/mixed_precision.py). The recipes of GPT-OSS turn it off again. What recipes of 4 bits do is not
// known.
void ReadPrecisionOfRecipe(const Row& row, StepRequest& request) {
  request.model.gradient_dtype = DataType::kBfloat16;
  const bool kept = absl::StrContains(row.at("precision"), "sc") || absl::StrContains(row.at("precision"), "fp4") ||
                    absl::StartsWith(row.at("model"), "GPT-OSS");
  request.only_narrow_weights = !kept;
}

Obstacle Read(const Row& row, const Publication& publication, RunOfFramework& run) {
  StepRequest& request = run.request;
  if (row.at("framework") == "aceso (Mist artifact)") return Obstacle::kPolicy;
  if (publication.traits_of == Framework::kLynx) return Obstacle::kFramework;
  Obstacle found = ReadLayout(row, publication, run);
  if (const Obstacle model = ReadModel(row, publication, run); model != Obstacle::kNone) return model;
  if (request.model.layers < request.layout.pp * request.layout.virtual_stages) return Obstacle::kSchedule;
  if (found == Obstacle::kNone) found = ReadBatch(row, publication, run);
  run.states_recompute = !row.at("recompute").empty();
  if (found == Obstacle::kNone) found = ReadRecompute(row.at("recompute"), publication.traits_of, request);
  if (found != Obstacle::kNone) return found;
  if (row.at("gpu").empty()) return Obstacle::kIncomplete;
  run.network_gbits_of_node = publication.network_gbits_of_node;
  run.adapters = publication.adapters;
  request.traits = publication.before_2023 && publication.traits_of == Framework::kMegatron ? kMegatron2022Traits
                                                                                            : TraitsOf(publication.traits_of);
  if (publication.attention_permille > 0) request.traits.attention_permille = publication.attention_permille;
  if (absl::StartsWith(publication.framework, "megatron-bridge")) ReadPrecisionOfRecipe(row, request);
  if (request.model.moe.any()) found = ReadRecipe(row, publication, run);
  if (found != Obstacle::kNone) return found;
  run.step_seconds = MeasuredSeconds(row, request);
  run.memory_bytes = Maybe(row, "mem_gb").value_or(0) * kGigabyte;
  run.described = true;
  run.cluster = ClusterOf(row.at("gpu"));
  return run.cluster.empty() ? Obstacle::kDevice : Obstacle::kNone;
}

// The vocabulary of a run that does not state it: that of the tokenizer's files, BERT's for encoders, else GPT-2's.
int32_t VocabularyOf(const std::string& tokenizer, bool encoder) {
  if (encoder) return 30522;
  return tokenizer == "Llama2Tokenizer" ? 32000 : 50257;
}

// Reads what a row of framework_ci_memory.csv says about the model. An empty column is the default of Megatron-LM's arguments.
Obstacle ReadIntegrationModel(const Row& row, int32_t tp, ModelSpec& model) {
  const std::string& name = row.at("case");
  if (absl::StrContains(name, "distill") || absl::StrContains(name, "grpo")) return Obstacle::kEncoder;
  if (absl::StrContains(name, "multi_dist_optimizer")) return Obstacle::kIncomplete;  // the table lacks the number of instances
  const bool experts = !row.at("experts").empty();
  if (experts && (row.at("swiglu") != "True" || row.at("mla") == "True" || !row.at("shared").empty()))
    return Obstacle::kExperts;
  const bool encoder = absl::StartsWith(name, "bert/");
  if (!experts && (!(absl::StartsWith(name, "gpt/") || encoder) || row.at("mla") == "True" || row.at("pos") == "none"))
    return Obstacle::kEncoder;
  for (const char* needed : {"layers", "hidden", "heads", "seq", "mbs", "gbs", "tp", "pp"}) {
    if (!Maybe(row, needed)) return Obstacle::kIncomplete;
  }
  const std::string& attention = row.at("flash");
  if (attention.empty() || row.at("gpu") == "?") return Obstacle::kIncomplete;
  const bool gated = row.at("swiglu") == "True";
  if (gated != (row.at("norm") == "RMSNorm") || gated != (row.at("pos") == "rope")) return Obstacle::kEncoder;
  const double dropout = Maybe(row, "hidden_dropout").value_or(0.1);
  const int32_t hidden = Or(row, "hidden", 0);
  model = {.layers = Or(row, "layers", 0),
           .hidden = hidden,
           .heads = Or(row, "heads", 0),
           .ffn = Or(row, "ffn", gated ? hidden * 8 / 3 / 64 * 64 : 4 * hidden),
           .seq = Or(row, "seq", 0),
           .vocab = Padded(Or(row, "vocab", VocabularyOf(row.at("tokenizer"), encoder)), tp),
           .dropout = gated ? 0 : dropout,
           .family = gated ? ModelFamily::kLlama : ModelFamily::kGpt,
           .attention = attention == "unfused" || attention == "local" ? AttentionKernel::kUnfused : AttentionKernel::kFused,
           .dtype = DataType::kBfloat16,
           .dropout_masks = DropoutMasks::kStored,
           .tied_embeddings = row.at("untied") != "True",
           .plan_only = encoder ? Bit(PlanOnlyFeature::kEncoder) : 0};
  if (const std::optional<double> key_heads = Maybe(row, "kv")) model.kv_heads = static_cast<int32_t>(*key_heads);
  if (experts) {
    // Without --expert-tensor-parallel-size, tensor parallelism shards each expert, too.
    if (Or(row, "etp", tp) != 1) return Obstacle::kShardedExperts;
    model.moe = {.experts = Or(row, "experts", 0), .top_k = Or(row, "topk", 2)};
    if (const int32_t width = Or(row, "moe_ffn", model.ffn); width != model.ffn) model.moe.ffn = width;
  }
  return row.at("precision") == "bf16" ? Obstacle::kNone : Obstacle::kPolicy;
}

// The devices of a run. Megatron-LM's tests/test_utils/recipes run small models on 8, and those whose name ends in 1node on one
// node of GB200, which has 4. The recipe of the release run is not public; docs/validation.md says how many it must have had.
int32_t DevicesOf(const Row& row) {
  constexpr int32_t kSmall = 8, kTray = 4, kRelease = 64;
  const std::string& name = row.at("case");
  if (absl::StrContains(name, "mixtral_8x7b_tp1pp4ep8vpp8_release")) return kRelease;
  return absl::EndsWith(name, "_1node") && row.at("gpu") == "GB200" ? kTray : kSmall;
}

Obstacle ReadIntegration(const Row& row, RunOfFramework& run) {
  StepRequest& request = run.request;
  const int32_t tp = Or(row, "tp", 1), devices = DevicesOf(row);
  if (const Obstacle model = ReadIntegrationModel(row, tp, request.model); model != Obstacle::kNone) return model;
  if (!row.at("layout").empty() || absl::StrContains(row.at("case"), "uneven") ||
      absl::StrContains(row.at("case"), "account_for") || absl::StrContains(row.at("case"), "defer_embedding") ||
      !row.at("offload").empty()) {
    return Obstacle::kSchedule;
  }
  const bool selective = row.at("rec_gran") == "selective";
  if ((selective && row.at("rec_modules") != "[moe_act]") || Or(row, "rec_layers", 1) != 1) return Obstacle::kPolicy;
  ParallelLayout& layout = request.layout;
  layout = {.tp = tp, .pp = Or(row, "pp", 1), .cp = Or(row, "cp", 1)};
  const int32_t replica = layout.tp * layout.pp * layout.cp;
  if (devices % replica != 0) return Obstacle::kIncomplete;
  layout.dp = devices / replica;
  layout.ep = request.model.moe.any() ? Or(row, "ep", 1) : 1;
  if (layout.ep > RanksOfStage(layout) || RanksOfStage(layout) % layout.ep != 0) return Obstacle::kIncomplete;
  layout.sequence_parallel = tp > 1 && row.at("sp") == "True";
  layout.zero = row.at("dist_opt") == "True" && layout.dp * layout.cp > 1 ? ZeroStage::kOptimizer : ZeroStage::kNone;
  if (const int32_t chunk = Or(row, "vpp_layers", 0); chunk > 0 && layout.pp > 1) {
    layout.virtual_stages = request.model.layers / layout.pp / chunk;
    if (layout.virtual_stages > 1) layout.schedule = ScheduleKind::kInterleaved;
  }
  request.micro_batch = Or(row, "mbs", 1);
  const int32_t samples = Or(row, "gbs", 0);
  if (samples % (request.micro_batch * layout.dp) != 0) return Obstacle::kIncomplete;
  request.microbatches = samples / request.micro_batch / layout.dp;
  request.recompute = selective                      ? RecomputeMode::kSelective
                      : row.at("rec_gran") == "full" ? RecomputeMode::kFull
                                                     : RecomputeMode::kNone;
  if (selective) request.modules = {RecomputeModule::kMoeAct};
  request.traits = TraitsOf(Framework::kMegatron);
  run.memory_bytes = Maybe(row, "mem_peak_bytes").value_or(0);
  run.last_stage_memory = true;
  run.described = true;
  run.cluster = ClusterOf(row.at("gpu"));
  return run.cluster.empty() ? Obstacle::kDevice : Obstacle::kNone;
}

// Mixtures of experts count as a separate source. Mixtures of GPT-OSS are another one, because plans ignore some features of
// its layers (docs/models.md).
std::string SourceOf(const Publication& publication, const std::string& model) {
  if (MixtureOf(model) == nullptr || absl::StrContains(publication.name, "mixtures")) return publication.name;
  return absl::StrCat(publication.name, absl::StartsWith(model, "GPT-OSS") ? ", GPT-OSS" : ", mixtures");
}

// Marks every second run of a source whose runs are described. `described` counts these runs by source.
void MarkFitted(RunOfFramework& run, std::map<std::string, int32_t>& described) {
  if (run.described) run.fitted = described[run.source]++ % 2 == 0;
}

}  // namespace

std::vector<RunOfFramework> RunsOfTable(const Table& table) {
  std::vector<RunOfFramework> runs;
  std::map<std::string, int32_t> described;
  for (const Row& row : table) {
    const Publication& publication = PublicationOf(row);
    RunOfFramework run{
        .row = row.at("row"), .source = SourceOf(publication, row.at("model")), .framework = publication.traits_of};
    run.model = absl::StrCat(row.at("model"), ", ", row.at("num_gpus"), " ", row.at("gpu"), ", batch ", row.at("global_batch"),
                             ", seq ", row.at("seq"), ", ", row.at("precision"));
    run.obstacle = Read(row, publication, run);
    MarkFitted(run, described);
    runs.push_back(std::move(run));
  }
  return runs;
}

std::vector<RunOfFramework> IntegrationRuns(const Table& table) {
  std::vector<RunOfFramework> runs;
  std::map<std::string, int32_t> described;
  for (const Row& row : table) {
    RunOfFramework run{.row = row.at("row"),
                       .source = absl::StrCat("Megatron-LM's CI, ", row.at("gpu")),
                       .model = row.at("case"),
                       .framework = Framework::kMegatron};
    run.obstacle = ReadIntegration(row, run);
    MarkFitted(run, described);
    runs.push_back(std::move(run));
  }
  return runs;
}

}  // namespace lynx::validation
