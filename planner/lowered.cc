#include "planner/lowered.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace lynx {
namespace {

absl::Status NotPlanned(const std::string& what, const std::string& instead) {
  return absl::InvalidArgumentError(absl::StrCat(what, " is not planned by this version: ", instead));
}

// What the search space knows of layouts, but lowering does not yet.
absl::Status CheckLowered(const ParallelLayout& layout) {
  if (layout.cp > 1) return NotPlanned("parallel.cp above 1", "use 1 or auto");
  if (layout.zero != ZeroStage::kNone) return NotPlanned("parallel.zero", "use none or auto");
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckLowered(const JobSpec& spec) {
  if (spec.recompute == RecomputeMode::kOpt) return NotPlanned("recompute opt", "use heu");
  if (spec.recompute == RecomputeMode::kUniform && spec.recompute_options.layers > 1) {
    return NotPlanned(absl::StrCat("recompute uniform with recomputeOptions.layers ", spec.recompute_options.layers),
                      "use 1, which is recompute full");
  }
  if (spec.recompute_options.offload_permille > 0) return NotPlanned("recomputeOptions.offloadShare", "leave it at 0");
  return CheckLowered(PinnedLayout(spec.parallel));
}

absl::StatusOr<std::vector<Candidate>> LoweredCandidates(const PlanRequest& request) {
  LYNX_ASSIGN_OR_RETURN(std::vector<Candidate> candidates, Candidates(request.spec, request.cluster, request.target));
  const absl::Status refusal = CheckLowered(candidates.front().layout);
  std::erase_if(candidates, [](const Candidate& c) { return !CheckLowered(c.layout).ok(); });
  if (candidates.empty()) return refusal;
  return candidates;
}

}  // namespace lynx
