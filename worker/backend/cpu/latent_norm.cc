// The norms of latents (DeepSeek-V2, arXiv 2405.04434), token by token: one norm of the latents of queries, if there are any,
// and one of those of keys and values. See rms_norm_row.h.
#include <algorithm>

#include "worker/backend/cpu/cpu_ops.h"
#include "worker/backend/cpu/rms_norm_row.h"
#include "worker/backend/cpu/simd.h"

namespace lynx::worker::cpu {
namespace {

template <class T>
LYNX_SIMD void Forward(const LatentShape& shape, const T* latent, const T* gamma, float epsilon, T* normed) {
  const int64_t z = shape.z(), copied = shape.p + shape.r;
  for (int64_t token = 0; token < shape.n; ++token, latent += z, normed += z) {
    if (shape.p > 0) NormRow(latent, gamma, shape.p, epsilon, normed);
    NormRow(latent + shape.p, gamma + shape.p, shape.r, epsilon, normed + shape.p);
    std::copy(latent + copied, latent + z, normed + copied);
  }
}

template <class T>
LYNX_SIMD void Backward(const LatentShape& shape, const T* latent, const T* gamma, float epsilon, T* dlatent, float* dgamma) {
  const int64_t z = shape.z(), p = shape.p;
  for (int64_t token = 0; token < shape.n; ++token, latent += z, dlatent += z) {
    if (p > 0) NormRowBackward(latent, gamma, dlatent, p, epsilon, /*accumulate=*/false, dlatent, dgamma);
    NormRowBackward(latent + p, gamma + p, dlatent + p, shape.r, epsilon, /*accumulate=*/false, dlatent + p, dgamma + p);
  }
}

}  // namespace

template <class T>
void CpuOps<T>::LatentNormForward(const LatentShape& shape, const T* latent, const T* gamma, float epsilon, T* normed) {
  Forward(shape, latent, gamma, epsilon, normed);
}

template <class T>
void CpuOps<T>::LatentNormBackward(const LatentShape& shape, const T* latent, const T* gamma, float epsilon, T* dlatent,
                                   float* dgamma) {
  Backward(shape, latent, gamma, epsilon, dlatent, dgamma);
}

#define LYNX_INSTANTIATE(T)                                                                      \
  template void CpuOps<T>::LatentNormForward(const LatentShape&, const T*, const T*, float, T*); \
  template void CpuOps<T>::LatentNormBackward(const LatentShape&, const T*, const T*, float, T*, float*);
LYNX_INSTANTIATE(float)
LYNX_INSTANTIATE(Bfloat16)
#undef LYNX_INSTANTIATE

}  // namespace lynx::worker::cpu
