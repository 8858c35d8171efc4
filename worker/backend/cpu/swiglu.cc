// SwiGLU (Shazeer 2020): silu(g) u with silu(g) = g sigma(g). It is computed in two ops, so that silu(g) can be stored between
// them.
#include "worker/backend/cpu/cpu_ops.h"
#include "worker/backend/cpu/simd.h"

namespace lynx::worker::cpu {
namespace {

// Returns e^(-x), limited to e^87 so that its reciprocal is still a normal number.
inline float ExpMinus(float x) { return Exp(x < -87.0f ? 87.0f : -x); }

template <class T>
LYNX_SIMD void Silu(const T* gated, int64_t n, int64_t f, T* silu) {
  for (int64_t row = 0; row < n; ++row, gated += 2 * f, silu += f) {
#pragma omp simd
    for (int64_t i = 0; i < f; ++i) silu[i] = gated[i] / (1.0f + ExpMinus(gated[i]));
  }
}

// silu' = sigma + g sigma (1 - sigma)
template <class T>
LYNX_SIMD void SiluGradient(const T* gated, int64_t n, int64_t f, T* dgated) {
  for (int64_t row = 0; row < n; ++row, gated += 2 * f, dgated += 2 * f) {
#pragma omp simd
    for (int64_t i = 0; i < f; ++i) {
      const float e = ExpMinus(gated[i]);
      const float sigma = 1.0f / (1.0f + e);
      dgated[i] = dgated[i] * (sigma + gated[i] * sigma * (e * sigma));
    }
  }
}

template <class T>
LYNX_SIMD void Multiply(const T* gated, const T* silu, int64_t n, int64_t f, T* y) {
  for (int64_t row = 0; row < n; ++row, gated += 2 * f, silu += f, y += f) {
#pragma omp simd
    for (int64_t i = 0; i < f; ++i) y[i] = silu[i] * gated[f + i];
  }
}

template <class T>
LYNX_SIMD void MultiplyGradient(const T* gated, const T* silu, const T* dy, int64_t n, int64_t f, T* dgated) {
  for (int64_t row = 0; row < n; ++row, gated += 2 * f, silu += f, dy += f, dgated += 2 * f) {
#pragma omp simd
    for (int64_t i = 0; i < f; ++i) {
      dgated[i] = dy[i] * gated[f + i];
      dgated[f + i] = dy[i] * silu[i];
    }
  }
}

}  // namespace

template <class T>
void CpuOps<T>::SiluForward(const T* gated, int64_t n, int64_t f, T* silu) {
  Silu(gated, n, f, silu);
}

template <class T>
void CpuOps<T>::SiluBackward(const T* gated, int64_t n, int64_t f, T* dgated) {
  SiluGradient(gated, n, f, dgated);
}

template <class T>
void CpuOps<T>::SwigluForward(const T* gated, const T* silu, int64_t n, int64_t f, T* y) {
  Multiply(gated, silu, n, f, y);
}

template <class T>
void CpuOps<T>::SwigluBackward(const T* gated, const T* silu, const T* dy, int64_t n, int64_t f, T* dgated) {
  MultiplyGradient(gated, silu, dy, n, f, dgated);
}

#define LYNX_INSTANTIATE(T)                                                         \
  template void CpuOps<T>::SiluForward(const T*, int64_t, int64_t, T*);             \
  template void CpuOps<T>::SiluBackward(const T*, int64_t, int64_t, T*);            \
  template void CpuOps<T>::SwigluForward(const T*, const T*, int64_t, int64_t, T*); \
  template void CpuOps<T>::SwigluBackward(const T*, const T*, const T*, int64_t, int64_t, T*);
LYNX_INSTANTIATE(float)
LYNX_INSTANTIATE(Bfloat16)
#undef LYNX_INSTANTIATE

}  // namespace lynx::worker::cpu
