// What the tests of programs share: small pipelines, random policies and layouts.
#ifndef LYNX_TESTS_PLANNER_STAGE_PROGRAMS_H_
#define LYNX_TESTS_PLANNER_STAGE_PROGRAMS_H_

#include <random>
#include <string>
#include <vector>

#include "planner/lower.h"

namespace lynx {

struct Pipeline {
  std::vector<StageContext> contexts;
  std::vector<StagePolicy> policies;
  std::vector<Program> programs;
};

inline ModelSpec SmallModel(int32_t layers) {
  return {.layers = layers, .hidden = 32, .heads = 4, .ffn = 128, .seq = 16, .vocab = 256};
}

inline std::vector<StageContext> ContextsOf(const ModelSpec& model, const ParallelLayout& layout,
                                            int32_t microbatches) {
  std::vector<StageContext> contexts;
  for (int32_t s = 0; s < layout.pp; ++s) {
    contexts.push_back({.model = model,
                        .layout = layout,
                        .micro_batch = 2,
                        .microbatches = microbatches,
                        .pipeline_rank = s,
                        .slices = {SliceOf(layout, s, model.layers * s / layout.pp,
                                           model.layers * (s + 1) / layout.pp)}});
  }
  return contexts;
}

inline Pipeline Lowered(std::vector<StageContext> contexts, std::vector<StagePolicy> policies) {
  Pipeline pipeline{std::move(contexts), std::move(policies), {}};
  for (size_t s = 0; s < pipeline.contexts.size(); ++s) {
    pipeline.programs.push_back(LowerStage(pipeline.contexts[s], pipeline.policies[s]));
  }
  return pipeline;
}

inline Pipeline NamedPipeline(RecomputeMode mode, const ModelSpec& model, const ParallelLayout& layout,
                              int32_t microbatches) {
  std::vector<StageContext> contexts = ContextsOf(model, layout, microbatches);
  std::vector<StagePolicy> policies;
  for (const StageContext& c : contexts) policies.push_back(NamedPolicy(c.graph(), mode, c.only_slice().layers()));
  return Lowered(std::move(contexts), std::move(policies));
}

inline Pipeline NamedPipeline(RecomputeMode mode, int32_t layers, const ParallelLayout& layout,
                              int32_t microbatches) {
  return NamedPipeline(mode, SmallModel(layers), layout, microbatches);
}

inline int32_t Draw(std::mt19937_64& rng, int32_t low, int32_t high) {
  return low + static_cast<int32_t>(rng() % static_cast<uint64_t>(high - low + 1));
}

// Any placement for any tensor of any layer, legal or not: the lowering has an answer to all.
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

// Of every kind that has a graph of its own.
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

inline Pipeline RandomPipeline(std::mt19937_64& rng) {
  ParallelLayout layout{.tp = 1 << Draw(rng, 0, 2), .pp = Draw(rng, 1, 4), .dp = Draw(rng, 1, 2)};
  layout.sequence_parallel = layout.tp > 1 && Draw(rng, 0, 1) == 1;
  const ModelSpec model = RandomModel(rng, layout.pp * Draw(rng, 1, 3) + Draw(rng, 0, layout.pp - 1));
  std::vector<StageContext> contexts = ContextsOf(model, layout, Draw(rng, 1, 9));
  std::vector<StagePolicy> policies;
  for (const StageContext& c : contexts) policies.push_back(RandomPolicy(rng, c.graph(), c.only_slice().layers()));
  return Lowered(std::move(contexts), std::move(policies));
}

}  // namespace lynx

#endif  // LYNX_TESTS_PLANNER_STAGE_PROGRAMS_H_
