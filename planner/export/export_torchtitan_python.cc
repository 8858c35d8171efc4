// Exports to torchtitan's main branch: a Python module with the model and a function that makes a Trainer.Config. The names are
// from torchtitan/config/configs.py, torchtitan/trainer.py and the files that they import; see docs/export.md.
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/real_text.h"
#include "planner/export/export_torchtitan.h"
#include "planner/report/table.h"

namespace lynx {
namespace {

// Writes calls with named arguments, one per line.
class PythonCall {
 public:
  explicit PythonCall(std::string callee) : callee_(std::move(callee)) {}

  PythonCall& Raw(const std::string& name, const std::string& value) {
    arguments_.push_back(absl::StrCat(name, "=", value));
    return *this;
  }
  // Python strings use the same escapes as JSON strings.
  PythonCall& Text(const std::string& name, const std::string& value) { return Raw(name, JsonString(value)); }
  PythonCall& Number(const std::string& name, int64_t value) { return Raw(name, absl::StrCat(value)); }
  PythonCall& Real(const std::string& name, double value) {
    return Raw(name, std::isinf(value) ? "float(\"inf\")" : RealText(value));
  }
  PythonCall& Bool(const std::string& name, bool value) { return Raw(name, value ? "True" : "False"); }
  PythonCall& Call(const std::string& name, const PythonCall& call) { return Raw(name, call.Text()); }

  std::string Text() const {
    std::string text = absl::StrCat(callee_, "(\n");
    for (const std::string& argument : arguments_) {
      text += "    ";
      for (const char c : argument) text += c == '\n' ? "\n    " : std::string(1, c);
      text += ",\n";
    }
    return text + ")";
  }

 private:
  std::string callee_;
  std::vector<std::string> arguments_;
};

std::string Return(const PythonCall& call) {
  std::string text = "    return ";
  for (const char c : call.Text()) text += c == '\n' ? "\n    " : std::string(1, c);
  return text + "\n";
}

constexpr char kImports[] = R"py(
from functools import partial

from torch import nn
from torchtitan.components.checkpointer import CheckpointManager
from torchtitan.components.data import ConcatThenSplitPackingConfig, GrainDataLoader
from torchtitan.components.loss import CrossEntropyLoss
from torchtitan.components.optimizer import LRSchedulersContainer, OptimizersContainer, ParamGroupConfig
from torchtitan.config import DebugConfig, ParallelismConfig, TrainingConfig
from torchtitan.distributed.activation_checkpoint import FullAC
from torchtitan.distributed.pipeline_parallel import pipeline_llm
from torchtitan.hf_datasets.text_datasets import DATASETS
from torchtitan.models.common import ComplexRoPE, Embedding, Linear, RMSNorm
from torchtitan.models.common.config_utils import get_attention_config, make_ffn_config, make_gqa_config
from torchtitan.models.common.param_init import skip_param_init
from torchtitan.models.llama3.model import Llama3Model, Llama3TransformerBlock
from torchtitan.models.llama3.parallelize import parallelize_llama
from torchtitan.models.llama3.state_dict_adapter import Llama3StateDictAdapter
from torchtitan.protocols.model_spec import ModelSpec
from torchtitan.trainer import Trainer

MATRIX = {"weight": partial(nn.init.normal_, std=0.02)}
SCALE = {"weight": nn.init.ones_}

)py";

class Writer {
 public:
  Writer(const ExportInput& input, const TorchtitanChoices& choices)
      : input_(input), spec_(input.spec), plan_(input.plan), model_(input.plan.model), layout_(input.plan.layout),
        choices_(choices) {}

  std::string Text() const {
    return absl::StrCat(ExportHeader("torchtitan configuration", input_, "# "),
                        "# PYTHONPATH names this file's folder; then: torchrun <nodes and ranks, ", layout_.ranks(),
                        " in all> -m torchtitan.train --module torchtitan_config --config lynx_job\n", kImports, Layer(),
                        Model(), Job());
  }

 private:
  PythonCall Norm(int64_t size) const {
    PythonCall norm("RMSNorm.Config");
    norm.Number("normalized_shape", size).Real("eps", model_.norm_epsilon).Raw("param_init", "SCALE");
    return norm;
  }

