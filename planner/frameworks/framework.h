// The training frameworks whose steps the planner can estimate, and how each of them runs a step. A trait is something that the
// framework does in every job, whatever its layout: it is not measured on a machine and not a choice of the user. Plain data;
// pure; thread-safe.
#ifndef LYNX_PLANNER_FRAMEWORKS_FRAMEWORK_H_
#define LYNX_PLANNER_FRAMEWORKS_FRAMEWORK_H_

#include <cstdint>

#include "common/enum_names.h"
#include "planner/problem/job_spec.h"
#include "planner/problem/layout.h"

namespace lynx {

// kLynx: this project's own engine. kMegatron: Megatron-LM and Megatron Core. kMegatronDeepspeed: Megatron-DeepSpeed, the fork
// of 2021 and 2022 with DeepSpeed's pipeline. kDeepspeed: DeepSpeed's engine around a model in eager PyTorch. kFsdp: PyTorch
// FSDP as llm-foundry runs it.
enum class Framework : uint8_t {
  kLynx,
  kMegatron,
  kMegatronDeepspeed,
  kDeepspeed,
  kTorchtitan,
  kFsdp,
  kNanotron,
  kNemo,
  kInternevo
};
template <>
inline constexpr auto kEnumNames<Framework> = EnumTable("lynx", "megatron", "megatron-deepspeed", "deepspeed", "torchtitan",
                                                        "fsdp", "nanotron", "nemo", "internevo");
inline constexpr int kFrameworkCount = 9;

// Says how a framework runs a step.
struct FrameworkTraits {
  // Recomputation calls a checkpointed function again as a whole. This includes its last op, although no op reads the result
  // (the layer's fc2 with its collective and addition; the last product of the attention core). Lynx recomputes only what an op
  // reads.
  bool checkpoints_functions = false;
  // kBalanced is torchtitan's checkpointing by op (layer_repeat.h).
  bool checkpoints_ops = false;
  // Norms are part of the linear that follows them, so that a module that recomputes norms does not find them
  // (recompute_modules.h).
  bool fuses_norms = false;
  // A rank does not compute while it exchanges activations with its neighbours.
  bool blocking_transfers = false;
  // Like blocking_transfers, but only if each rank has one part of the model: with several, transfers run while other passes
  // compute.
  bool blocks_without_virtual_stages = false;
  // Each rank sends its share of x to the next stage, which gathers the shares again ("scatter/gather", Narayanan et al. 2021).
  // This is done if every tensor-parallel rank has the whole x.
  bool scattered_transfers = false;
  // Gradients are summed over the replicas while the backward pass of the last microbatch runs.
  bool overlaps_data_reduction = true;
  // ZeRO-1: the weights that the optimizer updated are gathered layer by layer while the next step's first forward pass runs.
  // Else the gather ends before that pass begins.
  bool hides_weight_gather = false;
  // ZeRO-1: the weights are not gathered in one collective, but broadcast from one replica after another. Each broadcast costs
  // at least this time. 0: one gather.
  int32_t broadcast_nanos_per_replica = 0;
  // Rows of experts cross the network once for each node on which a token has experts.
  bool rows_once_per_node = false;
  // Rows that arrive are sorted by expert, and results are sorted back before they return, by kernels of their own. Without
  // this, rows arrive sorted.
  bool sorts_rows = false;
  // Bytes that the biases of experts' second products move for each element of the results, in the forward and the backward
  // pass (StepRequest::expert_biases).
  int32_t forward_bias_bytes = 0, backward_bias_bytes = 0;
  RankOrder rank_order = RankOrder::kTpPpDp;
  // The host's time for one op of one pass, with the work of the framework around it: a pass of a layer takes at least this
  // time for each of its ops. 0: the host is never behind (its launches are captured in a graph, or cheap).
  int32_t host_nanos_per_op = 0;
  // The host's time for one narrow product of one expert: it quantises operands and launches products expert by expert.
  int32_t expert_product_host_nanos = 0;
  // The speed of fused attention, in thousandths of the speed in the device's cluster file. The kernel belongs to the
  // framework, not to the device.
  int32_t attention_permille = 1000;
  // How many copies of the logits are in memory at the same time, with 32 and with 16 bits a number.
  int32_t float_logits_copies = 1;
  int32_t half_logits_copies = 0;
  // The memory that libraries for matrix products and collectives allocate through the framework's allocator.
  int64_t workspace_bytes = 0;
  // ZeRO-3: weights are cast to 16 bits while they are gathered, and no shard of 16 bits is kept. Shards of gradients have 32
  // bits, also if gradients travel in 16.
  bool gathers_from_master = false;

  bool operator==(const FrameworkTraits&) const = default;
};
inline constexpr FrameworkTraits kLynxTraits{};
// The traits of Megatron-LM at the time of the measurements of Korthikanti et al. 2022.
inline constexpr FrameworkTraits kMegatron2022Traits{.checkpoints_functions = true,
                                                     .blocking_transfers = true,
                                                     .scattered_transfers = true,
                                                     .overlaps_data_reduction = false,
                                                     .rank_order = RankOrder::kTpDpPp};
// The traits of Megatron-LM in Yuan et al. 2024: transfers between stages overlap with compute.
inline constexpr FrameworkTraits kMegatron2024Traits{.checkpoints_functions = true,
                                                     .blocking_transfers = false,
                                                     .scattered_transfers = true,
                                                     .overlaps_data_reduction = false,
                                                     .rank_order = RankOrder::kTpDpPp};

// True if the framework can run this layout: its degrees, its schedule and what it shards over replicas. Whether it can run the
// model is not checked.
bool RunsLayout(Framework framework, const ParallelLayout& layout);

// The traits of a framework in its present versions, with the flags that `lynxctl export` writes. A comment at each value in
// framework.cc names its source.
const FrameworkTraits& TraitsOf(Framework framework);

}  // namespace lynx

#endif  // LYNX_PLANNER_FRAMEWORKS_FRAMEWORK_H_
