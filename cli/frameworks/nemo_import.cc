// Reads runs of NeMo 1 from their YAML. NeMo is built on Megatron Core, so the keys are turned into its flags (nemo_keys.h),
// and what is said about flags names the keys again.
#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "cli/frameworks/megatron_import.h"
#include "cli/frameworks/nemo_keys.h"
#include "cli/spec/yaml_value.h"
#include "common/status.h"

namespace lynx::cli {
namespace {

// Sections of a file that have no effect on a plan: experiment folders, loggers, data loaders, initial values, kernels.
constexpr const char* kOtherKeys[] = {
    "name",
    "restore_from_path",
    "exp_manager.",
    "trainer.",
    "hydra.",
    "run.",
    "model.tokenizer.",
    "model.data.",
    "model.nsys_profile.",
    "model.resume_from_checkpoint",
    "model.init_method_std",
    "model.use_scaled_init_method",
    "model.apply_query_key_layer_scaling",
    "model.normalize_attention_scores",
    "model.pre_process",
    "model.post_process",
    "model.persist_layer_norm",
    "model.do_layer_norm_weight_decay",
    "model.native_amp",
    "model.hysteresis",
    "model.fp16_lm_cross_entropy",
    "model.grad_allreduce_chunk_size_mb",
    "model.grad_div_ar_fusion",
    "model.use_cpu_initialization",
    "model.onnx_safe",
    "model.apex_transformer_log_level",
    "model.gradient_as_bucket_view",
    "model.gradient_accumulation_fusion",
    "model.bias_activation_fusion",
    "model.bias_dropout_add_fusion",
    "model.masked_softmax_fusion",
    "model.get_attention_mask_from_fusion",
    "model.apply_rope_fusion",
    "model.mcore_gpt",
    "model.transformer_engine",
    "model.fp8_",
    "model.sync_batch_comm",
    "model.overlap_p2p_comm",
    "model.batch_p2p_comm",
    "model.gc_interval",
    "model.reduce_amax",
    "model.use_emha",
    "model.optim.bucket_cap_mb",
    "model.optim.sched.",
    "model.optim.contiguous_",
    "model.transformer_block_type",
    "model.headscale",
    "model.openai_gelu",
    "model.apply_residual_connection_post_layernorm",
    "model.precision",
    "model.target",
    "model.nemo_version",
};

// Keys whose values are words. The code checks each of these words.
constexpr const char* kWordKeys[] = {
    "model.normalization", "model.activation",       "trainer.precision",           "model.optim.name",
    "model.optim.betas",   "model.optim.sched.name", "model.optim.grad_sync_dtype",
};

// Keys that change a run, but for which a job has no field. `neutral`: the values, in small letters, with which a key changes
// nothing.
struct MissingKey {
  const char* path;
  const char* why;
  const char* neutral;
};
constexpr MissingKey kMissing[] = {
    {"model.num_micro_batches_with_partial_activation_checkpoints",
     "the plan recomputes the same layers for all microbatches of a step", "0"},
    {"model.activations_checkpoint_layers_per_pipeline", "the plan recomputes as many layers on each stage", "0"},
    {"model.megatron_amp_O2", "the plan counts weights in 16 bits with master weights beside them, as with True", "true"},
};

using Values = std::map<std::string, std::vector<std::string>>;  // path -> its value, or the values of its list

// The words of YAML for no value, and the mark "???" for a value that a person must still fill in.
bool IsNothing(const std::string& text) {
  return text.empty() || text == "null" || text == "~" || text == "None" || text == "???";
}
bool HasSixteenBits(const std::string& type) { return absl::StrContains(type, "16"); }
bool IsTrue(const std::string& text) { return absl::EqualsIgnoreCase(text, "true"); }

void Flatten(const YamlValue& value, const std::string& path, Values& values) {
  if (value.IsScalar() && !IsNothing(value.scalar)) values[path].push_back(value.scalar);
  for (const YamlValue& item : value.items) Flatten(item, path, values);
  for (const YamlEntry& entry : value.entries) {
    Flatten(entry.value, path.empty() ? entry.key.scalar : absl::StrCat(path, ".", entry.key.scalar), values);
  }
}

class NemoReader {
 public:
  NemoReader(Values values, const ImportRequest& request) : values_(std::move(values)), request_(request) {}

