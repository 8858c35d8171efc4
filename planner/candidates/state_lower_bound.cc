#include "planner/candidates/state_lower_bound.h"

#include <algorithm>

#include "planner/problem/layer_graph.h"

namespace lynx {
namespace {

constexpr int32_t kPassesThatGather = 2;  // the forward and the backward pass
// Number of layers whose weights are still in memory after the previous pass (planner/lower/lower_sharing.h).
constexpr int32_t kLayersStillThere = 2;

}  // namespace

StateLowerBound::StateLowerBound(const ClusterTopology& cluster, const ModelSpec& model, const ParallelLayout& layout)
    : costs_(cluster, model, layout, /*micro_batch=*/1), zero_(layout.zero) {
  const LayerShape shape = ShapeOf(model, layout, 1);
  kinds_.push_back({LayerParameters(LayerType::kTransformer, shape), ExpertParameters(shape)});
  if (model.moe.dense_layers > 0) kinds_.push_back({LayerParameters(LayerType::kTransformer, DenseShape(shape)), 0});
  const int64_t embedding = LayerParameters(LayerType::kEmbedding, shape);
  for (int32_t rank = 0; rank < layout.pp; ++rank) {
    if (rank > 0 && &costs_.Of(rank) == &costs_.Of(rank - 1)) {
      times_.push_back(times_.back());
      continue;
    }
    const CostModel& costs = costs_.Of(rank);
    Times& times = times_.emplace_back();
    times.reduction = times.gather = kMaxTime;
    for (const Parameters& kind : kinds_) {
      times.reduction = std::min(times.reduction, costs.DataReduceTime(kind.all, kind.experts));
      times.gather = std::min(times.gather, costs.WeightGatherTime(kind.all, kind.experts));
    }
    times.last_reduction = std::min(times.reduction, costs.DataReduceTime(embedding, 0));
    times.kind = ends_.size();
    ends_.emplace_back();
  }
  // The last reduction of the step may be on any rank, and the optimizer of every rank begins only after it. So the shortest of
  // these reductions is the lower bound.
  Nanos least = times_.front().last_reduction;
  for (const Times& times : times_) least = std::min(least, times.last_reduction);
  for (Times& times : times_) times.last_reduction = least;
}

Nanos StateLowerBound::End(int32_t rank, int32_t layers) const {
  std::vector<std::optional<Nanos>>& known = ends_[times_[static_cast<size_t>(rank)].kind];
  const auto at = static_cast<size_t>(layers);
  if (at >= known.size()) known.resize(at + 1);
  if (!known[at]) known[at] = FindEnd(rank, layers);
  return *known[at];
}

Nanos StateLowerBound::FindEnd(int32_t rank, int32_t layers) const {
  const Times& times = times_[static_cast<size_t>(rank)];
  const CostModel& costs = costs_.Of(rank);
  const Nanos gathers = zero_ == ZeroStage::kWeights ? Nanos(0) : times.gather * layers;
  Nanos optimizer = kMaxTime;
  for (const Parameters& kind : kinds_) {
    optimizer = std::min(optimizer, costs.OptimizerTime(kind.all * layers, kind.experts * layers));
  }
  return times.last_reduction + costs.NormTime() + optimizer + gathers;
}

Nanos StateLowerBound::EndWithReductions(int32_t rank, int32_t layers) const {
  const Times& times = times_[static_cast<size_t>(rank)];
  return End(rank, layers) - times.last_reduction + times.reduction * layers;
}

Nanos StateLowerBound::TransfersOfMicrobatch(int32_t rank, int32_t layers, int32_t chunks) const {
  if (zero_ < ZeroStage::kGradients) return Nanos(0);
  const Times& times = times_[static_cast<size_t>(rank)];
  const Nanos reductions = times.reduction * layers;
  if (zero_ != ZeroStage::kWeights) return reductions;
  const int32_t gathered = std::max(0, layers - kLayersStillThere * chunks);
  return reductions + times.gather * (kPassesThatGather * gathered);
}

}  // namespace lynx
