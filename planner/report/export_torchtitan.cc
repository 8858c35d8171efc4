// torchtitan: a job configuration in TOML. Names: torchtitan/config/job_config.py; see docs/export.md.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/real_text.h"
#include "planner/report/export_files.h"
#include "planner/report/table.h"

namespace lynx {
namespace {

class Toml {
 public:
  void Section(const std::string& name) { absl::StrAppend(&text_, "\n[", name, "]\n"); }
  void Raw(const std::string& name, const std::string& value) { absl::StrAppend(&text_, name, " = ", value, "\n"); }
  // TOML's basic strings escape as JSON's do.
  void Text(const std::string& name, const std::string& value) { Raw(name, JsonString(value)); }
  void Number(const std::string& name, int64_t value) { Raw(name, absl::StrCat(value)); }
  // A real number has a point or an exponent in TOML.
  void Real(const std::string& name, double value) {
    const std::string text = RealText(value);
    Raw(name, text.find_first_of(".e") == std::string::npos ? text + ".0" : text);
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

class Torchtitan {
 public:
  Torchtitan(const JobSpec& spec, const Plan& plan, const RecomputeSummary& recompute)
      : spec_(spec), plan_(plan), layout_(plan.layout), recompute_(recompute) {}

  ExportedPlan Export() {
    Model();
    Training();
    Parallelism();
    Recomputation();
    Checkpoints();
    ExportedPlan exported;
    exported.files.push_back(
        {"torchtitan.toml", ExportHeader("torchtitan job configuration", spec_, plan_, "# ") + toml_.text()});
    exported.missing = std::move(missing_);
    return exported;
  }

 private:
  void Miss(const std::string& text) { missing_.push_back(text); }

  void Model() {
    const ModelSpec& model = plan_.model;
    toml_.Section("model");
    toml_.Text("name", "llama3");
    toml_.Text("flavor", spec_.name);
    Miss(absl::StrCat("the model's sizes: register the flavor ", spec_.name, " with dim ", model.hidden, ", n_layers ",
                      model.layers, ", n_heads ", model.heads, ", n_kv_heads ", model.key_heads(), ", feed-forward ",
                      model.ffn, ", vocab_size ", model.vocab));
    if (model.family == ModelFamily::kGpt) {
      Miss("GPT with LayerNorm, GELU, dropout and learned positions: torchtitan's llama3 stands in for it");
    }
    if (model.tied_embeddings) Miss("tied embeddings: llama3 has a projection of its own");
  }

  void Training() {
    const TrainSpec& train = spec_.train;
    toml_.Section("training");
    toml_.Number("local_batch_size", layout_.pp > 1 ? int64_t{plan_.micro_batch} * plan_.microbatches
                                                    : int64_t{plan_.micro_batch});
    toml_.Number("global_batch_size", int64_t{plan_.micro_batch} * plan_.microbatches * layout_.dp);
    toml_.Number("seq_len", plan_.model.seq);
    toml_.Number("steps", train.steps);
    if (train.optimizer.clip_norm > 0) {
      toml_.Real("max_norm", train.optimizer.clip_norm);
    } else {
      Miss("no clipping of gradients: torchtitan always clips; max_norm is left at its default");
    }
    toml_.Text("mixed_precision_param", DataTypeName(plan_.model.dtype));
    if (plan_.model.dtype == DataType::kBfloat16 && !Fsdp() && layout_.tp * layout_.pp > 1) {
      Miss("bfloat16 without FSDP beside tensor or pipeline parallelism: mixed precision comes with FSDP or DDP");
    }
    constexpr uint64_t kLargest = INT64_MAX;  // of a whole number in TOML
    toml_.Number("seed", static_cast<int64_t>(train.seed & kLargest));
    if (train.seed > kLargest) Miss(absl::StrCat("the seed ", train.seed, ": TOML's numbers end at ", kLargest));
    Miss(absl::StrCat("the data ", spec_.data.path, ": torchtitan reads Hugging Face datasets; set training.dataset"));
    toml_.Section("optimizer");
    toml_.Text("name", "AdamW");
    toml_.Real("lr", train.optimizer.lr);
    toml_.Real("beta1", train.optimizer.beta1);
    toml_.Real("beta2", train.optimizer.beta2);
    toml_.Real("eps", train.optimizer.eps);
    toml_.Real("weight_decay", train.optimizer.weight_decay);
    toml_.Section("lr_scheduler");
    toml_.Number("warmup_steps", train.warmup_steps);
    if (train.schedule == LrSchedule::kConstant) {
      toml_.Real("decay_ratio", 0);
    } else {
      toml_.Text("decay_type", LrScheduleName(train.schedule));
      toml_.Real("min_lr_factor", train.optimizer.lr > 0 ? train.min_lr / train.optimizer.lr : 0);
    }
  }

  void Parallelism() {
    toml_.Section("parallelism");
    const bool sharded = Sharded();
    toml_.Number("data_parallel_replicate_degree", sharded ? 1 : layout_.dp);
    toml_.Number("data_parallel_shard_degree", sharded ? layout_.dp : 1);
    if (Fsdp()) toml_.Text("fsdp_reshard_after_forward", layout_.zero == ZeroStage::kWeights ? "always" : "never");
    if (sharded && layout_.zero == ZeroStage::kNone) {
      Miss("replicas that share nothing beside tensor or pipeline parallelism: torchtitan's DDP stands alone; FSDP that "
           "keeps gathered weights takes its place, and shards gradients and optimizer states");
    }
    if (layout_.cp > 1 && layout_.zero == ZeroStage::kNone) {
      Miss("context parallelism that shares no states: torchtitan shards them over its ranks with FSDP");
    }
    if (layout_.zero == ZeroStage::kOptimizer) {
      Miss("sharding of optimizer states alone: FSDP that keeps gathered weights shards gradients, too");
    }
    toml_.Number("tensor_parallel_degree", layout_.tp);
    if (layout_.tp > 1 && !layout_.sequence_parallel) {
      Miss("tensor parallelism without sequence parallelism: torchtitan shards norms with it");
    }
    toml_.Number("context_parallel_degree", layout_.cp);
    toml_.Number("pipeline_parallel_degree", layout_.pp);
    if (layout_.pp > 1) Pipeline();
  }

  // Replicas are sharded where they may not be replicated: DDP works without any other parallelism only; beside context
  // parallelism, replicas of its shards are.
  bool Sharded() const {
    return layout_.dp > 1 && (layout_.zero != ZeroStage::kNone || (layout_.tp * layout_.pp > 1 && layout_.cp == 1));
  }
  bool Fsdp() const { return Sharded() || layout_.cp > 1; }

  void Pipeline() {
    toml_.Text("pipeline_parallel_schedule", Schedule());
    toml_.Number("pipeline_parallel_microbatch_size", plan_.micro_batch);
    std::vector<std::string> parts;
    const std::vector<const SlicePlan*> slices = SlicesInOrder(plan_);
    for (size_t i = 0; i < slices.size(); ++i) {
      std::vector<std::string> modules;
      if (i == 0) modules.push_back("\"tok_embeddings\"");
      for (int32_t layer = slices[i]->first_layer; layer < slices[i]->end_layer; ++layer) {
        modules.push_back(absl::StrCat("\"layers.", layer, "\""));
      }
      if (i + 1 == slices.size()) {
        modules.push_back("\"norm\"");
        modules.push_back("\"output\"");
      }
      parts.push_back(absl::StrCat("  [", absl::StrJoin(modules, ", "), "],\n"));
    }
    toml_.Raw("module_fqns_per_model_part", absl::StrCat("[\n", absl::StrJoin(parts, ""), "]"));
  }

  std::string Schedule() {
    switch (layout_.schedule) {
      case ScheduleKind::kGpipe: return "GPipe";
      case ScheduleKind::kInterleaved: return "Interleaved1F1B";
      case ScheduleKind::kZeroBubbleV: return "ZBVZeroBubble";
      case ScheduleKind::kZeroBubble:
        Miss(ScheduleMissing(layout_, "torchtitan has it for two chunks a rank (zero-bubble-v), and here runs 1F1B"));
        return "1F1B";
      case ScheduleKind::kChimera:
      case ScheduleKind::kCustom: Miss(ScheduleMissing(layout_, "torchtitan runs 1F1B")); return "1F1B";
      case ScheduleKind::kAuto:
      case ScheduleKind::kOneForwardOneBackward: break;
    }
    return "1F1B";
  }

  void Recomputation() {
    toml_.Section("activation_checkpoint");
    toml_.Text("mode", recompute_.kind == LayerRecompute::kNothing ? "none" : "full");
    if (recompute_.kind == LayerRecompute::kLayerButCollective && layout_.tp > 1) {
      Miss("keeping the results of collectives: a layer that is recomputed repeats its own");
    }
  }

  void Checkpoints() {
    if (spec_.checkpoint.every_steps == 0) return;
    toml_.Section("checkpoint");
    toml_.Raw("enable_checkpoint", "true");
    toml_.Number("interval", spec_.checkpoint.every_steps);
    toml_.Number("keep_latest_k", std::max(2, spec_.checkpoint.keep));  // it refuses 1
    if (!spec_.checkpoint.directory.empty()) toml_.Text("folder", spec_.checkpoint.directory);
  }

  const JobSpec& spec_;
  const Plan& plan_;
  const ParallelLayout& layout_;
  const RecomputeSummary& recompute_;
  Toml toml_;
  std::vector<std::string> missing_;
};

}  // namespace

ExportedPlan TorchtitanFiles(const JobSpec& spec, const Plan& plan, const RecomputeSummary& recompute) {
  return Torchtitan(spec, plan, recompute).Export();
}

}  // namespace lynx
