#include "planner/frameworks/framework_plan.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "planner/candidates/search.h"
#include "planner/frameworks/layer_repeat.h"
#include "planner/frameworks/pieces.h"
#include "planner/problem/narrow_products.h"
#include "planner/recompute/recompute_modules.h"

namespace lynx {
namespace {

absl::Status CheckOneGroup(const ClusterTopology& cluster) {
  if (cluster.groups.size() == 1) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the cluster has ", cluster.groups.size(),
                                                 " groups of nodes; other frameworks are estimated on nodes that are alike, so "
                                                 "keep one group"));
}

absl::Status Bad(const std::string& field, const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat(field, ": ", why));
}

// True if the framework recomputes modules of layers (RecomputeOptions::modules).
bool HasModules(Framework framework) { return framework == Framework::kMegatron || framework == Framework::kNemo; }

// Returns an error if the job sets a field that this estimate cannot take into account, or that the framework does not have.
absl::Status CheckPins(const JobSpec& spec, Framework framework) {
  const std::string name = EnumName(framework);
  if (spec.resources.activation_memory_per_rank.value > 0) {
    return Bad("resources.activationMemoryPerRank", "only Lynx's engine has this limit; leave it out with --framework " + name);
  }
  if (spec.recompute_options.offload_permille > 0) {
    return Bad("recomputeOptions.offloadShare", "estimates of other frameworks do not count offloading; set it to 0");
  }
  const RankOrder order = spec.parallel.rank_order;
  if (order != RankOrder::kAuto && order != TraitsOf(framework).rank_order) {
    return Bad("parallel.rankOrder",
               absl::StrCat(name, " is estimated with ", EnumName(TraitsOf(framework).rank_order), " only; set it to auto"));
  }
  const RecomputeMode mode = spec.recompute;
  if (mode == RecomputeMode::kFullKeepCollectives ||
      (mode == RecomputeMode::kBalanced && !CheckpointsByOp(ShapeOf(spec.model, {}, 1), TraitsOf(framework)))) {
    return Bad("recompute", absl::StrCat(name, " does not have ", EnumName(mode), " for this model; use none, selective",
                                         HasModules(framework) ? " with recomputeOptions.modules" : "", ", full or auto"));
  }
  if (!spec.recompute_options.modules.empty() && !HasModules(framework)) {
    return Bad("recomputeOptions.modules", absl::StrCat(name, " has no such modules; only megatron and nemo have"));
  }
  return absl::OkStatus();
}

struct Recomputation {
  RecomputeMode mode;
  std::vector<RecomputeModule> modules;
};

std::vector<Recomputation> RecomputationsOf(const JobSpec& spec, Framework framework) {
  if (spec.recompute != RecomputeMode::kAuto) return {{spec.recompute, spec.recompute_options.modules}};
  std::vector<Recomputation> list = {{RecomputeMode::kNone, {}}};
  if (spec.model.attention == AttentionKernel::kUnfused) list.push_back({RecomputeMode::kSelective, {}});
  if (HasModules(framework)) {
    for (std::vector<RecomputeModule>& modules : MegatronModuleSets(spec.model)) {
      list.push_back({RecomputeMode::kSelective, std::move(modules)});
    }
  }
  if (CheckpointsByOp(ShapeOf(spec.model, {}, 1), TraitsOf(framework))) list.push_back({RecomputeMode::kBalanced, {}});
  list.push_back({RecomputeMode::kFull, {}});
  const std::vector<RecomputeMode>& forbidden = spec.recompute_options.forbidden;
  std::erase_if(list, [&](const Recomputation& one) { return std::count(forbidden.begin(), forbidden.end(), one.mode) > 0; });
  return list;
}

// The candidates that the framework can run, each layout once: the framework has only one order of ranks.
std::vector<Candidate> CandidatesOf(const JobSpec& spec, const ClusterTopology& cluster, Framework framework) {
  std::vector<Candidate> candidates;
  for (Candidate one : SearchSpace(spec, cluster, PlanTarget::kAnyFramework, /*even_batches=*/true)) {
    one.layout.rank_order = RankOrder::kTpPpDp;
    if (RunsLayout(framework, one.layout) && (candidates.empty() || !(candidates.back() == one))) candidates.push_back(one);
  }
  return candidates;
}

// If no framework has a layout for the job, returns the error that the planner gives for this job.
absl::Status ExplainedSpace(const JobSpec& spec, const ClusterTopology& cluster) {
  return Candidates(spec, cluster, PlanTarget::kAnyFramework, /*even_batches=*/true).status();
}

