// The end of a transformer block: bias, dropout and residual in one kernel; its gradient; and the gradient of the bias. Also a
// bias in every row, for products that cannot add it themselves.
#include "worker/backend/cuda/column_sum.cuh"
#include "worker/backend/cuda/cuda_ops.h"
#include "worker/backend/cuda/dropout.cuh"
#include "worker/backend/cuda/elementwise.cuh"

namespace lynx::worker::cuda {
namespace {

template <class T, int kWidth>
struct Forward {
  using P = Pack<T, kWidth>;
  const T* residual;
  const T* bias;  // may be null
  int64_t first_token, s, h;
  Dropout dropout;
  T* y;

  __device__ void operator()(int64_t pack) const {
    const int64_t at = pack * kWidth;
    const Place<kWidth> place(at, first_token, s, h);
    auto values = P::Load(y + at);
    const auto residuals = P::Load(residual + at);
    const auto biases = bias != nullptr ? P::Load(bias + place.column) : P{};
    float factors[kWidth];
    place.Factors(dropout, factors);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      const float biased = bias != nullptr ? values.at[i] + biases.at[i] : float{values.at[i]};
      values.at[i] = residuals.at[i] + biased * factors[i];
    }
    values.Store(y + at);
  }
};

template <class T, int kWidth>
struct Backward {
  using P = Pack<T, kWidth>;
  const T* dout;
  int64_t first_token, s, h;
  Dropout dropout;
  T* dy;

  __device__ void operator()(int64_t pack) const {
    const int64_t at = pack * kWidth;
    auto values = P::Load(dout + at);
    float factors[kWidth];
    Place<kWidth>(at, first_token, s, h).Factors(dropout, factors);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) values.at[i] = values.at[i] * factors[i];
    values.Store(dy + at);
  }
};

template <class T>
struct CopyRow {
  const T* row;
  int64_t h;
  T* y;

  __device__ void operator()(int64_t at) const { y[at] = row[at % h]; }
};

}  // namespace

template <class T>
void CudaOps<T>::BiasDropoutAddForward(const T* residual, const T* bias, int64_t s, int64_t n, int64_t h, const DropoutKey& key,
                                       T* y) {
  constexpr char kName[] = "bias, dropout and residual";
  const Dropout dropout = Dropout::Of(key);
  if (!FitsPacks(h, residual, bias, y)) {
    return ForEach(this->stream_, kName, n * h, Forward<T, 1>{residual, bias, key.first_token, s, h, dropout, y});
  }
  ForEach(this->stream_, kName, n * h / kPackOf<T>, Forward<T, kPackOf<T>>{residual, bias, key.first_token, s, h, dropout, y});
}

template <class T>
void CudaOps<T>::BiasDropoutAddBackward(const T* dout, int64_t s, int64_t n, int64_t h, const DropoutKey& key, T* dy) {
  constexpr char kName[] = "dropout backward";
  const Dropout dropout = Dropout::Of(key);
  if (!FitsPacks(h, dout, dy)) {
    return ForEach(this->stream_, kName, n * h, Backward<T, 1>{dout, key.first_token, s, h, dropout, dy});
  }
  ForEach(this->stream_, kName, n * h / kPackOf<T>, Backward<T, kPackOf<T>>{dout, key.first_token, s, h, dropout, dy});
}

template <class T>
void CudaOps<T>::BiasGradient(const T* dy, int64_t n, int64_t h, float* dbias) {
  SumColumns(this->stream_, "bias gradient", n, h, ColumnsOf<T>{dy, h, dbias});
}

template <class T>
void CudaOps<T>::CopyToRows(const T* row, int64_t n, int64_t h, T* y) {
  ForEach(this->stream_, "bias", n * h, CopyRow<T>{row, h, y});
}

#define LYNX_INSTANTIATE(T)                                                                                              \
  template void CudaOps<T>::BiasDropoutAddForward(const T*, const T*, int64_t, int64_t, int64_t, const DropoutKey&, T*); \
  template void CudaOps<T>::BiasDropoutAddBackward(const T*, int64_t, int64_t, int64_t, const DropoutKey&, T*);          \
  template void CudaOps<T>::BiasGradient(const T*, int64_t, int64_t, float*);                                            \
  template void CudaOps<T>::CopyToRows(const T*, int64_t, int64_t, T*);
LYNX_INSTANTIATE(float)
LYNX_INSTANTIATE(Bfloat16)
#undef LYNX_INSTANTIATE

}  // namespace lynx::worker::cuda
