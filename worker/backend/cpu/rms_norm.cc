// Root mean square normalisation, row by row. See rms_norm_row.h.
#include "worker/backend/cpu/cpu_ops.h"
#include "worker/backend/cpu/rms_norm_row.h"
#include "worker/backend/cpu/simd.h"

namespace lynx::worker::cpu {
namespace {

template <class T>
LYNX_SIMD void Forward(const T* x, const T* gamma, int64_t n, int64_t h, float epsilon, T* y) {
  for (int64_t row = 0; row < n; ++row, x += h, y += h) NormRow(x, gamma, h, epsilon, y);
}

template <class T>
LYNX_SIMD void Backward(const T* x, const T* gamma, const T* dy, int64_t n, int64_t h, float epsilon, bool accumulate, T* dx,
                        float* dgamma) {
  for (int64_t row = 0; row < n; ++row, x += h, dy += h, dx += h) {
    NormRowBackward(x, gamma, dy, h, epsilon, accumulate, dx, dgamma);
  }
}

}  // namespace

template <class T>
void CpuOps<T>::RmsNormForward(const T* x, const T* gamma, int64_t n, int64_t h, float epsilon, T* y) {
  Forward(x, gamma, n, h, epsilon, y);
}

template <class T>
void CpuOps<T>::RmsNormBackward(const T* x, const T* gamma, const T* dy, int64_t n, int64_t h, float epsilon, bool accumulate,
                                T* dx, float* dgamma) {
  Backward(x, gamma, dy, n, h, epsilon, accumulate, dx, dgamma);
}

#define LYNX_INSTANTIATE(T)                                                                 \
  template void CpuOps<T>::RmsNormForward(const T*, const T*, int64_t, int64_t, float, T*); \
  template void CpuOps<T>::RmsNormBackward(const T*, const T*, const T*, int64_t, int64_t, float, bool, T*, float*);
LYNX_INSTANTIATE(float)
LYNX_INSTANTIATE(Bfloat16)
#undef LYNX_INSTANTIATE

}  // namespace lynx::worker::cpu
