#include "planner/export/export_torchtitan.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "planner/problem/model_families.h"

namespace lynx {
namespace {

class Chooser {
 public:
  explicit Chooser(const ExportInput& input)
      : version_(static_cast<TorchtitanVersion>(input.target.version)), spec_(input.spec), plan_(input.plan),
        layout_(input.plan.layout), recompute_(input.recompute) {}

  TorchtitanChoices Choose() {
    Model();
    Training();
    Replicas();
    if (layout_.pp > 1) Pipeline();
    if (recompute_.kind == LayerRecompute::kLayerButCollective && layout_.tp * layout_.ep > 1) {
      Miss("keeping the results of collectives: a layer that is recomputed repeats its own");
    }
    choices_.keep_latest = std::max(2, spec_.checkpoint.keep);
    if (spec_.checkpoint.every_steps > 0 && spec_.checkpoint.keep < 2) {
      Miss("keeping the newest checkpoint alone: torchtitan keeps two at least");
    }
    return std::move(choices_);
  }

 private:
  void Miss(const std::string& text) { choices_.missing.push_back(text); }

  void Model() {
    const ModelSpec& model = plan_.model;
    if (model.family == ModelFamily::kGpt) {
      Miss("GPT with LayerNorm, GELU, dropout and learned positions: torchtitan's llama3 stands in for it");
    }
    if (model.tied_embeddings && version_ == TorchtitanVersion::k0_2_2) {
      Miss("tied embeddings: llama3 has a projection of its own");
    } else if (model.tied_embeddings && layout_.pp > 1) {
      Miss("tied embeddings beside pipeline parallelism: torchtitan refuses them; the projection is one of its own");
    }
    if (model.attention != AttentionKernel::kFused) {
      Miss("attention that stores its scores: torchtitan's is fused, and keeps less; model.attention: fused counts with it");
    }
    if (version_ != TorchtitanVersion::k0_2_2) {
      Miss("attention over whole sequences: torchtitan's loaders end it where a document ends");
    }
    Features();
    SequenceParts();
  }

  // Lists features that torchtitan's llama3 does not have, or has only in one version.
  void Features() {
    const ModelSpec& model = plan_.model;
    const bool toml = version_ == TorchtitanVersion::k0_2_2;
    const RopeScaling scaling = model.rotary.scaling;
    if (model.qkv_bias) Miss("biases of the query, key and value projections: torchtitan's llama3 has none");
    if (model.qk_norm_whole) Miss("norms over all queries and over all keys of a token: torchtitan norms each head");
    if (model.qk_norm && toml) Miss("norms of queries and keys: llama3 has none");
    if (model.head_dim != 0 && toml) {
      Miss(absl::StrCat("heads of ", model.head_dim, " elements: llama3 divides the hidden size by the heads"));
    }
    if (model.latent.any()) {
      Miss(absl::StrCat("latent attention (keys and values from ", model.latent.kv_rank,
                        " latents): torchtitan's llama3 has none, so these files train another model"));
    }
    if (model.rotary.dims != 0) {
      Miss(absl::StrCat("rotary positions of ", model.rotary.dims, " elements of a head: torchtitan turns all of them"));
    }
    if (scaling != RopeScaling::kNone && scaling != RopeScaling::kLlama3) {
      Miss(absl::StrCat(EnumName(scaling), " scaling of rotary positions: written without"));
    }
    if (model.window != 0 && model.seq > model.window) {
      Miss(absl::StrCat("attention within a window of ", model.window, " positions: the plan counts attention to all of them"));
    }
    if (model.matmul_type != MatmulType::kModel) {
      Miss(absl::StrCat("products in ", EnumName(model.matmul_type), ": convert the model's linears (torchao)"));
    }
    if (model.gradient_dtype != DataType::kFloat32) {
      Miss(absl::StrCat("gradients reduced in ", EnumName(model.gradient_dtype),
                        ": mixed_precision_reduce takes float32 alone, so these files reduce them in 32 bits"));
    }
    if (model.moe.any()) {
      Miss(
          absl::StrCat("the model's experts (", model.moe.experts, " of width ", model.expert_ffn(), ", ", model.moe.top_k,
                       " for each token) on ", layout_.ep,
                       " ranks: torchtitan's llama3 has none, so these files train another model; its models with experts take "
                       "the layout with expert_parallel_degree ",
                       layout_.ep));
    }
    if (model.moe.shared_ffn != 0) {
      Miss(absl::StrCat("a block of width ", model.moe.shared_ffn, " that every token passes beside its experts"));
    }
    if (model.moe.dense_layers != 0) {
      Miss(absl::StrCat("first ", model.moe.dense_layers, " layers without experts, of feed-forward width ", model.ffn));
    }
    if (model.plan_only != 0) Miss(absl::StrCat("layers as the model has them: ", PlanOnlyText(model.plan_only)));
  }

