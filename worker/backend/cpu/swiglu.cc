// SwiGLU (Shazeer 2020): silu(g) u with silu(g) = g sigma(g), in the two ops between which silu(g) may be stored.
#include "worker/backend/cpu/cpu_backend.h"
#include "worker/backend/cpu/simd.h"

namespace lynx::cpu {
namespace {

// e^(-x), at most e^87 so that its reciprocal stays a normal number.
inline float ExpMinus(float x) { return Exp(x < -87.0f ? 87.0f : -x); }

LYNX_SIMD void Silu(const float* gated, int64_t n, int64_t f, float* silu) {
  for (int64_t row = 0; row < n; ++row, gated += 2 * f, silu += f) {
#pragma omp simd
    for (int64_t i = 0; i < f; ++i) silu[i] = gated[i] / (1.0f + ExpMinus(gated[i]));
  }
}

// silu' = sigma + g sigma (1 - sigma)
LYNX_SIMD void SiluGradient(const float* gated, int64_t n, int64_t f, float* dgated) {
  for (int64_t row = 0; row < n; ++row, gated += 2 * f, dgated += 2 * f) {
#pragma omp simd
    for (int64_t i = 0; i < f; ++i) {
      const float e = ExpMinus(gated[i]);
      const float sigma = 1.0f / (1.0f + e);
      dgated[i] *= sigma + gated[i] * sigma * (e * sigma);
    }
  }
}

LYNX_SIMD void Multiply(const float* gated, const float* silu, int64_t n, int64_t f, float* y) {
  for (int64_t row = 0; row < n; ++row, gated += 2 * f, silu += f, y += f) {
#pragma omp simd
    for (int64_t i = 0; i < f; ++i) y[i] = silu[i] * gated[f + i];
  }
}

LYNX_SIMD void MultiplyGradient(const float* gated, const float* silu, const float* dy, int64_t n, int64_t f,
                                float* dgated) {
  for (int64_t row = 0; row < n; ++row, gated += 2 * f, silu += f, dy += f, dgated += 2 * f) {
#pragma omp simd
    for (int64_t i = 0; i < f; ++i) {
      dgated[i] = dy[i] * gated[f + i];
      dgated[f + i] = dy[i] * silu[i];
    }
  }
}

}  // namespace

void CpuBackend::SiluForward(const float* gated, int64_t n, int64_t f, float* silu) { Silu(gated, n, f, silu); }

void CpuBackend::SiluBackward(const float* gated, int64_t n, int64_t f, float* dgated) {
  SiluGradient(gated, n, f, dgated);
}

void CpuBackend::SwigluForward(const float* gated, const float* silu, int64_t n, int64_t f, float* y) {
  Multiply(gated, silu, n, f, y);
}

void CpuBackend::SwigluBackward(const float* gated, const float* silu, const float* dy, int64_t n, int64_t f,
                                float* dgated) {
  MultiplyGradient(gated, silu, dy, n, f, dgated);
}

}  // namespace lynx::cpu
