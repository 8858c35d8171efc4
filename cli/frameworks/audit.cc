#include "cli/frameworks/audit.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "planner/search/make_plan.h"

namespace lynx::cli {
namespace {

// With this number of actions, planning takes seconds and less than a gigabyte.
constexpr int64_t kMaxProgramActions = 6'000'000;

// The number of layers of each piece of the model.
std::vector<int32_t> LayersOfPieces(const StepRequest& request) {
  if (!request.stage_layers.empty()) return request.stage_layers;
  const int32_t pieces = request.layout.pp * request.layout.virtual_stages;
  std::vector<int32_t> layers(static_cast<size_t>(pieces), request.model.layers / pieces);
  for (int32_t i = 0; i < request.model.layers % pieces; ++i) ++layers[static_cast<size_t>(i)];
  return layers;
}

Nanos Between(Nanos a, Nanos b, int64_t permille) { return a + (b - a) * permille / 1000; }
Bytes Between(Bytes a, Bytes b, int64_t permille) { return Bytes(a.value + (b.value - a.value) / 1000 * permille); }

// A plan between `none` and `full`, which differ only in their recomputation. Permille 0 gives `none`, and 1000 gives `full`.
FrameworkPlan Interpolated(const FrameworkPlan& none, const FrameworkPlan& full, int64_t permille) {
  FrameworkPlan plan = none;
  StepEstimate& step = plan.step;
  step.step = Between(none.step.step, full.step.step, permille);
  step.pipeline = Between(none.step.pipeline, full.step.pipeline, permille);
  step.data_reduction = Between(none.step.data_reduction, full.step.data_reduction, permille);
  for (LayerEstimate StepEstimate::*layer : {&StepEstimate::layer, &StepEstimate::dense_layer}) {
    (step.*layer).backward = Between((none.step.*layer).backward, (full.step.*layer).backward, permille);
    (step.*layer).recompute = Between((none.step.*layer).recompute, (full.step.*layer).recompute, permille);
  }
  for (size_t i = 0; i < plan.memory.size(); ++i) {
    plan.memory[i].activations = Between(none.memory[i].activations, full.memory[i].activations, permille);
    // If any layer is recomputed, all activations of this layer are in memory while its backward pass runs.
    plan.memory[i].transient = std::max(none.memory[i].transient, full.memory[i].transient);
  }
  return plan;
}

// Does the same as EstimateOn, but with the traits of this run instead of those of its framework.
absl::StatusOr<FrameworkPlan> EstimateRun(const StepRequest& request, const ImportedRun& run, const ClusterTopology& cluster) {
  LYNX_ASSIGN_OR_RETURN(FrameworkPlan plan, EstimateOn(request, run.framework, cluster));
  plan.request.traits = run.traits;
  LYNX_ASSIGN_OR_RETURN(plan.memory, EstimateMemory(plan.request));
  LYNX_ASSIGN_OR_RETURN(plan.step, EstimateStep(plan.request, cluster.groups.front().profile));
  return plan;
}

StepParts PartsOf(const FrameworkPlan& plan) {
  StepParts parts;
  parts.recompute = plan.OfLayers(&LayerEstimate::recompute);
  parts.layers = plan.OfLayers(&LayerEstimate::forward) + plan.OfLayers(&LayerEstimate::backward) - parts.recompute;
  parts.rest = plan.step.pipeline - parts.layers - parts.recompute;
  parts.reduction = plan.step.data_reduction;
  parts.tied = plan.step.tied_embedding;
  parts.optimizer = plan.step.optimizer;
  return parts;
}

// A job may get a recomputation by --set that its framework has no setting for.
absl::Status CheckRecomputation(const ImportedRun& run) {
  const RecomputeMode mode = run.job.recompute;
  const bool by_op = mode == RecomputeMode::kBalanced && run.framework == Framework::kTorchtitan;
  if ((mode != RecomputeMode::kBalanced && mode != RecomputeMode::kFullKeepCollectives) || by_op) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("recompute: ", EnumName(run.framework), " does not have ", EnumName(mode),
                                                 "; use none, selective or full, or leave it as the run has it"));
}

absl::Status EstimateAsItIs(const ClusterTopology& cluster, RunAudit& audit) {
  const JobSpec& job = audit.run.job;
  LYNX_RETURN_IF_ERROR(CheckRecomputation(audit.run));
  StepRequest request{.model = job.model,
                      .layout = PinnedLayout(job.parallel),
                      .micro_batch = job.train.micro_batch,
                      .recompute = job.recompute};
  request.modules = job.recompute_options.modules;
  request.stage_layers = job.parallel.stage_layers;
  request.microbatches = job.train.global_batch / (request.micro_batch * request.layout.dp);
  const bool block = job.recompute == RecomputeMode::kBlock, uniform = job.recompute == RecomputeMode::kUniform;
  if (uniform) {
    // The estimate counts each layer as a group. Larger groups recompute the same amount, and store fewer layer inputs.
    request.recompute = RecomputeMode::kFull;
  }
  if (!block) {
    LYNX_ASSIGN_OR_RETURN(audit.plan, EstimateRun(request, audit.run, cluster));
    return absl::OkStatus();
  }
  int64_t recomputed = 0;
  for (const int32_t layers : LayersOfPieces(request)) recomputed += std::min(layers, job.recompute_options.layers);
  audit.recomputed_permille = static_cast<int32_t>(1000 * recomputed / request.model.layers);
  request.recompute = RecomputeMode::kNone;
  LYNX_ASSIGN_OR_RETURN(const FrameworkPlan none, EstimateRun(request, audit.run, cluster));
  request.recompute = RecomputeMode::kFull;
  LYNX_ASSIGN_OR_RETURN(const FrameworkPlan full, EstimateRun(request, audit.run, cluster));
  audit.plan = Interpolated(none, full, audit.recomputed_permille);
  audit.plan.request.recompute = RecomputeMode::kBlock;
  return absl::OkStatus();
}

void PlanOthers(const ClusterTopology& cluster, RunAudit& audit) {
  const JobSpec open = OpenJob(audit.run);
  // The best settings may be others than those of the run, but its layers are the same.
  FrameworkTraits traits = TraitsOf(audit.run.framework);
  traits.fuses_norms = audit.run.traits.fuses_norms;
  absl::StatusOr<FrameworkPlan> best = PlanForFramework(open, cluster, audit.run.framework, traits);
  if (!best.ok()) {
    audit.no_best = std::string(best.status().message());
  } else if (!best->fits()) {
    audit.no_best = absl::StrCat("no layout fits; the one that needs least needs ", FormatBytes(best->peak()), " of ",
                                 FormatBytes(best->device_memory));
  } else {
    audit.best = *std::move(best);
  }
  PlanRequest request{.spec = open, .cluster = cluster};
  request.most_program_actions = kMaxProgramActions;
  request.spec.model.dropout_masks = DropoutMasks::kRegenerated;
  absl::StatusOr<PlanResult> lynx = MakePlan(request);
  if (!lynx.ok()) {
    audit.no_lynx = std::string(lynx.status().message());
  } else if (const auto* infeasible = std::get_if<Infeasible>(&*lynx)) {
    audit.no_lynx = infeasible->reason;
  } else {
    audit.lynx = std::get<Plan>(*std::move(lynx));
    const absl::Status runs = CheckEngineRuns(audit.lynx->model, audit.lynx->layout);
    if (!runs.ok()) audit.no_lynx = absl::StrCat("can be planned only: ", std::string(runs.message()));
  }
}

}  // namespace

JobSpec OpenJob(const ImportedRun& run) {
  JobSpec job = run.job;
  job.parallel = ParallelSpec();
  job.train.micro_batch = 0;
  job.recompute = RecomputeMode::kAuto;
  job.recompute_options = RecomputeOptions();
  return job;
}

StepRequest RequestOf(const Plan& plan) {
  return {.model = plan.model,
          .layout = plan.layout,
          .micro_batch = plan.micro_batch,
          .microbatches = plan.microbatches,
          .recompute = plan.mode};
}

absl::StatusOr<RunAudit> AuditOf(ImportedRun run, ClusterTopology cluster, std::optional<RunLog> log) {
  if (cluster.groups.size() == 1) {
    NodeGroup& group = cluster.groups.front();
    group.nodes = (run.devices + group.devices_per_node - 1) / group.devices_per_node;
  }
  RunAudit audit{.run = std::move(run), .log = std::move(log)};
  LYNX_RETURN_IF_ERROR(EstimateAsItIs(cluster, audit));
  audit.parts = PartsOf(audit.plan);
  PlanOthers(cluster, audit);
  return audit;
}

}  // namespace lynx::cli
