// The pieces of a model in closed-form estimates: how many layers each piece of a pipeline has, and how many parameters. Pure;
// thread-safe.
#ifndef LYNX_PLANNER_FRAMEWORKS_PIECES_H_
#define LYNX_PLANNER_FRAMEWORKS_PIECES_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/frameworks/step_estimate.h"
#include "planner/problem/layer_graph.h"
#include "planner/schedule/schedule.h"

namespace lynx {

// The pieces of a request's model. Unless the request says their layers: if they do not divide the layers evenly, the first
// pieces have one more layer each.
class Pieces {
 public:
  Pieces(const StepRequest& request, const LayerShape& shape, const PipelineShape& pipeline)
      : model_(request.model), stage_layers_(request.stage_layers), shape_(shape), pipeline_(pipeline) {}

  int32_t count() const { return pipeline_.pieces(); }
  bool First(int32_t piece) const { return piece == 0; }
  bool Last(int32_t piece) const { return piece + 1 == count(); }
  int32_t LayersOf(int32_t piece) const {
    if (!stage_layers_.empty()) return stage_layers_[static_cast<size_t>(piece)];
    return model_.layers / count() + (piece < model_.layers % count() ? 1 : 0);
  }
  // Number of the piece's layers that have no experts, in a model whose other layers have them.
  int32_t DenseLayersOf(int32_t piece) const;
  int64_t ParametersOf(int32_t piece) const;
  int32_t LayersOfRank(int32_t pipeline_rank) const;
  int32_t DenseLayersOfRank(int32_t pipeline_rank) const;  // see DenseLayersOf
  // The number of parameters of one tensor-parallel rank of this pipeline rank.
  int64_t ParametersOfRank(int32_t pipeline_rank) const;
  int64_t ExpertParametersOfRank(int32_t pipeline_rank) const;  // only parameters of experts

 private:
  const ModelSpec& model_;
  const std::vector<int32_t>& stage_layers_;
  const LayerShape& shape_;
  const PipelineShape& pipeline_;
};

// Returns InvalidArgument if the schedule does not exist for the layout, if there are fewer layers than pieces, if the
// request's layers of pieces are not those of the model, or if the recompute mode does not treat every layer alike.
absl::Status CheckEstimated(const StepRequest& request);

}  // namespace lynx

#endif  // LYNX_PLANNER_FRAMEWORKS_PIECES_H_
