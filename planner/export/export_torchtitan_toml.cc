// Exports to torchtitan 0.2.2: a job configuration in TOML, and a Python module that the configuration imports and that
// registers the model. The names are from torchtitan/config/job_config.py and torchtitan/models/llama3/model/args.py; see
// docs/export.md.
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/real_text.h"
#include "planner/export/export_torchtitan.h"
#include "planner/report/table.h"

namespace lynx {
namespace {

constexpr char kModelModule[] = "lynx_torchtitan_model";

class Toml {
 public:
  void Section(const std::string& name) { absl::StrAppend(&text_, "\n[", name, "]\n"); }
  void Raw(const std::string& name, const std::string& value) { absl::StrAppend(&text_, name, " = ", value, "\n"); }
  // TOML's basic strings use the same escapes as JSON strings.
  void Text(const std::string& name, const std::string& value) { Raw(name, JsonString(value)); }
  void Number(const std::string& name, int64_t value) { Raw(name, absl::StrCat(value)); }
  // A float in TOML needs a point or an exponent.
  void Real(const std::string& name, double value) {
    const std::string text = std::isinf(value) ? "inf" : RealText(value);
    Raw(name, std::isinf(value) || text.find_first_of(".e") != std::string::npos ? text : text + ".0");
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

class Writer {
 public:
  Writer(const ExportInput& input, const TorchtitanChoices& choices)
      : spec_(input.spec), plan_(input.plan), layout_(input.plan.layout), recompute_(input.recompute), choices_(choices) {}

  std::string Text() {
    Model();
    Training();
    Parallelism();
    toml_.Section("activation_checkpoint");
    toml_.Text("mode", recompute_.kind == LayerRecompute::kNothing ? "none" : "full");
    Checkpoints();
    return toml_.text();
  }

 private:
  void Model() {
    toml_.Section("model");
    toml_.Text("name", "llama3");
    toml_.Text("flavor", spec_.name);
    toml_.Section("experimental");
    toml_.Text("custom_import", kModelModule);
  }

  void Training() {
    const TrainSpec& train = spec_.train;
    toml_.Section("training");
    toml_.Number("local_batch_size",
                 layout_.pp > 1 ? int64_t{plan_.micro_batch} * plan_.microbatches : int64_t{plan_.micro_batch});
    toml_.Number("global_batch_size", int64_t{plan_.micro_batch} * plan_.microbatches * layout_.dp);
    toml_.Number("seq_len", plan_.model.seq);
    toml_.Number("steps", train.steps);
    toml_.Real("max_norm", choices_.max_norm);
    toml_.Text("mixed_precision_param", EnumName(plan_.model.dtype));
    toml_.Section("debug");
    toml_.Number("seed", choices_.seed);
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
      toml_.Text("decay_type", EnumName(train.schedule));
      toml_.Real("min_lr_factor", choices_.min_lr_factor);
    }
  }

  void Parallelism() {
    toml_.Section("parallelism");
    toml_.Number("data_parallel_replicate_degree", choices_.replicas);
    toml_.Number("data_parallel_shard_degree", choices_.shards);
    if (!choices_.reshard.empty()) toml_.Text("fsdp_reshard_after_forward", choices_.reshard);
    toml_.Number("tensor_parallel_degree", layout_.tp);
    toml_.Number("context_parallel_degree", layout_.cp);
    toml_.Number("pipeline_parallel_degree", layout_.pp);
    if (layout_.pp == 1) return;
    toml_.Text("pipeline_parallel_schedule", choices_.schedule);
    toml_.Number("pipeline_parallel_microbatch_size", plan_.micro_batch);
    std::string parts;
    for (const std::vector<std::string>& modules : choices_.modules) {
      absl::StrAppend(&parts, "  [\"", absl::StrJoin(modules, "\", \""), "\"],\n");
    }
    toml_.Raw("module_fqns_per_model_part", absl::StrCat("[\n", parts, "]"));
  }

  void Checkpoints() {
    if (spec_.checkpoint.every_steps == 0) return;
    toml_.Section("checkpoint");
    toml_.Raw("enable", "true");
    toml_.Number("interval", spec_.checkpoint.every_steps);
    toml_.Number("keep_latest_k", choices_.keep_latest);
    toml_.Raw("last_save_model_only", "false");
    if (!spec_.checkpoint.directory.empty()) toml_.Text("folder", spec_.checkpoint.directory);
  }

  const JobSpec& spec_;
  const Plan& plan_;
  const ParallelLayout& layout_;
  const RecomputeSummary& recompute_;
  const TorchtitanChoices& choices_;
  Toml toml_;
};

// Returns the arguments for the scaling of rotary positions, up to the end of the line. torchtitan's llama3 always scales, so a
// model without scaling gets the factor 1, which has no effect.
std::string RopeScalingArgs(const RotarySpec& rotary) {
  if (rotary.scaling != RopeScaling::kLlama3) return "RoPEScalingArgs(scaling_factor=1.0),  # none\n";
  return absl::StrCat("RoPEScalingArgs(\n        scaling_factor=", RealText(rotary.factor),
                      ",\n        low_freq_factor=", RealText(rotary.low_freq_factor),
                      ",\n        high_freq_factor=", RealText(rotary.high_freq_factor),
                      ",\n        original_max_position_embeddings=", rotary.original_seq, ",\n    ),\n");
}

// The feed-forward size is the smallest multiple of `multiple_of` that is at least ffn_dim_multiplier * 8/3 * dim.
std::string ModelModule(const ExportInput& input) {
  const ModelSpec& model = input.plan.model;
  return absl::StrCat(ExportHeader("torchtitan's model", input, "# "),
                      "# torchtitan.toml has it imported: PYTHONPATH names its folder.\n"
                      "from torchtitan.models.llama3 import TransformerModelArgs, llama3_args\n"
                      "from torchtitan.models.llama3.model.args import RoPEScalingArgs\n\n"
                      "llama3_args[",
                      JsonString(input.spec.name),
                      "] = TransformerModelArgs(\n"
                      "    dim=",
                      model.hidden,
                      ",\n"
                      "    n_layers=",
                      model.layers,
                      ",\n"
                      "    n_heads=",
                      model.heads,
                      ",\n"
                      "    n_kv_heads=",
                      model.key_heads(),
                      ",\n"
                      "    vocab_size=",
                      model.vocab,
                      ",\n"
                      "    multiple_of=",
                      model.ffn,
                      ",  # the feed-forward's size, with a small multiplier\n"
                      "    ffn_dim_multiplier=",
                      RealText(model.ffn / (4.0 * model.hidden)),
                      ",\n"
                      "    norm_eps=",
                      RealText(model.norm_epsilon),
                      ",\n"
                      "    rope_theta=",
                      RealText(model.rotary.theta),
                      ",\n"
                      "    rope_scaling_args=",
                      RopeScalingArgs(model.rotary), ")\n");
}

}  // namespace

ExportedPlan TorchtitanTomlFiles(const ExportInput& input, TorchtitanChoices choices) {
  ExportedPlan exported;
  exported.files.push_back(
      {"torchtitan.toml", ExportHeader("torchtitan job configuration", input, "# ") + Writer(input, choices).Text()});
  exported.files.push_back({absl::StrCat(kModelModule, ".py"), ModelModule(input)});
  exported.missing = std::move(choices.missing);
  if (input.spec.train.optimizer.weight_decay > 0) {
    exported.missing.push_back("weight decay of matrices alone: torchtitan decays norms, too");
  }
  return exported;
}

}  // namespace lynx
