// The rules that the model of a job must keep. Pure; thread-safe.
#ifndef LYNX_PLANNER_PROBLEM_MODEL_RULES_H_
#define LYNX_PLANNER_PROBLEM_MODEL_RULES_H_

#include <cstdint>

#include "absl/status/status.h"
#include "planner/problem/job_spec.h"

namespace lynx {

// Upper limits that fields outside of the model have, too.
inline constexpr int64_t kMaxLayers = 1000;
inline constexpr int64_t kMaxHidden = 1 << 17;

// InvalidArgument: a field of the model has a value that no model can have, or that does not go with another field. The text
// names the fields as in job files, and says what to do.
absl::Status ValidateModel(const ModelSpec& model);

}  // namespace lynx

#endif  // LYNX_PLANNER_PROBLEM_MODEL_RULES_H_
