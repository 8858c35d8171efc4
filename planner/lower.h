// Lowering: schedule, policy and partition become one action program per stage, by passes: the order of microbatches
// (1F1B), segments and their collectives, recomputation into its windows, stage-boundary transfers, gradient
// reduction and the optimizer. Pure.
#ifndef LYNX_PLANNER_LOWER_H_
#define LYNX_PLANNER_LOWER_H_

#include <cstdint>
#include <vector>

#include "planner/action.h"
#include "planner/recompute_policy.h"
#include "planner/stage_context.h"

namespace lynx {

struct MicrobatchPass {
  Pass pass;  // kForward or kBackward
  int32_t microbatch;
  bool operator==(const MicrobatchPass&) const = default;
};

// 1F1B (PipeDream-flush, Narayanan et al. 2021): min(p - s - 1, M) warm-up forwards, then one forward and one backward
// in turn, then the remaining backwards.
std::vector<MicrobatchPass> OneForwardOneBackward(int32_t stage, int32_t stages, int32_t microbatches);
// Most microbatches whose activations a stage holds at once: min(p - s, M).
int32_t InFlight(int32_t stage, int32_t stages, int32_t microbatches);

Program LowerStage(const StageContext& context, const StagePolicy& policy);

}  // namespace lynx

#endif  // LYNX_PLANNER_LOWER_H_
