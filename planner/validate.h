// The validator: independent of the planner, run again by every worker before the first step. Pure.
#ifndef LYNX_PLANNER_VALIDATE_H_
#define LYNX_PLANNER_VALIDATE_H_

#include <vector>

#include "absl/status/status.h"
#include "planner/action.h"
#include "planner/stage_context.h"

namespace lynx {

// FailedPrecondition naming the action (text and index) and the rule it breaks. Checks, for one stage's program: stage,
// microbatch, layer, segment and ops are in range and exist; every microbatch runs each forward segment, backward
// segment and weight pass exactly once and in order; each start has one later wait of its own and starts and waits of
// a group pair in order; collectives follow the segments that end in them; nothing is read before it is written or
// while a transfer writes it; recomputed ops do not change gradients; gradient reduction follows the last weight pass of
// its layer; NORM and OPT come once, last.
absl::Status ValidateProgram(const Program& program, const StageContext& context);

// Each stage alone, then between stages: sends and receives match in number and order.
absl::Status ValidatePrograms(const std::vector<Program>& programs, const std::vector<StageContext>& contexts);

}  // namespace lynx

#endif  // LYNX_PLANNER_VALIDATE_H_
