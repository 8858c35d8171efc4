// StageContext: what one needs to know beside the program of one pipeline rank to read it: shapes, layout, and which
// parts of the model the rank has. A pipeline rank is a place in the pipeline: one tensor-parallel group of each
// replica, whose ranks all run one program.
//
// Virtual stages. A rank has one slice of the model for each of its virtual stages (planner/schedule/schedule.h): one with
// GPipe, 1F1B and ZB-H1, several with interleaved 1F1B, two with ZB-V and Chimera. The layers of a rank's slices are
// disjoint, so a layer's number says whose it is. Pure values; thread-safe.
#ifndef LYNX_PLANNER_PROBLEM_STAGE_CONTEXT_H_
#define LYNX_PLANNER_PROBLEM_STAGE_CONTEXT_H_

#include <cstdint>
#include <vector>

#include "planner/problem/layer_graph.h"
#include "planner/problem/layout.h"
#include "planner/schedule/schedule.h"

namespace lynx {

// One virtual stage.
struct StageSlice {
  int32_t stage = 0;        // virtual stage, as in an action
  int32_t first_layer = 0;  // transformer layers [first_layer, end_layer)
  int32_t end_layer = 0;
  bool has_embedding = false;  // the first piece of its copy of the model
  bool has_head = false;       // the last

  int32_t layers() const { return end_layer - first_layer; }
  int32_t top_layer() const { return end_layer - 1; }
  bool operator==(const StageSlice&) const = default;
};
// `stage` is one of PipelineOf(layout).
StageSlice SliceOf(const ParallelLayout& layout, int32_t stage, int32_t first_layer, int32_t end_layer);

// The pipeline of a layout: placement from its schedule; two chunks where the placement fixes that, else
// virtual_stages. A custom schedule says its own.
PipelineShape PipelineOf(const ParallelLayout& layout);

// Ranks that hold the same weights and sum their gradients: replicas and context-parallel ranks; in a bidirectional
// pipeline also the two ranks, r and p - 1 - r, that hold the same pieces of its two copies of the model.
int32_t GradientRanks(const ParallelLayout& layout);

struct StageContext {
  ModelSpec model;
  ParallelLayout layout;
  int32_t micro_batch = 1;         // samples per microbatch
  int32_t microbatches = 1;        // M, per replica and step, of both pipes together
  int32_t pipeline_rank = 0;       // 0..pp-1
  std::vector<StageSlice> slices;  // by chunk

  // Of a rank that has one slice; LYNX_CHECK fails for others.
  const StageSlice& only_slice() const;
  // Null where the virtual stage is not on this rank.
  const StageSlice* FindSlice(int32_t stage) const;
  bool has_embedding() const;  // of any slice
  bool has_head() const;

  PipelineShape pipeline() const { return PipelineOf(layout); }
  LayerShape shape() const { return ShapeOf(model, layout, micro_batch); }
  const LayerGraph& graph() const { return LayerGraph::Of(shape()); }
  int32_t gradient_ranks() const { return GradientRanks(layout); }
  bool operator==(const StageContext&) const = default;
};

// The contexts of all ranks of a pipeline whose i-th piece of the model (PipelineShape::PieceOf) has layers[i]
// transformer layers. LYNX_CHECK fails unless there is one entry for each piece and they make up the model.
std::vector<StageContext> PipelineContexts(const ModelSpec& model, const ParallelLayout& layout, int32_t micro_batch,
                                           int32_t microbatches, const std::vector<int32_t>& layers);

}  // namespace lynx

#endif  // LYNX_PLANNER_PROBLEM_STAGE_CONTEXT_H_
