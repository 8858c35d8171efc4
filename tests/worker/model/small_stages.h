// Stages of small models, for the tests of states and of the ops of experts.
#ifndef LYNX_TESTS_WORKER_MODEL_SMALL_STAGES_H_
#define LYNX_TESTS_WORKER_MODEL_SMALL_STAGES_H_

#include <cstdint>

#include "planner/problem/stage_context.h"

namespace lynx::worker {

// A Llama of two layers with six experts of width 10. fc1 of an expert has 20 rows, fc2 has 16.
inline ModelSpec SmallMoe() {
  ModelSpec model;
  model.layers = 2;
  model.hidden = 16;
  model.heads = 4;
  model.ffn = 24;
  model.seq = 6;
  model.vocab = 13;
  model.dropout = 0;
  model.family = ModelFamily::kLlama;
  model.moe = {.experts = 6, .top_k = 2, .ffn = 10, .capacity = 2};
  return model;
}

// Returns a layout with one stage, and with sequence parallelism where there is tensor parallelism.
inline ParallelLayout LayoutOf(int32_t tp, int32_t dp, int32_t ep, ZeroStage zero = ZeroStage::kNone) {
  ParallelLayout layout;
  layout.tp = tp;
  layout.dp = dp;
  layout.ep = ep;
  layout.sequence_parallel = tp > 1;
  layout.zero = zero;
  return layout;
}

// Returns a stage of a pipeline whose stages have one slice each, with equal numbers of layers as far as possible.
inline StageContext ContextOf(const ModelSpec& model, const ParallelLayout& layout, int32_t stage = 0) {
  StageContext context;
  context.model = model;
  context.layout = layout;
  context.pipeline_rank = stage;
  context.slices = {SliceOf(layout, stage, model.layers * stage / layout.pp, model.layers * (stage + 1) / layout.pp)};
  return context;
}

}  // namespace lynx::worker

#endif  // LYNX_TESTS_WORKER_MODEL_SMALL_STAGES_H_
