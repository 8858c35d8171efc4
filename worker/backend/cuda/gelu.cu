// GELU applies gelu_formula.h to every element.
#include "worker/backend/cuda/cuda_ops.h"
#include "worker/backend/cuda/elementwise.cuh"
#include "worker/backend/gelu_formula.h"

namespace lynx::worker::cuda {
namespace {

template <class T, int kWidth>
struct Forward {
  const T* x;
  T* y;

  __device__ void operator()(int64_t pack) const {
    auto values = Pack<T, kWidth>::Load(x + pack * kWidth);
#pragma unroll
    for (T& value : values.at) value = GeluValue(value, expf(GeluExponent(value)));
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
    for (int i = 0; i < kWidth; ++i) {
      const float value = values.at[i];
      gradients.at[i] = gradients.at[i] * GeluSlope(value, expf(GeluExponent(value)));
    }
    gradients.Store(dy + pack * kWidth);
  }
};

}  // namespace

template <class T>
void CudaOps<T>::GeluForward(const T* x, int64_t count, T* y) {
  if (!FitsPacks(count, x, y)) return ForEach(this->stream_, "gelu", count, Forward<T, 1>{x, y});
  ForEach(this->stream_, "gelu", count / kPackOf<T>, Forward<T, kPackOf<T>>{x, y});
}

template <class T>
void CudaOps<T>::GeluBackward(const T* x, int64_t count, T* dy) {
  if (!FitsPacks(count, x, dy)) return ForEach(this->stream_, "gelu backward", count, Backward<T, 1>{x, dy});
  ForEach(this->stream_, "gelu backward", count / kPackOf<T>, Backward<T, kPackOf<T>>{x, dy});
}

#define LYNX_INSTANTIATE(T)                                     \
  template void CudaOps<T>::GeluForward(const T*, int64_t, T*); \
  template void CudaOps<T>::GeluBackward(const T*, int64_t, T*);
LYNX_INSTANTIATE(float)
LYNX_INSTANTIATE(Bfloat16)
#undef LYNX_INSTANTIATE

}  // namespace lynx::worker::cuda
