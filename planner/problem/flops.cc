#include "planner/problem/flops.h"

#include "common/check.h"
#include "planner/problem/layer_graph.h"

namespace lynx {
namespace {

// FLOPs of the forward pass of one token.
struct TokenFlops {
  double linears = 0;    // of all layers together
  double attention = 0;  // of all layers together; counts the full square of attention scores
  double logits = 0;
};

TokenFlops TokenFlopsOf(const ModelSpec& model) {
  const LayerShape shape = ShapeOf(model, ParallelLayout{}, 1);
  const double hidden = model.hidden, layers = model.layers;
  const auto context = static_cast<double>(shape.context_width());
  const auto block = static_cast<double>(shape.fc1_width() + shape.mlp_width());  // of one expert, or of the layer
  const double feed_forward = shape.moe() ? model.moe.experts + model.moe.top_k * block : block;  // the router, and experts
  const double widths = static_cast<double>(shape.qkv_width()) + context + feed_forward;
  return {.linears = 2 * layers * hidden * widths,
          .attention = 4 * layers * context * model.seq,
          .logits = 2 * hidden * model.vocab};
}

}  // namespace

int64_t ActiveParameters(const ModelSpec& model) {
  if (!model.moe.any()) return ModelParameters(model);
  const int64_t of_experts = model.layers * ExpertParameters(ShapeOf(model, ParallelLayout{}, 1));
  return ModelParameters(model) - of_experts / model.moe.experts * (model.moe.experts - model.moe.top_k);
}

double StepFlops(const ModelSpec& model, int64_t samples, FlopCount count) {
  LYNX_CHECK(samples >= 0);
  const TokenFlops forward = TokenFlopsOf(model);
  const double tokens = static_cast<double>(samples) * model.seq;
  const double of_model = 3 * (forward.linears + forward.attention + forward.logits);
  switch (count) {
    case FlopCount::kModel: return tokens * of_model;
    case FlopCount::kModelCausal: return tokens * (of_model - 1.5 * forward.attention);
    case FlopCount::kFullRecompute: return tokens * (of_model + forward.linears + forward.attention);
    case FlopCount::kSelectiveRecompute: return tokens * (of_model + forward.attention);
    case FlopCount::kSelectiveRecomputePublished: return tokens * (of_model + 3 * forward.attention);
  }
  LYNX_CHECK(!"unknown count");
  return 0;
}

double FlopsUtilization(double step_flops, double step_seconds, int32_t devices, int64_t peak_flops_per_second) {
  LYNX_CHECK(step_seconds > 0 && devices > 0 && peak_flops_per_second > 0);
  return step_flops / step_seconds / devices / static_cast<double>(peak_flops_per_second);
}

}  // namespace lynx
