#include "planner/problem/flops.h"

#include "common/check.h"
#include "planner/problem/layer_graph.h"

namespace lynx {
namespace {

// FLOPs of the forward pass of one token.
struct TokenFlops {
  double linears = 0;    // the sum over all layers
  double attention = 0;  // the sum over all layers; counts the full square of attention scores
  double logits = 0;
};

// Parameters of one layer's linears that a token passes: those of attention, and the feed-forward block or the router, top_k
// experts and the block beside them.
double LinearWeights(const LayerShape& shape) {
  const double hidden = shape.hidden;
  const auto block = static_cast<double>(shape.fc1_width() + shape.mlp_width());  // summed widths of its matrices
  const double feed_forward =
      shape.moe() ? shape.experts + shape.top_k * block + 3.0 * shape.shared_ffn + (shape.shared_gate ? 1 : 0) : block;
  if (!shape.latent()) {
    return hidden * (static_cast<double>(shape.qkv_width()) + static_cast<double>(shape.context_width()) + feed_forward);
  }
  int64_t attention = 0;
  for (const Op op : {Op::kLatent, Op::kQkv, Op::kProj}) attention += OpParameters(op, shape);
  return static_cast<double>(attention) + hidden * feed_forward;
}

TokenFlops TokenFlopsOf(const ModelSpec& model) {
  const LayerShape shape = ShapeOf(model, ParallelLayout{}, 1);
  const double hidden = model.hidden, layers = model.layers, dense = model.moe.dense_layers;
  // Products for each pair of positions: of queries and keys, which give the scores, and of scores and values.
  const double scores = double{1} * model.heads * model.head_size() + static_cast<double>(shape.context_width());
  double linears = (layers - dense) * LinearWeights(shape);
  if (dense > 0) linears += dense * LinearWeights(DenseShape(shape));
  return {.linears = 2 * linears,
          .attention = 2 * layers * scores * model.seq,
          .logits = 2 * hidden * (model.vocab + (shape.encoder ? hidden : 0))};
}

}  // namespace

int64_t ActiveParameters(const ModelSpec& model) {
  if (!model.moe.any()) return ModelParameters(model);
  const int64_t of_experts = (model.layers - model.moe.dense_layers) * ExpertParameters(ShapeOf(model, ParallelLayout{}, 1));
  return ModelParameters(model) - of_experts / model.moe.experts * (model.moe.experts - model.moe.top_k);
}

double StepFlops(const ModelSpec& model, int64_t samples, FlopCount count) {
  LYNX_CHECK(samples >= 0);
  const TokenFlops forward = TokenFlopsOf(model);
  const double tokens = static_cast<double>(samples) * model.seq;
  const double of_model = 3 * (forward.linears + forward.attention + forward.logits);
  switch (count) {
    case FlopCount::kModel: return tokens * of_model;
    case FlopCount::kModelCausal: {
      const bool encoder = (model.plan_only & Bit(PlanOnlyFeature::kEncoder)) != 0;  // attends in both directions
      return tokens * (of_model - (encoder ? 0 : 1.5 * forward.attention));
    }
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
