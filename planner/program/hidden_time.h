// Hidden recomputation: the part of the time of an R action that passes before a transfer completes. This is the transfer of
// the next wait after the R action. On the way to this wait, R actions, W actions and starts (which take no time) are skipped.
// If the transfer starts after the R action, or if another computation comes before the wait, the R action is exposed
// completely. The simulation and the engine's measurement use this one rule.
//
// Pure; thread-safe.
#ifndef LYNX_PLANNER_PROGRAM_HIDDEN_TIME_H_
#define LYNX_PLANNER_PROGRAM_HIDDEN_TIME_H_

#include <cstdint>
#include <vector>

#include "common/units.h"
#include "planner/program/action.h"

namespace lynx {

// For each R action the start of the transfer that hides it. -1: no transfer hides the action, or the action is no R action.
// `start_of_wait` has the index of the start for each wait.
std::vector<int32_t> HidingStarts(const Program& program, const std::vector<int32_t>& start_of_wait);

// The part of an R action from `begin` to `end` that is hidden by a transfer that completes at `transfer_end`.
Nanos HiddenPart(Nanos begin, Nanos end, Nanos transfer_end);

}  // namespace lynx

#endif  // LYNX_PLANNER_PROGRAM_HIDDEN_TIME_H_
