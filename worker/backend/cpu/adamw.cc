// AdamW in one pass over the parameters:
//   m = beta1 m + (1 - beta1) g,   v = beta2 v + (1 - beta2) g^2,
//   w = w (1 - lr decay) - lr m^ / (sqrt(v^) + eps),   m^ = m / (1 - beta1^step),  v^ = v / (1 - beta2^step)
#include <cmath>

#include "common/check.h"
#include "worker/backend/cpu/cpu_backend.h"
#include "worker/backend/cpu/simd.h"

namespace lynx::cpu {
namespace {

// Everything that is the same for all elements, computed in double and rounded once.
struct Factors {
  float gradient, beta1, one_minus_beta1, beta2, one_minus_beta2;
  float keep;          // 1 - lr * weight_decay
  float step_size;     // lr / (1 - beta1^step)
  float root_v_scale;  // 1 / sqrt(1 - beta2^step)
  float eps;
};

LYNX_SIMD void Update(const Factors f, int64_t count, const float* gradient, float* w, float* m, float* v) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    const float g = gradient[i] * f.gradient;
    const float new_m = f.beta1 * m[i] + f.one_minus_beta1 * g;
    const float new_v = f.beta2 * v[i] + f.one_minus_beta2 * g * g;
    m[i] = new_m;
    v[i] = new_v;
    w[i] = w[i] * f.keep - f.step_size * new_m / (std::sqrt(new_v) * f.root_v_scale + f.eps);
  }
}

}  // namespace

void CpuBackend::AdamW(const AdamWArgs& args, int64_t count, const float* gradient, float* w, float* m, float* v) {
  LYNX_CHECK(args.step >= 1);
  const auto step = static_cast<double>(args.step);
  const Factors factors{
      .gradient = static_cast<float>(args.gradient_scale),
      .beta1 = static_cast<float>(args.beta1),
      .one_minus_beta1 = static_cast<float>(1.0 - args.beta1),
      .beta2 = static_cast<float>(args.beta2),
      .one_minus_beta2 = static_cast<float>(1.0 - args.beta2),
      .keep = static_cast<float>(1.0 - args.lr * args.weight_decay),
      .step_size = static_cast<float>(args.lr / (1.0 - std::pow(args.beta1, step))),
      .root_v_scale = static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(args.beta2, step))),
      .eps = static_cast<float>(args.eps),
  };
  Update(factors, count, gradient, w, m, v);
}

}  // namespace lynx::cpu
