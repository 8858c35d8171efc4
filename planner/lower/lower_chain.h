// The phase of lowering for recomputed inputs of layers (StagePolicy::input_recomputed). This is Megatron-LM's uniform
// recomputation of groups of layers. Pure.
//
// A chain is a sequence of consecutive layers of which only the first layer's input is stored. Before anything is recomputed
// for the top layer, the layers below it are recomputed, beginning with the chain's first layer. Each of these layers runs its
// whole recomputation, and then fc2, fc2's collective and add2, which compute the next layer's input. So all activations of the
// chain are in memory while the chain's backward runs. With sequence parallelism, the layers below the top gather again what
// their weight gradients read, as they do without recomputation.
#ifndef LYNX_PLANNER_LOWER_LOWER_CHAIN_H_
#define LYNX_PLANNER_LOWER_LOWER_CHAIN_H_

#include <vector>

#include "planner/problem/stage_context.h"
#include "planner/program/action.h"
#include "planner/recompute/recompute_policy.h"

namespace lynx {

// Changes `program`, which must have been lowered as if every layer's input were stored. `policies` has one policy for each
// slice of the context.
Program RecomputeInputs(Program program, const StageContext& context, const std::vector<StagePolicy>& policies);

}  // namespace lynx

#endif  // LYNX_PLANNER_LOWER_LOWER_CHAIN_H_
