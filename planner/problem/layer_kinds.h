// LayerKinds knows the shape and the graph of each layer of a model. All transformer layers of most models are alike. If only
// some of the layers have experts (MoeSpec::dense_layers), a model has two kinds of transformer layers. Pure; thread-safe.
#ifndef LYNX_PLANNER_PROBLEM_LAYER_KINDS_H_
#define LYNX_PLANNER_PROBLEM_LAYER_KINDS_H_

#include <array>
#include <cstdint>

#include "planner/problem/layer_graph.h"
#include "planner/problem/stage_context.h"

namespace lynx {

class LayerKinds {
 public:
  explicit LayerKinds(const StageContext& context) : LayerKinds(context.shape(), context.model.moe.dense_layers) {}
  // `shape` is the result of ShapeOf for the model. The first `dense_layers` layers have no experts.
  LayerKinds(const LayerShape& shape, int32_t dense_layers)
      : dense_layers_(dense_layers), shapes_{shape, DenseShape(shape)}, graphs_{&LayerGraph::Of(shapes_[0]),
                                                                                &LayerGraph::Of(shapes_[1])} {}

  // True for a transformer layer without experts in a model whose other layers have experts.
  bool IsDense(int32_t layer) const { return layer >= 0 && layer < dense_layers_; }
  // `layer` may also be kEmbeddingLayer or kHeadLayer.
  const LayerShape& ShapeOf(int32_t layer) const { return shapes_[IsDense(layer)]; }
  const LayerGraph& GraphOf(int32_t layer) const { return *graphs_[IsDense(layer)]; }
  // The shape and the graph of the embedding, of the head and of the layers with experts. In a model without experts, all
  // layers have this shape.
  const LayerShape& shape() const { return shapes_[0]; }
  const LayerGraph& graph() const { return *graphs_[0]; }
  int32_t dense_layers() const { return dense_layers_; }

 private:
  int32_t dense_layers_;
  std::array<LayerShape, 2> shapes_;  // the index is IsDense
  std::array<const LayerGraph*, 2> graphs_;
};

}  // namespace lynx

#endif  // LYNX_PLANNER_PROBLEM_LAYER_KINDS_H_
