#include "planner/candidates/supported.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "planner/problem/layout_schedule.h"
#include "planner/problem/narrow_products.h"

namespace lynx {
namespace {

absl::Status NotPlanned(const std::string& what, const std::string& instead) {
  return absl::InvalidArgumentError(absl::StrCat(what, " is not planned by this version: ", instead));
}

// Returns an error for a layout of the search space that the lowering does not support yet.
absl::Status CheckSupported(const ModelSpec& model, const ParallelLayout& layout) {
  LYNX_RETURN_IF_ERROR(CheckNarrowSizes(model, layout));
  const absl::Status weave = CheckWeave(model, layout);
  if (!weave.ok()) return weave;
  // In Chimera, the two ranks that hold a piece of the model run its layers at different times, so their reductions would wait
  // for each other.
  if (layout.schedule == ScheduleKind::kChimera && layout.zero >= ZeroStage::kGradients) {
    return NotPlanned(absl::StrCat("parallel.zero ", EnumName(layout.zero), " with parallel.schedule chimera"),
                      "use zero none or optimizer, or another schedule");
  }
  return absl::OkStatus();
}

absl::Status CheckNarrowDevices(const PlanRequest& request) {
  if (request.spec.model.matmul_type == MatmulType::kModel) return absl::OkStatus();
  for (const NodeGroup& group : request.cluster.groups) {
    const HardwareProfile& profile = group.profile;
    const MatmulType type = request.spec.model.matmul_type;
    if (profile.NarrowFlopsPerSecond(type) > 0 && profile.gemm_tiles.units > 0) continue;
    const bool four = type == MatmulType::kNvfp4;
    return absl::InvalidArgumentError(absl::StrCat(
        "model.matmulType ", EnumName(request.spec.model.matmul_type), ": the devices of kind \"", profile.device_kind,
        "\" have no known rate of ", four ? "4" : "8", "-bit products: plan for a cluster file that gives peak.float",
        four ? "4" : "8", " and gemmTiles, or set model.matmulType: model"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckSupported(const PlanRequest& request) {
  const JobSpec& spec = request.spec;
  LYNX_RETURN_IF_ERROR(CheckNarrowDevices(request));
  if (spec.recompute == RecomputeMode::kOpt && !request.exact) {
    return absl::InvalidArgumentError("recompute opt needs an exact solver, and none was handed to the planner: use heu");
  }
  // In these recomputation modes, the planner itself chooses which tensors are offloaded. So a fixed share is refused.
  const bool shares = spec.recompute_options.offload_permille > 0;
  if (shares && (spec.recompute == RecomputeMode::kAuto || spec.recompute >= RecomputeMode::kNoOverlap)) {
    return NotPlanned(absl::StrCat("recomputeOptions.offloadShare with recompute ", EnumName(spec.recompute)),
                      "name the policy whose stored tensors go to the host (none, balanced, selective, ...)");
  }
  if (!spec.recompute_options.modules.empty() && spec.model.moe.dense_layers > 0) {
    return NotPlanned("recomputeOptions.modules where only some layers have experts",
                      "use lynxctl plan --framework megatron, or another policy (balanced, full, auto)");
  }
  ParallelLayout pinned = PinnedLayout(spec.parallel);
  // If the job leaves the number of stages open, a layout with several stages may be supported even if one with a single stage
  // is not.
  if (spec.parallel.pp == 0) pinned.pp = 2;
  return CheckSupported(spec.model, pinned);
}

void EraseUnsupported(const ModelSpec& model, std::vector<Candidate>& candidates) {
  std::erase_if(candidates, [&](const Candidate& c) { return !CheckSupported(model, c.layout).ok(); });
}

absl::StatusOr<std::vector<Candidate>> SupportedCandidates(const PlanRequest& request) {
  LYNX_ASSIGN_OR_RETURN(std::vector<Candidate> candidates,
                        Candidates(request.spec, request.cluster, request.target, request.even_batches));
  const absl::Status refusal = CheckSupported(request.spec.model, candidates.front().layout);
  EraseUnsupported(request.spec.model, candidates);
  if (candidates.empty()) return refusal;
  return candidates;
}

}  // namespace lynx
