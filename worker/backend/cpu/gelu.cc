// GELU in the tanh approximation, 0.5 x (1 + tanh u) with u = sqrt(2/pi) (x + 0.044715 x^3), computed as
// x sigma(2u): the same function without the cancellation of 1 + tanh u for negative x.
#include "worker/backend/cpu/cpu_backend.h"
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

LYNX_SIMD void Forward(const float* x, int64_t count, float* y) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) y[i] = x[i] / (1.0f + ExpMinusTwoU(x[i]));
}

// gelu' = sigma(2u) + x sigma(2u) (1 - sigma(2u)) 2u'
LYNX_SIMD void Backward(const float* x, int64_t count, float* dy) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    const float e = ExpMinusTwoU(x[i]);
    const float sigma = 1.0f / (1.0f + e);
    const float two_u_slope = kTwoRootTwoOverPi * (1.0f + 3.0f * kCubic * x[i] * x[i]);
    dy[i] *= sigma + x[i] * sigma * (e * sigma) * two_u_slope;
  }
}

}  // namespace

void CpuBackend::GeluForward(const float* x, int64_t count, float* y) { Forward(x, count, y); }

void CpuBackend::GeluBackward(const float* x, int64_t count, float* dy) { Backward(x, count, dy); }

}  // namespace lynx::cpu
