// AdamW in one pass over the parameters:
//   m = beta1 m + (1 - beta1) g,   v = beta2 v + (1 - beta2) g^2,
//   w = w (1 - lr decay) - lr m^ / (sqrt(v^) + eps),   m^ = m / (1 - beta1^step),  v^ = v / (1 - beta2^step)
#include <cmath>

#include "common/check.h"
#include "worker/backend/cuda/cuda_backend.h"
#include "worker/backend/cuda/elementwise.cuh"

namespace lynx::cuda {
namespace {

struct Update {
  // What is the same for all elements, computed in double and rounded once.
  float gradient_scale, beta1, one_minus_beta1, beta2, one_minus_beta2;
  float keep;          // 1 - lr * weight_decay
  float step_size;     // lr / (1 - beta1^step)
  float root_v_scale;  // 1 / sqrt(1 - beta2^step)
  float eps;
  const float* gradient;
  float* w;
  float* m;
  float* v;

  __device__ void operator()(int64_t i) const {
    const float g = gradient[i] * gradient_scale;
    const float new_m = beta1 * m[i] + one_minus_beta1 * g;
    const float new_v = beta2 * v[i] + one_minus_beta2 * g * g;
    m[i] = new_m;
    v[i] = new_v;
    w[i] = w[i] * keep - step_size * new_m / (sqrtf(new_v) * root_v_scale + eps);
  }
};

}  // namespace

void CudaBackend::AdamW(const AdamWArgs& args, int64_t count, const float* gradient, float* w, float* m, float* v) {
  LYNX_CHECK(args.step >= 1);
  const auto step = static_cast<double>(args.step);
  ForEach(stream_, "AdamW", count,
          Update{
              .gradient_scale = static_cast<float>(args.gradient_scale),
              .beta1 = static_cast<float>(args.beta1),
              .one_minus_beta1 = static_cast<float>(1.0 - args.beta1),
              .beta2 = static_cast<float>(args.beta2),
              .one_minus_beta2 = static_cast<float>(1.0 - args.beta2),
              .keep = static_cast<float>(1.0 - args.lr * args.weight_decay),
              .step_size = static_cast<float>(args.lr / (1.0 - std::pow(args.beta1, step))),
              .root_v_scale = static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(args.beta2, step))),
              .eps = static_cast<float>(args.eps),
              .gradient = gradient,
              .w = w,
              .m = m,
              .v = v,
          });
}

}  // namespace lynx::cuda
