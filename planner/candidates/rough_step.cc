#include "planner/candidates/rough_step.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "planner/problem/layout_schedule.h"
#include "planner/problem/shorter_steps.h"

namespace lynx {
namespace {

// Number of passes of a group that end at about the same time.
constexpr int32_t kEndTogether = 2;

}  // namespace

Nanos PipelineTime(const Candidate& candidate, std::vector<TransferPassTimes> passes, PlanCaches& caches) {
  const int32_t microbatches = candidate.microbatches;
  const int32_t group = GroupOf(candidate.layout.weave);
  const int32_t together = std::min(group, kEndTogether);
  const int32_t groups = (microbatches + group - 1) / group;
  for (TransferPassTimes& times : passes) {
    for (Nanos* time : {&times.forward, &times.backward, &times.weight}) *time = *time * microbatches / groups;
    times.early = times.transfer * (group - together);
    times.transfer = times.transfer * together;
  }
  ParallelLayout layout = candidate.layout;
  if (group > 1) layout.weave = WeaveMode::kOff;
  TransferScratch scratch;
  const auto step = [&](int32_t count) { return StepTime(caches.TransfersOf(layout, count), passes, scratch); };
  const std::optional<ShorterSteps> shorter = ShorterStepsOf(layout, groups);
  return shorter ? shorter->Extrapolated(groups, step(shorter->fewer), step(shorter->more)) : step(groups);
}

Nanos RoughStep(const PlanRequest& request, const Candidate& candidate, PlanCaches& caches) {
  const ParallelLayout& layout = candidate.layout;
  const PipelineShape pipeline = PipelineOf(layout);
  if (pipeline.placement != StagePlacement::kLooping || layout.schedule == ScheduleKind::kCustom) return Nanos(0);
  const LayerLowerBound& floor = caches.Floor(candidate);
  const StateLowerBound& states = caches.States(candidate);
  const Nanos stage = CandidateBound(request, candidate, caches).ModelTime() / pipeline.stages();
  TransferPassTimes times{.forward = stage * floor.delay_permille(/*splits_weight=*/true) / 1000};
  const Nanos passes = SplitsWeight(layout) ? stage * floor.delay_permille(/*splits_weight=*/false) / 1000 : stage;
  times.backward = std::max(Nanos(0), passes - times.forward);
  times.weight = stage - times.forward - times.backward;
  times.after_post = times.backward;
  std::vector<TransferPassTimes> all(static_cast<size_t>(pipeline.stages()), times);
  for (int32_t at = 0; at + 1 < pipeline.stages() && layout.pp > 1; ++at) {
    all[static_cast<size_t>(at)].transfer = states.BoundaryTransfer(pipeline.RankOf(at), floor.input());
  }
  // On a cluster with nodes of several kinds, a rank may have far fewer layers than others.
  const int32_t layers = request.cluster.groups.size() > 1 ? pipeline.chunks : request.spec.model.layers / layout.pp;
  Nanos end = states.End(0, layers);
  for (int32_t rank = 1; rank < layout.pp; ++rank) end = std::min(end, states.End(rank, layers));
  if (layout.zero < ZeroStage::kGradients) {
    // The reductions of the first rank begin with its last backward passes, the one of its first chunk last of all.
    const Nanos slot = times.backward + times.weight;
    const Nanos reductions = states.EndWithReductions(0, layers);
    end = std::max(end, reductions - slot * ((pipeline.chunks - 1) * layout.pp + 1));
  }
  return PipelineTime(candidate, std::move(all), caches) + end;
}

}  // namespace lynx
