// Helpers for the tests of programs: small pipelines, random policies, layouts and schedules.
#ifndef LYNX_TESTS_PLANNER_LOWER_STAGE_PROGRAMS_H_
#define LYNX_TESTS_PLANNER_LOWER_STAGE_PROGRAMS_H_

#include <random>
#include <string>
#include <utility>
#include <vector>

#include "planner/lower/lower.h"

namespace lynx {

struct Pipeline {
  std::vector<StageContext> contexts;
  std::vector<std::vector<StagePolicy>> policies;  // for each rank, one policy per slice
  std::vector<Program> programs;

  const LayerPolicy& PolicyOf(size_t rank, int32_t layer) const {
    for (size_t i = 0; i < contexts[rank].slices.size(); ++i) {
      const StageSlice& slice = contexts[rank].slices[i];
      if (layer < slice.first_layer || layer >= slice.end_layer) continue;
      return policies[rank][i].layers[static_cast<size_t>(layer - slice.first_layer)];
    }
    std::abort();
  }
};

inline ModelSpec SmallModel(int32_t layers) {
  return {.layers = layers, .hidden = 32, .heads = 4, .ffn = 128, .seq = 16, .vocab = 256};
}

// Returns the contexts of stages over which the layers are divided as evenly as possible.
inline std::vector<StageContext> ContextsOf(const ModelSpec& model, const ParallelLayout& layout, int32_t microbatches) {
  const int32_t pieces = PipelineOf(layout).pieces();
  std::vector<int32_t> layers;
  for (int32_t i = 0; i < pieces; ++i) layers.push_back(model.layers * (i + 1) / pieces - model.layers * i / pieces);
  return PipelineContexts(model, layout, 2, microbatches, layers);
}

inline Pipeline Lowered(std::vector<StageContext> contexts, std::vector<std::vector<StagePolicy>> policies) {
  Pipeline pipeline{std::move(contexts), std::move(policies), {}};
  for (size_t rank = 0; rank < pipeline.contexts.size(); ++rank) {
    pipeline.programs.push_back(LowerStage(pipeline.contexts[rank], pipeline.policies[rank]));
  }
  return pipeline;
}

// Returns programs in which each slice has the policy that policy(slice) returns.
template <class Policy>
Pipeline LoweredWith(std::vector<StageContext> contexts, const Policy& policy) {
  std::vector<std::vector<StagePolicy>> policies;
  for (const StageContext& context : contexts) {
    std::vector<StagePolicy>& of_rank = policies.emplace_back();
    for (const StageSlice& slice : context.slices) of_rank.push_back(policy(slice));
  }
  return Lowered(std::move(contexts), std::move(policies));
}

inline Pipeline NamedPipeline(RecomputeMode mode, const ModelSpec& model, const ParallelLayout& layout, int32_t microbatches) {
  std::vector<StageContext> contexts = ContextsOf(model, layout, microbatches);
  const LayerGraph& graph = contexts.front().graph();
  return LoweredWith(std::move(contexts), [&](const StageSlice& slice) { return NamedPolicy(graph, mode, slice.layers()); });
}

inline Pipeline NamedPipeline(RecomputeMode mode, int32_t layers, const ParallelLayout& layout, int32_t microbatches) {
  return NamedPipeline(mode, SmallModel(layers), layout, microbatches);
}

inline int32_t Draw(std::mt19937_64& rng, int32_t low, int32_t high) {
  return low + static_cast<int32_t>(rng() % static_cast<uint64_t>(high - low + 1));
}

// Returns a policy with any placement for any tensor of any layer, legal or not. The lowering must accept all of them.
inline StagePolicy RandomPolicy(std::mt19937_64& rng, const LayerGraph& graph, int32_t layers) {
  StagePolicy policy;
  for (int32_t l = 0; l < layers; ++l) {
    LayerPolicy layer{};
    const bool mostly_stored = Draw(rng, 0, 2) == 0;
    for (size_t i = 0; i < graph.recomputable().size(); ++i) {
      const bool store = mostly_stored && Draw(rng, 0, 2) > 0;
      layer[i] = store ? Placement::kStore : static_cast<Placement>(Draw(rng, 0, static_cast<int>(Placement::kCritical)));
    }
    policy.layers.push_back(layer);
  }
  return policy;
}

// Returns a random model. Over many calls, every kind of model that has its own layer graph occurs.
inline ModelSpec RandomModel(std::mt19937_64& rng, int32_t layers) {
  ModelSpec model = SmallModel(layers);
  if (Draw(rng, 0, 3) == 0) model.dropout = 0;
  if (Draw(rng, 0, 1) == 0) return model;
  if (Draw(rng, 0, 1) == 0) model.attention = AttentionKernel::kFused;
  if (Draw(rng, 0, 1) == 0) model.dtype = DataType::kBfloat16;
  if (Draw(rng, 0, 1) == 0) model.dropout_masks = DropoutMasks::kStored;
  if (Draw(rng, 0, 1) == 0) model.family = ModelFamily::kLlama, model.dropout = 0;
  return model;
}

// Returns a layout with any schedule except custom ones, of any shape and degrees, with at most `most_ranks` pipeline ranks.
inline ParallelLayout RandomLayout(std::mt19937_64& rng, int32_t most_ranks = 4) {
  ParallelLayout layout{.tp = 1 << Draw(rng, 0, 2), .pp = Draw(rng, 1, most_ranks), .dp = Draw(rng, 1, 2)};
  layout.sequence_parallel = layout.tp > 1 && Draw(rng, 0, 1) == 1;
  layout.schedule = static_cast<ScheduleKind>(Draw(rng, 1, static_cast<int>(ScheduleKind::kChimera)));
  if (layout.schedule == ScheduleKind::kInterleaved) layout.virtual_stages = Draw(rng, 2, 3);
  if (layout.schedule == ScheduleKind::kChimera) layout.pp += layout.pp % 2;
  if (Draw(rng, 0, 2) == 0) layout.cp = 2;
  if (Draw(rng, 0, 1) == 0) {
    // With two copies of the model on each rank, gradients cannot be sharded.
    const ZeroStage most = layout.schedule == ScheduleKind::kChimera ? ZeroStage::kOptimizer : ZeroStage::kWeights;
    layout.zero = static_cast<ZeroStage>(Draw(rng, static_cast<int>(ZeroStage::kNone), static_cast<int>(most)));
  }
  return layout;
}

// Gives a model experts.
inline void AddExperts(std::mt19937_64& rng, ModelSpec& model) {
  model.family = ModelFamily::kLlama;
  model.dropout = 0;
  model.qk_norm = Draw(rng, 0, 1) == 0;
  model.moe = {.experts = 8, .top_k = Draw(rng, 1, 3), .ffn = 48, .capacity = 0.5 * Draw(rng, 0, 4)};
  model.moe.dropless = model.moe.capacity > 0 && model.moe.top_k == 2;
  if (Draw(rng, 0, 1) == 0) model.moe.dense_layers = Draw(rng, 0, model.layers - 1);
  if (Draw(rng, 0, 1) == 0) model.moe.shared_ffn = 40;
}

// Gives latent attention to a Llama model with a probability of one half.
inline void AddLatent(std::mt19937_64& rng, ModelSpec& model) {
  if (model.family != ModelFamily::kLlama || Draw(rng, 0, 1) == 0) return;
  model.attention = AttentionKernel::kFused;
  model.qk_norm = false;
  model.head_dim = 12;
  model.rotary.dims = 4;
  model.latent = {.query_rank = Draw(rng, 0, 1) * 20, .kv_rank = 10, .value_dim = 6};
}

// Changes a layout so that it can run a model with 8 experts.
inline void MakeFitExperts(std::mt19937_64& rng, ParallelLayout& layout) {
  layout.sequence_parallel = layout.tp > 1;
  layout.zero = std::min(layout.zero, ZeroStage::kOptimizer);
  if (layout.schedule == ScheduleKind::kChimera) layout.schedule = ScheduleKind::kZeroBubble;
  while (layout.ep < 8 && RanksOfStage(layout) % (layout.ep * 2) == 0 && Draw(rng, 0, 3) > 0) layout.ep *= 2;
}

inline Pipeline RandomPipeline(std::mt19937_64& rng, bool experts = false) {
  ParallelLayout layout = RandomLayout(rng);
  if (experts) MakeFitExperts(rng, layout);
  const int32_t pieces = PipelineOf(layout).pieces();
  ModelSpec model = RandomModel(rng, pieces * Draw(rng, 1, 2) + Draw(rng, 0, pieces - 1));
  if (experts) AddExperts(rng, model);
  AddLatent(rng, model);
  const int32_t microbatches = layout.schedule == ScheduleKind::kChimera ? 2 * Draw(rng, 1, 5) : Draw(rng, 1, 9);
  std::vector<StageContext> contexts = ContextsOf(model, layout, microbatches);
  const LayerGraph& graph = contexts.front().graph();
  return LoweredWith(std::move(contexts), [&](const StageSlice& slice) { return RandomPolicy(rng, graph, slice.layers()); });
}

// Returns the pipeline's name for messages: "tp2 pp2 dp1 chimera, 4 microbatches".
inline std::string NameOf(const Pipeline& pipeline) {
  const StageContext& context = pipeline.contexts.front();
  return LayoutText(context.layout) + ", " + std::to_string(context.microbatches) + " microbatches";
}

}  // namespace lynx

#endif  // LYNX_TESTS_PLANNER_LOWER_STAGE_PROGRAMS_H_
