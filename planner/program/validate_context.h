// The part of validation that looks at contexts alone, for planner/program/validate.cc. Pure.
#ifndef LYNX_PLANNER_PROGRAM_VALIDATE_CONTEXT_H_
#define LYNX_PLANNER_PROGRAM_VALIDATE_CONTEXT_H_

#include "absl/status/status.h"
#include "planner/problem/stage_context.h"

namespace lynx {

// FailedPrecondition unless the context is one that a pipeline rank can have: degrees that divide the model, a schedule
// that exists for so many microbatches, and the slices that the layout puts on the rank.
absl::Status CheckContext(const StageContext& context);

}  // namespace lynx

#endif  // LYNX_PLANNER_PROGRAM_VALIDATE_CONTEXT_H_
