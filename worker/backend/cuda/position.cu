// The learned position embedding, and the dropout that follows it.
#include "worker/backend/cuda/cuda_ops.h"
#include "worker/backend/cuda/dropout.cuh"
#include "worker/backend/cuda/elementwise.cuh"

namespace lynx::worker::cuda {
namespace {

template <class T>
struct Forward {
  T* x;
  const T* pos;
  int64_t first_token, s, h;
  Dropout dropout;

  __device__ void operator()(int64_t at) const {
    const int64_t token = first_token + at / h;
    const int64_t element = token % s * h + at % h;
    x[at] = (x[at] + pos[element]) * dropout.Factor(token / s, element);
  }
};

// Each thread has one element of the position embedding. It goes through the rows that use this element, sample after sample.
template <class T>
struct Backward {
  T* dx;
  float* dpos;
  int64_t first_token, n, s, h;
  Dropout dropout;

  __device__ void operator()(int64_t element) const {
    const int64_t first_row = (element / h - first_token % s + s) % s;
    if (first_row >= n) return;
    float sum = dpos[element];
    for (int64_t row = first_row; row < n; row += s) {
      T& x = dx[row * h + element % h];
      const float gradient = x * dropout.Factor((first_token + row) / s, element);
      if (dropout.threshold != 0) x = gradient;
      sum += gradient;
    }
    dpos[element] = sum;
  }
};

}  // namespace

template <class T>
void CudaOps<T>::PositionForward(T* x, const T* pos, int64_t n, int64_t s, int64_t h, const DropoutKey& key) {
  ForEach(this->stream_, "position", n * h, Forward<T>{x, pos, key.first_token, s, h, Dropout::Of(key)});
}

template <class T>
void CudaOps<T>::PositionBackward(T* dx, float* dpos, int64_t n, int64_t s, int64_t h, const DropoutKey& key) {
  ForEach(this->stream_, "position backward", s * h, Backward<T>{dx, dpos, key.first_token, n, s, h, Dropout::Of(key)});
}

#define LYNX_INSTANTIATE(T)                                                                              \
  template void CudaOps<T>::PositionForward(T*, const T*, int64_t, int64_t, int64_t, const DropoutKey&); \
  template void CudaOps<T>::PositionBackward(T*, float*, int64_t, int64_t, int64_t, const DropoutKey&);
LYNX_INSTANTIATE(float)
LYNX_INSTANTIATE(Bfloat16)
#undef LYNX_INSTANTIATE

}  // namespace lynx::worker::cuda
