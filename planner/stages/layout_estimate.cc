// LayoutPlanner::Guess estimates the time of a candidate's step. It lowers no program.
#include <algorithm>
#include <numeric>
#include <optional>
#include <vector>

#include "planner/candidates/rough_step.h"
#include "planner/problem/layout_schedule.h"
#include "planner/stages/layout_planner.h"

namespace lynx {
// Returns for each rank the smallest number of layers that seems not to fit. nullopt: on some rank, not even one layer per
// chunk seems to fit, or the largest numbers that seem to fit are together fewer than the layers of the model. More layers need
// more memory, so a binary search finds each number.
std::optional<std::vector<int32_t>> LayoutPlanner::SeemsTooMany(RecomputeMode mode) {
  const int32_t chunks = fits_.pipeline().chunks;
  const int32_t model_layers = request_.spec.model.layers * fits_.pipeline().pipes();
  std::vector<int32_t> too_many;
  int64_t sum = 0;
  for (int32_t rank = 0; rank < stages(); ++rank) {
    // `low` layers seem to fit, `high` layers do not
    int32_t low = chunks - 1, high = model_layers - (stages() - 1) * chunks + 1;
    while (high - low > 1) {
      const int32_t middle = low + (high - low) / 2;
      (fits_.SeemsToFit(mode, rank, middle) ? low : high) = middle;
    }
    if (low < chunks) return std::nullopt;
    too_many.push_back(high);
    sum += low;
  }
  return sum < model_layers ? std::nullopt : std::optional(too_many);
}

std::optional<std::vector<int32_t>> LayoutPlanner::SeemsBest(RecomputeMode mode) {
  const std::optional<std::vector<int32_t>> too_many = SeemsTooMany(mode);
  return too_many ? Balanced(mode, *too_many) : std::nullopt;
}

// If the job leaves the N of kUniform open, tries N = 1. If this seems not to fit, tries the largest N that can be of use.
StepGuess LayoutPlanner::Guess() {
  const RecomputeMode mode = fits_.EstimatedMode();
  if (mode != RecomputeMode::kUniform || request_.spec.recompute_options.layers > 0) return GuessOf(mode);
  fits_.SetNamedLayers(1);
  const StepGuess guess = GuessOf(mode);
  if (guess.fits) return guess;
  fits_.SetNamedLayers(MostGroup());
  return GuessOf(mode);
}

// Considers offloading only if nothing seems to fit without it, because estimates with offloading are less reliable.
StepGuess LayoutPlanner::GuessOf(RecomputeMode mode) {
  // If all ranks can store everything in a balanced partition, no other partition is better.
  const auto busy = [&](int32_t rank, int32_t count) { return fits_.BusyTime(rank, count).value; };
  std::optional<std::vector<int32_t>> layers =
      exact_partition() ? Partition(busy, busy) : BaselinePartition(partition_method(), mode);
  for (int32_t rank = 0; exact_partition() && layers && rank < stages(); ++rank) {
    if (!fits_.SeemsToFit(RecomputeMode::kNone, rank, (*layers)[rank])) layers.reset();
  }
  if (!layers) layers = SeemsBest(mode);
  if (!layers && fits_.OffersOffloading()) {
    fits_.SetOffloading(true);
    layers = SeemsBest(mode);
  }
  if (!layers) layers = EqualPartition();
  StepGuess guess{.fits = true};
  std::vector<Nanos> exposed;
  for (int32_t stage = 0; stage < stages(); ++stage) {
    int64_t cost = fits_.EstimatedCost(mode, stage, (*layers)[stage]);
    if (cost >= kSeemsNotToFit) {
      guess.fits = false;
      cost = fits_.BusyTime(stage, (*layers)[stage]).value;
    }
    exposed.push_back(Nanos(cost) - fits_.BusyTime(stage, (*layers)[stage]));
  }
  fits_.SetOffloading(false);
  const std::vector<TransferPassTimes> passes = GuessedPasses(*layers, exposed);
  guess.step = PipelineTime(candidate_, passes, caches_) + GuessedEnd(*layers, passes);
  return guess;
}

// `exposed` is the exposed recomputation of each rank for one microbatch.
std::vector<TransferPassTimes> LayoutPlanner::GuessedPasses(const std::vector<int32_t>& layers,
                                                            const std::vector<Nanos>& exposed) const {
  const PipelineShape& pipeline = fits_.pipeline();
  const bool split = SplitsWeight(candidate_.layout);
  const Bytes x = TensorBytes(Tensor::kX, fits_.shape());
  const std::vector<int32_t> pieces = PieceLayers(layers);
  std::vector<TransferPassTimes> passes;
  for (int32_t stage = 0; stage < pipeline.stages(); ++stage) {
    const int32_t rank = pipeline.RankOf(stage);
    const CostModel& costs = fits_.costs().Of(rank);
    TransferPassTimes times;
    // With ZeRO-2 and ZeRO-3, transfers of the layers' states run at the same time as the passes.
    const auto beside = [&](Nanos work, Nanos transfer) { return std::max(transfer, costs.OverlappedTime(work, transfer)); };
    const auto add = [&](const CostModel& costs, LayerType type, int32_t count) {
      const int64_t parameters = LayerParameters(type, fits_.shape());
      const ZeroStage zero = candidate_.layout.zero;
      const Nanos gather = zero >= ZeroStage::kWeights ? costs.WeightGatherTime(parameters, 0) : Nanos(0);
      const Nanos reduction = zero >= ZeroStage::kGradients ? costs.DataReduceTime(parameters, 0) : Nanos(0);
      times.forward += beside(costs.LayerTime(type, Pass::kForward), gather) * count;
      if (split) {
        times.backward += beside(costs.InputGradientTime(type), gather) * count;
        times.weight += beside(costs.LayerTime(type, Pass::kWeight), reduction) * count;
      } else {
        times.backward += beside(costs.LayerTime(type, Pass::kBackward), gather + reduction) * count;
      }
    };
    const int32_t piece = pipeline.PieceOf(stage), count = pieces[piece];
    const int32_t first = std::accumulate(pieces.begin(), pieces.begin() + piece, 0);
    const int32_t dense = std::clamp(request_.spec.model.moe.dense_layers - first, 0, count);
    add(costs, LayerType::kTransformer, count - dense);
    if (dense > 0) add(costs.dense(), LayerType::kTransformer, dense);
    if (pipeline.Previous(stage) == kNoStage) add(costs, LayerType::kEmbedding, 1);
    const bool last = pipeline.Next(stage) == kNoStage;
    if (last) add(costs, LayerType::kHead, 1);
    times.backward += exposed[rank] * pipeline.pipes() / pipeline.chunks;
    // The receive is posted before the attention of the bottom layer (planner/lower/lower.cc).
    times.after_post = costs.LayerTime(LayerType::kTransformer, Pass::kBackward) / 2;
    if (!last && pipeline.RankOf(pipeline.Next(stage)) != rank) times.transfer = costs.BoundaryTime(rank, x);
    passes.push_back(times);
  }
  return passes;
}

// The time after the last backward: the reduction of the gradients that are not reduced yet, the norm, the optimizer, and the
// gather of the weights. Ranks at the end of the pipeline finish their backward passes earlier, so their reductions begin
// earlier. Every rank finishes the backward passes of its first chunk last.
Nanos LayoutPlanner::GuessedEnd(const std::vector<int32_t>& layers, const std::vector<TransferPassTimes>& passes) const {
  const PipelineShape& pipeline = fits_.pipeline();
  const ZeroStage zero = candidate_.layout.zero;
  Nanos most_reduction, most_update, norm;
  for (int32_t rank = 0; rank < stages(); ++rank) {
    const CostModel& costs = fits_.costs().Of(rank);
    const int64_t parameters = LayerParameters(LayerType::kTransformer, fits_.shape());
    const int64_t experts = ExpertParameters(fits_.shape());
    const Nanos one = costs.DataReduceTime(parameters, experts);
    const TransferPassTimes& first = passes[static_cast<size_t>(pipeline.StageOn(rank, 0))];
    const Nanos slot = first.backward + first.weight;
    Nanos reduction = one;
    if (zero < ZeroStage::kGradients) {
      reduction = std::max({one, one * layers[rank] / pipeline.chunks - slot,
                            one * layers[rank] - slot * ((pipeline.chunks - 1) * stages() + 1)});
    }
    if (rank == 0) reduction += costs.DataReduceTime(LayerParameters(LayerType::kEmbedding, fits_.shape()), 0);
    most_reduction = std::max(most_reduction, reduction - slot * rank);
    Nanos update = costs.OptimizerTime(parameters * layers[rank], experts * layers[rank]);
    if (zero < ZeroStage::kWeights) update += costs.WeightGatherTime(parameters, experts) * layers[rank];
    most_update = std::max(most_update, update);
    norm = std::max(norm, costs.NormTime());
  }
  return most_reduction + norm + most_update;
}

}  // namespace lynx
