// Exports to DeepSpeed: ds_config.json. The names of the keys are from the configuration reference of DeepSpeed,
// runtime/pipe/module.py and engine.py, and the tutorial on automatic tensor parallelism; see docs/export.md.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/real_text.h"
#include "planner/export/export_files.h"
#include "planner/problem/model_families.h"
#include "planner/report/table.h"

namespace lynx {
namespace {

// A JSON object. Its members keep the order in which they are added.
class JsonObject {
 public:
  void Raw(const std::string& name, const std::string& json) { members_.push_back({name, json}); }
  void Text(const std::string& name, const std::string& text) { Raw(name, JsonString(text)); }
  void Number(const std::string& name, int64_t value) { Raw(name, absl::StrCat(value)); }
  void Real(const std::string& name, double value) { Raw(name, RealText(value)); }
  void Bool(const std::string& name, bool value) { Raw(name, value ? "true" : "false"); }
  void Object(const std::string& name, const JsonObject& object) { Raw(name, object.Indented()); }

  std::string Json() const {
    std::string json = "{";
    for (size_t i = 0; i < members_.size(); ++i) {
      absl::StrAppend(&json, i ? "," : "", "\n  ", JsonString(members_[i].first), ": ", members_[i].second);
    }
    return json + "\n}";
  }

 private:
  std::string Indented() const {
    std::string text;
    for (const char c : Json()) text += c == '\n' ? "\n  " : std::string(1, c);
    return text;
  }

  std::vector<std::pair<std::string, std::string>> members_;
};

class DeepSpeed {
 public:
  explicit DeepSpeed(const ExportInput& input)
      : input_(input), version_(static_cast<DeepSpeedVersion>(input.target.version)), spec_(input.spec), plan_(input.plan),
        layout_(input.plan.layout), recompute_(input.recompute) {}

  ExportedPlan Export() {
    // JSON has no comments, but DeepSpeed ignores keys that it does not know.
    config_.Text("comment", ExportComment(input_));
    Batches();
    Parallelism();
    Recomputation();
    Training();
    Model();
    ExportedPlan exported;
    exported.files.push_back({"ds_config.json", config_.Json() + "\n"});
    exported.missing = std::move(missing_);
    return exported;
  }

 private:
  void Miss(const std::string& text) { missing_.push_back(text); }

  void Batches() {
    const int64_t replica = int64_t{plan_.micro_batch} * plan_.microbatches;
    config_.Number("train_batch_size", replica * layout_.dp);
    config_.Number("train_micro_batch_size_per_gpu", plan_.micro_batch);
    config_.Number("gradient_accumulation_steps", plan_.microbatches);
  }

  void Parallelism() {
    const int64_t stage = Zero();
    JsonObject zero;
    zero.Number("stage", stage);
    if (layout_.dp > 1) zero.Bool("overlap_comm", true);
    config_.Object("zero_optimization", zero);
    if (layout_.tp > 1 && layout_.pp == 1) {
      JsonObject tensor;
      tensor.Number("autotp_size", layout_.tp);
      config_.Object("tensor_parallel", tensor);
    }
    if (layout_.tp > 1 && layout_.pp > 1) {
      Miss(absl::StrCat("tensor parallelism beside pipeline parallelism: give PipelineModule a topology with tp ", layout_.tp,
                        " and layers that are parallel themselves, such as Megatron-LM's"));
    }
    if (plan_.model.matmul_type != MatmulType::kModel) {
      Miss(absl::StrCat("products in ", EnumName(plan_.model.matmul_type), ": use linears of Transformer Engine"));
    }
    if (layout_.sequence_parallel) Miss("sequence parallelism: norms and residuals are whole on every rank");
    if (layout_.cp > 1) {
      Miss(absl::StrCat("context parallelism of ", layout_.cp,
                        ": the nearest is Ulysses, which the model's code and deepspeed.initialize set up"));
    }
    if (layout_.weave != WeaveMode::kOff) Miss(WeaveMissing(layout_));
    if (const std::string order = RankOrderMissing(layout_, "DeepSpeed"); !order.empty()) Miss(order);
    if (layout_.pp > 1) Pipeline();
  }

