// Helpers of the vectorised loops of the CPU backend: LYNX_SIMD (worker/backend/simd.h), and an exponential function that the
// compiler can vectorise. Pure; thread-safe.
#ifndef LYNX_WORKER_BACKEND_CPU_SIMD_H_
#define LYNX_WORKER_BACKEND_CPU_SIMD_H_

#include <bit>
#include <cstdint>

#include "worker/backend/simd.h"

namespace lynx::worker::cpu {

// Returns e^x with an error of at most 2 ulp for x <= 88. Returns 0 below -87.3, where the normal floats end. x = n ln 2 + r
// with |r| <= ln(2)/2. A polynomial gives e^r (Cephes, Moshier 1992), and 2^n is built from its bits.
inline float Exp(float x) {
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: a sum with it is rounded to an integer, which is in the low bits
  const float shifted = x * 1.44269504088896341f + kRound;
  const float n = shifted - kRound;
  const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  const float two_to_n = std::bit_cast<float>((std::bit_cast<uint32_t>(shifted) + 127u) << 23);
  return x < -87.3f ? 0.0f : p * two_to_n;
}

}  // namespace lynx::worker::cpu

#endif  // LYNX_WORKER_BACKEND_CPU_SIMD_H_
