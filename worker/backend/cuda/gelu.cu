// GELU in the tanh approximation, 0.5 x (1 + tanh u) with u = sqrt(2/pi) (x + 0.044715 x^3), computed as
// x sigma(2u): the same function without the cancellation of 1 + tanh u for negative x.
#include "worker/backend/cuda/cuda_ops.h"
#include "worker/backend/cuda/elementwise.cuh"

namespace lynx::cuda {
namespace {

constexpr float kTwoRootTwoOverPi = 1.5957691216057308f;
constexpr float kCubic = 0.044715f;

// e^(-2u), at most e^87 so that its reciprocal stays a normal number.
__device__ float ExpMinusTwoU(float x) {
  const float minus_two_u = -kTwoRootTwoOverPi * (x + kCubic * x * x * x);
  return expf(minus_two_u > 87.0f ? 87.0f : minus_two_u);
}

__device__ float Gelu(float x) { return x / (1.0f + ExpMinusTwoU(x)); }

// gelu' = sigma(2u) + x sigma(2u) (1 - sigma(2u)) 2u'
__device__ float GeluSlope(float x) {
  const float e = ExpMinusTwoU(x);
  const float sigma = 1.0f / (1.0f + e);
  return sigma + x * sigma * (e * sigma) * (kTwoRootTwoOverPi * (1.0f + 3.0f * kCubic * x * x));
}

template <class T, int kWidth>
struct Forward {
  const T* x;
  T* y;

  __device__ void operator()(int64_t pack) const {
    auto values = Pack<T, kWidth>::Load(x + pack * kWidth);
#pragma unroll
    for (T& value : values.at) value = Gelu(value);
    values.Store(y + pack * kWidth);
  }
};

template <class T, int kWidth>
struct Backward {
  const T* x;
  T* dy;

  __device__ void operator()(int64_t pack) const {
    const auto values = Pack<T, kWidth>::Load(x + pack * kWidth);
    auto gradients = Pack<T, kWidth>::Load(dy + pack * kWidth);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) gradients.at[i] = gradients.at[i] * GeluSlope(values.at[i]);
    gradients.Store(dy + pack * kWidth);
  }
};

}  // namespace

template <class T>
void CudaOps<T>::GeluForward(const T* x, int64_t count, T* y) {
  if (!FitsPacks(count, x, y)) return ForEach(this->stream_, "gelu", count, Forward<T, 1>{x, y});
  ForEach(this->stream_, "gelu", count / kElements, Forward<T, kElements>{x, y});
}

template <class T>
void CudaOps<T>::GeluBackward(const T* x, int64_t count, T* dy) {
  if (!FitsPacks(count, x, dy)) return ForEach(this->stream_, "gelu backward", count, Backward<T, 1>{x, dy});
  ForEach(this->stream_, "gelu backward", count / kElements, Backward<T, kElements>{x, dy});
}

#define LYNX_INSTANTIATE(T)                                     \
  template void CudaOps<T>::GeluForward(const T*, int64_t, T*); \
  template void CudaOps<T>::GeluBackward(const T*, int64_t, T*);
LYNX_INSTANTIATE(float)
LYNX_INSTANTIATE(Bfloat16)
#undef LYNX_INSTANTIATE

}  // namespace lynx::cuda
