#include "planner/export/export.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/check.h"
#include "common/status.h"
#include "planner/export/export_files.h"
#include "planner/recompute/recompute_modules.h"
#include "planner/report/plan_table.h"
#include "planner/search/make_plan.h"

namespace lynx {
namespace {

constexpr std::array<const char*, 3> kFrameworks = {"Megatron-LM", "DeepSpeed", "torchtitan"};

constexpr ExportVersion kMegatronVersions[] = {
    {"0.16", "core_v0.16.1"}, {"0.17", "core_v0.17.1"}, {"0.18", "core_v0.18.2"}, {"0.19", "core_v0.19.0"}};
constexpr ExportVersion kDeepSpeedVersions[] = {
    {"0.16", "v0.16.9"}, {"0.17", "v0.17.6"}, {"0.18", "v0.18.9"}, {"0.19", "v0.19.5"}};
constexpr ExportVersion kTorchtitanVersions[] = {{"0.2.2", "v0.2.2"}, {"main-2026-08-21", "commit b5bcd76c"}};

LayerRecompute KindOf(const LayerGraph& graph, const LayerPolicy& policy) {
  const std::pair<RecomputeMode, LayerRecompute> named[] = {
      {RecomputeMode::kNone, LayerRecompute::kNothing},
      {RecomputeMode::kSelective, LayerRecompute::kAttentionCore},
      {RecomputeMode::kBalanced, LayerRecompute::kNormsAndActivation},
      {RecomputeMode::kFull, LayerRecompute::kLayer},
      {RecomputeMode::kFullKeepCollectives, LayerRecompute::kLayerButCollective}};
  for (const auto& [mode, kind] : named) {
    if (NamedPolicy(graph, mode, 1).layers[0] == policy) return kind;
  }
  return LayerRecompute::kMixed;
}

// The tensors that the policy of a layer recomputes.
TensorSet RecomputedOf(const LayerGraph& graph, const LayerPolicy& policy) {
  TensorSet set = 0;
  for (size_t i = 0; i < graph.recomputable().size(); ++i) {
    if (IsRecomputed(policy[i])) set |= Bit(graph.recomputable()[i]);
  }
  return set;
}

// The modules of Megatron Core that recompute what every layer of the plan recomputes. Empty if there are no such modules.
// Where Megatron Core computes both norms with the linears after them, it has no module for norms (recompute_modules.h).
std::vector<RecomputeModule> ModulesOf(const Plan& plan, const std::vector<const SlicePlan*>& slices) {
  const LayerGraph& graph = plan.ContextOf(0).graph();
  if (plan.model.moe.dense_layers > 0) return {};
  std::optional<TensorSet> all;
  for (const SlicePlan* slice : slices) {
    for (const LayerPolicy& policy : slice->policy.layers) {
      const TensorSet own = RecomputedOf(graph, policy);
      if (all && own != *all) return {};
      all = own;
    }
  }
  std::vector<RecomputeModule> modules = ModulesOfTensors(graph, all.value_or(0));
  const bool norms = std::find(modules.begin(), modules.end(), RecomputeModule::kLayernorm) != modules.end();
  if (norms && !plan.model.moe.any() && !plan.model.latent.any()) modules.clear();
  return modules;
}

// The recomputation of a stage that recomputes only in its first layers, in the same way in all of them. `layers` is the number
// of these first layers. RunOf returns nullopt if the policy of the stage does not have this form.
struct Run {
  LayerRecompute kind = LayerRecompute::kNothing;
  int32_t layers = 0;
};
std::optional<Run> RunOf(const LayerGraph& graph, const StagePolicy& policy) {
  Run run;
  for (size_t i = 0; i < policy.layers.size(); ++i) {
    const LayerRecompute kind = KindOf(graph, policy.layers[i]);
    if (kind == LayerRecompute::kNothing) continue;
    if (static_cast<size_t>(run.layers) != i || (run.layers > 0 && kind != run.kind)) return std::nullopt;
    run.kind = kind;
    ++run.layers;
  }
  return run;
}

bool Uses(const Plan& plan, bool (*test)(Placement)) {
  const size_t count = plan.ContextOf(0).graph().recomputable().size();
  const std::vector<const SlicePlan*> slices = SlicesInOrder(plan);
  return std::any_of(slices.begin(), slices.end(), [&](const SlicePlan* slice) {
    return std::any_of(slice->policy.layers.begin(), slice->policy.layers.end(), [&](const LayerPolicy& layer) {
      return std::any_of(layer.begin(), layer.begin() + static_cast<ptrdiff_t>(count), test);
    });
  });
}

// Returns the number N for which each stage recomputes its first N layers (or all layers, if it has fewer). 0: all stages
// recompute all layers. nullopt: there is no such N.
std::optional<int32_t> CommonFirstLayers(const std::vector<const SlicePlan*>& slices, const std::vector<Run>& runs) {
  int32_t first = 0;
  bool all = true;
  for (size_t i = 0; i < runs.size(); ++i) {
    first = std::max(first, runs[i].layers);
    all = all && runs[i].layers == slices[i]->layers();
  }
  if (all) return 0;
  for (size_t i = 0; i < runs.size(); ++i) {
    if (runs[i].layers != std::min(first, slices[i]->layers())) return std::nullopt;
  }
  return first;
}

// Returns the fastest plan that has the layout of `plan` and only policies that the framework has. nullopt: no such plan fits.
absl::StatusOr<std::optional<Plan>> Substitute(ExportFormat format, PlanRequest request, const Plan& plan) {
  request.spec.parallel = SpecOf(plan.layout, request.spec.parallel);
  request.spec.train.micro_batch = plan.micro_batch;
  request.spec.recompute_options = {};  // no offloading; for kBlock, the planner chooses the best N that fits
  std::optional<Plan> best;
  std::vector<std::pair<RecomputeMode, std::vector<RecomputeModule>>> choices = {
      {RecomputeMode::kNone, {}}, {RecomputeMode::kSelective, {}}, {RecomputeMode::kBlock, {}}, {RecomputeMode::kFull, {}}};
  // Modules of models of which only some layers have experts are not planned for Lynx's programs.
  if (format == ExportFormat::kMegatron && plan.model.moe.dense_layers == 0) {
    for (std::vector<RecomputeModule>& modules : MegatronModuleSets(plan.model)) {
      choices.emplace_back(RecomputeMode::kSelective, std::move(modules));
    }
  }
  for (const auto& [mode, modules] : choices) {
    request.spec.recompute = mode;
    request.spec.recompute_options.modules = modules;
    LYNX_ASSIGN_OR_RETURN(PlanResult result, MakePlan(request));
    Plan* candidate = std::get_if<Plan>(&result);
    if (candidate == nullptr || !CanExpress(format, SummaryOf(*candidate))) continue;
    if (!best || candidate->step < best->step) best = std::move(*candidate);
  }
  return best;
}

std::vector<ScheduleKind> SchedulesOf(ExportFormat format) {
  std::vector<ScheduleKind> schedules = {ScheduleKind::kOneForwardOneBackward};
  if (format != ExportFormat::kDeepSpeed) schedules.push_back(ScheduleKind::kInterleaved);
  if (format == ExportFormat::kTorchtitan) {
    schedules.insert(schedules.end(), {ScheduleKind::kGpipe, ScheduleKind::kZeroBubbleV});
  }
  return schedules;
}

// Returns N of uniform recomputation: the number of layers from one stored layer input to the next. The result is the maximum
// over all virtual stages, because a stage with fewer than N layers stores only one input.
int32_t GroupLayers(const Plan& plan) {
  int32_t most = 1;
  for (const SlicePlan* slice : SlicesInOrder(plan)) {
    int32_t layer = 1;
    while (slice->policy.InputRecomputed(static_cast<size_t>(layer))) ++layer;
    most = std::max(most, layer);
  }
  return most;
}

// SummaryOf without modules.
RecomputeSummary NamedSummary(const Plan& plan) {
  RecomputeSummary summary;
  summary.windows = Uses(plan, [](Placement p) { return IsRecomputed(p) && p != Placement::kCritical; });
  summary.offloads = Uses(plan, [](Placement p) { return p == Placement::kOffload; });
  if (plan.mode == RecomputeMode::kUniform && GroupLayers(plan) > 1) {
    summary.kind = LayerRecompute::kLayer;
    summary.group_layers = GroupLayers(plan);
    return summary;
  }
  const LayerGraph& graph = plan.ContextOf(0).graph();
  std::vector<Run> runs;
  const std::vector<const SlicePlan*> slices = SlicesInOrder(plan);
  for (const SlicePlan* slice : slices) {
    const std::optional<Run> run = RunOf(graph, slice->policy);
    if (run && run->layers > 0 && summary.kind == LayerRecompute::kNothing) summary.kind = run->kind;
    if (!run || (run->layers > 0 && run->kind != summary.kind)) {
      summary.kind = LayerRecompute::kMixed;
      return summary;
    }
    runs.push_back(*run);
  }
  if (summary.kind == LayerRecompute::kNothing) return summary;
  const std::optional<int32_t> first = CommonFirstLayers(slices, runs);
  const bool whole_layers = summary.kind == LayerRecompute::kLayer || summary.kind == LayerRecompute::kLayerButCollective;
  if (!first || (*first > 0 && !whole_layers)) {
    summary.kind = LayerRecompute::kMixed;
  } else {
    summary.first_layers = *first;
  }
  return summary;
}

std::string PolicyWords(const RecomputeSummary& recompute) {
  if (recompute.first_layers > 0) {
    return absl::StrCat("recomputing the first ", recompute.first_layers, " layers of each stage in full");
  }
  switch (recompute.kind) {
    case LayerRecompute::kNothing: return "storing everything";
    case LayerRecompute::kAttentionCore: return "recomputing the attention core of every layer";
    case LayerRecompute::kNormsAndActivation: return "recomputing norms and activation function of every layer";
    case LayerRecompute::kLayer: return "recomputing every layer in full";
    case LayerRecompute::kLayerButCollective: return "recomputing every layer but its collective";
    case LayerRecompute::kModules: return absl::StrCat("recomputing ", ModulesText(recompute.modules), " of every layer");
    case LayerRecompute::kMixed: break;
  }
  return "recomputing per layer and tensor";
}

// Lists what the framework cannot express of the plan's recomputation: work in windows and, if the plan `instead` is exported,
// the policies.
std::vector<std::string> PolicyMissing(const char* framework, const Plan& plan, const RecomputeSummary& summary,
                                       const std::optional<Plan>& instead, const RecomputeSummary& exported) {
  std::vector<std::string> missing;
  if (summary.windows) {
    const PlanFigures figures = FiguresOf(plan);
    missing.push_back(
        absl::StrCat("windows: Lynx hides ", PercentText(figures.hidden.value, (figures.hidden + figures.exposed).value),
                     " of the recomputation behind transfers and stalls; ", framework, " recomputes on the critical path"));
  }
  if (instead) {
    const Nanos slower = instead->step - plan.step;
    missing.push_back(absl::StrCat("the policy of each layer and stage: exported is the best that ", framework,
                                   " has for this layout, ", PolicyWords(exported), "; predicted step ",
                                   FormatDuration(instead->step), " instead of ", FormatDuration(plan.step), " (",
                                   slower.value < 0 ? "-" : "+", PercentText(std::abs(slower.value), plan.step.value), ")"));
  }
  return missing;
}

}  // namespace

absl::Span<const ExportVersion> ExportVersions(ExportFormat format) {
  switch (format) {
    case ExportFormat::kMegatron: return kMegatronVersions;
    case ExportFormat::kDeepSpeed: return kDeepSpeedVersions;
    case ExportFormat::kTorchtitan: break;
  }
  return kTorchtitanVersions;
}

ExportTarget NewestTarget(ExportFormat format) { return {format, ExportVersions(format).size() - 1}; }

absl::StatusOr<ExportTarget> FindTarget(ExportFormat format, const std::string& version) {
  const absl::Span<const ExportVersion> known = ExportVersions(format);
  for (size_t i = 0; i < known.size(); ++i) {
    if (version == known[i].name) return ExportTarget{format, i};
  }
  const auto name = [](std::string* text, const ExportVersion& one) { absl::StrAppend(text, one.name); };
  return absl::InvalidArgumentError(absl::StrCat("exports for ", kFrameworks[static_cast<size_t>(format)], " ", version,
                                                 " are not known; known versions: ", absl::StrJoin(known, ", ", name)));
}

std::string ExportTargetText(const ExportTarget& target) {
  const ExportVersion& version = ExportVersions(target.format)[target.version];
  const char* framework = target.format == ExportFormat::kMegatron ? "Megatron Core"  // Megatron-LM has its own version numbers
                                                                   : kFrameworks[static_cast<size_t>(target.format)];
  return absl::StrCat(framework, " ", version.name, " (checked with ", version.checked, ")");
}

RecomputeSummary SummaryOf(const Plan& plan) {
  RecomputeSummary summary = NamedSummary(plan);
  if (summary.kind == LayerRecompute::kMixed || summary.kind == LayerRecompute::kNormsAndActivation) {
    summary.modules = ModulesOf(plan, SlicesInOrder(plan));
    if (!summary.modules.empty()) summary.kind = LayerRecompute::kModules;
  }
  return summary;
}

bool HasEvenStages(const Plan& plan) {
  const std::vector<const SlicePlan*> slices = SlicesInOrder(plan);
  return std::all_of(slices.begin(), slices.end(),
                     [&](const SlicePlan* slice) { return slice->layers() == slices.front()->layers(); });
}

bool CanExpress(ExportFormat format, const RecomputeSummary& recompute) {
  if (recompute.windows || recompute.offloads) return false;
  switch (recompute.kind) {
    case LayerRecompute::kNothing: return true;
    case LayerRecompute::kLayer:
    case LayerRecompute::kLayerButCollective:
      if (format == ExportFormat::kMegatron) return true;
      if (format == ExportFormat::kDeepSpeed) return recompute.first_layers == 0;
      return recompute.first_layers == 0 && recompute.group_layers == 1;
    case LayerRecompute::kAttentionCore:
    case LayerRecompute::kModules: return format == ExportFormat::kMegatron;
    case LayerRecompute::kNormsAndActivation:
    case LayerRecompute::kMixed: break;
  }
  return false;
}

std::string ScheduleMissing(const ParallelLayout& layout, const std::string& runs) {
  return absl::StrCat("the schedule ", EnumName(layout.schedule), ": ", runs,
                      ", with other memory and time; set parallel.schedule to that and export again");
}

std::string WeaveMissing(const ParallelLayout& layout) {
  return absl::StrCat(
      "passes side by side (parallel.weave ", EnumName(layout.weave),
      "): this framework runs the passes of a rank one after another, so the step is longer; set parallel.weave to "
      "off and export again");
}

std::string ExportComment(const ExportInput& input) {
  const Plan& plan = input.plan;
  return absl::StrCat("Written for ", ExportTargetText(input.target), " by lynxctl export; plan ", plan.digest.substr(0, 12),
                      ": ", LayoutText(plan.layout), ", micro-batch ", plan.micro_batch, " x ", plan.microbatches,
                      ", predicted step ", FormatDuration(plan.step));
}

std::string ExportHeader(const std::string& what, const ExportInput& input, const std::string& mark) {
  return absl::StrCat(mark, what, " for the job ", input.spec.name, ".\n", mark, ExportComment(input), ".\n");
}

std::string RankOrderMissing(const ParallelLayout& layout, const char* framework) {
  if (layout.pp == 1 || layout.dp == 1 || layout.rank_order == RankOrder::kTpDpPp) return "";
  return absl::StrCat("ranks in the order ", EnumName(layout.rank_order), ": ", framework,
                      " numbers the replicas of a stage one after another, so other ranks share a node than in the plan; set "
                      "parallel.rankOrder to ",
                      EnumName(RankOrder::kTpDpPp), " and export again");
}

absl::StatusOr<PlanResult> MakePlanFor(ExportFormat format, PlanRequest request) {
  // No other framework can be told to run passes side by side.
  const bool other_framework = request.target == PlanTarget::kAnyFramework;
  if (other_framework && request.spec.parallel.weave == WeaveMode::kAuto) request.spec.parallel.weave = WeaveMode::kOff;
  // DeepSpeed and torchtitan have only this order. Megatron-LM has an argument for it.
  const bool numbers_replicas = format == ExportFormat::kDeepSpeed || format == ExportFormat::kTorchtitan;
  if (other_framework && numbers_replicas && request.spec.parallel.rank_order == RankOrder::kAuto) {
    request.spec.parallel.rank_order = RankOrder::kTpDpPp;
  }
  request.even_batches = true;  // other frameworks refuse microbatches with empty places
  if (request.target == PlanTarget::kLynxEngine || request.spec.parallel.schedule != ScheduleKind::kAuto) {
    return MakePlan(request);
  }
  std::optional<PlanResult> best;
  absl::Status refusal;
  const std::vector<ScheduleKind> schedules = SchedulesOf(format);
  // With virtual stages, only interleaved schedules are possible. Its error says best what the job can change, so it is
  // returned.
  const bool interleaves = request.spec.parallel.virtual_stages > 1 &&
                           std::find(schedules.begin(), schedules.end(), ScheduleKind::kInterleaved) != schedules.end();
  for (const ScheduleKind schedule : schedules) {
    if (interleaves && schedule != ScheduleKind::kInterleaved) continue;
    request.spec.parallel.schedule = schedule;
    absl::StatusOr<PlanResult> result = MakePlan(request);
    if (!result.ok()) {  // the request is refused only if it is refused with every schedule
      refusal.Update(result.status());
      continue;
    }
    const Plan* plan = std::get_if<Plan>(&*result);
    const Plan* kept = best ? std::get_if<Plan>(&*best) : nullptr;
    if (!best || (plan != nullptr && (kept == nullptr || plan->step < kept->step))) best = *std::move(result);
  }
  if (!best) return refusal;
  return *std::move(best);
}

absl::StatusOr<ExportedPlan> ExportPlan(const ExportTarget& target, const PlanRequest& request, const Plan& plan) {
  LYNX_CHECK(plan.empty_places == 0);
  const ExportFormat format = target.format;
  const RecomputeSummary summary = SummaryOf(plan);
  std::optional<Plan> instead;
  RecomputeSummary exported = summary;
  if (!CanExpress(format, summary)) {
    LYNX_ASSIGN_OR_RETURN(instead, Substitute(format, request, plan));
    if (!instead) {
      return absl::FailedPreconditionError(absl::StrCat(kFrameworks[static_cast<size_t>(format)],
                                                        " has no policy with which this job fits in ", LayoutText(plan.layout),
                                                        ": storing everything and every recomputation that it has need more "
                                                        "memory than there is; allow more memory or ranks, or another layout"));
    }
    exported = SummaryOf(*instead);
  }
  const char* framework = kFrameworks[static_cast<size_t>(format)];
  std::vector<std::string> missing = PolicyMissing(framework, plan, summary, instead, exported);
  const Plan& shown = instead ? *instead : plan;
  const ExportInput input{target, request.spec, shown, exported};
  ExportedPlan files = format == ExportFormat::kMegatron    ? MegatronFiles(input)
                       : format == ExportFormat::kDeepSpeed ? DeepSpeedFiles(input)
                                                            : TorchtitanFiles(input);
  missing.insert(missing.end(), files.missing.begin(), files.missing.end());
  if (!shown.nodes.empty()) {
    missing.push_back(absl::StrCat("the order of the nodes: in the plan, ",
                                   shown.layout.rank_order == RankOrder::kTpPpDp
                                       ? "replica after replica and in each replica stage after stage"
                                       : "stage after stage and in each stage replica after replica",
                                   ", the ranks fill ", NodeRunsText(shown.nodes), "; give ", framework,
                                   " its hosts in an order in which each stage gets the same nodes"));
  }
  files.missing = std::move(missing);
  return files;
}

}  // namespace lynx
