// Root mean square normalisation (Zhang and Sennrich 2019) of one row of h elements. If a function marked LYNX_SIMD calls these
// functions, the compiler vectorises their loops.
//   x^ = x rstd,   y = x^ gamma
//   dx = rstd (g - x^ mean(g x^)),   g = dy gamma
// Pure; thread-safe.
#ifndef LYNX_WORKER_BACKEND_CPU_RMS_NORM_ROW_H_
#define LYNX_WORKER_BACKEND_CPU_RMS_NORM_ROW_H_

#include <cmath>
#include <cstdint>

namespace lynx::worker::cpu {

template <class T>
inline float InverseRootMeanSquare(const T* x, int64_t h, float epsilon) {
  float squares = 0;
#pragma omp simd reduction(+ : squares)
  for (int64_t i = 0; i < h; ++i) squares += x[i] * x[i];
  return 1.0f / std::sqrt(squares / static_cast<float>(h) + epsilon);
}

// y = x^ gamma   x, gamma, y (h)
template <class T>
inline void NormRow(const T* x, const T* gamma, int64_t h, float epsilon, T* y) {
  const float rstd = InverseRootMeanSquare(x, h, epsilon);
#pragma omp simd
  for (int64_t i = 0; i < h; ++i) y[i] = x[i] * rstd * gamma[i];
}

// Adds the input gradient to dx if `accumulate` is true, otherwise overwrites dx with it. Adds to dgamma. dx may be the same
// memory as dy. x, gamma, dy, dx, dgamma: (h)
template <class T>
inline void NormRowBackward(const T* x, const T* gamma, const T* dy, int64_t h, float epsilon, bool accumulate, T* dx,
                            float* dgamma) {
  const float rstd = InverseRootMeanSquare(x, h, epsilon);
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

}  // namespace lynx::worker::cpu

#endif  // LYNX_WORKER_BACKEND_CPU_RMS_NORM_ROW_H_
