// Layer normalisation (Ba et al. 2016), row by row.
//   x^ = (x - mean) rstd,   y = x^ gamma + beta
//   dx = rstd (g - mean(g) - x^ mean(g x^)),   g = dy gamma
#include <cmath>

#include "worker/backend/cpu/cpu_ops.h"
#include "worker/backend/cpu/simd.h"

namespace lynx::worker::cpu {
namespace {

struct RowStats {
  float mean, rstd;
};

// Uses two passes. The second one computes the variance from the differences from the mean, so a large mean costs no precision.
template <class T>
inline RowStats Stats(const T* x, int64_t h, float epsilon) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < h; ++i) sum += x[i];
  const float mean = sum / static_cast<float>(h);
  float squares = 0;
#pragma omp simd reduction(+ : squares)
  for (int64_t i = 0; i < h; ++i) squares += (x[i] - mean) * (x[i] - mean);
  return {mean, 1.0f / std::sqrt(squares / static_cast<float>(h) + epsilon)};
}

template <class T>
LYNX_SIMD void Forward(const T* x, const T* gamma, const T* beta, int64_t n, int64_t h, float epsilon, T* y) {
  for (int64_t row = 0; row < n; ++row, x += h, y += h) {
    const RowStats stats = Stats(x, h, epsilon);
#pragma omp simd
    for (int64_t i = 0; i < h; ++i) y[i] = (x[i] - stats.mean) * stats.rstd * gamma[i] + beta[i];
  }
}

template <class T>
LYNX_SIMD void Backward(const T* x, const T* gamma, const T* dy, int64_t n, int64_t h, float epsilon, bool accumulate, T* dx,
                        float* dgamma, float* dbeta) {
  for (int64_t row = 0; row < n; ++row, x += h, dy += h, dx += h) {
    const RowStats stats = Stats(x, h, epsilon);
    float sum_g = 0, sum_g_normal = 0;
#pragma omp simd reduction(+ : sum_g, sum_g_normal)
    for (int64_t i = 0; i < h; ++i) {
      const float normal = (x[i] - stats.mean) * stats.rstd;
      const float g = dy[i] * gamma[i];
      sum_g += g;
      sum_g_normal += g * normal;
      dgamma[i] += dy[i] * normal;
      dbeta[i] += dy[i];
    }
    const float mean_g = sum_g / static_cast<float>(h);
    const float mean_g_normal = sum_g_normal / static_cast<float>(h);
#pragma omp simd
    for (int64_t i = 0; i < h; ++i) {
      const float normal = (x[i] - stats.mean) * stats.rstd;
      const float gradient = stats.rstd * (dy[i] * gamma[i] - mean_g - normal * mean_g_normal);
      dx[i] = accumulate ? dx[i] + gradient : gradient;
    }
  }
}

}  // namespace

template <class T>
void CpuOps<T>::LayerNormForward(const T* x, const T* gamma, const T* beta, int64_t n, int64_t h, float epsilon, T* y) {
  Forward(x, gamma, beta, n, h, epsilon, y);
}

template <class T>
void CpuOps<T>::LayerNormBackward(const T* x, const T* gamma, const T* dy, int64_t n, int64_t h, float epsilon, bool accumulate,
                                  T* dx, float* dgamma, float* dbeta) {
  Backward(x, gamma, dy, n, h, epsilon, accumulate, dx, dgamma, dbeta);
}

#define LYNX_INSTANTIATE(T)                                                                             \
  template void CpuOps<T>::LayerNormForward(const T*, const T*, const T*, int64_t, int64_t, float, T*); \
  template void CpuOps<T>::LayerNormBackward(const T*, const T*, const T*, int64_t, int64_t, float, bool, T*, float*, float*);
LYNX_INSTANTIATE(float)
LYNX_INSTANTIATE(Bfloat16)
#undef LYNX_INSTANTIATE

}  // namespace lynx::worker::cpu
