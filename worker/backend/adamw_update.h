// The AdamW update (Loshchilov and Hutter 2019) of one element. Every backend uses this file:
//   m = beta1 m + (1 - beta1) g,   v = beta2 v + (1 - beta2) g^2,
//   w = w (1 - lr decay) - lr m^ / (sqrt(v^) + eps),   m^ = m / (1 - beta1^step),  v^ = v / (1 - beta2^step)
//
// The functions are constexpr, so that CUDA's compiler may call them on the device. They do not compute the square root,
// because each device uses its own function for it. Pure.
#ifndef LYNX_WORKER_BACKEND_ADAMW_UPDATE_H_
#define LYNX_WORKER_BACKEND_ADAMW_UPDATE_H_

#include <cmath>

#include "common/check.h"
#include "worker/backend/backend.h"

namespace lynx::worker {

// The values that are the same for all elements. They are computed in double and then rounded once to float.
struct AdamWUpdate {
  float gradient_scale, beta1, one_minus_beta1, beta2, one_minus_beta2;
  float decayed;       // the factor of a weight that decays: 1 - lr * weight_decay
  float step_size;     // lr / (1 - beta1^step)
  float root_v_scale;  // 1 / sqrt(1 - beta2^step)
  float eps;

  static AdamWUpdate Of(const AdamWArgs& args) {
    LYNX_CHECK(args.step >= 1);
    const auto step = static_cast<double>(args.step);
    return {.gradient_scale = static_cast<float>(args.gradient_scale),
            .beta1 = static_cast<float>(args.beta1),
            .one_minus_beta1 = static_cast<float>(1.0 - args.beta1),
            .beta2 = static_cast<float>(args.beta2),
            .one_minus_beta2 = static_cast<float>(1.0 - args.beta2),
            .decayed = static_cast<float>(1.0 - args.lr * args.weight_decay),
            .step_size = static_cast<float>(args.lr / (1.0 - std::pow(args.beta1, step))),
            .root_v_scale = static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(args.beta2, step))),
            .eps = static_cast<float>(args.eps)};
  }

  constexpr float Keep(bool decays) const { return decays ? decayed : 1.0f; }
  // `g` is the gradient after scaling.
  constexpr float FirstMoment(float m, float g) const { return beta1 * m + one_minus_beta1 * g; }
  constexpr float SecondMoment(float v, float g) const { return beta2 * v + one_minus_beta2 * g * g; }
  // m: the new first moment; root_v: the square root of the new second moment; keep: what Keep returns.
  constexpr float Weight(float w, float m, float root_v, float keep) const {
    return w * keep - step_size * m / (root_v * root_v_scale + eps);
  }
};

}  // namespace lynx::worker

#endif  // LYNX_WORKER_BACKEND_ADAMW_UPDATE_H_
