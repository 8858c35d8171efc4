// The part of validation that checks only contexts. planner/program/validate.cc uses it. Pure.
#ifndef LYNX_PLANNER_PROGRAM_VALIDATE_CONTEXT_H_
#define LYNX_PLANNER_PROGRAM_VALIDATE_CONTEXT_H_

#include "absl/status/status.h"
#include "planner/problem/stage_context.h"

namespace lynx {

// Returns FailedPrecondition if a pipeline rank cannot have this context. The degrees must divide the model, a schedule must
// exist for this number of microbatches, and the slices must be those that the layout puts on the rank.
absl::Status CheckContext(const StageContext& context);

// Returns FailedPrecondition unless the experts of the model divide into the ranks of an expert group, and the ranks of a stage
// into expert groups. The experts of a model without any are on one rank: ep is 1. The other degrees must be at least 1.
absl::Status CheckExpertGroups(const ModelSpec& model, const ParallelLayout& layout);

}  // namespace lynx

#endif  // LYNX_PLANNER_PROGRAM_VALIDATE_CONTEXT_H_
