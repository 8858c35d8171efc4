// Exports many plans and checks that every flag, key and field is in the table of its framework's version. The tables
// contain only names. The names are facts from the sources that the comments cite. LYNX_EXPORTS=FOLDER writes the exported
// files to FOLDER. docs/export.md says how these files were passed to the frameworks' own parsers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "planner/export/export_files.h"
#include "tests/planner/export/export_cases.h"

namespace lynx {
namespace {

struct NamedCase {
  std::string name;
  Case job;
};

std::vector<NamedCase> DozenPlans() {
  using enum ZeroStage;
  std::vector<NamedCase> plans = {
      {"plain", Case()},
      {"uneven", Case({.tp = 2, .pp = 2, .dp = 2, .zero = kOptimizer}, {3, 5}).Recompute(RecomputeMode::kSelective)},
      {"virtual", Case({.pp = 2, .virtual_stages = 2, .schedule = ScheduleKind::kInterleaved})},
      {"uneven-virtual", Case({.pp = 2, .virtual_stages = 2, .schedule = ScheduleKind::kInterleaved}, {1, 2, 3, 4})},
      {"fsdp2", Case({.dp = 4, .zero = kGradients})},
      {"groups-of-replicas", Case({.dp = 8, .zero = kOptimizer, .zero_group = 2})},
      {"groups-fsdp3", Case({.dp = 8, .zero = kWeights, .zero_group = 2})},
      {"fsdp3", Case({.pp = 2, .dp = 2, .zero = kWeights}).Recompute(RecomputeMode::kFull)},
      {"cp", Case({.tp = 2, .dp = 2, .cp = 2, .sequence_parallel = true, .zero = kOptimizer})},
      {"cp-fsdp", Case({.dp = 2, .cp = 2, .zero = kWeights})},
      {"block", Case({.tp = 2, .sequence_parallel = true}).Recompute(RecomputeMode::kFull, 2)},
      {"llama", Llama()},
      {"zero-bubble-v", Case({.pp = 2, .schedule = ScheduleKind::kZeroBubbleV})},
      {"replicas", Case({.tp = 2, .dp = 2})},
      {"tensor-fsdp3", Case({.tp = 2, .dp = 2, .zero = kWeights})},
  };
  Case trained = Llama();
  trained.spec.train.warmup_steps = 0;
  trained.spec.train.optimizer.clip_norm = 0;
  trained.spec.train.seed = 0;
  trained.spec.checkpoint.every_steps = 50;
  trained.spec.checkpoint.directory = "/checkpoints";
  trained.spec.data = {DataKind::kText, "/data/corpus.txt"};
  plans.push_back({"trained", trained});
  for (const LrSchedule schedule : {LrSchedule::kLinear, LrSchedule::kConstant}) {
    for (const int64_t warmup : {0, 20}) {
      Case one({.dp = 2, .zero = kOptimizer});
      one.Model([](ModelSpec& m) { m.dtype = DataType::kBfloat16; });
      one.spec.train.schedule = schedule;
      one.spec.train.warmup_steps = warmup;
      plans.push_back({absl::StrCat(EnumName(schedule), "-", warmup), one});
    }
  }
  plans.push_back({"llama3", Llama().Model([](ModelSpec& m) {
                     m.norm_epsilon = 1e-6;
                     m.rotary = {.theta = 5e5, .scaling = RopeScaling::kLlama3, .factor = 8, .original_seq = 8192};
                   })});
  plans.push_back({"qwen2", Llama().Model([](ModelSpec& m) {
                     m.qkv_bias = true;
                     m.rotary = {.theta = 1e6, .scaling = RopeScaling::kLinear, .factor = 2};
                   })});
  plans.push_back({"qwen3", Llama().Model([](ModelSpec& m) { m.qk_norm = true, m.head_dim = 128; })});
  plans.push_back({"phi3", Llama().Model([](ModelSpec& m) { m.rotary.dims = m.head_size() / 2; })});
  plans.push_back({"experts", Mixture()});
  plans.push_back({"experts-losses", Mixture({.pp = 2, .dp = 2, .ep = 2}).Model([](ModelSpec& m) {
                     m.moe = {.experts = 8, .top_k = 1, .normalized = false, .aux_loss = 0.01, .z_loss = 0.001};
                   })});
  plans.push_back({"latent", Deepseek()});
  plans.push_back({"latent-yarn", Deepseek({.pp = 2, .dp = 2, .ep = 2}).Model([](ModelSpec& m) {
                     m.latent.query_rank = 0;
                     m.rotary = {.dims = 8, .scaling = RopeScaling::kYarn, .factor = 40, .original_seq = 4096};
                   })});
  plans.push_back({"bfloat16-replicas", Case({.dp = 2}).Model([](ModelSpec& m) { m.dtype = DataType::kBfloat16; })});
  plans.push_back({"bfloat16-gradients", Case({.dp = 2, .zero = kOptimizer}).Model([](ModelSpec& m) {
                     m.dtype = m.gradient_dtype = DataType::kBfloat16;
                   })});
  Case groups({.pp = 2, .virtual_stages = 2, .schedule = ScheduleKind::kInterleaved});
  groups.plan.microbatches = 7;
  plans.push_back({"groups-of-microbatches", groups});
  return plans;
}

// Calls `check` for each file that is exported for a format's version.
template <class Check>
void ForAllFiles(ExportFormat format, Check check) {
  for (size_t version = 0; version < ExportVersions(format).size(); ++version) {
    const ExportTarget target{format, version};
    for (const NamedCase& plan : DozenPlans()) {
      if (!CanExpress(format, SummaryOf(plan.job.plan))) continue;
      for (const ExportedFile& file : plan.job.Export(target).files) {
        SCOPED_TRACE(absl::StrCat(ExportTargetText(target), " ", plan.name, " ", file.name));
        check(version, file);
        const char* folder = std::getenv("LYNX_EXPORTS");
        if (folder == nullptr) continue;
        const std::filesystem::path path =
            std::filesystem::path(folder) / EnumName(format) / ExportVersions(format)[version].name / plan.name;
        std::filesystem::create_directories(path);
        std::ofstream(path / file.name) << file.text;
      }
    }
  }
}

// NVIDIA/Megatron-LM: megatron/training/arguments.py and the dataclasses from which it makes arguments. The names are the same
// in
//   0.16  @55ac7082517c3878ae653c07c09c534b8aed49f6 (core_v0.16.1)
//   0.17  @266f1c97dca477ca8b92c16087506da2000b0b84 (core_v0.17.1)
//   0.18  @571370c829ca768fe37244f4e2e7f28d8accc4ab (core_v0.18.2)
//   0.19  @5be9626709af2722333bf54797c954c09edeada3 (core_v0.19.0)
const std::set<std::string> kMegatronFlags = {"--bf16",
                                              "--disable-bias-linear",
                                              "--grad-reduce-in-bf16",
                                              "--group-query-attention",
                                              "--mock-data",
                                              "--moe-grouped-gemm",
                                              "--moe-pad-expert-input-to-capacity",
                                              "--moe-router-pre-softmax",
                                              "--multi-latent-attention",
                                              "--no-rope-fusion",
                                              "--no-gradient-accumulation-fusion",
                                              "--overlap-grad-reduce",
                                              "--overlap-param-gather",
                                              "--sequence-parallel",
                                              "--swiglu",
                                              "--add-qkv-bias",
                                              "--qk-layernorm",
                                              "--use-rope-scaling",
                                              "--untie-embeddings-and-output-weights",
                                              "--use-distributed-optimizer",
                                              "--use-megatron-fsdp",
                                              "--use-tp-pp-dp-mapping"};
// An empty set allows any value.
const std::map<std::string, std::set<std::string>> kMegatronValues = {
    {"--adam-beta1", {}},
    {"--adam-beta2", {}},
    {"--adam-eps", {}},
    {"--attention-backend", {"flash", "fused", "unfused", "local", "auto"}},
    {"--attention-dropout", {}},
    {"--ckpt-format", {"torch", "torch_dist", "torch_dcp", "fsdp_dtensor"}},
    {"--clip-grad", {}},
    {"--context-parallel-size", {}},
    {"--data-parallel-sharding-strategy", {"no_shard", "optim", "optim_grads", "optim_grads_params"}},
    {"--data-path", {}},
    {"--expert-model-parallel-size", {}},
    {"--expert-tensor-parallel-size", {"1"}},
    {"--ffn-hidden-size", {}},
    {"--global-batch-size", {}},
    {"--hidden-dropout", {}},
    {"--hidden-size", {}},
    {"--lr", {}},
    {"--lr-decay-style", {"constant", "linear", "cosine", "inverse-square-root", "WSD"}},
    {"--lr-warmup-iters", {}},
    {"--make-vocab-size-divisible-by", {}},
    {"--max-position-embeddings", {}},
    {"--micro-batch-size", {}},
    {"--microbatch-group-size-per-virtual-pipeline-stage", {}},
    {"--min-lr", {}},
    {"--normalization", {"LayerNorm", "RMSNorm"}},
    {"--num-attention-heads", {}},
    {"--num-distributed-optimizer-instances", {}},
    {"--num-layers", {}},
    {"--num-query-groups", {}},
    {"--num-virtual-stages-per-pipeline-rank", {}},
    {"--optimizer", {"adam", "sgd"}},
    {"--pipeline-model-parallel-layout", {}},
    {"--pipeline-model-parallel-size", {}},
    {"--position-embedding-type", {"learned_absolute", "rope", "mrope", "yarn", "relative", "none"}},
    {"--recompute-granularity", {"full", "selective"}},
    {"--recompute-method", {"uniform", "block"}},
    {"--recompute-modules", {"core_attn", "moe_act", "layernorm", "mla_up_proj", "mlp", "moe", "shared_experts"}},
    {"--recompute-num-layers", {}},
    {"--save", {}},
    {"--save-interval", {}},
    {"--seed", {}},
    {"--seq-length", {}},
    {"--split", {}},
    {"--tensor-model-parallel-size", {}},
    {"--tokenizer-type", {"NullTokenizer"}},
    {"--train-iters", {}},
    {"--vocab-size", {}},
    {"--weight-decay", {}},
    // The names of experts are in megatron/core/transformer/transformer_config.py and megatron/core/model_parallel_config.py,
    // except --num-experts and the options for the kind of balancing and its factor, which are in arguments.py.
    {"--num-experts", {}},
    {"--moe-ffn-hidden-size", {}},
    {"--moe-router-topk", {}},
    {"--moe-router-dtype", {"fp32", "fp64"}},
    {"--moe-token-dispatcher-type", {"allgather", "alltoall", "flex"}},
    {"--moe-router-load-balancing-type", {"aux_loss", "seq_aux_loss", "global_aux_loss", "sinkhorn", "none"}},
    {"--moe-aux-loss-coeff", {}},
    {"--moe-z-loss-coeff", {}},
    {"--moe-expert-capacity-factor", {}},
    {"--moe-token-drop-policy", {"probs", "position"}},
    {"--moe-layer-freq", {}},
    {"--moe-shared-expert-intermediate-size", {}},
    {"--q-lora-rank", {}},
    {"--kv-lora-rank", {}},
    {"--qk-head-dim", {}},
    {"--qk-pos-emb-head-dim", {}},
    {"--v-head-dim", {}},
    {"--rope-type", {"rope", "yarn"}},
    {"--rotary-scaling-factor", {}},
    // layernorm_epsilon and kv_channels are in megatron/core/transformer/transformer_config.py, the other names in
    // arguments.py.
    {"--norm-epsilon", {}},
    {"--kv-channels", {}},
    {"--rotary-base", {}},
    {"--rotary-percent", {}},
    {"--rope-scaling-factor", {}},
    {"--rotary-seq-len-interpolation-factor", {}}};

TEST(ExportNames, MegatronHasAllFlags) {
  ForAllFiles(ExportFormat::kMegatron, [](size_t, const ExportedFile& file) {
    const size_t begin = file.text.find("MEGATRON_ARGS=(") + 16;
    const std::string arguments = file.text.substr(begin);
    for (const absl::string_view line : absl::StrSplit(arguments, '\n')) {
      if (!absl::StartsWith(line, "  --")) continue;
      const std::vector<std::string> words = absl::StrSplit(line.substr(2), absl::MaxSplits(' ', 1));
      if (words.size() == 1) {
        EXPECT_TRUE(kMegatronFlags.contains(words[0])) << line;
        continue;
      }
      const auto known = kMegatronValues.find(words[0]);
      ASSERT_NE(known, kMegatronValues.end()) << line;
      EXPECT_TRUE(known->second.empty() || known->second.contains(words[1])) << line;
    }
  });
}

// deepspeedai/DeepSpeed, deepspeed/runtime/config.py, with zero/config.py, precision_config.py, constants.py,
// tensor_parallel/config.py, activation_checkpointing/config.py, lr_schedules.py and ops/adam/fused_adam.py. The
// names are the same in
//   0.16  @bdba8231bc8fc17980a5941437e6363dac69418d (v0.16.9)   0.17  @e4f6da968574a96282a32557b37dabb2476d240e (v0.17.6)
//   0.18  @8c93851eca99e95d90e5fe767c2ac53bb2de04eb (v0.18.9)   0.19  @cf44300453eb0af79ed84ed8f1cb49d57478bd76 (v0.19.5)
// "comment" is not in these files: DeepSpeed ignores keys that it does not look for.
const std::set<std::string> kDeepSpeedKeys = {"comment",
                                              "train_batch_size",
                                              "train_micro_batch_size_per_gpu",
                                              "gradient_accumulation_steps",
                                              "gradient_clipping",
                                              "zero_optimization.stage",
                                              "zero_optimization.overlap_comm",
                                              "tensor_parallel.autotp_size",
                                              "pipeline.activation_checkpoint_interval",
                                              "activation_checkpointing.partition_activations",
                                              "activation_checkpointing.cpu_checkpointing",
                                              "activation_checkpointing.contiguous_memory_optimization",
                                              "activation_checkpointing.number_checkpoints",
                                              "bf16.enabled",
                                              "data_types.grad_accum_dtype",
                                              "optimizer.type",
                                              "optimizer.params.lr",
                                              "optimizer.params.betas",
                                              "optimizer.params.eps",
                                              "optimizer.params.weight_decay",
                                              "scheduler.type"};
const std::map<std::string, std::set<std::string>> kDeepSpeedSchedulers = {
    {"WarmupLR", {"warmup_min_lr", "warmup_max_lr", "warmup_num_steps", "warmup_type"}},
    {"WarmupDecayLR", {"total_num_steps", "warmup_min_lr", "warmup_max_lr", "warmup_num_steps", "warmup_type"}},
    {"WarmupCosineLR", {"total_num_steps", "warmup_min_ratio", "warmup_num_steps", "cos_min_ratio", "warmup_type"}}};

void Keys(const nlohmann::json& json, const std::string& prefix, std::vector<std::string>& keys) {
  for (const auto& [name, value] : json.items()) {
    if (value.is_object()) {
      Keys(value, absl::StrCat(prefix, name, "."), keys);
    } else {
      keys.push_back(prefix + name);
    }
  }
}

TEST(ExportNames, DeepSpeedHasAllKeys) {
  ForAllFiles(ExportFormat::kDeepSpeed, [](size_t, const ExportedFile& file) {
    nlohmann::json config = nlohmann::json::parse(file.text);
    if (config.contains("scheduler")) {
      const auto known = kDeepSpeedSchedulers.find(config["scheduler"]["type"].get<std::string>());
      ASSERT_NE(known, kDeepSpeedSchedulers.end());
      for (const auto& [name, value] : config["scheduler"]["params"].items()) {
        EXPECT_TRUE(known->second.contains(name)) << known->first << " " << name;
      }
      EXPECT_GT(config["scheduler"]["params"]["warmup_num_steps"], 0) << "0.19.3 refuses it";
      config["scheduler"].erase("params");
    }
    std::vector<std::string> keys;
    Keys(config, "", keys);
    for (const std::string& key : keys) EXPECT_TRUE(kDeepSpeedKeys.contains(key)) << key;
  });
}

// pytorch/torchtitan @73a0e6979dd10b6b1904098eb3c8f62c18ab87ce (v0.2.2): torchtitan/config/job_config.py, by section; and
// torchtitan/models/llama3/model/args.py.
const std::map<std::string, std::set<std::string>> kTorchtitanToml = {
    {"model", {"name", "flavor", "hf_assets_path"}},
    {"experimental", {"custom_import"}},
    {"training",
     {"dataset", "dataset_path", "local_batch_size", "global_batch_size", "seq_len", "max_norm", "steps",
      "mixed_precision_param", "mixed_precision_reduce"}},
    {"debug", {"seed", "deterministic"}},
    {"optimizer", {"name", "lr", "beta1", "beta2", "eps", "weight_decay", "implementation"}},
    {"lr_scheduler", {"warmup_steps", "total_steps", "decay_ratio", "decay_type", "min_lr_factor"}},
    {"parallelism",
     {"data_parallel_replicate_degree", "data_parallel_shard_degree", "fsdp_reshard_after_forward", "tensor_parallel_degree",
      "context_parallel_degree", "pipeline_parallel_degree", "pipeline_parallel_schedule", "pipeline_parallel_microbatch_size",
      "module_fqns_per_model_part"}},
    {"activation_checkpoint", {"mode"}},
    {"checkpoint", {"enable", "folder", "interval", "keep_latest_k", "last_save_model_only"}}};
const std::map<std::string, std::set<std::string>> kTorchtitanModel = {
    {"TransformerModelArgs",
     {"dim", "n_layers", "n_heads", "n_kv_heads", "vocab_size", "multiple_of", "ffn_dim_multiplier", "norm_eps", "rope_theta",
      "rope_scaling_args"}},
    {"RoPEScalingArgs", {"scaling_factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}}};

// pytorch/torchtitan @b5bcd76c66d0acb1a08b176d9639425bc55e0b2a (main, 2026-08-21): torchtitan/trainer.py,
// torchtitan/config/configs.py, torchtitan/components/{loss,checkpointer/base,data/loader,optimizer/*}.py,
// torchtitan/models/common/{config_utils,nn_modules,rope,decoder,linear,embedding}.py, torchtitan/protocols/model_spec.py.
const std::map<std::string, std::set<std::string>> kTorchtitanPython = {
    {"RMSNorm.Config", {"normalized_shape", "eps", "param_init"}},
    {"ComplexRoPE.Config",
     {"dim", "max_context_length", "theta", "scaling", "scaling_factor", "low_freq_factor", "high_freq_factor",
      "original_max_position_embeddings"}},
    {"make_gqa_config",
     {"dim", "n_heads", "n_kv_heads", "wqkv_param_init", "wo_param_init", "inner_attention", "rope", "head_dim", "fuse_qkv",
      "qk_norm"}},
    {"make_ffn_config", {"dim", "hidden_dim", "w1_param_init", "w2w3_param_init"}},
    {"Llama3TransformerBlock.Config", {"attention", "feed_forward", "attention_norm", "ffn_norm"}},
    {"Embedding.Config", {"num_embeddings", "embedding_dim", "param_init"}},
    {"Linear.Config", {"in_features", "out_features", "bias", "param_init"}},
    {"Llama3Model.Config", {"dim", "vocab_size", "enable_weight_tying", "tok_embeddings", "norm", "lm_head", "layers"}},
    {"ModelSpec",
     {"name", "flavor", "model", "parallelize_fn", "pipelining_fn", "post_optimizer_build_fn", "state_dict_adapter"}},
    {"CrossEntropyLoss.Config", {"global_vocab_size"}},
    {"GrainDataLoader.Config", {"dataset", "collator", "seed", "shuffle", "repeat"}},
    {"DebugConfig", {"seed", "deterministic"}},
    {"TrainingConfig",
     {"num_tokens_per_microbatch_per_dp_rank", "num_tokens_per_train_step", "max_context_length", "max_norm", "steps",
      "disable_cuda_graphs", "mixed_precision_param"}},
    {"OptimizersContainer.Config", {"param_groups", "implementation"}},
    {"ParamGroupConfig", {"pattern", "optimizer_name", "optimizer_kwargs"}},
    {"dict", {"lr", "betas", "eps", "weight_decay"}},  // arguments of torch.optim.AdamW
    {"LRSchedulersContainer.Config", {"warmup_steps", "total_steps", "decay_ratio", "decay_type", "min_lr_factor"}},
    {"ParallelismConfig",
     {"data_parallel_replicate_degree", "data_parallel_shard_degree", "fsdp_reshard_after_forward", "tensor_parallel_degree",
      "enable_sequence_parallel", "context_parallel_degree", "pipeline_parallel_degree", "pipeline_parallel_schedule",
      "num_pp_microbatches", "module_fqns_per_model_part"}},
    {"CheckpointManager.Config", {"enable", "folder", "interval", "keep_latest_k", "last_save_model_only"}},
    {"Trainer.Config",
     {"model_spec", "loss", "dataloader", "debug", "training", "optimizer", "lr_scheduler", "parallelism",
      "activation_checkpoint", "checkpoint"}}};

void CheckToml(const std::string& text) {
  std::string section;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    if (absl::StartsWith(line, "[") && absl::EndsWith(line, "]")) section = std::string(line.substr(1, line.size() - 2));
    const size_t equals = line.find(" = ");
    if (absl::StartsWith(line, "#") || absl::StartsWith(line, " ") || equals == absl::string_view::npos) continue;
    ASSERT_TRUE(kTorchtitanToml.contains(section)) << section;
    EXPECT_TRUE(kTorchtitanToml.at(section).contains(std::string(line.substr(0, equals)))) << section << ": " << line;
  }
}

// Counts the names of arguments and checks that they are known. In the text, a line that calls something ends with "(", and
// each argument has its own line.
int CheckCalls(const std::string& text, const std::map<std::string, std::set<std::string>>& known) {
  const auto letter = [](char c) { return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.'; };
  std::vector<std::string> calls;
  int checked = 0;
  for (const absl::string_view raw : absl::StrSplit(text, '\n')) {
    const absl::string_view line = absl::StripAsciiWhitespace(raw);
    if (absl::StartsWith(line, ")") && !calls.empty()) calls.pop_back();
    const size_t equals = line.find('=');
    if (!calls.empty() && equals != absl::string_view::npos && std::all_of(line.begin(), line.begin() + equals, letter)) {
      EXPECT_TRUE(known.contains(calls.back()) && known.at(calls.back()).contains(std::string(line.substr(0, equals))))
          << calls.back() << ": " << line;
      ++checked;
    }
    if (!absl::EndsWith(line, "(")) continue;
    size_t begin = line.size() - 1;
    while (begin > 0 && letter(line[begin - 1])) --begin;
    calls.emplace_back(line.substr(begin, line.size() - 1 - begin));
  }
  EXPECT_TRUE(calls.empty()) << "parentheses";
  return checked;
}

TEST(ExportNames, TorchtitanHasAllFields) {
  ForAllFiles(ExportFormat::kTorchtitan, [](size_t version, const ExportedFile& file) {
    if (absl::EndsWith(file.name, ".toml")) return CheckToml(file.text);
    EXPECT_GT(CheckCalls(file.text, version == 0 ? kTorchtitanModel : kTorchtitanPython), 9);
  });
}

}  // namespace
}  // namespace lynx
