// What ZeRO (Rajbhandari et al. 2020) changes in a program. Ranks that hold the same weights
// (StageContext::gradient_ranks) shard optimizer states, then gradients, then weights:
//
//   ZeRO-1  reduce-scatter gradients after the step's last backward, and all-gather weights after the optimizer
//   ZeRO-2  reduce-scatter each layer's gradients after its backward of every microbatch, because there is no memory to
//           accumulate all of them; and all-gather weights after the optimizer
//   ZeRO-3  also all-gather a layer's weights before its passes, and never after the optimizer
//
// DP and PG actions name layers, not microbatches: a reduction sums whatever was added since the previous reduction of the
// layer. Pure; thread-safe.
#ifndef LYNX_PLANNER_PROGRAM_STATE_SHARING_H_
#define LYNX_PLANNER_PROGRAM_STATE_SHARING_H_

#include "planner/problem/stage_context.h"
#include "planner/program/action.h"

namespace lynx {

// True if the rank's embedding is also its output projection: one weight, to whose gradients both layers add.
bool HoldsTiedEmbedding(const StageContext& context);

// These three functions return false if only one rank holds the weights.
bool SharesWeights(const StageContext& context);          // ZeRO-3
bool ReducesEachMicrobatch(const StageContext& context);  // ZeRO-2 and -3
bool GathersUpdatedWeights(const StageContext& context);  // ZeRO-1 and -2

// Number of ranks among which each layer's optimizer states are sharded; 1: they are not sharded.
int32_t OptimizerShares(const StageContext& context);
// A layer's parameters, padded to a multiple of the number of shares, so that all shares have the same size.
int64_t Shareable(const StageContext& context, int64_t parameters);

// True if a compute action reads weights of its layer: forward ops with parameters, and input gradients of all ops except
// the addition of biases and the embedding.
bool ReadsWeights(const Action& action, const LayerGraph& graph, const LayerShape& shape);
// True if an action adds to the gradients of its layer's weights: weight passes, and input-gradient passes of ops without a
// weight pass (norms, the embedding, biases under sequence parallelism).
bool AddsWeightGradients(const Action& action, const LayerGraph& graph, const LayerShape& shape);

}  // namespace lynx

#endif  // LYNX_PLANNER_PROGRAM_STATE_SHARING_H_
