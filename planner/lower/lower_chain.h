// The pass of the lowering that makes inputs of layers again (StagePolicy::input_recomputed): Megatron-LM's uniform
// recomputation of groups of layers. Pure.
//
// A chain is a run of layers of which only the first one's input is kept. Before anything else is made again of its top
// layer, each layer below runs its recomputation at once, from the chain's first layer up, and then fc2, its collective
// and add2, which make the next layer's input. So the chain's activations are all there while its backward runs. With
// sequence parallelism the layers below the top gather again what their weight gradients read, as they would without
// recomputation.
#ifndef LYNX_PLANNER_LOWER_LOWER_CHAIN_H_
#define LYNX_PLANNER_LOWER_LOWER_CHAIN_H_

#include <vector>

#include "planner/problem/stage_context.h"
#include "planner/program/action.h"
#include "planner/recompute/recompute_policy.h"

namespace lynx {

// `program`: as if every input were kept. `policies`: of the context's slices.
Program RecomputeInputs(Program program, const StageContext& context, const std::vector<StagePolicy>& policies);

}  // namespace lynx

#endif  // LYNX_PLANNER_LOWER_LOWER_CHAIN_H_
