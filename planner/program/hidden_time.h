// Hidden recomputation: the part of the time of an R action that passes before a transfer completes. The transfer is that
// of the next wait. R and W actions before that wait are skipped, and so are starts, which only hand a transfer over. A
// transfer that starts after the R action hides none of it, and other computation before the wait exposes it whole. The
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

// For each R action the start of the transfer that hides it. -1: no transfer hides it, or it is another action.
// `start_of_wait` has the start of each wait.
std::vector<int32_t> HidingStarts(const Program& program, const std::vector<int32_t>& start_of_wait);

// The part of an R action from `begin` to `end` that is hidden by a transfer that completes at `transfer_end`.
Nanos HiddenPart(Nanos begin, Nanos end, Nanos transfer_end);

}  // namespace lynx

#endif  // LYNX_PLANNER_PROGRAM_HIDDEN_TIME_H_
