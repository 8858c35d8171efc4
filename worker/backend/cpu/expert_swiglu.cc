// The second op of SwiGLU (swiglu.cc) for the rows of experts: it also multiplies by the weight of the row.
#include <cstring>

#include "worker/backend/cpu/cpu_ops.h"
#include "worker/backend/cpu/simd.h"

namespace lynx::worker::cpu {
namespace {

template <class T>
LYNX_SIMD void Multiply(const T* up, const T* silu, float weight, int64_t f, T* y) {
#pragma omp simd
  for (int64_t i = 0; i < f; ++i) y[i] = silu[i] * up[i] * weight;
}

// Returns the gradient of the weight.
template <class T>
LYNX_SIMD float MultiplyGradient(const T* up, const T* silu, float weight, const T* dy, int64_t f, T* dsilu, T* dup) {
  float dweight = 0;
#pragma omp simd reduction(+ : dweight)
  for (int64_t i = 0; i < f; ++i) {
    dweight += dy[i] * (silu[i] * up[i]);
    dsilu[i] = dy[i] * up[i] * weight;
    dup[i] = dy[i] * silu[i] * weight;
  }
  return dweight;
}

}  // namespace

template <class T>
void CpuOps<T>::ExpertSwigluForward(const ExpertShape& shape, const float* weights, const T* gated, const T* silu, int64_t f,
                                    T* y) {
  for (int64_t row = 0; row < shape.rows(); ++row, gated += 2 * f, silu += f, y += f) {
    if (weights[row] == kNoRow) {
      std::memset(y, 0, static_cast<size_t>(f) * sizeof(T));
    } else {
      Multiply(gated + f, silu, weights[row], f, y);
    }
  }
}

template <class T>
void CpuOps<T>::ExpertSwigluBackward(const ExpertShape& shape, const float* weights, const T* gated, const T* silu, const T* dy,
                                     int64_t f, T* dgated, float* dweights) {
  for (int64_t row = 0; row < shape.rows(); ++row, gated += 2 * f, silu += f, dy += f, dgated += 2 * f) {
    if (weights[row] == kNoRow) {
      std::memset(dgated, 0, static_cast<size_t>(2 * f) * sizeof(T));
      dweights[row] = 0;
    } else {
      dweights[row] = MultiplyGradient(gated + f, silu, weights[row], dy, f, dgated, dgated + f);
    }
  }
}

#define LYNX_INSTANTIATE(T)                                                                                                  \
  template void CpuOps<T>::ExpertSwigluForward(const ExpertShape&, const float*, const T*, const T*, int64_t, T*);           \
  template void CpuOps<T>::ExpertSwigluBackward(const ExpertShape&, const float*, const T*, const T*, const T*, int64_t, T*, \
                                                float*);
LYNX_INSTANTIATE(float)
LYNX_INSTANTIATE(Bfloat16)
#undef LYNX_INSTANTIATE

}  // namespace lynx::worker::cpu
