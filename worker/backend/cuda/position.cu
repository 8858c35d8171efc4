// The learned position embedding, and the dropout that follows it.
#include "worker/backend/cuda/cuda_ops.h"
#include "worker/backend/cuda/dropout.cuh"
#include "worker/backend/cuda/elementwise.cuh"

namespace lynx::worker::cuda {
namespace {

template <class T, int kWidth>
struct Forward {
  using P = Pack<T, kWidth>;
  T* x;
  const T* pos;
  int64_t first_token, s, h;
  Dropout dropout;

  __device__ void operator()(int64_t pack) const {
    const int64_t at = pack * kWidth;
    const Place<kWidth> place(at, first_token, s, h);
    auto values = P::Load(x + at);
    const auto positions = P::Load(pos + place.element);
    float factors[kWidth];
    place.Factors(dropout, factors);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) values.at[i] = (values.at[i] + positions.at[i]) * factors[i];
    values.Store(x + at);
  }
};

// Each thread has one pack of the position embedding. It goes through the rows that use this pack, sample after sample.
template <class T, int kWidth>
struct Backward {
  using P = Pack<T, kWidth>;
  T* dx;
  float* dpos;
  int64_t first_token, n, s, h;
  Dropout dropout;

  __device__ void operator()(int64_t pack) const {
    const int64_t element = pack * kWidth;
    const int64_t first_row = (element / h - first_token % s + s) % s;
    if (first_row >= n) return;
    float sums[kWidth];
#pragma unroll
    for (int i = 0; i < kWidth; ++i) sums[i] = dpos[element + i];
    for (int64_t row = first_row; row < n; row += s) {
      const int64_t at = row * h + element % h;
      auto gradients = P::Load(dx + at);
      float factors[kWidth];
      Place<kWidth>(at, first_token, s, h).Factors(dropout, factors);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        const float gradient = gradients.at[i] * factors[i];
        gradients.at[i] = gradient;
        sums[i] += gradient;
      }
      if (dropout.threshold != 0) gradients.Store(dx + at);
    }
#pragma unroll
    for (int i = 0; i < kWidth; ++i) dpos[element + i] = sums[i];
  }
};

}  // namespace

template <class T>
void CudaOps<T>::PositionForward(T* x, const T* pos, int64_t n, int64_t s, int64_t h, const DropoutKey& key) {
  const Dropout dropout = Dropout::Of(key);
  if (!FitsPacks(h, x, pos)) {
    return ForEach(this->stream_, "position", n * h, Forward<T, 1>{x, pos, key.first_token, s, h, dropout});
  }
  constexpr int kWidth = kPackOf<T>;
  ForEach(this->stream_, "position", n * h / kWidth, Forward<T, kWidth>{x, pos, key.first_token, s, h, dropout});
}

template <class T>
void CudaOps<T>::PositionBackward(T* dx, float* dpos, int64_t n, int64_t s, int64_t h, const DropoutKey& key) {
  constexpr char kName[] = "position backward";
  const Dropout dropout = Dropout::Of(key);
  if (!FitsPacks(h, dx)) {
    return ForEach(this->stream_, kName, s * h, Backward<T, 1>{dx, dpos, key.first_token, n, s, h, dropout});
  }
  constexpr int kWidth = kPackOf<T>;
  ForEach(this->stream_, kName, s * h / kWidth, Backward<T, kWidth>{dx, dpos, key.first_token, n, s, h, dropout});
}

#define LYNX_INSTANTIATE(T)                                                                              \
  template void CudaOps<T>::PositionForward(T*, const T*, int64_t, int64_t, int64_t, const DropoutKey&); \
  template void CudaOps<T>::PositionBackward(T*, float*, int64_t, int64_t, int64_t, const DropoutKey&);
LYNX_INSTANTIATE(float)
LYNX_INSTANTIATE(Bfloat16)
#undef LYNX_INSTANTIATE

}  // namespace lynx::worker::cuda
