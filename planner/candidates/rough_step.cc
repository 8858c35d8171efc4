#include "planner/candidates/rough_step.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "planner/candidates/candidate_bound.h"
#include "planner/cost/stage_costs.h"
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

namespace {

// Longer than any real step, so that candidates that seem not to fit are tried last.
constexpr Nanos kSeemsTooLarge{int64_t{1} << 55};

// The layers and the recomputation of one pipeline rank, by a rough estimate of its memory.
struct RoughRank {
  int32_t layers = 0;
  Nanos exposed;  // recomputation of one microbatch
};

// Divides the layers of the model over the ranks so that all take about the same time, as far as their memory allows. A layer
// takes `layer`, and the embedding and the head take what `ends` says for their ranks, without recomputation. nullopt: the
// layers do not fit.
std::optional<std::vector<RoughRank>> DivideLayers(const PlanRequest& request, const Candidate& candidate, PlanCaches& caches,
                                                   Nanos layer, const std::vector<Nanos>& ends) {
  const CandidateBound bound(request, candidate, caches, CandidateBound::Offloading::kNone);
  const std::optional<ShorterSteps> shorter = ShorterStepsOf(candidate.layout, candidate.microbatches);
  const auto& in_flight = caches.FactsOf(candidate.layout, shorter ? shorter->more : candidate.microbatches).in_flight;
  std::vector<RoughRank> ranks(in_flight.size());
  std::vector<std::optional<Nanos>> next(in_flight.size());  // the rank's recomputation with one layer more, if that fits
  const auto look_ahead = [&](size_t rank) {
    next[rank] = bound.RoughlyExposed(static_cast<int32_t>(rank), ranks[rank].layers + 1, in_flight[rank]);
  };
  int32_t left = request.spec.model.layers;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    for (int32_t chunk = 0; chunk < PipelineOf(candidate.layout).chunks; ++chunk, --left) {
      look_ahead(rank);
      if (!next[rank]) return std::nullopt;
      ranks[rank] = {ranks[rank].layers + 1, *next[rank]};
    }
    look_ahead(rank);
  }
  for (; left > 0; --left) {
    std::optional<size_t> best;
    Nanos least;
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      if (!next[rank]) continue;
      const Nanos time = layer * (ranks[rank].layers + 1) + ends[rank] + *next[rank];
      if (best && time >= least) continue;
      best = rank;
      least = time;
    }
    if (!best) return std::nullopt;
    ranks[*best] = {ranks[*best].layers + 1, *next[*best]};
    look_ahead(*best);
  }
  return ranks;
}

// Time of one microbatch in all layers of the model, without recomputation. In contrast to CandidateBound, it knows over which
// links the groups of ranks of this candidate work.
Nanos LayersTime(const PlanRequest& request, const Candidate& candidate, PlanCaches& caches) {
  const ModelSpec& model = request.spec.model;
  const LayerLowerBound& floor = caches.Floor(candidate);
  const StageCosts costs(request.cluster, model, candidate.layout, candidate.micro_batch);
  Nanos layer = kMaxTime;
  for (int32_t rank = 0; rank < costs.stages(); ++rank) {
    if (rank > 0 && &costs.Of(rank) == &costs.Of(rank - 1)) continue;
    layer = std::min(layer, costs.Of(rank).LayerTime(LayerType::kTransformer, Pass::kForward) +
                                costs.Of(rank).LayerTime(LayerType::kTransformer, Pass::kBackward));
  }
  return std::max(layer, floor.rough_layer()) * (model.layers - model.moe.dense_layers) +
         floor.any_layer() * model.moe.dense_layers;
}