  // Returns the ZeRO stage for DeepSpeed, which is lower than that of the plan if DeepSpeed does not support the plan's stage.
  // Also sets the data types of a bfloat16 model, because they depend on the stage.
  int64_t Zero() {
    int64_t stage = layout_.zero == ZeroStage::kNone ? 0 : static_cast<int64_t>(layout_.zero) - 1;
    if (layout_.pp > 1 && stage > 1) {
      Miss(absl::StrCat("ZeRO-", stage, " beside pipeline parallelism: DeepSpeed's pipeline takes ZeRO-1 at most"));
      stage = 1;
    }
    if (layout_.tp > 1 && layout_.pp == 1 && stage > 2) {
      Miss("ZeRO-3 beside tensor parallelism: up to DeepSpeed 0.19.3 automatic tensor parallelism takes ZeRO-2 at most");
      stage = 2;
    }
    if (layout_.zero_group != 0) {
      Miss(absl::StrCat("states sharded within groups of ", layout_.zero_group, " replicas: the file has ZeRO-", stage,
                        " over all ", layout_.dp,
                        ", with less memory per rank and other transfers; leave out parallel.zeroGroup and export again"));
    }
    if (plan_.model.dtype == DataType::kBfloat16) Precision(stage);
    return stage;
  }

  // Sets the data types of a bfloat16 model.
  void Precision(int64_t stage) {
    JsonObject bf16;
    bf16.Bool("enabled", true);
    config_.Object("bf16", bf16);
    // Some versions of 0.18 and all of 0.19 refuse grad_accum_dtype without ZeRO. All versions of 0.16 and some of 0.17
    // refuse bf16 without grad_accum_dtype.
    const bool wide = plan_.model.gradient_dtype == DataType::kFloat32;
    if (stage == 0 && version_ >= DeepSpeedVersion::k0_18) {
      if (!wide) return;
      Miss(
          "weight gradients in 32 bits: without ZeRO DeepSpeed adds up those of bf16 weights in bf16; "
          "parallel.zero: optimizer has them in 32 bits");
      return;
    }
    JsonObject types;
    types.Text("grad_accum_dtype", wide ? "fp32" : "bf16");
    config_.Object("data_types", types);
  }

  void Pipeline() {
    std::vector<std::string> layers;
    for (const SlicePlan* slice : SlicesInOrder(plan_)) layers.push_back(absl::StrCat(slice->layers()));
    Miss(absl::StrCat("stages in the configuration: write PipelineModule(layers, num_stages=", layout_.pp,
                      ", partition_method='uniform') in the model's code"));
    if (!HasEvenStages(plan_)) {
      Miss(absl::StrCat("stages of ", absl::StrJoin(layers, ", "),
                        " layers: PipelineModule divides evenly, by parameters or by layer type"));
    }
    if (layout_.schedule != ScheduleKind::kOneForwardOneBackward) {
      Miss(ScheduleMissing(layout_, "DeepSpeed's pipeline runs 1F1B"));
    }
  }

  void Recomputation() {
    if (recompute_.kind == LayerRecompute::kNothing) return;
    if (layout_.pp > 1) {
      JsonObject pipeline;
      pipeline.Number("activation_checkpoint_interval", recompute_.group_layers);
      config_.Object("pipeline", pipeline);
    } else {
      JsonObject checkpointing;
      checkpointing.Bool("partition_activations", false);
      checkpointing.Bool("cpu_checkpointing", false);
      checkpointing.Bool("contiguous_memory_optimization", false);
      checkpointing.Number("number_checkpoints", (plan_.model.layers + recompute_.group_layers - 1) / recompute_.group_layers);
      config_.Object("activation_checkpointing", checkpointing);
      Miss(absl::StrCat("which layers recompute: the model's code calls deepspeed.checkpointing.checkpoint for ",
                        recompute_.group_layers == 1 ? std::string("each layer")
                                                     : absl::StrCat("each group of ", recompute_.group_layers, " layers")));
    }
    if (recompute_.kind == LayerRecompute::kLayerButCollective && layout_.tp * layout_.ep > 1) {
      Miss("keeping the results of collectives: a layer that is recomputed repeats its own");
    }
  }

