// GELU in the tanh approximation: 0.5 x (1 + tanh u) with u = sqrt(2/pi) (x + 0.044715 x^3). It is computed as x sigma(2u),
// which is the same function. For negative x, 1 + tanh u would lose precision; sigma(2u) does not. Every backend uses this
// file.
//
// The functions are constexpr, so that CUDA's compiler may call them on the device. They do not compute the exponential: each
// device uses its own function for e = exp(GeluExponent(x)). Pure.
#ifndef LYNX_WORKER_BACKEND_GELU_FORMULA_H_
#define LYNX_WORKER_BACKEND_GELU_FORMULA_H_

namespace lynx::worker {

inline constexpr float kGeluTwoRootTwoOverPi = 1.5957691216057308f;
inline constexpr float kGeluCubic = 0.044715f;

// Returns -2u, limited to 87, so that the reciprocal of its exponential is still a normal number.
constexpr float GeluExponent(float x) {
  const float minus_two_u = -kGeluTwoRootTwoOverPi * (x + kGeluCubic * x * x * x);
  return minus_two_u > 87.0f ? 87.0f : minus_two_u;
}

constexpr float GeluValue(float x, float e) { return x / (1.0f + e); }

// gelu' = sigma(2u) + x sigma(2u) (1 - sigma(2u)) 2u'
constexpr float GeluSlope(float x, float e) {
  const float sigma = 1.0f / (1.0f + e);
  const float two_u_slope = kGeluTwoRootTwoOverPi * (1.0f + 3.0f * kGeluCubic * x * x);
  return sigma + x * sigma * (e * sigma) * two_u_slope;
}

}  // namespace lynx::worker

#endif  // LYNX_WORKER_BACKEND_GELU_FORMULA_H_
