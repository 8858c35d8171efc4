#include "planner/frameworks/framework.h"

#include <algorithm>
#include <array>

namespace lynx {
namespace {

// Constants that are fitted to measured runs; docs/validation.md says to which. tests/validation fits the first three again.
constexpr int32_t kMegatronDeepspeedHostNanos = 61'000;
constexpr int32_t kInternevoBroadcastNanos = 3'500'000;
constexpr int32_t kExpertProductHostNanos = 115'000;
constexpr int64_t kMegatronWorkspaceBytes = 90'000'000;

// Megatron Core with --overlap-grad-reduce and --overlap-param-gather. Transfers between stages overlap with passes only in the
// interleaved schedule (overlap_p2p_comm in megatron/training/arguments.py). The ranks' order and recomputation of whole
// functions are those of megatron/core/parallel_state.py ("tp-cp-ep-dp-pp") and megatron/core/tensor_parallel/random.py. The
// head computes 16-bit logits and a 32-bit copy of them for the loss (megatron/core/models/gpt/gpt_model.py,
// megatron/core/tensor_parallel/cross_entropy.py).
//
// Experts. The dispatcher alltoall calls sort_chunks_by_idxs before and after the products
// (megatron/core/transformer/moe/token_dispatcher.py). Biases of fc2 are added in 32 bits, one expert after another
// (TEGroupedMLP._apply_bias in experts.py): forward, bias * probability is written (4 bytes), added to the 16-bit result (2 + 4
// read, 4 written), concatenated (4 + 4) and rounded (4 + 2); backward, the gradient is widened (2 + 4), rounded and
// concatenated (4 + 2, 2 + 2), and multiplied and summed for the gradients of bias and probability (4 + 4 + 4 each).
//
// With Transformer Engine, the default of --transformer-impl, norms are part of linear_qkv and linear_fc1
// (megatron/core/models/gpt/gpt_layer_specs.py).
constexpr FrameworkTraits kMegatronCore{.checkpoints_functions = true,
                                        .fuses_norms = true,
                                        .blocks_without_virtual_stages = true,
                                        .hides_weight_gather = true,
                                        .sorts_rows = true,
                                        .forward_bias_bytes = 28,
                                        .backward_bias_bytes = 40,
                                        .rank_order = RankOrder::kTpDpPp,
                                        .expert_product_host_nanos = kExpertProductHostNanos,
                                        .half_logits_copies = 1,
                                        .workspace_bytes = kMegatronWorkspaceBytes};
// DeepSpeed's pipeline of 2021 and 2022: exchanges and reductions stand between the passes (deepspeed/runtime/pipe/engine.py),
// and the topology numbers tensor ranks, then replicas, then stages (PipeModelDataParallelTopology). The model's ops are
// launched one by one from Python.
constexpr FrameworkTraits kMegatronDeepspeed{.checkpoints_functions = true,
                                             .blocking_transfers = true,
                                             .overlaps_data_reduction = false,
                                             .rank_order = RankOrder::kTpDpPp,
                                             .host_nanos_per_op = kMegatronDeepspeedHostNanos,
                                             .float_logits_copies = 2,
                                             .half_logits_copies = 1};
// DeepSpeed's engine with overlap_comm. ZeRO-1's gather follows the optimizer (deepspeed/runtime/zero/stage_1_and_2.py). The
// loss of Hugging Face's models casts the logits to 32 bits and keeps their logarithm of the softmax.
constexpr FrameworkTraits kDeepspeed{.checkpoints_functions = true,
                                     .blocking_transfers = true,
                                     .rank_order = RankOrder::kTpDpPp,
                                     .float_logits_copies = 2,
                                     .half_logits_copies = 1};
// FSDP gathers a unit (a layer) while the one before it computes, and reduces gradients at the same time as the backward pass
// (torch.distributed.fsdp, BackwardPrefetch.BACKWARD_PRE). Shards are 32 bits wide; mixed precision casts them when they are
// gathered. llm-foundry's loss is flash-attention's, which works in place.
constexpr FrameworkTraits kFsdp{
    .checkpoints_functions = true, .rank_order = RankOrder::kTpDpPp, .half_logits_copies = 1, .gathers_from_master = true};
// The same as FSDP, except that torchtitan's loss casts the logits to 32 bits (torchtitan/components/loss.py).
constexpr FrameworkTraits kTorchtitan{.checkpoints_functions = true,
                                      .checkpoints_ops = true,
                                      .rank_order = RankOrder::kTpDpPp,
                                      .float_logits_copies = 2,
                                      .half_logits_copies = 1,
                                      .gathers_from_master = true};
// Exchanges between stages stand between the passes (nanotron/parallel/pipeline_parallel/p2p.py); the sharded loss casts its
// logits to 32 bits (nanotron/parallel/tensor_parallel/functional.py).
constexpr FrameworkTraits kNanotron{.checkpoints_functions = true,
                                    .blocking_transfers = true,
                                    .rank_order = RankOrder::kTpDpPp,
                                    .float_logits_copies = 2,
                                    .half_logits_copies = 1};
// The hybrid ZeRO optimizer broadcasts each replica's weights after the step; gradients are reduced at the same time as the
// backward pass (overlap_sync_grad; internlm/solver/optimizer/hybrid_zero_optim.py).
constexpr FrameworkTraits kInternevo{.checkpoints_functions = true,
                                     .broadcast_nanos_per_replica = kInternevoBroadcastNanos,
                                     .rank_order = RankOrder::kTpDpPp,
                                     .float_logits_copies = 2,
                                     .half_logits_copies = 1};

// NeMo and Megatron-Bridge run Megatron Core; their recipes of mixtures send rows with DeepEP or HybridEP
// (moe_flex_dispatcher_backend in src/megatron/bridge/training/flex_dispatcher_backend.py).
constexpr FrameworkTraits NemoTraits() {
  FrameworkTraits traits = kMegatronCore;
  traits.rows_once_per_node = true;
  traits.sorts_rows = false;
  return traits;
}

constexpr std::array<FrameworkTraits, kFrameworkCount> kTraits = {
    kLynxTraits, kMegatronCore, kMegatronDeepspeed, kDeepspeed, kTorchtitan, kFsdp, kNanotron, NemoTraits(), kInternevo};

// The abilities of a framework: schedules in addition to 1F1B, and ZeRO stages from `least_zero` to `most_zero` (to
// `most_zero_of_pipeline` with a pipeline).
struct Abilities {
  bool tensor = true, pipeline = true, context = true, sequence = true;
  bool interleaved = false, zero_bubble = false;
  bool experts = false;         // experts on several ranks (ParallelLayout::ep)
  bool groups = false;          // ZeRO over groups of the replicas (ParallelLayout::zero_group)
  bool optimizer_alone = true;  // ZeRO-1; false for torchtitan, whose FSDP2 shards either the gradients too, or nothing
  ZeroStage least_zero = ZeroStage::kNone, most_zero = ZeroStage::kOptimizer, most_zero_of_pipeline = ZeroStage::kOptimizer;
  ZeroStage most_zero_of_tensor = ZeroStage::kWeights;
};
constexpr std::array<Abilities, kFrameworkCount> kAbilities = {{
    {.context = false, .interleaved = true, .zero_bubble = true, .experts = true},  // lynx
    {.interleaved = true,
     .experts = true,
     .groups = true,
     .most_zero = ZeroStage::kWeights},                      // megatron (Megatron-FSDP; instances of the optimizer)
    {.context = false, .sequence = false, .experts = true},  // megatron-deepspeed
    {.context = false,
     .sequence = false,
     .experts = true,
     .most_zero = ZeroStage::kWeights,
     .most_zero_of_tensor = ZeroStage::kGradients},  // deepspeed
    {.interleaved = true,
     .zero_bubble = true,
     .groups = true,
     .optimizer_alone = false,
     .most_zero = ZeroStage::kWeights,
     .most_zero_of_pipeline = ZeroStage::kWeights},  // torchtitan
    {.tensor = false,
     .pipeline = false,
     .context = false,
     .groups = true,
     .least_zero = ZeroStage::kGradients,
     .most_zero = ZeroStage::kWeights},
    {.context = false},                                                          // nanotron
    {.interleaved = true, .experts = true, .most_zero = ZeroStage::kWeights},    // nemo
    {.context = false, .sequence = false, .interleaved = true, .groups = true},  // internevo (zero1.size)
}};

bool HasSchedule(const Abilities& can, ScheduleKind schedule) {
  switch (schedule) {
    case ScheduleKind::kOneForwardOneBackward: return true;
    case ScheduleKind::kInterleaved: return can.interleaved;
    case ScheduleKind::kZeroBubble: return can.zero_bubble;
    default: return false;
  }
}

}  // namespace

const FrameworkTraits& TraitsOf(Framework framework) { return kTraits.at(static_cast<size_t>(framework)); }

bool RunsLayout(Framework framework, const ParallelLayout& layout) {
  const Abilities& can = kAbilities.at(static_cast<size_t>(framework));
  if ((layout.tp > 1 && !can.tensor) || (layout.pp > 1 && !can.pipeline) || (layout.cp > 1 && !can.context)) return false;
  if (layout.sequence_parallel && !can.sequence) return false;
  const ZeroStage most = std::min(layout.pp > 1 ? can.most_zero_of_pipeline : can.most_zero,
                                  layout.tp > 1 ? can.most_zero_of_tensor : ZeroStage::kWeights);
  if (layout.zero > most || (layout.zero < can.least_zero && layout.dp > 1)) return false;
  if (layout.ep > 1 && !can.experts) return false;
  if (layout.zero_group != 0 && !can.groups) return false;
  if (layout.zero == ZeroStage::kOptimizer && !can.optimizer_alone) return false;
  return layout.weave == WeaveMode::kOff && HasSchedule(can, layout.schedule);
}

}  // namespace lynx