  std::string Layer() const {
    PythonCall rope("ComplexRoPE.Config");
    const RotarySpec& rotary = model_.rotary;
    rope.Number("dim", model_.head_size()).Number("max_context_length", model_.seq).Real("theta", rotary.theta);
    if (rotary.scaling == RopeScaling::kLlama3) {
      rope.Text("scaling", "llama").Real("scaling_factor", rotary.factor).Real("low_freq_factor", rotary.low_freq_factor);
      rope.Real("high_freq_factor", rotary.high_freq_factor).Number("original_max_position_embeddings", rotary.original_seq);
    }
    PythonCall attention("make_gqa_config");
    attention.Number("dim", model_.hidden).Number("n_heads", model_.heads).Number("n_kv_heads", model_.key_heads());
    if (model_.head_dim != 0) attention.Number("head_dim", model_.head_dim);
    if (model_.qk_norm) attention.Call("qk_norm", Norm(model_.head_size()));
    attention.Raw("wqkv_param_init", "MATRIX").Raw("wo_param_init", "MATRIX").Bool("fuse_qkv", true);
    attention.Raw("inner_attention", "get_attention_config(\"flex\")").Call("rope", rope);
    PythonCall feed_forward("make_ffn_config");
    feed_forward.Number("dim", model_.hidden).Number("hidden_dim", model_.ffn);
    feed_forward.Raw("w1_param_init", "MATRIX").Raw("w2w3_param_init", "MATRIX");
    PythonCall layer("Llama3TransformerBlock.Config");
    layer.Call("attention_norm", Norm(model_.hidden)).Call("ffn_norm", Norm(model_.hidden));
    layer.Call("attention", attention).Call("feed_forward", feed_forward);
    return absl::StrCat("\ndef layer() -> Llama3TransformerBlock.Config:\n", Return(layer), "\n");
  }

  std::string Model() const {
    const bool tied = model_.tied_embeddings && layout_.pp == 1;
    PythonCall embedding("Embedding.Config");
    embedding.Number("num_embeddings", model_.vocab).Number("embedding_dim", model_.hidden);
    embedding.Raw("param_init", tied ? "{\"weight\": skip_param_init}" : "MATRIX");
    PythonCall head("Linear.Config");
    head.Number("in_features", model_.hidden).Number("out_features", model_.vocab).Raw("param_init", "MATRIX");
    PythonCall decoder("Llama3Model.Config");
    decoder.Number("dim", model_.hidden).Number("vocab_size", model_.vocab).Bool("enable_weight_tying", tied);
    decoder.Call("tok_embeddings", embedding).Call("norm", Norm(model_.hidden)).Call("lm_head", head);
    decoder.Raw("layers", absl::StrCat("[layer() for _ in range(", model_.layers, ")]"));
    PythonCall model("ModelSpec");
    model.Text("name", "llama3").Text("flavor", spec_.name).Call("model", decoder);
    model.Raw("parallelize_fn", "parallelize_llama").Raw("pipelining_fn", "pipeline_llm");
    model.Raw("post_optimizer_build_fn", "None").Raw("state_dict_adapter", "Llama3StateDictAdapter");
    return absl::StrCat("\ndef model() -> ModelSpec:\n", Return(model), "\n");
  }

  std::string Job() const {
    PythonCall loss("CrossEntropyLoss.Config");
    loss.Number("global_vocab_size", model_.vocab);
    PythonCall debug("DebugConfig");
    debug.Number("seed", choices_.seed);
    PythonCall data("GrainDataLoader.Config");
    data.Raw("dataset", "ConcatThenSplitPackingConfig(dataset=DATASETS[\"c4_test\"])");
    PythonCall job("Trainer.Config");
    job.Raw("model_spec", "model()").Call("loss", loss).Call("dataloader", data).Call("debug", debug);
    job.Call("training", Training()).Call("optimizer", Optimizer()).Call("lr_scheduler", Scheduler());
    job.Call("parallelism", Parallelism());
    job.Raw("activation_checkpoint", input_.recompute.kind == LayerRecompute::kNothing ? "None" : "FullAC.Config()");
    if (spec_.checkpoint.every_steps > 0) job.Call("checkpoint", Checkpoints());
    return absl::StrCat("\ndef lynx_job() -> Trainer.Config:\n", Return(job));
  }