  // torchtitan divides each sequence (version 0.2.2) or each microbatch (main) into equal parts, and refuses to start if this
  // is not possible. In this case the function adds a sentence to the list of what cannot be expressed.
  void SequenceParts() {
    const bool tokens = version_ != TorchtitanVersion::k0_2_2;
    const int64_t length = tokens ? int64_t{plan_.micro_batch} * plan_.model.seq : plan_.model.seq;
    const int64_t parts = tokens ? int64_t{layout_.sequence_parallel ? layout_.tp : 1} * (layout_.cp > 1 ? 2 * layout_.cp : 1)
                                 : int64_t{2} * layout_.tp * layout_.cp;
    if (length % parts == 0) return;
    Miss(absl::StrCat(tokens ? "microbatches" : "sequences", " of ", length, " tokens: torchtitan wants a multiple of ", parts,
                      " in this layout; change model.seq"));
  }

  void Training() {
    const TrainSpec& train = spec_.train;
    // torchtitan always clips gradients. With an infinite norm, clipping has no effect.
    choices_.max_norm = train.optimizer.clip_norm > 0 ? train.optimizer.clip_norm : std::numeric_limits<double>::infinity();
    if (version_ == TorchtitanVersion::k0_2_2 && plan_.model.dtype == DataType::kBfloat16 && !Fsdp() &&
        layout_.tp * layout_.pp > 1) {
      Miss("bfloat16 without FSDP beside tensor or pipeline parallelism: mixed precision comes with FSDP or DDP");
    }
    constexpr uint64_t kLargest = INT64_MAX;  // the largest integer in TOML, and the largest seed in PyTorch
    choices_.seed = static_cast<int64_t>(train.seed & kLargest);
    if (train.seed > kLargest) Miss(absl::StrCat("the seed ", train.seed, ": torchtitan's end at ", kLargest));
    choices_.min_lr_factor = train.optimizer.lr > 0 ? train.min_lr / train.optimizer.lr : 0;
    Miss(absl::StrCat("the data ", spec_.data.path,
                      ": torchtitan reads Hugging Face datasets, and its test data stand in "
                      "for them; set ",
                      version_ == TorchtitanVersion::k0_2_2 ? "training.dataset" : "dataloader", " and a tokenizer of at most ",
                      plan_.model.vocab, " tokens"));
  }

  // True if each replica holds an FSDP shard of the model. This needs more than one replica and, in general, ZeRO. In
  // torchtitan 0.2.2, tensor or pipeline parallelism without context parallelism also leads to FSDP, because DDP does not work
  // there. In all other cases each replica holds a whole copy of the model; with context parallelism, the ranks of the replica
  // shard this copy.
  bool Sharded() const {
    const bool ddp_alone = version_ == TorchtitanVersion::k0_2_2 && layout_.tp * layout_.pp > 1 && layout_.cp == 1;
    return layout_.dp > 1 && (layout_.zero != ZeroStage::kNone || ddp_alone);
  }
  bool Fsdp() const { return Sharded() || layout_.cp > 1; }

  void Replicas() {
    const int32_t group = layout_.zero_group == 0 ? layout_.dp : layout_.zero_group;
    choices_.replicas = Sharded() ? layout_.dp / group : layout_.dp;
    choices_.shards = Sharded() ? group : 1;
    if (Fsdp()) choices_.reshard = layout_.zero == ZeroStage::kWeights ? "always" : "never";
    if (Sharded() && layout_.zero == ZeroStage::kNone) {
      Miss(
          "replicas that share nothing beside tensor or pipeline parallelism: torchtitan's DDP stands alone; FSDP that "
          "keeps gathered weights takes its place, and shards gradients and optimizer states");
    }
    if (layout_.cp > 1 && layout_.zero == ZeroStage::kNone) {
      Miss("context parallelism that shares no states: torchtitan shards them over its ranks with FSDP");
    }
    if (layout_.zero == ZeroStage::kOptimizer) {
      Miss("sharding of optimizer states alone: FSDP that keeps gathered weights shards gradients, too");
    }
    if (layout_.tp > 1 && !layout_.sequence_parallel && version_ == TorchtitanVersion::k0_2_2) {
      Miss("tensor parallelism without sequence parallelism: torchtitan shards norms with it");
    }
  }

