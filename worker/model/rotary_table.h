// Computes how far the pairs of a head rotate at each position, in double, for every kind of scaling. The results are those
// that Hugging Face's transformers compute from `rope_theta` and `rope_scaling`. Pure; thread-safe.
//
// Each formula gives the angle of pair i per position. d: number of elements of a head that rotate; theta: the base; f: the
// factor; o: the original number of positions; low, high: low_freq_factor and high_freq_factor; i = 0, 1, ...: the number of
// the pair.
//   none     s_i = theta^(-2i/d)
//   linear   s_i / f                                                                (Chen et al. 2023)
//   dynamic  theta' = theta (f n / o - (f - 1))^(d / (d - 2)), n = max(model.seq, o)  ("dynamic NTK")
//            (a training run has one length)
//   llama3   pairs have the wavelength w_i = 2 pi / s_i: s_i / f where w_i > o / low; s_i where w_i < o / high; between them
//            (1 - m) s_i / f + m s_i, m = (o / w_i - low) / (high - low)              (Llama 3.1)
//   yarn     (1 - e_i) s_i / f + e_i s_i, e_i = 1 - clamp((i - lo) / (hi - lo), 0, 1),
//            lo = floor(c(beta_fast)), hi = ceil(c(beta_slow)), c(r) = d ln(o / (2 pi r)) / (2 ln theta), within 0 .. d - 1;
//            cosines and sines times 0.1 ln f + 1, or times attention_factor if it is > 0    (Peng et al. 2024)
#ifndef LYNX_WORKER_MODEL_ROTARY_TABLE_H_
#define LYNX_WORKER_MODEL_ROTARY_TABLE_H_

#include "planner/problem/job_spec.h"
#include "worker/backend/backend.h"

namespace lynx::worker {

// The factor of the scores of attention, beside 1 / sqrt(head size): for yarn the square of 0.1 m ln f + 1, where m is
// mscale_all_dim; otherwise 1 (DeepSeek-V2).
float ScoreFactorOf(const RotarySpec& rotary);

// `model` must have passed ValidateJobSpec and CheckEngineRuns. The table has no pairs if the model has learned positions.
RotaryTable RotaryTableOf(const ModelSpec& model);

}  // namespace lynx::worker

#endif  // LYNX_WORKER_MODEL_ROTARY_TABLE_H_