  PythonCall Training() const {
    const int64_t tokens = int64_t{plan_.micro_batch} * model_.seq;
    PythonCall training("TrainingConfig");
    training.Number("num_tokens_per_microbatch_per_dp_rank", tokens);
    training.Number("num_tokens_per_train_step", tokens * plan_.microbatches * layout_.dp);
    training.Number("max_context_length", model_.seq).Number("steps", spec_.train.steps);
    training.Real("max_norm", choices_.max_norm).Text("mixed_precision_param", EnumName(model_.dtype));
    if (layout_.pp > 1) training.Bool("disable_cuda_graphs", true);  // CUDA graphs do not work with a pipeline
    return training;
  }

  // Norms have no weight decay. If several groups match the name of a parameter, the first of them applies.
  PythonCall Optimizer() const {
    const OptimizerSpec& optimizer = spec_.train.optimizer;
    std::string groups;
    for (const bool norms : {true, false}) {
      const double decay = norms ? 0 : optimizer.weight_decay;
      PythonCall arguments("dict");
      arguments.Real("lr", optimizer.lr);
      arguments.Raw("betas", absl::StrCat("(", RealText(optimizer.beta1), ", ", RealText(optimizer.beta2), ")"));
      arguments.Real("eps", optimizer.eps).Real("weight_decay", decay);
      PythonCall group("ParamGroupConfig");
      group.Text("pattern", norms ? "norm" : ".*").Text("optimizer_name", "AdamW").Call("optimizer_kwargs", arguments);
      absl::StrAppend(&groups, norms ? "" : ", ", group.Text());
    }
    return PythonCall("OptimizersContainer.Config").Raw("param_groups", absl::StrCat("[", groups, "]"));
  }

  PythonCall Scheduler() const {
    PythonCall scheduler("LRSchedulersContainer.Config");
    scheduler.Number("warmup_steps", spec_.train.warmup_steps);
    if (spec_.train.schedule == LrSchedule::kConstant) return scheduler.Real("decay_ratio", 0);
    scheduler.Text("decay_type", EnumName(spec_.train.schedule));
    return scheduler.Real("min_lr_factor", choices_.min_lr_factor);
  }

  PythonCall Parallelism() const {
    PythonCall parallelism("ParallelismConfig");
    parallelism.Number("data_parallel_replicate_degree", choices_.replicas);
    parallelism.Number("data_parallel_shard_degree", choices_.shards);
    if (!choices_.reshard.empty()) parallelism.Text("fsdp_reshard_after_forward", choices_.reshard);
    parallelism.Number("tensor_parallel_degree", layout_.tp);
    if (layout_.tp > 1) parallelism.Bool("enable_sequence_parallel", layout_.sequence_parallel);
    parallelism.Number("context_parallel_degree", layout_.cp);
    parallelism.Number("pipeline_parallel_degree", layout_.pp);
    if (layout_.pp == 1) return parallelism;
    parallelism.Text("pipeline_parallel_schedule", choices_.schedule);
    parallelism.Number("num_pp_microbatches", plan_.microbatches);
    std::string parts;
    for (const std::vector<std::string>& modules : choices_.modules) {
      absl::StrAppend(&parts, "    [\"", absl::StrJoin(modules, "\", \""), "\"],\n");
    }
    return parallelism.Raw("module_fqns_per_model_part", absl::StrCat("[\n", parts, "]"));
  }

  PythonCall Checkpoints() const {
    PythonCall checkpoint("CheckpointManager.Config");
    checkpoint.Bool("enable", true).Number("interval", spec_.checkpoint.every_steps);
    checkpoint.Number("keep_latest_k", choices_.keep_latest).Bool("last_save_model_only", false);
    if (!spec_.checkpoint.directory.empty()) checkpoint.Text("folder", spec_.checkpoint.directory);
    return checkpoint;
  }

  const ExportInput& input_;
  const JobSpec& spec_;
  const Plan& plan_;
  const ModelSpec& model_;
  const ParallelLayout& layout_;
  const TorchtitanChoices& choices_;
};

}  // namespace

ExportedPlan TorchtitanPythonFiles(const ExportInput& input, TorchtitanChoices choices) {
  ExportedPlan exported;
  exported.files.push_back({"torchtitan_config.py", Writer(input, choices).Text()});
  exported.missing = std::move(choices.missing);
  return exported;
}

}  // namespace lynx