  void Pipeline() {
    const std::vector<const SlicePlan*> slices = SlicesInOrder(plan_);
    choices_.schedule = Schedule(static_cast<int64_t>(slices.size()));
    if (layout_.weave != WeaveMode::kOff) Miss(WeaveMissing(layout_));
    if (const std::string order = RankOrderMissing(layout_, "torchtitan"); !order.empty()) Miss(order);
    for (size_t i = 0; i < slices.size(); ++i) {
      std::vector<std::string>& modules = choices_.modules.emplace_back();
      if (i == 0) modules.push_back("tok_embeddings");
      for (int32_t layer = slices[i]->first_layer; layer < slices[i]->end_layer; ++layer) {
        modules.push_back(absl::StrCat("layers.", layer));
      }
      if (i + 1 == slices.size()) {
        modules.push_back("norm");
        modules.push_back(version_ == TorchtitanVersion::k0_2_2 ? "output" : "lm_head");
      }
    }
    Microbatches();
  }

  // With one stage per rank, 1F1B replaces schedules that torchtitan does not have. With more stages per rank, interleaved 1F1B
  // replaces them, because 1F1B runs only the first stage of a rank.
  std::string Schedule(int64_t stages) {
    switch (layout_.schedule) {
      case ScheduleKind::kGpipe: return "GPipe";
      case ScheduleKind::kInterleaved: return "Interleaved1F1B";
      case ScheduleKind::kZeroBubbleV: return "ZBVZeroBubble";
      case ScheduleKind::kZeroBubble:
        Miss(ScheduleMissing(layout_, "torchtitan has it for two chunks a rank (zero-bubble-v), and here runs 1F1B"));
        break;
      case ScheduleKind::kChimera:
      case ScheduleKind::kCustom:
        Miss(ScheduleMissing(layout_, stages > layout_.pp ? "torchtitan runs interleaved 1F1B" : "torchtitan runs 1F1B"));
        break;
      case ScheduleKind::kAuto:
      case ScheduleKind::kOneForwardOneBackward: break;
    }
    return stages > layout_.pp ? "Interleaved1F1B" : "1F1B";
  }

  // Lists conditions in which PyTorch's schedules refuse to start.
  void Microbatches() {
    const int32_t microbatches = plan_.microbatches;
    const int32_t rounds = std::max(1, microbatches / layout_.pp);
    const bool single = choices_.schedule == "1F1B" || choices_.schedule == "GPipe";
    if (single && microbatches < layout_.pp) {
      Miss(absl::StrCat(microbatches, " microbatches on ", layout_.pp, " stages: PyTorch's ", choices_.schedule,
                        " wants at least as many as stages; change train.globalBatch"));
    }
    if (choices_.schedule == "Interleaved1F1B" && microbatches % rounds != 0) {
      Miss(absl::StrCat("interleaving of ", microbatches, " microbatches over ", layout_.pp,
                        " ranks: PyTorch's schedule wants a multiple of ", rounds, "; change train.globalBatch"));
    }
  }

  const TorchtitanVersion version_;
  const JobSpec& spec_;
  const Plan& plan_;
  const ParallelLayout& layout_;
  const RecomputeSummary& recompute_;
  TorchtitanChoices choices_;
};

}  // namespace

TorchtitanChoices TorchtitanChoicesFor(const ExportInput& input) { return Chooser(input).Choose(); }

ExportedPlan TorchtitanFiles(const ExportInput& input) {
  TorchtitanChoices choices = TorchtitanChoicesFor(input);
  if (static_cast<TorchtitanVersion>(input.target.version) == TorchtitanVersion::k0_2_2) {
    return TorchtitanTomlFiles(input, std::move(choices));
  }
  return TorchtitanPythonFiles(input, std::move(choices));
}

}  // namespace lynx
