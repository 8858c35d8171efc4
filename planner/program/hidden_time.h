// Hidden recomputation is the part of the time of an R action that passes before a certain transfer completes: the transfer of
// the next wait after the R action. The search for this wait skips R actions, W actions and starts (which take no time). If the
// transfer starts after the R action, or if another computation comes before the wait, the R action is completely exposed. The
// simulation and the engine's measurement use this one rule.
//
// Pure; thread-safe.
#ifndef LYNX_PLANNER_PROGRAM_HIDDEN_TIME_H_
#define LYNX_PLANNER_PROGRAM_HIDDEN_TIME_H_

#include <cstdint>
#include <vector>

#include "common/units.h"
#include "planner/program/action.h"

namespace lynx {

// For each action: the index of the start of the transfer that hides it. -1: no transfer hides the action, or the action is no
// R action. `start_of_wait` has the index of the start for each wait.
std::vector<int32_t> HidingStarts(const Program& program, const std::vector<int32_t>& start_of_wait);

// An R action runs from `begin` to `end`, and its transfer completes at `transfer_end`. Returns how much of the action is
// hidden.
Nanos HiddenPart(Nanos begin, Nanos end, Nanos transfer_end);

}  // namespace lynx

#endif  // LYNX_PLANNER_PROGRAM_HIDDEN_TIME_H_
