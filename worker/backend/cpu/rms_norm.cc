// Root mean square normalisation (Zhang and Sennrich 2019), row by row.
//   x^ = x rstd,   y = x^ gamma
//   dx = rstd (g - x^ mean(g x^)),   g = dy gamma
#include <cmath>

#include "worker/backend/cpu/cpu_ops.h"
#include "worker/backend/cpu/simd.h"

namespace lynx::cpu {
namespace {

constexpr float kEpsilon = 1e-5f;

template <class T>
inline float InverseRootMeanSquare(const T* x, int64_t h) {
  float squares = 0;
#pragma omp simd reduction(+ : squares)
  for (int64_t i = 0; i < h; ++i) squares += x[i] * x[i];
  return 1.0f / std::sqrt(squares / static_cast<float>(h) + kEpsilon);
}

template <class T>
LYNX_SIMD void Forward(const T* x, const T* gamma, int64_t n, int64_t h, T* y) {
  for (int64_t row = 0; row < n; ++row, x += h, y += h) {
    const float rstd = InverseRootMeanSquare(x, h);
#pragma omp simd
    for (int64_t i = 0; i < h; ++i) y[i] = x[i] * rstd * gamma[i];
  }
}

template <class T>
LYNX_SIMD void Backward(const T* x, const T* gamma, const T* dy, int64_t n, int64_t h, bool accumulate, T* dx,
                        float* dgamma) {
  for (int64_t row = 0; row < n; ++row, x += h, dy += h, dx += h) {
    const float rstd = InverseRootMeanSquare(x, h);
    float sum_g_normal = 0;
#pragma omp simd reduction(+ : sum_g_normal)
    for (int64_t i = 0; i < h; ++i) {
      const float dy_normal = dy[i] * (x[i] * rstd);
      sum_g_normal += dy_normal * gamma[i];
      dgamma[i] += dy_normal;
    }
    const float mean_g_normal = sum_g_normal / static_cast<float>(h);
#pragma omp simd
    for (int64_t i = 0; i < h; ++i) {
      const float gradient = rstd * (dy[i] * gamma[i] - x[i] * rstd * mean_g_normal);
      dx[i] = accumulate ? dx[i] + gradient : gradient;
    }
  }
}

}  // namespace

template <class T>
void CpuOps<T>::RmsNormForward(const T* x, const T* gamma, int64_t n, int64_t h, T* y) {
  Forward(x, gamma, n, h, y);
}

template <class T>
void CpuOps<T>::RmsNormBackward(const T* x, const T* gamma, const T* dy, int64_t n, int64_t h, bool accumulate, T* dx,
                                float* dgamma) {
  Backward(x, gamma, dy, n, h, accumulate, dx, dgamma);
}

#define LYNX_INSTANTIATE(T)                                                          \
  template void CpuOps<T>::RmsNormForward(const T*, const T*, int64_t, int64_t, T*); \
  template void CpuOps<T>::RmsNormBackward(const T*, const T*, const T*, int64_t, int64_t, bool, T*, float*);
LYNX_INSTANTIATE(float)
LYNX_INSTANTIATE(Bfloat16)
#undef LYNX_INSTANTIATE

}  // namespace lynx::cpu
