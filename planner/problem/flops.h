// FLOPs of a training step and what share of the devices' peak they are, by the definitions of the literature. Matrix
// products only; a multiply-add counts 2. Pure; thread-safe.
//
// B samples of s tokens, L layers, h hidden, v vocabulary. For a GPT with a feed-forward width of 4h and as many key as
// query heads, model FLOPs are 72 B L s h^2 (1 + s/6h + v/12hL) (Korthikanti et al. 2022, equation 10): forward
// 24 B s h^2 + 4 B s^2 h a layer and 2 B s h v for the logits, backward twice that. Here the linears' own widths count, so
// that gated feed-forward layers and grouped queries are counted as they are.
#ifndef LYNX_PLANNER_PROBLEM_FLOPS_H_
#define LYNX_PLANNER_PROBLEM_FLOPS_H_

#include <cstdint>

#include "planner/problem/job_spec.h"

namespace lynx {

enum class FlopCount : uint8_t {
  kModel,        // what the model needs, the full square of attention scores: Korthikanti et al. 2022
  kModelCausal,  // the same, half the square: 6 x parameters (without the input embedding) + 6 L h s for each token, as
                 // Yuan et al. 2024 count
  // What the hardware computes:
  kFullRecompute,                // kModel and each layer's forward again
  kSelectiveRecompute,           // kModel and the attention core's forward again: (1 + 2s/9h + v/12hL) for such a GPT
  kSelectiveRecomputePublished,  // as Korthikanti et al. 2022 print and use it: (1 + s/3h + v/12hL), twice attention
};

// Of one step over `samples` samples. Exact below 2^53, else rounded at each multiplication.
double StepFlops(const ModelSpec& model, int64_t samples, FlopCount count);

// Share of the peak: MFU for the model's FLOPs, HFU for the hardware's (Chowdhery et al. 2022).
double FlopsUtilization(double step_flops, double step_seconds, int32_t devices, int64_t peak_flops_per_second);

}  // namespace lynx

#endif  // LYNX_PLANNER_PROBLEM_FLOPS_H_
