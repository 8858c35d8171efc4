// Lowering turns schedule, policies and partition into one action program per pipeline rank, in several phases. The first
// phases add these things: the order of slots and what crosses the rank's borders (planner/schedule/lower_slots.h); segments,
// their collectives, and recomputation in their windows (planner/lower/lower_layers.h); transfers between ranks, gradient
// reduction and the optimizer. Further phases change the finished program: they add recomputation of inputs
// (planner/lower/lower_chain.h), copies to the host (planner/lower/lower_offload.h), and sharded model states
// (planner/lower/lower_sharing.h). Pure.
//
// If two neighbouring virtual stages are on one rank, x and its gradient need no transfer: both stages use the same buffers.
#ifndef LYNX_PLANNER_LOWER_LOWER_H_
#define LYNX_PLANNER_LOWER_LOWER_H_

#include <cstdint>
#include <vector>

#include "planner/problem/stage_context.h"
#include "planner/program/action.h"
#include "planner/recompute/recompute_policy.h"
#include "planner/schedule/lower_slots.h"

namespace lynx {

// The maximum number of microbatches whose activations stage s of a 1F1B pipeline holds at the same time: min(p - s, M).
int32_t InFlight(int32_t stage, int32_t stages, int32_t microbatches);

// The program of a rank that runs `slots`, with one policy for each of its slices. `slots` come from SlotsToLower. Their
// schedule must be for the context's pipeline. It must have slots for weight gradients (Schedule::splits_weight) exactly if the
// layout's schedule has them.
Program LowerStage(const StageContext& context, const std::vector<RankSlot>& slots, const std::vector<StagePolicy>& policies);
// Lowers a rank with the slots of the layout's own schedule. LYNX_CHECK fails if the layout has no schedule for the context's
// number of microbatches.
Program LowerStage(const StageContext& context, const std::vector<StagePolicy>& policies);
// Does the same as the function above for a rank that has one slice.
Program LowerStage(const StageContext& context, const StagePolicy& policy);

}  // namespace lynx

#endif  // LYNX_PLANNER_LOWER_LOWER_H_
