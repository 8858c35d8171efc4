// The arguments of Megatron-LM's pretrain_gpt.py that matter to shape, layout, memory or time, in one table: each flag with
// what it becomes. A second list has the flags that do not matter to a plan (logging, data, checkpoints, ...). Names and
// defaults are from megatron/training/arguments.py and the configuration classes that it adds as arguments (TransformerConfig,
// ModelParallelConfig, TrainingConfig and others), of Megatron Core 0.16 to 0.19, and from older versions for flags that were
// renamed. Pure; thread-safe.
#ifndef LYNX_CLI_FRAMEWORKS_MEGATRON_ARGUMENTS_H_
#define LYNX_CLI_FRAMEWORKS_MEGATRON_ARGUMENTS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace lynx::cli {

// The values that were given. nullopt and false: the flag is absent.
struct MegatronArguments {
  using Count = std::optional<int64_t>;
  using Real = std::optional<double>;
  using Text = std::optional<std::string>;
  using Words = std::vector<std::string>;

  Count layers, hidden, ffn, heads, groups, kv_channels, seq, max_positions, vocab, vocab_multiple;
  bool grouped = false, swiglu = false, untied = false, no_bias = false, qkv_bias = false, qk_norm = false;
  bool squared_relu = false, norm_offset = false;
  Text positions, normalization, window;
  bool old_rotary = false, no_positions = false;
  Real norm_epsilon, rotary_base, rotary_percent, rope_factor, attention_dropout, hidden_dropout;
  Count rotary_interpolation;
  bool rope_scaling = false;
  bool bf16 = false, fp16 = false, flash = false, local = false;
  bool reduces_in_bf16 = false, sums_in_fp32 = false;
  Text main_gradients;
  Text attention_backend, transformer_impl, tokenizer;
  Text fp8_format, fp8_recipe, fp4_format, fp4_recipe;
  Count experts, ep, expert_tp, top_k, expert_ffn;
  Text layers_with_experts, score_function, dispatcher, drop_policy;
  Words balancing, aux_loss;
  Real z_loss, capacity, weight_scale, bias_rate;
  bool expert_bias = false, pre_softmax = false, pads_experts = false, grouped_products = false, shared_gate = false;
  Count shared_ffn;
  bool no_binary_head = false;
  bool latent = false;
  Count query_rank, kv_rank, plain_dims, rotary_dims, value_dim;
  Text rope_type;
  Real yarn_factor, mscale, mscale_all_dim;
  bool fp8_hybrid = false, fp8_e4m3 = false;
  Count tp, pp, cp, layers_per_virtual, virtual_stages, first_layers, last_layers, instances;
  bool embedding_counts = false, loss_counts = false;
  Text layout, shards;
  bool sequence_parallel = false, replica_order = false, distributed_optimizer = false, fsdp = false;
  bool overlap_reduce = false, overlap_gather = false;
  Text granularity, method;
  Count recompute_layers;
  bool recompute_activations = false, moe_recompute = false;
  Words recompute_modules;
  Count micro_batch, global_batch, steps, samples;
  Text optimizer, decay_style;
  Real lr, min_lr, beta1, beta2, eps, weight_decay, clip_grad, warmup_fraction;
  Count warmup_steps, warmup_samples, seed, save_interval;
  Words data_path;
  Text save;
};

// The flag that makes products narrow, if one is given.
inline const char* NarrowFlag(const MegatronArguments& values) { return values.fp4_format ? "--fp4-format" : "--fp8-format"; }

// The member of MegatronArguments into which an argument of the command is read.
using MegatronValue = std::variant<MegatronArguments::Count MegatronArguments::*, MegatronArguments::Real MegatronArguments::*,
                                   MegatronArguments::Text MegatronArguments::*, MegatronArguments::Words MegatronArguments::*,
                                   bool MegatronArguments::*>;

struct MegatronFlag {
  const char* flag;
  MegatronValue value;
  const char* becomes;  // the field of the job file
};
absl::Span<const MegatronFlag> MegatronFlags();

// Flags that matter, but for which a job has no field. kSaid: the flag is ignored, and the list `not_taken` names it. kRefused:
// without the flag the model or its layout would differ, so the run cannot be read.
enum class MissingFlag : uint8_t { kSaid, kRefused };
struct MegatronMissing {
  const char* flag;
  MissingFlag kind;
  const char* why;           // in the error, this text follows the flag and a colon
  const char* neutral = "";  // the value with which the flag changes nothing
};
absl::Span<const MegatronMissing> MegatronMissingFlags();

// Flags that have no effect on a plan.
absl::Span<const char* const> MegatronOtherFlags();

struct ReadMegatronArguments {
  MegatronArguments values;
  std::vector<std::string> not_taken;  // "--fp8-format hybrid: why"
  std::vector<std::string> unknown;    // "--flag value"
  // Values of flags without effect that the script does not determine, such as "$LOGS (--tensorboard-dir)".
  std::vector<std::string> unset;
};
// Reads the words after the name of the program. `place` begins errors ("FILE:LINE"). InvalidArgument: a value is missing, is
// not of its type or is not known, or a flag is refused.
absl::StatusOr<ReadMegatronArguments> ReadArguments(const std::vector<std::string>& words, const std::string& place);

}  // namespace lynx::cli

#endif  // LYNX_CLI_FRAMEWORKS_MEGATRON_ARGUMENTS_H_
