// SwiGLU in one op, multiplied by a gate of each row, and the gate: the sigmoid of a product of a token with one weight.
#include "worker/backend/cpu/cpu_ops.h"
#include "worker/backend/cpu/simd.h"

namespace lynx::worker::cpu {
namespace {

// Returns e^(-x), limited to e^87 so that its reciprocal is still a normal number.
inline float ExpMinus(float x) { return Exp(x < -87.0f ? 87.0f : -x); }

template <class T>
LYNX_SIMD void Activate(const T* gated, float gate, int64_t f, T* y) {
#pragma omp simd
  for (int64_t i = 0; i < f; ++i) {
    const float x = gated[i];
    y[i] = x / (1.0f + ExpMinus(x)) * gated[f + i] * gate;
  }
}

// Returns the gradient of the gate. silu' = sigma + x sigma (1 - sigma)
template <class T>
LYNX_SIMD float ActivationGradient(const T* gated, float gate, const T* dy, int64_t f, T* dgated) {
  float dgate = 0;
#pragma omp simd reduction(+ : dgate)
  for (int64_t i = 0; i < f; ++i) {
    const float x = gated[i], up = gated[f + i], gradient = dy[i];
    const float e = ExpMinus(x);
    const float sigma = 1.0f / (1.0f + e);
    const float silu = x * sigma;
    dgate += gradient * (silu * up);
    dgated[i] = gradient * up * gate * (sigma + silu * (e * sigma));
    dgated[f + i] = gradient * silu * gate;
  }
  return dgate;
}

template <class T>
LYNX_SIMD float Dot(const T* x, const T* w, int64_t h) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < h; ++i) sum += float{x[i]} * float{w[i]};
  return sum;
}

template <class From, class To>
LYNX_SIMD void AddScaled(const From* row, float factor, int64_t count, To* sum) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) sum[i] = sum[i] + factor * row[i];
}

}  // namespace

template <class T>
void CpuOps<T>::GatedSwigluForward(const T* gated, const float* gate, int64_t n, int64_t f, T* y) {
  for (int64_t row = 0; row < n; ++row) Activate(gated + row * 2 * f, gate == nullptr ? 1.0f : gate[row], f, y + row * f);
}

template <class T>
void CpuOps<T>::GatedSwigluBackward(const T* gated, const float* gate, const T* dy, int64_t n, int64_t f, T* dgated,
                                    float* dproduct) {
  for (int64_t row = 0; row < n; ++row) {
    const float open = gate == nullptr ? 1.0f : gate[row];
    const float dgate = ActivationGradient(gated + row * 2 * f, open, dy + row * f, f, dgated + row * 2 * f);
    if (gate != nullptr) dproduct[row] = dgate * open * (1.0f - open);
  }
}

template <class T>
void CpuOps<T>::TokenGateForward(const T* x, const T* w, int64_t n, int64_t h, float* gate) {
  for (int64_t row = 0; row < n; ++row) gate[row] = 1.0f / (1.0f + ExpMinus(Dot(x + row * h, w, h)));
}

template <class T>
void CpuOps<T>::TokenGateBackward(const float* dproduct, const T* w, int64_t n, int64_t h, T* dx) {
  for (int64_t row = 0; row < n; ++row) AddScaled(w, dproduct[row], h, dx + row * h);
}

template <class T>
void CpuOps<T>::TokenGateWeight(const T* x, const float* dproduct, int64_t n, int64_t h, float* dw) {
  for (int64_t row = 0; row < n; ++row) AddScaled(x + row * h, dproduct[row], h, dw);
}

#define LYNX_INSTANTIATE(T)                                                                                     \
  template void CpuOps<T>::GatedSwigluForward(const T*, const float*, int64_t, int64_t, T*);                    \
  template void CpuOps<T>::GatedSwigluBackward(const T*, const float*, const T*, int64_t, int64_t, T*, float*); \
  template void CpuOps<T>::TokenGateForward(const T*, const T*, int64_t, int64_t, float*);                      \
  template void CpuOps<T>::TokenGateBackward(const float*, const T*, int64_t, int64_t, T*);                     \
  template void CpuOps<T>::TokenGateWeight(const T*, const float*, int64_t, int64_t, float*);
LYNX_INSTANTIATE(float)
LYNX_INSTANTIATE(Bfloat16)
#undef LYNX_INSTANTIATE

}  // namespace lynx::worker::cpu
