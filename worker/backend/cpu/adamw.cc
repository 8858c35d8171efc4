// AdamW: applies adamw_update.h to every element, tensor by tensor.
#include <cmath>

#include "worker/backend/adamw_update.h"
#include "worker/backend/cpu/conversion.h"
#include "worker/backend/cpu/cpu_backend.h"
#include "worker/backend/cpu/simd.h"

namespace lynx::worker::cpu {
namespace {

LYNX_SIMD void Update(const AdamWUpdate update, float keep, int64_t count, const float* gradient, float* w, float* m,
                      float* v) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    const float g = gradient[i] * update.gradient_scale;
    const float new_m = update.FirstMoment(m[i], g);
    const float new_v = update.SecondMoment(v[i], g);
    m[i] = new_m;
    v[i] = new_v;
    w[i] = update.Weight(w[i], new_m, std::sqrt(new_v), keep);
  }
}

}  // namespace

void CpuBackend::AdamW(const AdamWArgs& args, std::span<const AdamWTensor> tensors) {
  const AdamWUpdate update = AdamWUpdate::Of(args);
  for (const AdamWTensor& tensor : tensors) {
    Update(update, update.Keep(tensor.decays), tensor.count, tensor.gradient, tensor.w, tensor.m, tensor.v);
    if (tensor.rounded != nullptr) RoundAll(tensor.w, tensor.count, tensor.rounded);
  }
}

}  // namespace lynx::worker::cpu
