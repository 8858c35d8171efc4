// FLOPs of a training step and their share of the devices' peak, as the literature defines them. Only matrix products are
// counted, and a multiply-add counts as 2 FLOPs. Pure; thread-safe.
//
// Let there be B samples of s tokens, L layers, hidden size h and vocabulary size v. For a GPT with a feed-forward width of 4h
// and as many key heads as query heads, model FLOPs are 72 B L s h^2 (1 + s/6h + v/12hL) (Korthikanti et al. 2022, equation
// 10). The forward pass has 24 B s h^2 + 4 B s^2 h per layer and 2 B s h v for the logits; the backward pass has twice as many.
// This code counts the actual widths of the linear layers, so it is also right for gated feed-forward layers and grouped
// queries. With experts, a token passes the router, top_k experts (MoeSpec) and the block of width shared_ffn; only these are
// counted, whatever is dropped. Layers without experts (dense_layers) count as they are. Latent attention (LatentSpec) is
// counted as it trains: queries, keys and values of all heads are made from the latents.
#ifndef LYNX_PLANNER_PROBLEM_FLOPS_H_
#define LYNX_PLANNER_PROBLEM_FLOPS_H_

#include <cstdint>

#include "planner/problem/job_spec.h"

namespace lynx {

enum class FlopCount : uint8_t {
  kModel,  // operations of the model, with the full square of attention scores: Korthikanti et al. 2022
  // What the model needs, with half the square of scores: 6 x parameters (without the input embedding) + 6 L h s per
  // token, as Yuan et al. 2024 count.
  kModelCausal,
  // What the hardware computes:
  kFullRecompute,       // kModel and a second forward pass of each layer
  kSelectiveRecompute,  // kModel and a second forward pass of the attention core: (1 + 2s/9h + v/12hL) for the GPT described
                        // above
  // the formula that Korthikanti et al. 2022 print and use: (1 + s/3h + v/12hL), which counts attention twice
  kSelectiveRecomputePublished,
};

// The parameters that one token uses: those of the model without the experts that it does not pass. The input embedding counts
// whole, as it does in the number of parameters. Without experts, this is the number of parameters.
int64_t ActiveParameters(const ModelSpec& model);

// FLOPs of one step over `samples` samples. The result is exact below 2^53; larger values are rounded at each multiplication.
double StepFlops(const ModelSpec& model, int64_t samples, FlopCount count);

// Share of the peak: MFU for the model's FLOPs, HFU for the hardware's FLOPs (Chowdhery et al. 2022).
double FlopsUtilization(double step_flops, double step_seconds, int32_t devices, int64_t peak_flops_per_second);

}  // namespace lynx

#endif  // LYNX_PLANNER_PROBLEM_FLOPS_H_
