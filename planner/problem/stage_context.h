// StageContext holds what a reader of one pipeline rank's program must know in addition to the program: shapes, layout, and
// which parts of the model the rank has. A pipeline rank is a place in the pipeline. Each replica has one tensor-parallel group
// at that place, and all ranks of these groups run the same program.
//
// Virtual stages. A rank has one slice of the model for each of its virtual stages (planner/schedule/schedule.h): one
// with GPipe, 1F1B and ZB-H1, several with interleaved 1F1B, two with ZB-V and Chimera. The slices of a rank have no
// layer in common, so a layer's number identifies its slice. Pure values; thread-safe.
#ifndef LYNX_PLANNER_PROBLEM_STAGE_CONTEXT_H_
#define LYNX_PLANNER_PROBLEM_STAGE_CONTEXT_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "planner/problem/layer_graph.h"
#include "planner/problem/layout.h"
#include "planner/schedule/schedule.h"

namespace lynx {

// One virtual stage.
struct StageSlice {
  int32_t stage = 0;        // number of the virtual stage; actions contain the same number
  int32_t first_layer = 0;  // transformer layers [first_layer, end_layer)
  int32_t end_layer = 0;
  bool has_embedding = false;  // true if the slice is the first piece of its copy of the model
  bool has_head = false;       // true if the slice is the last piece of its copy of the model

  int32_t layers() const { return end_layer - first_layer; }
  int32_t top_layer() const { return end_layer - 1; }
  // Number of the slice's layers that have no experts, in a model whose other layers have them.
  int32_t DenseLayers(const MoeSpec& moe) const { return std::clamp(moe.dense_layers - first_layer, 0, layers()); }
  bool operator==(const StageSlice&) const = default;
};
// Returns the slice with these layers. `stage` is a virtual stage of PipelineOf(layout).
StageSlice SliceOf(const ParallelLayout& layout, int32_t stage, int32_t first_layer, int32_t end_layer);

// The pipeline of a layout. The schedule decides the placement of stages. There are two chunks if the placement requires two,
// otherwise virtual_stages chunks. A custom schedule states its own pipeline.
PipelineShape PipelineOf(const ParallelLayout& layout);

// Number of ranks that hold the same weights and sum their gradients: the replicas and the context-parallel ranks. In a
// bidirectional pipeline, ranks r and p - 1 - r hold the same pieces of the two copies of the model, so both are counted.
int32_t GradientRanks(const ParallelLayout& layout);
// Number of these ranks that shard the states among them, if ZeRO shards states: all of them, or those of one zero_group.
int32_t ShardRanks(const ParallelLayout& layout);

// The number of layers of each pipeline rank, over all its chunks, if the pieces of the model have these numbers of layers. In
// a bidirectional pipeline, a rank holds a piece of each copy.
std::vector<int32_t> RankLayers(const PipelineShape& pipeline, const std::vector<int32_t>& pieces);

struct StageContext {
  ModelSpec model;
  ParallelLayout layout;
  int32_t micro_batch = 1;         // samples per microbatch
  int32_t microbatches = 1;        // M: microbatches per replica and step, of both pipes together
  int32_t pipeline_rank = 0;       // 0..pp-1
  std::vector<StageSlice> slices;  // the index is the chunk

  // The slice of a rank that has one slice; LYNX_CHECK fails for other ranks.
  const StageSlice& only_slice() const;
  // Returns nullptr if the virtual stage is not on this rank.
  const StageSlice* FindSlice(int32_t stage) const;
  bool has_embedding() const;  // true if one of the slices has the embedding
  bool has_head() const;

  PipelineShape pipeline() const { return PipelineOf(layout); }
  // The shape of all layers, except of the layers without experts in a model that has experts (ShapeOfLayer).
  LayerShape shape() const { return ShapeOf(model, layout, micro_batch); }
  const LayerGraph& graph() const { return LayerGraph::Of(shape()); }
  // The shape of one layer. `layer` may also be kEmbeddingLayer or kHeadLayer. LayerKinds (layer_kinds.h) does the same for
  // many layers, faster.
  LayerShape ShapeOfLayer(int32_t layer) const { return IsDenseLayer(layer) ? DenseShape(shape()) : shape(); }
  // True for a transformer layer without experts in a model that has experts in other layers.
  bool IsDenseLayer(int32_t layer) const { return layer >= 0 && layer < model.moe.dense_layers; }
  int32_t gradient_ranks() const { return GradientRanks(layout); }
  bool operator==(const StageContext&) const = default;
};

// The contexts of all ranks of a pipeline. The i-th piece of the model (PipelineShape::PieceOf) gets layers[i] transformer
// layers. LYNX_CHECK fails unless `layers` has one entry for each piece and its sum is the model's number of layers.
std::vector<StageContext> PipelineContexts(const ModelSpec& model, const ParallelLayout& layout, int32_t micro_batch,
                                           int32_t microbatches, const std::vector<int32_t>& layers);

}  // namespace lynx

#endif  // LYNX_PLANNER_PROBLEM_STAGE_CONTEXT_H_
