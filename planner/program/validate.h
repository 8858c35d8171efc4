// The validator: independent of the planner, run again by every worker before the first step. Pure.
#ifndef LYNX_PLANNER_PROGRAM_VALIDATE_H_
#define LYNX_PLANNER_PROGRAM_VALIDATE_H_

#include <vector>

#include "absl/status/status.h"
#include "planner/problem/stage_context.h"
#include "planner/program/action.h"

namespace lynx {

// FailedPrecondition naming the action (text and index) and the rule it breaks. Checks, for the program of one pipeline
// rank: stage, microbatch, layer, segment and ops are in range and exist; on each of its virtual stages every microbatch
// (in a bidirectional pipeline: every one of its copy of the model) runs each forward segment, backward segment and
// weight pass exactly once and in order, and begins after a neighbour on the same rank has handed on what it works on;
// each start has one later wait of its own and starts and waits of a group pair in order; collectives follow the
// segments that end in them; nothing is read before it is written; nothing touches what a transfer under way writes, nor
// changes what one reads; recomputed ops do not change gradients; gradient reduction follows the last weight pass of its
// layer; NORM and OPT come once, last. In which order the slots of a schedule come is free.
absl::Status ValidateProgram(const Program& program, const StageContext& context);

// Each rank alone, then between ranks: slices join to the model, sends and receives match in number and order. Whether
// ranks wait for each other in a circle is the simulation's to find.
absl::Status ValidatePrograms(const std::vector<Program>& programs, const std::vector<StageContext>& contexts);

}  // namespace lynx

#endif  // LYNX_PLANNER_PROGRAM_VALIDATE_H_