bool Better(const FrameworkPlan& a, const FrameworkPlan& b) {
  if (a.fits() != b.fits()) return a.fits();
  return a.fits() ? a.step.step < b.step.step : a.peak() < b.peak();
}

// Does the same as EstimateOn, with these traits.
absl::StatusOr<FrameworkPlan> EstimateWith(const FrameworkTraits& traits, const StepRequest& request, Framework framework,
                                           const ClusterTopology& cluster) {
  LYNX_RETURN_IF_ERROR(CheckOneGroup(cluster));
  const NodeGroup& group = cluster.groups.front();
  FrameworkPlan plan{.framework = framework, .request = request, .device_memory = group.memory_per_device};
  plan.request.traits = traits;
  // Other frameworks store dropout masks.
  if (framework != Framework::kLynx) plan.request.model.dropout_masks = DropoutMasks::kStored;
  plan.request.ranks_per_node = group.devices_per_node;
  LYNX_ASSIGN_OR_RETURN(plan.memory, EstimateMemory(plan.request));
  LYNX_ASSIGN_OR_RETURN(plan.step, EstimateStep(plan.request, group.profile));
  const PipelineShape pipeline = PipelineOf(request.layout);
  const LayerShape shape = ShapeOf(request.model, request.layout, request.micro_batch);
  const Pieces pieces(request, shape, pipeline);
  for (int32_t rank = 0; rank < pipeline.ranks; ++rank) {
    if (pieces.LayersOfRank(rank) <= plan.most_layers) continue;
    plan.most_layers = pieces.LayersOfRank(rank);
    plan.most_dense = pieces.DenseLayersOfRank(rank);
  }
  return plan;
}

}  // namespace

Nanos FrameworkPlan::OfLayers(Nanos LayerEstimate::*time) const {
  return (step.layer.*time * (most_layers - most_dense) + step.dense_layer.*time * most_dense) * request.microbatches;
}

Bytes FrameworkPlan::peak() const {
  Bytes most;
  for (const MemoryEstimate& rank : memory) most = std::max(most, rank.total());
  return most;
}

absl::StatusOr<FrameworkPlan> EstimateOn(const StepRequest& request, Framework framework, const ClusterTopology& cluster) {
  return EstimateWith(TraitsOf(framework), request, framework, cluster);
}

absl::StatusOr<FrameworkPlan> PlanForFramework(const JobSpec& spec, const ClusterTopology& cluster, Framework framework) {
  return PlanForFramework(spec, cluster, framework, TraitsOf(framework));
}

absl::StatusOr<FrameworkPlan> PlanForFramework(const JobSpec& spec, const ClusterTopology& cluster, Framework framework,
                                               const FrameworkTraits& traits) {
  LYNX_RETURN_IF_ERROR(CheckOneGroup(cluster));
  LYNX_RETURN_IF_ERROR(CheckPins(spec, framework));
  const std::vector<Recomputation> recomputations = RecomputationsOf(spec, framework);
  if (recomputations.empty()) return Bad("recomputeOptions.forbid", "forbids every recomputation that other frameworks have");
  LYNX_RETURN_IF_ERROR(ExplainedSpace(spec, cluster));
  std::optional<FrameworkPlan> best;
  absl::Status refusal;
  for (const Candidate& candidate : CandidatesOf(spec, cluster, framework)) {
    refusal = CheckNarrowSizes(spec.model, candidate.layout);
    if (!refusal.ok()) continue;
    for (const Recomputation& recomputation : recomputations) {
      const StepRequest request{.model = spec.model,
                                .layout = candidate.layout,
                                .micro_batch = candidate.micro_batch,
                                .microbatches = candidate.microbatches,
                                .stage_layers = spec.parallel.stage_layers,
                                .recompute = recomputation.mode,
                                .modules = recomputation.modules};
      LYNX_ASSIGN_OR_RETURN(FrameworkPlan plan, EstimateWith(traits, request, framework, cluster));
      if (!best || Better(plan, *best)) best = std::move(plan);
    }
  }
  if (best) return *std::move(best);
  LYNX_RETURN_IF_ERROR(refusal);
  return absl::InvalidArgumentError(absl::StrCat("no layout that the job allows is one that ", EnumName(framework),
                                                 " can run; leave more fields of parallel open, or choose other sizes"));
}

}  // namespace lynx
