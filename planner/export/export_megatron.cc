// Exports to Megatron-LM: one array of arguments for pretrain_gpt.py. The names of flags, and which flags exclude each other,
// are from megatron/training/arguments.py and megatron/core/transformer/transformer_config.py; see docs/export.md.
#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/real_text.h"
#include "planner/export/export_files.h"
#include "planner/problem/latents.h"
#include "planner/problem/model_families.h"
#include "planner/recompute/recompute_modules.h"

namespace lynx {
namespace {

class Arguments {
 public:
  void Group(const std::string& title) { absl::StrAppend(&text_, "\n  # ", title, "\n"); }
  void Flag(const std::string& name) { absl::StrAppend(&text_, "  ", name, "\n"); }
  void Value(const std::string& name, const std::string& value) { absl::StrAppend(&text_, "  ", name, " ", value, "\n"); }
  void Value(const std::string& name, int64_t value) { Value(name, absl::StrCat(value)); }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

// The layout as a string: "E" is the embedding, "t" a layer, "L" the loss. "|" separates stages. Stages are in the order of the
// model.
std::string LayoutString(const Plan& plan) {
  std::string text = "E";
  for (const SlicePlan* slice : SlicesInOrder(plan)) {
    const int32_t layers = slice->layers();
    if (slice->first_layer > 0) text += '|';
    absl::StrAppend(&text, layers == 0 ? "" : layers == 1 ? "t" : absl::StrCat("t*", layers));
  }
  return text + "L";
}

// Returns a word in single quotes, for a shell.
std::string Quoted(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

class Megatron {
 public:
  explicit Megatron(const ExportInput& input)
      : input_(input), version_(static_cast<MegatronVersion>(input.target.version)), spec_(input.spec), plan_(input.plan),
        model_(input.plan.model), layout_(input.plan.layout), recompute_(input.recompute) {}

  ExportedPlan Export() {
    Model();
    if (model_.moe.any()) Experts();
    Parallelism();
    Recomputation();
    Training();
    Data();
    ExportedPlan exported;
    exported.files.push_back({"megatron_args.sh", Script()});
    exported.missing = std::move(missing_);
    return exported;
  }

 private:
  void Miss(const std::string& text) { missing_.push_back(text); }

  std::string Script() const {
    std::string text = absl::StrCat("#!/usr/bin/env bash\n", ExportHeader("Megatron-LM arguments", input_, "# "),
                                    "# Source this file, then: torchrun <nodes and ranks, ", layout_.ranks(),
                                    " in all> pretrain_gpt.py \"${MEGATRON_ARGS[@]}\"\n\n");
    // With more than one connection, the GPU may start collectives and matrix products in another order than the program.
    if ((layout_.tp > 1 || layout_.cp > 1) && !Fsdp()) text += "export CUDA_DEVICE_MAX_CONNECTIONS=1\n\n";
    return absl::StrCat(text, "MEGATRON_ARGS=(", args_.text(), ")\n");
  }

  bool Fsdp() const {
    return layout_.dp * layout_.cp > 1 && (layout_.zero == ZeroStage::kGradients || layout_.zero == ZeroStage::kWeights);
  }

  void Model() {
    const bool llama = model_.family == ModelFamily::kLlama;
    args_.Group("model");
    args_.Value("--num-layers", model_.layers);
    args_.Value("--hidden-size", model_.hidden);
    args_.Value("--ffn-hidden-size", model_.ffn);
    args_.Value("--num-attention-heads", model_.heads);
    if (model_.key_heads() != model_.heads) {
      args_.Flag("--group-query-attention");
      args_.Value("--num-query-groups", model_.key_heads());
    }
    args_.Value("--seq-length", model_.seq);
    args_.Value("--max-position-embeddings", model_.seq);
    args_.Value("--position-embedding-type", llama ? "rope" : "learned_absolute");
    args_.Value("--normalization", llama ? "RMSNorm" : "LayerNorm");
    args_.Value("--norm-epsilon", RealText(model_.norm_epsilon));
    if (model_.latent.any()) {
      Latent();
    } else if (model_.head_dim != 0) {
      args_.Value("--kv-channels", model_.head_dim);
    }
    if (llama) {
      args_.Flag("--swiglu");
      args_.Flag("--disable-bias-linear");
      if (model_.qkv_bias) args_.Flag("--add-qkv-bias");
      if (model_.qk_norm) args_.Flag("--qk-layernorm");
      if (model_.qk_norm_whole) Miss("norms over all queries and over all keys of a token: Megatron-LM norms each head");
      Rotary();
    }
    if (model_.plan_only != 0) Miss(absl::StrCat("layers as the model has them: ", PlanOnlyText(model_.plan_only)));
    if (model_.matmul_type == MatmulType::kNvfp4) {
      args_.Value("--fp4-format", "e2m1");
      args_.Value("--fp4-recipe", "nvfp4");
    } else if (model_.matmul_type != MatmulType::kModel) {
      Miss(absl::StrCat("products in ", EnumName(model_.matmul_type), ": add --fp8-format and --fp8-recipe ",
                        model_.matmul_type == MatmulType::kMxfp8 ? "mxfp8" : "tensorwise"));
    }
    if (model_.window != 0 && model_.seq > model_.window) {
      Miss(
          absl::StrCat("attention within a window of ", model_.window, " positions: the plan counts attention to all of them"));
    }
    if (!model_.tied_embeddings) args_.Flag("--untie-embeddings-and-output-weights");
    args_.Value("--attention-dropout", RealText(model_.dropout));
    args_.Value("--hidden-dropout", RealText(model_.dropout));
    args_.Value("--attention-backend", model_.attention == AttentionKernel::kFused ? "flash" : "unfused");
    if (model_.dtype == DataType::kBfloat16) args_.Flag("--bf16");
    if (model_.gradient_dtype == DataType::kBfloat16) args_.Flag("--grad-reduce-in-bf16");
    if (model_.attention == AttentionKernel::kFused && model_.dtype == DataType::kFloat32) {
      Miss("fused attention in 32 bits: Transformer Engine has it for 16 only; model.dtype: bfloat16");
    }
    if (model_.dropout > 0 && model_.dropout_masks == DropoutMasks::kRegenerated) {
      Miss(
          "dropout masks drawn again in the backward pass: Megatron-LM keeps a byte for each element, which this "
          "plan's memory does not count; model.dropoutMasks: stored does");
    }
  }

  // Latent attention (megatron/core/transformer/multi_latent_attention.py). There, --qk-layernorm norms the latents.
  // --kv-channels has only one effect: the hidden size need not be a multiple of the heads.
  void Latent() {
    const LatentSpec& latent = model_.latent;
    args_.Flag("--multi-latent-attention");
    if (latent.query_rank != 0) args_.Value("--q-lora-rank", latent.query_rank);
    args_.Value("--kv-lora-rank", latent.kv_rank);
    args_.Value("--qk-head-dim", model_.head_size() - model_.rotary.dims);
    args_.Value("--qk-pos-emb-head-dim", model_.rotary.dims);
    args_.Value("--v-head-dim", latent.value_dim);
    args_.Value("--kv-channels", latent.value_dim);
    args_.Flag("--qk-layernorm");
    if (model_.norm_epsilon != kLatentNormEpsilon) {
      Miss(absl::StrCat("norms of latents with epsilon ", RealText(kLatentNormEpsilon), ": Megatron-LM's have --norm-epsilon ",
                        RealText(model_.norm_epsilon)));
    }
    if (layout_.tp > 1 && layout_.sequence_parallel) {
      Miss(
          "latents of all tokens on each tensor-parallel rank, which the plan counts: Megatron-LM makes those of a rank's own "
          "tokens, and gathers them");
    }
  }

  // Rotary positions of latent attention are YaRN's, unless an argument names another kind, and their fused kernel supports
  // only YaRN.
  void LatentRotary() {
    const RotarySpec& rotary = model_.rotary;
    const RotarySpec plain;
    constexpr int32_t kOriginal = 4096;  // Megatron-LM has no argument for it
    const bool as_yarn = rotary.scaling == RopeScaling::kYarn && rotary.original_seq == kOriginal &&
                         rotary.beta_fast == plain.beta_fast && rotary.beta_slow == plain.beta_slow &&
                         rotary.attention_factor == (rotary.mscale_all_dim > 0 ? 1 : plain.attention_factor);
    if (as_yarn) {
      args_.Value("--rope-type", "yarn");
      args_.Value("--rotary-scaling-factor", RealText(rotary.factor));
      if (rotary.mscale_all_dim > 0) {  // the factor of cosines and sines is the quotient of two equal factors
        args_.Value("--mscale", RealText(rotary.mscale_all_dim));
        args_.Value("--mscale-all-dim", RealText(rotary.mscale_all_dim));
      }
      return;
    }
    args_.Value("--rope-type", "rope");
    args_.Flag("--no-rope-fusion");
    const bool without_effect = rotary.scaling == RopeScaling::kDynamic && model_.seq <= rotary.original_seq;
    if (rotary.scaling == RopeScaling::kNone || without_effect) return;
    Miss(absl::StrCat(EnumName(rotary.scaling), " scaling of rotary positions by ", RealText(rotary.factor),
                      ": with latent attention, Megatron-LM's arguments have only YaRN from ", kOriginal,
                      " positions, with its own frequencies"));
  }

  // Exports the block that every token passes in addition to its experts, and the layers without experts.
  void SharedAndDense() {
    const MoeSpec& moe = model_.moe;
    if (moe.shared_ffn != 0) {
      args_.Value("--moe-shared-expert-intermediate-size", moe.shared_ffn);
      if (moe.shared_gate) args_.Flag("--moe-shared-expert-gate");
      if (layout_.tp > 1) {
        Miss(absl::StrCat("whole weights of what every token passes (width ", moe.shared_ffn,
                          ") on each tensor-parallel rank, which the plan counts: Megatron-LM shards them"));
      }
    }
    if (moe.dense_layers == 0) return;
    args_.Value("--moe-layer-freq",
                Quoted(absl::StrCat("([0]*", moe.dense_layers, "+[1]*", model_.layers - moe.dense_layers, ")")));
  }

  // Megatron-LM takes a factor of softmax weights only with --moe-router-pre-softmax.
  void SoftmaxRouter() {
    const MoeSpec& moe = model_.moe;
    const bool alone = moe.top_k == 1, before_choice = !moe.normalized || alone;
    if (before_choice) args_.Flag("--moe-router-pre-softmax");
    if (moe.normalized && alone) {
      Miss(
          "a weight of 1 for a token's only expert: Megatron-LM wants --moe-router-pre-softmax with one expert for each token, "
          "which gives it its softmax as a weight; model.moe.normalized: false plans that");
    }
    if (moe.weight_scale == 1) return;
    if (before_choice) {
      args_.Value("--moe-router-topk-scaling-factor", RealText(moe.weight_scale));
    } else {
      Miss(absl::StrCat("weights of experts times ", RealText(moe.weight_scale),
                        ": Megatron-LM has the factor for weights that are not divided by their sum"));
    }
  }

  // Megatron-LM divides sigmoids by their sum, unless a token has only one expert.
  void SigmoidRouter() {
    const MoeSpec& moe = model_.moe;
    args_.Value("--moe-router-score-function", "sigmoid");
    if (moe.weight_scale != 1) args_.Value("--moe-router-topk-scaling-factor", RealText(moe.weight_scale));
    if (moe.router_bias) {
      args_.Flag("--moe-router-enable-expert-bias");
      args_.Value("--moe-router-bias-update-rate", RealText(moe.bias_rate));
    }
    if (moe.normalized == (moe.top_k > 1)) return;
    Miss(absl::StrCat("sigmoids that are ", moe.normalized ? "" : "not ", "divided by their sum, with ", moe.top_k,
                      " experts for each token: Megatron-LM divides them exactly if there are several"));
  }

  // Experts. Megatron-LM's own defaults are softmax after the choice of experts, which gives weights whose sum is 1, and rows
  // that are dropped by their weights (megatron/core/transformer/moe/moe_utils.py).
  void Experts() {
    const MoeSpec& moe = model_.moe;
    args_.Group("experts");
    args_.Value("--num-experts", moe.experts);
    args_.Value("--moe-ffn-hidden-size", model_.expert_ffn());
    args_.Value("--moe-router-topk", moe.top_k);
    SharedAndDense();
    args_.Value("--moe-router-dtype", "fp32");
    moe.scores == RouterScores::kSigmoid ? SigmoidRouter() : SoftmaxRouter();
    args_.Flag("--moe-grouped-gemm");
    args_.Value("--moe-token-dispatcher-type", "alltoall");
    args_.Value("--moe-router-load-balancing-type", moe.aux_loss > 0 ? "aux_loss" : "none");
    if (moe.aux_loss > 0) args_.Value("--moe-aux-loss-coeff", RealText(moe.aux_loss));
    if (moe.aux_loss > 0 && layout_.tp * layout_.cp > 1) {
      Miss("a balancing loss of each rank's tokens: Megatron-LM takes its means over the tokens of all tp * cp ranks");
    }
    if (moe.z_loss > 0) args_.Value("--moe-z-loss-coeff", RealText(moe.z_loss));
    if (moe.dropless) {
      Miss("rounds for rows of experts without room: Megatron-LM drops no row either, but its memory grows with the load");
    } else if (moe.capacity > 0) {
      // Room for more rows than a rank has tokens has no further effect, and Megatron-LM's top-k over tokens fails with
      // it.
      args_.Value("--moe-expert-capacity-factor", RealText(std::min(moe.capacity, double{1} * moe.experts / moe.top_k)));
      args_.Flag("--moe-pad-expert-input-to-capacity");
      args_.Value("--moe-token-drop-policy", "position");
    }
  }

  void Rotary() {
    const RotarySpec& rotary = model_.rotary;
    const auto whole = [](double value) { return value == std::floor(value) && value < 1e15; };
    if (whole(rotary.theta)) {
      args_.Value("--rotary-base", static_cast<int64_t>(rotary.theta));
    } else {
      Miss(absl::StrCat("rotary base ", RealText(rotary.theta), ": Megatron-LM takes whole numbers only"));
    }
    if (model_.latent.any()) return LatentRotary();
    if (rotary.dims != 0) args_.Value("--rotary-percent", RealText(static_cast<double>(rotary.dims) / model_.head_size()));
    const bool as_llama3 = rotary.low_freq_factor == 1 && rotary.high_freq_factor == 4 && rotary.original_seq == 8192;
    const bool without_effect = rotary.scaling == RopeScaling::kDynamic && model_.seq <= rotary.original_seq;
    if (rotary.scaling == RopeScaling::kNone || without_effect) return;
    if (rotary.scaling == RopeScaling::kLlama3 && as_llama3) {
      args_.Flag("--use-rope-scaling");
      args_.Value("--rope-scaling-factor", RealText(rotary.factor));
    } else if (rotary.scaling == RopeScaling::kLinear && whole(rotary.factor)) {
      args_.Value("--rotary-seq-len-interpolation-factor", static_cast<int64_t>(rotary.factor));
    } else {
      Miss(absl::StrCat(
          EnumName(rotary.scaling), " scaling of rotary positions by ", RealText(rotary.factor),
          ": Megatron-LM's arguments have linear scaling by whole numbers, and Llama 3.1's with its own frequencies"));
    }
  }

  void Parallelism() {
    args_.Group("parallelism");
    args_.Value("--tensor-model-parallel-size", layout_.tp);
    args_.Value("--pipeline-model-parallel-size", layout_.pp);
    if (layout_.cp > 1) args_.Value("--context-parallel-size", layout_.cp);
    if (layout_.sequence_parallel) args_.Flag("--sequence-parallel");
    if (model_.moe.any()) {
      args_.Value("--expert-model-parallel-size", layout_.ep);
      args_.Value("--expert-tensor-parallel-size", 1);
    }
    RanksInOrder();
    if (layout_.weave != WeaveMode::kOff) Miss(WeaveMissing(layout_));
    Stages();
    Replicas();
  }

  // With stages numbered before replicas, Megatron-LM wants as many replicas of experts as of the other layers
  // (megatron/core/parallel_state.py).
  void RanksInOrder() {
    if (layout_.pp == 1 || layout_.dp == 1 || layout_.rank_order != RankOrder::kTpPpDp) return;
    if (!model_.moe.any() || layout_.ep == layout_.tp * layout_.cp) {
      args_.Flag("--use-tp-pp-dp-mapping");
      return;
    }
    Miss(absl::StrCat("ranks in the order tp-pp-dp with experts on ", layout_.ep,
                      " ranks: Megatron-LM has it only if these are the tp * cp ranks; the replicas of a stage are numbered "
                      "before the stages instead, so parallel.rankOrder: tp-dp-pp plans what runs"));
  }

  void Stages() {
    if (!HasEvenStages(plan_)) {
      args_.Value("--pipeline-model-parallel-layout", Quoted(LayoutString(plan_)));
    } else if (layout_.virtual_stages > 1) {
      args_.Value("--num-virtual-stages-per-pipeline-rank", layout_.virtual_stages);
    }
    if (layout_.virtual_stages > 1 && plan_.microbatches % layout_.pp != 0) Groups();
    if (layout_.pp == 1) return;
    if (layout_.schedule != ScheduleKind::kOneForwardOneBackward && layout_.schedule != ScheduleKind::kInterleaved) {
      Miss(
          ScheduleMissing(layout_, layout_.virtual_stages > 1 ? "Megatron-LM runs interleaved 1F1B" : "Megatron-LM runs 1F1B"));
    }
  }

  // Megatron-LM interleaves groups of at least pp microbatches; a last group that is smaller must have at least pp, too
  // (megatron/core/pipeline_parallel/schedules.py). With larger groups, a rank runs more forwards before its first backward.
  void Groups() {
    const int32_t pp = layout_.pp, microbatches = plan_.microbatches;
    const std::string what = absl::StrCat("interleaving of ", microbatches, " microbatches over ", pp, " stages");
    if (microbatches < pp) {
      Miss(absl::StrCat(what, ": Megatron-LM wants at least as many as stages; change train.globalBatch"));
      return;
    }
    const auto runs = [&](int32_t group) { return microbatches % group == 0 || microbatches % group >= pp; };
    int32_t group = pp;
    while (!runs(group)) ++group;  // one group of all microbatches always runs
    args_.Value("--microbatch-group-size-per-virtual-pipeline-stage", group);
    Miss(absl::StrCat(what, " in groups of ", pp, ": Megatron-LM takes groups of ", group, " here, and a rank holds up to ",
                      (layout_.virtual_stages - 1) * (group - pp),
                      " more chunks' activations than in the plan; change train.globalBatch"));
  }

  void Replicas() {
    const bool experts = model_.moe.any() && ExpertReplicas(layout_) > 1;  // on tensor-parallel ranks
    if (layout_.dp == 1 && layout_.cp == 1 && !experts) return;
    if (layout_.zero_group != 0) args_.Value("--num-distributed-optimizer-instances", layout_.dp / layout_.zero_group);
    if (Fsdp()) {
      args_.Flag("--use-megatron-fsdp");
      args_.Flag("--use-distributed-optimizer");
      args_.Value("--data-parallel-sharding-strategy",
                  layout_.zero == ZeroStage::kGradients ? "optim_grads" : "optim_grads_params");
      args_.Flag("--no-gradient-accumulation-fusion");
      args_.Value("--ckpt-format", "fsdp_dtensor");
      if (layout_.tp > 1 || layout_.cp > 1) {
        Miss(
            "sharded gradients or weights beside tensor or context parallelism at full speed: Megatron-FSDP refuses "
            "CUDA_DEVICE_MAX_CONNECTIONS=1, with which the others overlap best (before Blackwell)");
      }
      return;
    }
    args_.Flag("--overlap-grad-reduce");
    if (layout_.zero == ZeroStage::kOptimizer) {
      args_.Flag("--use-distributed-optimizer");
      args_.Flag("--overlap-param-gather");
    }
  }

  // What Megatron-LM keeps or repeats of the modules, and the plan does not.
  void ModulesMissing() {
    const auto has = [&](RecomputeModule module) {
      return std::find(recompute_.modules.begin(), recompute_.modules.end(), module) != recompute_.modules.end();
    };
    if (has(RecomputeModule::kLayernorm) && !model_.latent.any()) {
      Miss("recomputation of the norm before attention: Transformer Engine's linear_qkv contains it and keeps its result");
    }
    if (has(RecomputeModule::kCoreAttn) && model_.attention == AttentionKernel::kFused) {
      Miss(
          "recomputation of the attention's output: Megatron-LM runs the attention again, but keeps the output for "
          "linear_proj");
    }
    if (has(RecomputeModule::kMlaUpProj)) {
      Miss(
          "keeping the results of the norms of the latents: Transformer Engine's linears after them contain these norms, and "
          "Megatron-LM runs them again");
    }
    if (has(RecomputeModule::kMlp) || has(RecomputeModule::kMoe) || has(RecomputeModule::kSharedExperts)) {
      Miss("recomputation without the last product of a block: Megatron-LM calls the whole block again, with its collectives");
    }
  }

  void Recomputation() {
    if (recompute_.kind == LayerRecompute::kNothing) return;
    args_.Group("recomputation");
    if (recompute_.kind == LayerRecompute::kAttentionCore) {
      args_.Value("--recompute-granularity", "selective");
      args_.Value("--recompute-modules", "core_attn");
      return;
    }
    if (recompute_.kind == LayerRecompute::kModules) {
      args_.Value("--recompute-granularity", "selective");
      args_.Value("--recompute-modules", ModulesText(recompute_.modules));
      ModulesMissing();
      return;
    }
    args_.Value("--recompute-granularity", "full");
    args_.Value("--recompute-method", recompute_.first_layers > 0 ? "block" : "uniform");
    args_.Value("--recompute-num-layers", recompute_.first_layers > 0 ? recompute_.first_layers : recompute_.group_layers);
    if (recompute_.kind == LayerRecompute::kLayer && layout_.ep > 1) {
      Miss("recomputation without the second all-to-all of experts: Megatron-LM repeats the whole layer");
    }
    if (recompute_.kind == LayerRecompute::kLayerButCollective && layout_.tp * layout_.ep > 1) {
      Miss("keeping the results of collectives: Megatron-LM repeats those of a layer that it recomputes in full");
    }
  }

  void Training() {
    const TrainSpec& train = spec_.train;
    args_.Group("training");
    args_.Value("--micro-batch-size", plan_.micro_batch);
    args_.Value("--global-batch-size", int64_t{plan_.micro_batch} * plan_.microbatches * layout_.dp);
    args_.Value("--train-iters", train.steps);
    args_.Value("--optimizer", "adam");
    args_.Value("--lr", RealText(train.optimizer.lr));
    args_.Value("--min-lr", RealText(train.min_lr));
    args_.Value("--lr-decay-style", EnumName(train.schedule));
    if (train.warmup_steps > 0) args_.Value("--lr-warmup-iters", train.warmup_steps);
    args_.Value("--adam-beta1", RealText(train.optimizer.beta1));
    args_.Value("--adam-beta2", RealText(train.optimizer.beta2));
    args_.Value("--adam-eps", RealText(train.optimizer.eps));
    args_.Value("--weight-decay", RealText(train.optimizer.weight_decay));
    args_.Value("--clip-grad", RealText(train.optimizer.clip_norm));
    args_.Value("--seed", Seed());
    if (spec_.checkpoint.every_steps > 0) {
      args_.Value("--save-interval", spec_.checkpoint.every_steps);
      args_.Value("--save", spec_.checkpoint.directory.empty() ? "\"${CHECKPOINTS:?set it to a folder}\""
                                                               : Quoted(spec_.checkpoint.directory));
      Miss(absl::StrCat("keeping the newest ", spec_.checkpoint.keep, " checkpoints: Megatron-LM keeps all"));
    }
  }

  // Megatron-LM refuses seed 0. NumPy's generator gets the seed plus an offset for each stage, and refuses values of more than
  // 32 bits.
  int64_t Seed() {
    constexpr uint64_t kLargest = INT32_MAX;
    const uint64_t seed = spec_.train.seed;
    if (seed > 0 && seed <= kLargest) return static_cast<int64_t>(seed);
    const uint64_t instead = seed % kLargest + 1;
    Miss(absl::StrCat("the seed ", seed, ": Megatron-LM takes 1 to about 4 billion; ", instead, " takes its place"));
    return static_cast<int64_t>(instead);
  }

  void Data() {
    args_.Group("data");
    args_.Value("--tokenizer-type", "NullTokenizer");
    // The last token of the vocabulary is the token that ends a document. Up to version 0.17, NullTokenizer adds this token to
    // the given size.
    args_.Value("--vocab-size", version_ < MegatronVersion::k0_18 ? model_.vocab - 1 : model_.vocab);
    args_.Value("--make-vocab-size-divisible-by", 1);
    if (spec_.data.kind == DataKind::kMegatron) {
      args_.Value("--data-path", Quoted(spec_.data.path));
      args_.Value("--split", "100,0,0");
    } else {
      args_.Flag("--mock-data");
      Miss(absl::StrCat("the text file ", spec_.data.path,
                        ": turn it into Megatron's format with tools/preprocess_data.py and give --data-path in place of "
                        "--mock-data"));
    }
  }

  const ExportInput& input_;
  const MegatronVersion version_;
  const JobSpec& spec_;
  const Plan& plan_;
  const ModelSpec& model_;
  const ParallelLayout& layout_;
  const RecomputeSummary& recompute_;
  Arguments args_;
  std::vector<std::string> missing_;
};

}  // namespace

ExportedPlan MegatronFiles(const ExportInput& input) { return Megatron(input).Export(); }

}  // namespace lynx
