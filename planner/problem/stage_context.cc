#include "planner/problem/stage_context.h"

#include <algorithm>
#include <numeric>

#include "common/check.h"

namespace lynx {

PipelineShape PipelineOf(const ParallelLayout& layout) {
  if (layout.custom.schedule) return layout.custom.schedule->shape;
  const StagePlacement placement = InfoOf(layout.schedule).placement;
  const int32_t chunks = placement == StagePlacement::kLooping ? layout.virtual_stages : 2;
  return {.placement = placement, .ranks = layout.pp, .chunks = chunks};
}

StageSlice SliceOf(const ParallelLayout& layout, int32_t stage, int32_t first_layer, int32_t end_layer) {
  const PipelineShape pipeline = PipelineOf(layout);
  return {.stage = stage,
          .first_layer = first_layer,
          .end_layer = end_layer,
          .has_embedding = pipeline.Previous(stage) == kNoStage,
          .has_head = pipeline.Next(stage) == kNoStage};
}

const StageSlice& StageContext::only_slice() const {
  LYNX_CHECK(slices.size() == 1);
  return slices.front();
}

const StageSlice* StageContext::FindSlice(int32_t stage) const {
  for (const StageSlice& slice : slices) {
    if (slice.stage == stage) return &slice;
  }
  return nullptr;
}

bool StageContext::has_embedding() const {
  return std::any_of(slices.begin(), slices.end(), [](const StageSlice& slice) { return slice.has_embedding; });
}

bool StageContext::has_head() const {
  return std::any_of(slices.begin(), slices.end(), [](const StageSlice& slice) { return slice.has_head; });
}

int32_t GradientRanks(const ParallelLayout& layout) { return layout.dp * layout.cp * PipelineOf(layout).pipes(); }

int32_t ShardRanks(const ParallelLayout& layout) {
  return layout.zero_group == 0 ? GradientRanks(layout) : GradientRanks(layout) / layout.dp * layout.zero_group;
}

std::vector<int32_t> RankLayers(const PipelineShape& pipeline, const std::vector<int32_t>& pieces) {
  LYNX_CHECK(static_cast<int64_t>(pieces.size()) == pipeline.pieces());
  std::vector<int32_t> layers(static_cast<size_t>(pipeline.ranks));
  for (int32_t stage = 0; stage < pipeline.stages(); ++stage) {
    layers[static_cast<size_t>(pipeline.RankOf(stage))] += pieces[static_cast<size_t>(pipeline.PieceOf(stage))];
  }
  return layers;
}

std::vector<StageContext> PipelineContexts(const ModelSpec& model, const ParallelLayout& layout, int32_t micro_batch,
                                           int32_t microbatches, const std::vector<int32_t>& layers) {
  const PipelineShape pipeline = PipelineOf(layout);
  LYNX_CHECK(static_cast<int64_t>(layers.size()) == pipeline.pieces());
  LYNX_CHECK(std::accumulate(layers.begin(), layers.end(), int64_t{0}) == model.layers);
  std::vector<int32_t> first(layers.size() + 1);
  std::partial_sum(layers.begin(), layers.end(), first.begin() + 1);
  std::vector<StageContext> contexts;
  for (int32_t rank = 0; rank < layout.pp; ++rank) {
    StageContext context{.model = model,
                         .layout = layout,
                         .micro_batch = micro_batch,
                         .microbatches = microbatches,
                         .pipeline_rank = rank,
                         .slices = {}};
    for (int32_t chunk = 0; chunk < pipeline.chunks; ++chunk) {
      const int32_t stage = pipeline.StageOn(rank, chunk);
      const auto piece = static_cast<size_t>(pipeline.PieceOf(stage));
      context.slices.push_back(SliceOf(layout, stage, first[piece], first[piece + 1]));
    }
    contexts.push_back(std::move(context));
  }
  return contexts;
}

}  // namespace lynx
