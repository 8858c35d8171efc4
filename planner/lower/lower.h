// Lowering: schedule, policies and partition become one action program per pipeline rank, by passes: the order of
// slots and what crosses the rank's borders (planner/schedule/lower_slots.h), segments and their collectives, recomputation
// into its windows (planner/lower/lower_layers.h), transfers between ranks, gradient reduction and the optimizer; then, over
// the finished program, inputs that are made again (planner/lower/lower_chain.h), copies to the host
// (planner/lower/lower_offload.h) and shared model states (planner/lower/lower_sharing.h). Pure.
//
// Neighbouring virtual stages on one rank hand x and its gradient on in place, without a transfer.
#ifndef LYNX_PLANNER_LOWER_LOWER_H_
#define LYNX_PLANNER_LOWER_LOWER_H_

#include <cstdint>
#include <vector>

#include "planner/problem/stage_context.h"
#include "planner/program/action.h"
#include "planner/recompute/recompute_policy.h"
#include "planner/schedule/lower_slots.h"

namespace lynx {

// Most microbatches whose activations a stage of 1F1B holds at once: min(p - s, M).
int32_t InFlight(int32_t stage, int32_t stages, int32_t microbatches);

// The program of a rank that runs `slots` (SlotsToLower, of a schedule of the context's pipeline that splits weights as
// the layout's does), with one policy for each of its slices.
Program LowerStage(const StageContext& context, const std::vector<RankSlot>& slots, const std::vector<StagePolicy>& policies);
// The same by the layout's own schedule. LYNX_CHECK fails where there is none for so many microbatches.
Program LowerStage(const StageContext& context, const std::vector<StagePolicy>& policies);
// Of a rank that has one slice.
Program LowerStage(const StageContext& context, const StagePolicy& policy);

}  // namespace lynx

#endif  // LYNX_PLANNER_LOWER_LOWER_H_