  void Training() {
    const TrainSpec& train = spec_.train;
    JsonObject optimizer, parameters;
    optimizer.Text("type", "AdamW");
    parameters.Real("lr", train.optimizer.lr);
    parameters.Raw("betas", absl::StrCat("[", RealText(train.optimizer.beta1), ", ", RealText(train.optimizer.beta2), "]"));
    parameters.Real("eps", train.optimizer.eps);
    parameters.Real("weight_decay", train.optimizer.weight_decay);
    optimizer.Object("params", parameters);
    config_.Object("optimizer", optimizer);
    config_.Real("gradient_clipping", train.optimizer.clip_norm);
    Scheduler();
    if (train.optimizer.weight_decay > 0) {
      Miss(
          "weight decay of matrices alone: DeepSpeed decays all that the script hands to deepspeed.initialize; hand over "
          "norms and biases as a group with weight_decay 0");
    }
    Miss(absl::StrCat("steps and seed: the training script stops after ", train.steps, " steps and seeds with ", train.seed));
  }

  // DeepSpeed's schedulers warm up for at least two steps, and versions from 0.19.3 on refuse 0 steps. If the job has no
  // warm-up, the cosine schedule warms up from the full learning rate, so the warm-up changes nothing. The linear schedule
  // cannot do this (SchedulerMissing).
  void Scheduler() {
    const TrainSpec& train = spec_.train;
    const bool cosine = train.schedule == LrSchedule::kCosine, constant = train.schedule == LrSchedule::kConstant;
    const bool warmup = train.warmup_steps > 0;
    if (constant && !warmup) return;  // then the learning rate of the optimizer stays the same
    JsonObject scheduler, parameters;
    scheduler.Text("type", cosine ? "WarmupCosineLR" : constant ? "WarmupLR" : "WarmupDecayLR");
    if (!constant) parameters.Number("total_num_steps", train.steps);
    if (cosine) {
      parameters.Real("warmup_min_ratio", warmup ? 0 : 1);
      parameters.Real("cos_min_ratio", train.optimizer.lr > 0 ? train.min_lr / train.optimizer.lr : 0);
    } else {
      parameters.Real("warmup_min_lr", 0);
      parameters.Real("warmup_max_lr", train.optimizer.lr);
    }
    parameters.Text("warmup_type", "linear");
    parameters.Number("warmup_num_steps", std::max<int64_t>(train.warmup_steps, 2));
    scheduler.Object("params", parameters);
    config_.Object("scheduler", scheduler);
    SchedulerMissing();
  }

  void SchedulerMissing() {
    const TrainSpec& train = spec_.train;
    Miss("the learning rate of the first step: DeepSpeed's schedulers begin with 0");
    if (train.warmup_steps == 1) Miss("a warm-up of one step: DeepSpeed's schedulers warm up for two steps at least");
    if (train.schedule != LrSchedule::kLinear) return;
    if (train.warmup_steps == 0) Miss("a linear decay without warm-up: WarmupDecayLR warms up for two steps at least");
    if (train.min_lr > 0) {
      Miss(absl::StrCat("a linear decay that ends at ", RealText(train.min_lr), ": WarmupDecayLR ends at 0"));
    }
  }

  void Model() {
    Miss(absl::StrCat("the model: the training script builds ", EnumName(plan_.model.family), " with ", plan_.model.layers,
                      " layers, hidden ", plan_.model.hidden, ", ", plan_.model.heads, " heads, feed-forward ", plan_.model.ffn,
                      ", sequence ", plan_.model.seq, ", vocabulary ", plan_.model.vocab, ModelFeaturesText(plan_.model)));
    const MoeSpec& moe = plan_.model.moe;
    if (!moe.any()) return;
    const std::string room =
        moe.capacity > 0 && !moe.dropless ? absl::StrCat("capacity_factor ", RealText(moe.capacity)) : "drop_tokens False";
    Miss(absl::StrCat("experts on ", layout_.ep, " ranks: the script gives deepspeed.moe.layer.MoE ep_size ", layout_.ep,
                      ", num_experts ", moe.experts, ", k ", moe.top_k, " and ", room));
    if (moe.aux_loss > 0 || moe.z_loss > 0) {
      Miss(absl::StrCat("losses of the router (factors ", RealText(moe.aux_loss), " and ", RealText(moe.z_loss),
                        "): the script adds them to the loss"));
    }
  }

  const ExportInput& input_;
  const DeepSpeedVersion version_;
  const JobSpec& spec_;
  const Plan& plan_;
  const ParallelLayout& layout_;
  const RecomputeSummary& recompute_;
  JsonObject config_;
  std::vector<std::string> missing_;
};

}  // namespace

ExportedPlan DeepSpeedFiles(const ExportInput& input) { return DeepSpeed(input).Export(); }

}  // namespace lynx
