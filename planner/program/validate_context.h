// The part of validation that checks only contexts, for planner/program/validate.cc. Pure.
#ifndef LYNX_PLANNER_PROGRAM_VALIDATE_CONTEXT_H_
#define LYNX_PLANNER_PROGRAM_VALIDATE_CONTEXT_H_

#include "absl/status/status.h"
#include "planner/problem/stage_context.h"

namespace lynx {

// Returns FailedPrecondition unless a pipeline rank can have this context: degrees divide the model, a schedule exists
// for this number of microbatches, and the slices are those that the layout puts on the rank.
absl::Status CheckContext(const StageContext& context);

}  // namespace lynx

#endif  // LYNX_PLANNER_PROGRAM_VALIDATE_CONTEXT_H_
