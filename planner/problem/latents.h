// Facts of latent attention (model.latent) that several rooms need.
#ifndef LYNX_PLANNER_PROBLEM_LATENTS_H_
#define LYNX_PLANNER_PROBLEM_LATENTS_H_

#include "planner/problem/layer_graph.h"

namespace lynx {

// The epsilon of the norms of latents. It is not model.normEpsilon: the classes of DeepSeek-V2, DeepSeek-V3 and Kimi K2 make
// these norms without the model's epsilon, so they have the default of the norm's class.
inline constexpr double kLatentNormEpsilon = 1e-6;

// True if a layer can have latent attention beside its other fields: the rule of ValidateModel for measured shapes.
inline bool FitsLatents(const LayerShape& shape) {
  return shape.family == ModelFamily::kLlama && shape.attention == AttentionKernel::kFused &&
         shape.key_heads() == shape.heads && shape.rotary_dims >= 2 && !shape.qk_norm && !shape.qkv_bias &&
         shape.matmul_type == MatmulType::kModel;
}

}  // namespace lynx

#endif  // LYNX_PLANNER_PROBLEM_LATENTS_H_
