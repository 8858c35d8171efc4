#include "cli/frameworks/run_settings.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "cli/frameworks/nemo_keys.h"
#include "common/check.h"
#include "planner/recompute/recompute_modules.h"

namespace lynx::cli {
namespace {

class Settings {
 public:
  void Flag(const std::string& name, bool on) {
    if (on) list_.push_back({name, ""});
  }
  void Number(const std::string& name, int64_t value, int64_t otherwise = -1) {
    if (value != otherwise) list_.push_back({name, absl::StrCat(value)});
  }
  void Text(const std::string& name, const std::string& value) { list_.push_back({name, value}); }
  std::vector<RunSetting> Take() { return std::move(list_); }

 private:
  std::vector<RunSetting> list_;
};

bool Recomputes(const StepRequest& r) { return r.recompute != RecomputeMode::kNone; }

std::vector<RunSetting> Megatron(const StepRequest& r) {
  const ParallelLayout& layout = r.layout;
  Settings s;
  s.Number("--tensor-model-parallel-size", layout.tp, 1);
  s.Number("--pipeline-model-parallel-size", layout.pp, 1);
  s.Number("--context-parallel-size", layout.cp, 1);
  s.Number("--expert-model-parallel-size", layout.ep, 1);
  if (r.model.moe.any()) s.Number("--expert-tensor-parallel-size", 1);  // Megatron-LM's default is tp
  s.Number("--num-virtual-stages-per-pipeline-rank", layout.virtual_stages, 1);
  s.Flag("--sequence-parallel", layout.sequence_parallel);
  s.Number("--micro-batch-size", r.micro_batch);
  const bool replicas = layout.dp * layout.cp > 1;
  const bool fsdp = layout.zero >= ZeroStage::kGradients && replicas;
  const bool sharded = layout.zero == ZeroStage::kOptimizer && replicas;
  s.Flag("--use-megatron-fsdp", fsdp);
  if (fsdp)
    s.Text("--data-parallel-sharding-strategy", layout.zero == ZeroStage::kGradients ? "optim_grads" : "optim_grads_params");
  s.Flag("--use-distributed-optimizer", sharded || fsdp);
  if (layout.zero_group > 0) s.Number("--num-distributed-optimizer-instances", layout.dp / layout.zero_group, 1);
  s.Flag("--overlap-grad-reduce", replicas && !fsdp && r.traits.overlaps_data_reduction);
  s.Flag("--overlap-param-gather", sharded && r.traits.hides_weight_gather);
  if (r.recompute == RecomputeMode::kSelective) {
    s.Text("--recompute-granularity", "selective");
    if (!r.modules.empty()) s.Text("--recompute-modules", ModulesText(r.modules));
  } else if (Recomputes(r)) {
    LYNX_CHECK(r.recompute != RecomputeMode::kBalanced && r.recompute != RecomputeMode::kFullKeepCollectives);
    s.Text("--recompute-granularity", "full");
    s.Text("--recompute-method", "uniform");
    s.Number("--recompute-num-layers", 1);
  }
  return s.Take();
}

// The settings of Megatron Core, under the names that NeMo gives to them.
std::vector<RunSetting> Nemo(const StepRequest& r) {
  std::vector<RunSetting> settings = Megatron(r);
  for (RunSetting& setting : settings) {
    if (setting.name == "--use-distributed-optimizer") setting.value = "distributed_fused_adam";
    if (setting.value.empty()) setting.value = "True";
    setting.name = WithNemoKeys(setting.name);
  }
  return settings;
}

// Keys of ds_config.json. The code of the model, and not this file, decides about stages and checkpointed layers.
std::vector<RunSetting> Deepspeed(const StepRequest& r) {
  const ParallelLayout& layout = r.layout;
  Settings s;
  s.Number("zero_optimization.stage", layout.zero == ZeroStage::kNone ? 0 : static_cast<int64_t>(layout.zero) - 1);
  s.Number("zero_optimization.mics_shard_size", layout.zero_group, 0);
  if (layout.dp > 1) s.Text("zero_optimization.overlap_comm", r.traits.overlaps_data_reduction ? "true" : "false");
  s.Number("tensor_parallel.autotp_size", layout.tp, 1);
  s.Number("PipelineModule num_stages", layout.pp, 1);
  s.Number("MoE ep_size", layout.ep, 1);
  s.Number("train_micro_batch_size_per_gpu", r.micro_batch);
  s.Number("gradient_accumulation_steps", r.microbatches);
  if (Recomputes(r) && layout.pp == 1) s.Number("activation_checkpointing.number_checkpoints", r.model.layers);
  if (Recomputes(r) && layout.pp > 1) s.Number("pipeline.activation_checkpoint_interval", 1);
  return s.Take();
}

// Keys of torchtitan's configuration. FSDP keeps gathered weights after the forward pass, unless it shards the weights again.
std::vector<RunSetting> Torchtitan(const StepRequest& r) {
  const ParallelLayout& layout = r.layout;
  const bool sharded = layout.zero >= ZeroStage::kOptimizer;
  Settings s;
  const int32_t shards = !sharded ? 1 : layout.zero_group > 0 ? layout.zero_group : layout.dp;
  s.Number("parallelism.data_parallel_replicate_degree", layout.dp / shards, 1);
  s.Number("parallelism.data_parallel_shard_degree", shards);
  if (sharded) s.Text("parallelism.fsdp_reshard_after_forward", layout.zero == ZeroStage::kWeights ? "always" : "never");
  s.Number("parallelism.tensor_parallel_degree", layout.tp, 1);
  s.Number("parallelism.context_parallel_degree", layout.cp, 1);
  s.Number("parallelism.pipeline_parallel_degree", layout.pp, 1);
  s.Number("parallelism.expert_parallel_degree", layout.ep, 1);
  if (layout.pp > 1) {
    s.Text("parallelism.pipeline_parallel_schedule", layout.virtual_stages > 1                       ? "Interleaved1F1B"
                                                     : layout.schedule == ScheduleKind::kGpipe       ? "GPipe"
                                                     : layout.schedule == ScheduleKind::kZeroBubbleV ? "ZBVZeroBubble"
                                                                                                     : "1F1B");
    s.Number("parallelism.pipeline_parallel_microbatch_size", r.micro_batch);
    const int32_t stages = layout.pp * layout.virtual_stages;
    if (layout.virtual_stages > 1)
      s.Number("parallelism.pipeline_parallel_layers_per_stage", (r.model.layers + stages - 1) / stages);
  }
  s.Number("training.local_batch_size", layout.pp > 1 ? int64_t{r.micro_batch} * r.microbatches : r.micro_batch);
  s.Text("activation_checkpoint.mode", r.recompute == RecomputeMode::kNone   ? "none"
                                       : r.recompute == RecomputeMode::kFull ? "full"
                                                                             : "selective");
  if (r.recompute == RecomputeMode::kBalanced) s.Text("activation_checkpoint.selective_ac_option", "op");
  return s.Take();
}

std::vector<RunSetting> Lynx(const StepRequest& r) {
  const ParallelLayout& layout = r.layout;
  Settings s;
  s.Number("parallel.tp", layout.tp);
  s.Number("parallel.pp", layout.pp);
  s.Number("parallel.dp", layout.dp);
  s.Number("parallel.cp", layout.cp);
  if (r.model.moe.any()) s.Number("parallel.ep", layout.ep);
  s.Number("parallel.virtualStages", layout.virtual_stages);
  s.Text("parallel.schedule", EnumName(layout.schedule));
  s.Text("parallel.sequenceParallel", layout.sequence_parallel ? "on" : "off");
  s.Text("parallel.zero", EnumName(layout.zero));
  s.Text("parallel.zeroGroup", layout.zero_group == 0 ? "auto" : absl::StrCat(layout.zero_group));
  s.Text("parallel.rankOrder", EnumName(layout.rank_order));
  s.Text("parallel.weave", EnumName(layout.weave));
  s.Number("train.microBatch", r.micro_batch);
  s.Text("recompute", EnumName(r.recompute));
  if (!r.modules.empty()) s.Text("recomputeOptions.modules", absl::StrCat("'", ModulesText(r.modules), "'"));
  return s.Take();
}

}  // namespace

std::vector<RunSetting> SettingsOf(Framework framework, const StepRequest& request) {
  switch (framework) {
    case Framework::kMegatron: return Megatron(request);
    case Framework::kDeepspeed: return Deepspeed(request);
    case Framework::kTorchtitan: return Torchtitan(request);
    case Framework::kNemo: return Nemo(request);
    default: return Lynx(request);
  }
}

SettingChanges ChangesOf(Framework framework, const StepRequest& from, const StepRequest& to) {
  const std::vector<RunSetting> before = SettingsOf(framework, from), after = SettingsOf(framework, to);
  SettingChanges changes;
  for (const RunSetting& setting : after) {
    if (std::find(before.begin(), before.end(), setting) == before.end()) changes.set.push_back(setting);
  }
  for (const RunSetting& setting : before) {
    const bool kept =
        std::any_of(after.begin(), after.end(), [&](const RunSetting& other) { return other.name == setting.name; });
    if (!kept) changes.removed.push_back(setting.name);
  }
  return changes;
}

std::string SettingText(Framework framework, const RunSetting& setting) {
  if (setting.value.empty()) return setting.name;
  if (framework == Framework::kMegatron) return absl::StrCat(setting.name, " ", setting.value);
  if (framework == Framework::kLynx) return absl::StrCat("--set ", setting.name, "=", setting.value);
  return absl::StrCat(setting.name, ": ", setting.value);
}

}  // namespace lynx::cli
