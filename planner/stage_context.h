// StageContext: what one needs to know beside a stage's program to read it: shapes, layout, which layers it has.
// Pure values; thread-safe.
#ifndef LYNX_PLANNER_STAGE_CONTEXT_H_
#define LYNX_PLANNER_STAGE_CONTEXT_H_

#include <cstdint>

#include "planner/layer_graph.h"
#include "planner/layout.h"

namespace lynx {

struct StageContext {
  ModelSpec model;
  ParallelLayout layout;
  int32_t micro_batch = 1;    // samples per microbatch
  int32_t microbatches = 1;   // M, per replica and step
  int32_t stage = 0;
  int32_t first_layer = 0;    // transformer layers [first_layer, end_layer)
  int32_t end_layer = 0;

  bool has_embedding() const { return stage == 0; }
  bool has_head() const { return stage == layout.pp - 1; }
  LayerShape shape() const { return ShapeOf(model, layout, micro_batch); }
  const LayerGraph& graph() const { return LayerGraph::Of(shape()); }
  bool operator==(const StageContext&) const = default;
};

}  // namespace lynx

#endif  // LYNX_PLANNER_STAGE_CONTEXT_H_
