// What ZeRO (Rajbhandari et al. 2020) changes in a program. Ranks that hold the same weights (StageContext::gradient_ranks)
// shard optimizer states, then gradients, then weights. They may do so in groups (ShardRanks): a group gathers its weights
// alone, and a reduction has a second part, which sums the shares of the groups. The stages are:
//
//   ZeRO-1  reduce-scatters gradients after the last backward pass of the step, and all-gathers weights after the optimizer
//   ZeRO-2  reduce-scatters a layer's gradients after its backward pass of every microbatch, because there is no memory to
//           accumulate the gradients of all layers; also all-gathers weights after the optimizer
//   ZeRO-3  reduces like ZeRO-2; all-gathers a layer's weights before the layer's passes, and not after the optimizer
//
// DP and PG actions name layers, but no microbatches: a reduction sums everything that was added since the previous reduction
// of the layer. Pure; thread-safe.
#ifndef LYNX_PLANNER_PROGRAM_STATE_SHARING_H_
#define LYNX_PLANNER_PROGRAM_STATE_SHARING_H_

#include "planner/problem/stage_context.h"
#include "planner/program/action.h"

namespace lynx {

// True if the rank's embedding and output projection are the same weight. Both layers then add to the gradients of this weight.
bool HoldsTiedEmbedding(const StageContext& context);

// If only one rank holds the weights, these three functions return false.
bool SharesWeights(const StageContext& context);          // true with ZeRO-3
bool ReducesEachMicrobatch(const StageContext& context);  // true with ZeRO-2 and ZeRO-3
bool GathersUpdatedWeights(const StageContext& context);  // true with ZeRO-1 and ZeRO-2

// Number of ranks among which each layer's optimizer states are sharded. 1: the states are not sharded.
int32_t OptimizerShares(const StageContext& context);
// The elements of a share are padded to a multiple of this number. In 32 bits these are 256 bytes, the alignment of memory that
// a device allocates.
inline constexpr int64_t kShareAlignment = 64;
// A layer's parameters, padded so that all shares have the same size, a multiple of kShareAlignment. So the next layer begins
// aligned, too: matrix products on GPUs are slow with matrices that are not. Without shares, nothing is padded.
int64_t Shareable(const StageContext& context, int64_t parameters);

// Experts (ParallelLayout::ep). The ranks that hold the same experts sum the gradients of these, and with ZeRO-1 shard their
// states, apart from the layer's other parameters: XP and XG actions instead of DP and PG. Other ranks may hold them than hold
// the other parameters: with tp 2, dp 1 and ep 1, two ranks hold all experts. Each layer has an XP if HasExpertReplicas.
bool HasExpertReplicas(const StageContext& context);
int32_t ExpertShares(const StageContext& context);  // as OptimizerShares
// Works like Shareable, for the parameters of a layer's experts.
int64_t ShareableExperts(const StageContext& context, int64_t parameters);

// True if a compute action reads weights of its layer. Forward ops with parameters read weights. So do the input-gradient
// passes of these ops, except add1, add2 and the ops of the embedding layer.
bool ReadsWeights(const Action& action, const LayerGraph& graph, const LayerShape& shape);
// True if an action adds to the gradients of its layer's weights. Weight passes do so, and also the input-gradient passes of
// ops that have no weight pass (norms, the embedding, and biases with sequence parallelism).
bool AddsWeightGradients(const Action& action, const LayerGraph& graph, const LayerShape& shape);

}  // namespace lynx

#endif  // LYNX_PLANNER_PROGRAM_STATE_SHARING_H_