  absl::StatusOr<ImportedRun> Run() {
    LYNX_RETURN_IF_ERROR(Resolve());
    LYNX_RETURN_IF_ERROR(Flags());
    Launch launch{.place = request_.file, .program = "", .arguments = std::move(words_), .devices = request_.devices};
    LYNX_RETURN_IF_ERROR(Devices(launch));
    LYNX_ASSIGN_OR_RETURN(const ReadMegatronArguments read, ReadArguments(launch.arguments, launch.place));
    ImportedRun run;
    run.framework = Framework::kNemo;
    LYNX_RETURN_IF_ERROR(JobOfMegatron(read, request_, launch, run));
    run.not_taken.insert(run.not_taken.end(), not_taken_.begin(), not_taken_.end());
    run.unknown = std::move(unknown_);
    for (std::vector<std::string>* list : {&run.not_taken, &run.assumed}) {
      for (std::string& text : *list) text = WithNemoKeys(text);
    }
    LYNX_RETURN_IF_ERROR(FinishImport(request_, run));
    return run;
  }

 private:
  absl::Status Error(const std::string& why) const {
    return absl::InvalidArgumentError(absl::StrCat(request_.file, ": ", why));
  }

  std::string One(const std::string& path) const {
    const auto found = values_.find(path);
    return found == values_.end() || found->second.size() != 1 ? "" : found->second.front();
  }

  // Replaces "${model.encoder_seq_length}" and "${.encoder_seq_length}" by the value of that key. A value may be a reference
  // itself; at most kMaxSteps references are followed.
  absl::Status Resolve() {
    constexpr int kMaxSteps = 8;
    for (auto& [path, list] : values_) {
      for (std::string& text : list) {
        for (int i = 0; i < kMaxSteps && absl::StartsWith(text, "${") && absl::EndsWith(text, "}"); ++i) {
          std::string name = text.substr(2, text.size() - 3);
          if (absl::StartsWith(name, ".")) name = absl::StrCat(path.substr(0, path.rfind('.')), name);
          const std::string value = One(name);
          if (value.empty()) break;
          text = value;
        }
      }
    }
    return absl::OkStatus();
  }

  absl::Status Flags() {
    for (const auto& [path, list] : values_) {
      const auto key =
          std::find_if(NemoKeys().begin(), NemoKeys().end(), [&](const NemoKey& known) { return path == known.path; });
      if (key != NemoKeys().end()) {
        LYNX_RETURN_IF_ERROR(Take(*key, list));
      } else {
        LYNX_RETURN_IF_ERROR(Special(path, list.front()));
      }
    }
    if (values_.count("model.num_query_groups") > 0) words_.push_back("--group-query-attention");
    return absl::OkStatus();
  }

  absl::Status Unresolved(const std::string& path, const std::string& value) const {
    return Error(absl::StrCat(path, " is ", value, ", which is not a key of the file; write the value"));
  }

  absl::Status Take(const NemoKey& key, const std::vector<std::string>& list) {
    // A plan reads no data, so references in the paths of data may stay.
    const bool data = std::string(key.path) == "model.data.data_prefix";
    for (const std::string& value : list) {
      if (!absl::StrContains(value, "${")) continue;
      if (data) return absl::OkStatus();
      return Unresolved(key.path, value);
    }
    if (key.kind != NemoKeyKind::kValue) {
      if (IsTrue(list.front()) == (key.kind == NemoKeyKind::kFlag)) words_.push_back(key.flag);
      return absl::OkStatus();
    }
    words_.push_back(key.flag);
    if (list.size() > 1 && std::string(key.path) == "model.moe_layer_freq") {  // the list has one number for each layer
      words_.push_back(absl::StrCat("[", absl::StrJoin(list, ","), "]"));
      return absl::OkStatus();
    }
    words_.insert(words_.end(), list.begin(), list.end());
    return absl::OkStatus();
  }

