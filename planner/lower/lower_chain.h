// The lowering pass that recomputes inputs of layers (StagePolicy::input_recomputed): Megatron-LM's uniform recomputation
// of groups of layers. Pure.
//
// A chain is a run of layers that keep only the first layer's input. Before anything else is recomputed for its top
// layer, each layer below, from the chain's first layer up, runs its whole recomputation, and then fc2, its collective
// and add2, which make the next layer's input. So all activations of the chain are present while its backward runs. With
// sequence parallelism the layers below the top gather again what their weight gradients read, as they would without
// recomputation.
#ifndef LYNX_PLANNER_LOWER_LOWER_CHAIN_H_
#define LYNX_PLANNER_LOWER_LOWER_CHAIN_H_

#include <vector>

#include "planner/problem/stage_context.h"
#include "planner/program/action.h"
#include "planner/recompute/recompute_policy.h"

namespace lynx {

// `program` must be lowered as if every input were kept. `policies`: for the context's slices.
Program RecomputeInputs(Program program, const StageContext& context, const std::vector<StagePolicy>& policies);

}  // namespace lynx

#endif  // LYNX_PLANNER_LOWER_LOWER_CHAIN_H_
