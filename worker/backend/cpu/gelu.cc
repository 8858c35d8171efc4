// GELU in the tanh approximation, 0.5 x (1 + tanh u) with u = sqrt(2/pi) (x + 0.044715 x^3), computed as
// x sigma(2u): the same function without the cancellation of 1 + tanh u for negative x.
#include "worker/backend/cpu/cpu_ops.h"
#include "worker/backend/cpu/simd.h"

namespace lynx::cpu {
namespace {

constexpr float kTwoRootTwoOverPi = 1.5957691216057308f;
constexpr float kCubic = 0.044715f;

// e^(-2u), at most e^87 so that its reciprocal stays a normal number.
inline float ExpMinusTwoU(float x) {
  const float minus_two_u = -kTwoRootTwoOverPi * (x + kCubic * x * x * x);
  return Exp(minus_two_u > 87.0f ? 87.0f : minus_two_u);
}

template <class T>
LYNX_SIMD void Forward(const T* x, int64_t count, T* y) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) y[i] = x[i] / (1.0f + ExpMinusTwoU(x[i]));
}

// gelu' = sigma(2u) + x sigma(2u) (1 - sigma(2u)) 2u'
template <class T>
LYNX_SIMD void Backward(const T* x, int64_t count, T* dy) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    const float e = ExpMinusTwoU(x[i]);
    const float sigma = 1.0f / (1.0f + e);
    const float two_u_slope = kTwoRootTwoOverPi * (1.0f + 3.0f * kCubic * x[i] * x[i]);
    dy[i] = dy[i] * (sigma + x[i] * sigma * (e * sigma) * two_u_slope);
  }
}

}  // namespace

template <class T>
void CpuOps<T>::GeluForward(const T* x, int64_t count, T* y) {
  Forward(x, count, y);
}

template <class T>
void CpuOps<T>::GeluBackward(const T* x, int64_t count, T* dy) {
  Backward(x, count, dy);
}

#define LYNX_INSTANTIATE(T)                                    \
  template void CpuOps<T>::GeluForward(const T*, int64_t, T*); \
  template void CpuOps<T>::GeluBackward(const T*, int64_t, T*);
LYNX_INSTANTIATE(float)
LYNX_INSTANTIATE(Bfloat16)
#undef LYNX_INSTANTIATE

}  // namespace lynx::cpu
