#include "planner/frameworks/framework_plan.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "planner/candidates/search.h"

namespace lynx {
namespace {

absl::Status CheckOneGroup(const ClusterTopology& cluster) {
  if (cluster.groups.size() == 1) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the cluster has ", cluster.groups.size(),
                                                 " groups of nodes; other frameworks are estimated on nodes that are alike, so "
                                                 "keep one group"));
}

std::vector<RecomputeMode> ModesOf(const JobSpec& spec) {
  if (spec.recompute != RecomputeMode::kAuto) return {spec.recompute};
  std::vector<RecomputeMode> modes = {RecomputeMode::kNone};
  if (spec.model.attention == AttentionKernel::kUnfused) modes.push_back(RecomputeMode::kSelective);
  modes.push_back(RecomputeMode::kFull);
  const std::vector<RecomputeMode>& forbidden = spec.recompute_options.forbidden;
  std::erase_if(modes, [&](RecomputeMode mode) { return std::count(forbidden.begin(), forbidden.end(), mode) > 0; });
  return modes;
}

// The candidates that the framework can run. Each layout is there once: the framework has one order of ranks.
std::vector<Candidate> CandidatesOf(const JobSpec& spec, const ClusterTopology& cluster, Framework framework) {
  std::vector<Candidate> candidates;
  for (Candidate one : SearchSpace(spec, cluster, PlanTarget::kAnyFramework, /*even_batches=*/true)) {
    one.layout.rank_order = RankOrder::kTpPpDp;
    if (RunsLayout(framework, one.layout) && (candidates.empty() || !(candidates.back() == one))) candidates.push_back(one);
  }
  return candidates;
}

bool Better(const FrameworkPlan& a, const FrameworkPlan& b) {
  if (a.fits() != b.fits()) return a.fits();
  return a.fits() ? a.step.step < b.step.step : a.peak() < b.peak();
}

}  // namespace

Bytes FrameworkPlan::peak() const {
  Bytes most;
  for (const MemoryEstimate& rank : memory) most = std::max(most, rank.total());
  return most;
}

absl::StatusOr<FrameworkPlan> EstimateOn(const StepRequest& request, Framework framework, const ClusterTopology& cluster) {
  LYNX_RETURN_IF_ERROR(CheckOneGroup(cluster));
  const NodeGroup& group = cluster.groups.front();
  FrameworkPlan plan{.framework = framework, .request = request, .device_memory = group.memory_per_device};
  plan.request.traits = TraitsOf(framework);
  plan.request.ranks_per_node = group.devices_per_node;
  LYNX_ASSIGN_OR_RETURN(plan.memory, EstimateMemory(plan.request));
  LYNX_ASSIGN_OR_RETURN(plan.step, EstimateStep(plan.request, group.profile));
  return plan;
}

absl::StatusOr<FrameworkPlan> PlanForFramework(const JobSpec& spec, const ClusterTopology& cluster, Framework framework) {
  std::optional<FrameworkPlan> best;
  for (const Candidate& candidate : CandidatesOf(spec, cluster, framework)) {
    for (const RecomputeMode mode : ModesOf(spec)) {
      const StepRequest request{.model = spec.model,
                                .layout = candidate.layout,
                                .micro_batch = candidate.micro_batch,
                                .microbatches = candidate.microbatches,
                                .stage_layers = spec.parallel.stage_layers,
                                .recompute = mode};
      LYNX_ASSIGN_OR_RETURN(FrameworkPlan plan, EstimateOn(request, framework, cluster));
      if (!best || Better(plan, *best)) best = std::move(plan);
    }
  }
  if (best) return *std::move(best);
  return absl::InvalidArgumentError(absl::StrCat("no layout that the job allows is one that ", EnumName(framework),
                                                 " can run; leave more fields of parallel open"));
}

}  // namespace lynx
