// What ZeRO (Rajbhandari et al. 2020) changes in a program: ranks that hold the same weights (StageContext::
// gradient_ranks) share out optimizer states, then gradients, then weights, and so
//
//   ZeRO-1  reduce-scatter gradients after the step's last backward, and all-gather weights after the optimizer
//   ZeRO-2  reduce-scatter each layer's gradients after its backward of every microbatch, for there is no room to sum
//           all of them; and all-gather weights after the optimizer
//   ZeRO-3  also all-gather a layer's weights before its passes, and never after the optimizer
//
// DP and PG name layers, not microbatches: what a reduction takes is whatever was added since the last one.
// Pure; thread-safe.
#ifndef LYNX_PLANNER_PROGRAM_STATE_SHARING_H_
#define LYNX_PLANNER_PROGRAM_STATE_SHARING_H_

#include "planner/problem/stage_context.h"
#include "planner/program/action.h"

namespace lynx {

// Whether the rank's embedding is its output projection too: one weight, to whose gradients both add.
bool HoldsTiedEmbedding(const StageContext& context);

// None of them where one rank alone holds the weights.
bool SharesWeights(const StageContext& context);          // ZeRO-3
bool ReducesEachMicrobatch(const StageContext& context);  // ZeRO-2 and -3
bool GathersUpdatedWeights(const StageContext& context);  // ZeRO-1 and -2

// Ranks among which each layer's optimizer states are shared out; 1: they are not.
int32_t OptimizerShares(const StageContext& context);
// A layer's parameters with what makes them divisible by the shares, which are then all of one size.
int64_t Shareable(const StageContext& context, int64_t parameters);

// Whether a compute action reads weights of its layer: forward ops with parameters, and input gradients of all but
// additions of biases and the embedding.
bool ReadsWeights(const Action& action, const LayerGraph& graph, const LayerShape& shape);
// Whether it adds to the gradients of its layer's weights: weight passes, and input-gradient passes of ops that have
// none (norms, the embedding, biases under sequence parallelism).
bool AddsWeightGradients(const Action& action, const LayerGraph& graph, const LayerShape& shape);

}  // namespace lynx

#endif  // LYNX_PLANNER_PROGRAM_STATE_SHARING_H_