  // Handles the keys whose values are words (kWordKeys).
  absl::Status Special(const std::string& path, const std::string& value) {
    const std::string word = absl::AsciiStrToLower(value);
    for (const char* known : kWordKeys) {
      if (path != known) continue;
      for (const std::string& one : values_.at(path)) {
        if (absl::StrContains(one, "${")) return Unresolved(path, one);
      }
    }
    if (path == "model.normalization") {
      const bool rms = word == "rmsnorm" || word == "low_precision_rmsnorm";
      words_.insert(words_.end(), {"--normalization", rms ? "RMSNorm" : "LayerNorm"});
      if (word == "layernorm1p") words_.push_back("--apply-layernorm-1p");
    } else if (path == "model.activation") {
      if (absl::StrContains(word, "swiglu")) {
        words_.push_back("--swiglu");
      } else if (word == "squared-relu") {
        words_.push_back("--squared-relu");
      } else if (word != "gelu") {
        return Error(absl::StrCat(path, " is ", value, ": this activation function is not planned"));
      }
    } else if (path == "trainer.precision") {
      if (absl::StrContains(word, "bf16")) words_.push_back("--bf16");
      if (word == "16" || word == "16-mixed") {
        words_.push_back("--fp16");
        if (!HasSixteenBits(One("model.optim.grad_sync_dtype"))) words_.push_back("--accumulate-allreduce-grads-in-fp32");
      }
    } else if (path == "model.optim.grad_sync_dtype") {
      if (HasSixteenBits(word)) words_.push_back("--grad-reduce-in-bf16");
    } else if (path == "model.optim.name") {
      Optimizer(word);
    } else if (path == "model.optim.betas") {
      const std::vector<std::string>& betas = values_.at(path);
      if (betas.size() == 2) words_.insert(words_.end(), {"--adam-beta1", betas[0], "--adam-beta2", betas[1]});
    } else if (path == "model.optim.sched.name") {
      words_.insert(words_.end(), {"--lr-decay-style", absl::StrContains(word, "cosine") ? "cosine" : word});
    } else if (path != "trainer.devices" && path != "trainer.num_nodes" && !Missing(path, word) && !IsOther(path)) {
      unknown_.push_back(absl::StrCat(path, ": ", absl::StrJoin(values_.at(path), " ")));
    }
    return absl::OkStatus();
  }

  // If a job has no field for this key, although the key changes a run, reports the key. Otherwise returns false.
  bool Missing(const std::string& path, const std::string& word) {
    const auto missing =
        std::find_if(std::begin(kMissing), std::end(kMissing), [&](const MissingKey& key) { return path == key.path; });
    if (missing == std::end(kMissing)) return false;
    const std::vector<std::string> neutral = absl::StrSplit(missing->neutral, ' ');
    if (std::find(neutral.begin(), neutral.end(), word) == neutral.end()) {
      not_taken_.push_back(absl::StrCat(path, " ", absl::StrJoin(values_.at(path), " "), ": ", missing->why));
    }
    return true;
  }

  // The distributed optimizer overlaps its gradient reduction unless the file says otherwise.
  void Optimizer(const std::string& name) {
    if (name == "distributed_fused_adam" || name == "mcore_distributed_optim") {
      words_.push_back("--use-distributed-optimizer");
      if (One("model.optim.overlap_grad_sync").empty()) words_.push_back("--overlap-grad-reduce");
    } else {
      words_.insert(words_.end(), {"--optimizer", absl::StrContains(name, "adam") ? "adam" : name});
    }
  }

  static bool IsOther(const std::string& path) {
    return std::any_of(std::begin(kOtherKeys), std::end(kOtherKeys), [&](const char* known) {
      return path == known || (absl::StartsWith(path, known) &&
                               std::string(known).find_first_of("._", std::string(known).size() - 1) != std::string::npos);
    });
  }

  absl::Status Devices(Launch& launch) const {
    if (launch.devices > 0) return absl::OkStatus();
    int32_t each = 0, nodes = 1;
    const std::string count = One("trainer.num_nodes");
    if (!absl::SimpleAtoi(One("trainer.devices"), &each) || each < 1 ||
        (!count.empty() && (!absl::SimpleAtoi(count, &nodes) || nodes < 1)) || int64_t{each} * nodes > (1 << 20)) {
      return Error("trainer.devices and trainer.num_nodes do not say on how many devices the run is; give --devices N");
    }
    launch.devices = each * nodes;
    return absl::OkStatus();
  }

  Values values_;
  const ImportRequest& request_;
  std::vector<std::string> words_, not_taken_, unknown_;
};

}  // namespace

absl::StatusOr<ImportedRun> ImportNemo(const ImportRequest& request) {
  if (!request.variables.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--set ", request.variables.begin()->first,
                     ": a YAML file has no variables; name a field of the job, such as model.vocab"));
  }
  LYNX_ASSIGN_OR_RETURN(const YamlValue root, ParseYaml(request.text, request.file));
  if (!root.IsMap() || root.Find("model") == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(request.file,
                                                   ": has no 'model'; expected a configuration of NeMo 1 such as "
                                                   "megatron_gpt_config.yaml"));
  }
  Values values;
  Flatten(root, "", values);
  absl::StatusOr<ImportedRun> run = NemoReader(std::move(values), request).Run();
  if (!run.ok()) return absl::Status(run.status().code(), WithNemoKeys(std::string(run.status().message())));
  return run;
}

}  // namespace lynx::cli
