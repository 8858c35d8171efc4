#include "planner/frameworks/pieces.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "planner/problem/layout_schedule.h"
#include "planner/problem/stage_context.h"

namespace lynx {
namespace {

bool TreatsLayersAlike(RecomputeMode mode) {
  switch (mode) {
    case RecomputeMode::kNone:
    case RecomputeMode::kFull:
    case RecomputeMode::kFullKeepCollectives:
    case RecomputeMode::kSelective:
    case RecomputeMode::kBalanced: return true;
    default: return false;
  }
}

}  // namespace

int32_t Pieces::DenseLayersOf(int32_t piece) const {
  if (model_.moe.dense_layers == 0) return 0;
  int32_t first = 0;
  for (int32_t before = 0; before < piece; ++before) first += LayersOf(before);
  return std::clamp(model_.moe.dense_layers - first, 0, LayersOf(piece));
}

int64_t Pieces::ParametersOf(int32_t piece) const {
  const int32_t dense = DenseLayersOf(piece);
  int64_t parameters = (LayersOf(piece) - dense) * LayerParameters(LayerType::kTransformer, shape_);
  if (dense > 0) parameters += dense * LayerParameters(LayerType::kTransformer, DenseShape(shape_));
  if (First(piece)) parameters += LayerParameters(LayerType::kEmbedding, shape_);
  if (Last(piece)) {
    parameters += LayerParameters(LayerType::kHead, shape_);
    if (model_.tied_embeddings && First(piece)) parameters -= OpParameters(Op::kLogits, shape_);
  }
  return parameters;
}

int32_t Pieces::LayersOfRank(int32_t pipeline_rank) const {
  int32_t layers = 0;
  for (int32_t stage = 0; stage < pipeline_.stages(); ++stage) {
    if (pipeline_.RankOf(stage) == pipeline_rank) layers += LayersOf(pipeline_.PieceOf(stage));
  }
  return layers;
}

int32_t Pieces::DenseLayersOfRank(int32_t pipeline_rank) const {
  int32_t layers = 0;
  for (int32_t stage = 0; stage < pipeline_.stages(); ++stage) {
    if (pipeline_.RankOf(stage) == pipeline_rank) layers += DenseLayersOf(pipeline_.PieceOf(stage));
  }
  return layers;
}

int64_t Pieces::ExpertParametersOfRank(int32_t pipeline_rank) const {
  return (LayersOfRank(pipeline_rank) - DenseLayersOfRank(pipeline_rank)) * ExpertParameters(shape_);
}

int64_t Pieces::ParametersOfRank(int32_t pipeline_rank) const {
  int64_t parameters = 0;
  for (int32_t stage = 0; stage < pipeline_.stages(); ++stage) {
    if (pipeline_.RankOf(stage) == pipeline_rank) parameters += ParametersOf(pipeline_.PieceOf(stage));
  }
  return parameters;
}

absl::Status CheckEstimated(const StepRequest& request) {
  if (!TreatsLayersAlike(request.recompute)) {
    return absl::InvalidArgumentError(absl::StrCat("\"", EnumName(request.recompute),
                                                   "\" does not treat every layer alike, so a step under it has to be "
                                                   "planned and simulated"));
  }
  LYNX_RETURN_IF_ERROR(CheckScheduleOf(request.layout, request.microbatches));
  const int32_t pieces = PipelineOf(request.layout).pieces();
  if (request.model.layers < pieces) {
    return absl::InvalidArgumentError(absl::StrCat(request.model.layers, " layers cannot be cut into ", pieces, " parts"));
  }
  const std::vector<int32_t>& layers = request.stage_layers;
  const int64_t sum = std::accumulate(layers.begin(), layers.end(), int64_t{0});
  if (!layers.empty() && (static_cast<int64_t>(layers.size()) != pieces || sum != request.model.layers)) {
    return absl::InvalidArgumentError(absl::StrCat("the layers of ", layers.size(), " stages are given, ", sum,
                                                   " in all, but the model has ", request.model.layers, " layers in ", pieces,
                                                   " parts"));
  }
  return absl::OkStatus();
}

}  // namespace lynx
