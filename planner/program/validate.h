// The validator of programs. It is independent of the planner, and every worker runs it again before the first step. Pure.
#ifndef LYNX_PLANNER_PROGRAM_VALIDATE_H_
#define LYNX_PLANNER_PROGRAM_VALIDATE_H_

#include <vector>

#include "absl/status/status.h"
#include "planner/problem/stage_context.h"
#include "planner/program/action.h"

namespace lynx {

// Validates the program of one pipeline rank. Returns FailedPrecondition with the action (text and index) and the rule that it
// breaks. The rules are:
// - Stage, microbatch, layer, segment and ops are in range and exist.
// - On each virtual stage of the rank, every microbatch (in a bidirectional pipeline: of this copy of the model) runs each
//   forward segment, backward segment and weight pass exactly once and in order. If a neighbour stage is on the same rank, the
//   microbatch begins after this neighbour has finished its pass.
// - Each start has one later wait of its own. The waits of a group come in the order of the starts, except in the
//   tensor-parallel group.
// - Collectives follow the segments that end in them.
// - A tensor is written before it is read. While a transfer is in flight, no action touches what the transfer writes or changes
//   what it reads. Recomputed ops do not change gradients.
// - The reduction of a layer's gradients follows the last weight pass of the layer (with ZeRO-2 and ZeRO-3: of the layer and
//   microbatch). NORM and OPT come once, at the end. With ZeRO-1 and ZeRO-2, gathers of updated weights follow OPT.
// The slots of a schedule may come in any order.
absl::Status ValidateProgram(const Program& program, const StageContext& context);

// Validates each rank alone. Then checks across ranks that the slices together are the model, and that sends and receives
// match in number and order. The function does not look for ranks that wait for each other in a cycle; the simulation finds
// such deadlocks.
absl::Status ValidatePrograms(const std::vector<Program>& programs, const std::vector<StageContext>& contexts);

}  // namespace lynx

#endif  // LYNX_PLANNER_PROGRAM_VALIDATE_H_
