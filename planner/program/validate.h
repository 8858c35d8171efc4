// The validator of programs. It is independent of the planner, and every worker runs it again before the first step. Pure.
#ifndef LYNX_PLANNER_PROGRAM_VALIDATE_H_
#define LYNX_PLANNER_PROGRAM_VALIDATE_H_

#include <vector>

#include "absl/status/status.h"
#include "planner/problem/stage_context.h"
#include "planner/program/action.h"

namespace lynx {

// Returns FailedPrecondition with the action (text and index) and the rule that it breaks. For the program of one pipeline
// rank, the rules are: stage, microbatch, layer, segment and ops are in range and exist. On each of its virtual stages every
// microbatch (in a bidirectional pipeline: every microbatch of its copy of the model) runs each forward segment, backward
// segment and weight pass exactly once and in order, and begins after a neighbour on the same rank has passed on its input.
// Each start has one later wait of its own. Except in the tensor-parallel group, the waits of a group come in the order of the
// starts. Collectives follow the segments that end in them. A tensor is written before it is read. While a transfer is in
// flight, no action touches what the transfer writes or changes what it reads. Recomputed ops do not change gradients. Gradient
// reduction follows the last weight pass of its layer. NORM and OPT come once, at the end. The slots of a schedule may come in
// any order.
absl::Status ValidateProgram(const Program& program, const StageContext& context);

// Validates each rank alone, then checks across ranks that the slices join to the model and that sends and receives match
// in number and order. It does not look for cycles of ranks that wait for each other; the simulation finds those.
absl::Status ValidatePrograms(const std::vector<Program>& programs, const std::vector<StageContext>& contexts);

}  // namespace lynx

#endif  // LYNX_PLANNER_PROGRAM_VALIDATE_H_