// The time for the states after the last backward pass. `slot`: the backward pass of a virtual stage and its weight gradients.
Nanos EndOfStep(const PlanRequest& request, const Candidate& candidate, const StateLowerBound& states, Nanos slot) {
  const ParallelLayout& layout = candidate.layout;
  const int32_t chunks = PipelineOf(layout).chunks;
  // On a cluster with nodes of several kinds, a rank may have far fewer layers than others.
  const int32_t layers = request.cluster.groups.size() > 1 ? chunks : request.spec.model.layers / layout.pp;
  Nanos end = states.End(0, layers);
  for (int32_t rank = 1; rank < layout.pp; ++rank) end = std::min(end, states.End(rank, layers));
  if (layout.zero >= ZeroStage::kGradients) return end;
  // The reductions of the first rank begin with its last backward passes. The reduction of its first chunk begins last.
  return std::max(end, states.EndWithReductions(0, layers) - slot * ((chunks - 1) * layout.pp + 1));
}

}  // namespace

Nanos RoughStep(const PlanRequest& request, const Candidate& candidate, PlanCaches& caches) {
  const ParallelLayout& layout = candidate.layout;
  const PipelineShape pipeline = PipelineOf(layout);
  if (pipeline.placement != StagePlacement::kLooping || layout.schedule == ScheduleKind::kCustom) return Nanos(0);
  const LayerLowerBound& floor = caches.Floor(candidate);
  const StateLowerBound& states = caches.States(candidate);
  const Nanos layers = LayersTime(request, candidate, caches), layer = layers / request.spec.model.layers;
  // Returns the times of the passes of a stage whose passes take `time` for one microbatch, in addition to `exposed` for
  // recomputation.
  const auto passes = [&](Nanos time, Nanos exposed) {
    TransferPassTimes times{.forward = time * floor.delay_permille(/*splits_weight=*/true) / 1000};
    const Nanos delays = SplitsWeight(layout) ? time * floor.delay_permille(/*splits_weight=*/false) / 1000 : time;
    times.backward = std::max(Nanos(0), delays - times.forward);
    times.weight = time - times.forward - times.backward;
    times.backward += exposed;
    // The receive is posted before the attention of the bottom layer (planner/lower/lower.cc).
    times.after_post = std::min(times.backward, layer * (1000 - floor.delay_permille(/*splits_weight=*/true)) / 2000);
    return times;
  };
  const auto step = [&](std::vector<TransferPassTimes> stages) {
    for (int32_t at = 0; at + 1 < pipeline.stages() && layout.pp > 1; ++at) {
      stages[static_cast<size_t>(at)].transfer = states.BoundaryTransfer(pipeline.RankOf(at), floor.input());
    }
    return PipelineTime(candidate, std::move(stages), caches);
  };
  const TransferPassTimes equal = passes((layers + floor.embedding() + floor.head()) / pipeline.stages(), Nanos(0));
  const Nanos end = EndOfStep(request, candidate, states, equal.backward + equal.weight);
  const Nanos stored = step(std::vector(static_cast<size_t>(pipeline.stages()), equal)) + end;
  if (request.cluster.groups.size() > 1 || !request.spec.parallel.stage_layers.empty()) return stored;
  const auto ends = [&](int32_t stage) {
    return (pipeline.Previous(stage) == kNoStage ? floor.embedding() : Nanos(0)) +
           (pipeline.Next(stage) == kNoStage ? floor.head() : Nanos(0));
  };
  std::vector<Nanos> of_ranks(static_cast<size_t>(layout.pp));
  for (int32_t at = 0; at < pipeline.stages(); ++at) of_ranks[static_cast<size_t>(pipeline.RankOf(at))] += ends(at);
  const std::optional<std::vector<RoughRank>> ranks = DivideLayers(request, candidate, caches, layer, of_ranks);
  if (!ranks) return kSeemsTooLarge;
  std::vector<TransferPassTimes> stages;
  for (int32_t at = 0; at < pipeline.stages(); ++at) {
    const auto& [count, exposed] = (*ranks)[static_cast<size_t>(pipeline.RankOf(at))];
    // The last chunks of a rank have one layer more, if the layers are not a multiple of the chunks.
    const bool more = pipeline.ChunkOf(at) >= pipeline.chunks - count % pipeline.chunks;
    const int32_t of_chunk = count / pipeline.chunks + (more ? 1 : 0);
    stages.push_back(passes(layer * of_chunk + ends(at), exposed * of_chunk / count));
  }
  return std::max(stored, step(std::move(stages)) + end);
}

}  // namespace lynx
