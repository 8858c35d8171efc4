#include "planner/engine_support.h"

#include "absl/strings/str_cat.h"

namespace lynx {

absl::Status CheckEngineRuns(const RecomputeOptions& options) {
  if (options.offload_permille == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "recomputeOptions.offloadShare above 0 can be planned (lynxctl plan), but the engine of this version copies nothing "
      "to the host");
}

absl::Status CheckEngineRuns(const Program& program) {
  for (const Action& action : program) {
    if (InfoOf(action.kind).group != Group::kHost) continue;
    return absl::FailedPreconditionError(absl::StrCat("the program has ", ActionText(action),
                                                      ", but the engine of this version copies nothing to the host; plan "
                                                      "the job without recomputeOptions.offloadShare"));
  }
  return absl::OkStatus();
}

}  // namespace lynx
