// The second op of SwiGLU (swiglu.cu) for the rows of experts: it also multiplies by the weight of the row. In the backward
// pass a block works on one row, because the gradient of the weight is a sum over the row.
#include "worker/backend/cuda/cuda_ops.h"
#include "worker/backend/cuda/elementwise.cuh"

namespace lynx::worker::cuda {
namespace {

template <class T, int kWidth>
struct WeightedProduct {
  using P = Pack<T, kWidth>;
  const float* weights;
  const T* gated;
  const T* silu;
  int64_t f;
  T* y;

  __device__ void operator()(int64_t pack) const {
    const int64_t at = pack * kWidth, row = at / f;
    const float weight = weights[row];
    P values{};
    if (weight != kNoRow) {
      const auto up = P::Load(gated + at + (row + 1) * f);
      values = P::Load(silu + at);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) values.at[i] = values.at[i] * up.at[i] * weight;
    }
    values.Store(y + at);
  }
};

// Reads and writes the elements [at, at + kPackOf<T>) of a row of f elements: with one access, or one by one without those that
// the row does not have. So a thread has the same elements in both cases.
template <class T, bool kPacked>
struct RowPack {
  using P = Pack<T, kPackOf<T>>;

  __device__ static P Load(const T* row, int64_t at, int64_t f) {
    if constexpr (kPacked) {
      return P::Load(row + at);
    } else {
      P values{};
#pragma unroll
      for (int i = 0; i < kPackOf<T>; ++i) {
        if (at + i < f) values.at[i] = row[at + i];
      }
      return values;
    }
  }
  __device__ static void Store(const P& values, int64_t at, int64_t f, T* row) {
    if constexpr (kPacked) {
      values.Store(row + at);
    } else {
#pragma unroll
      for (int i = 0; i < kPackOf<T>; ++i) {
        if (at + i < f) row[at + i] = values.at[i];
      }
    }
  }
};

template <class T, bool kPacked>
__global__ void __launch_bounds__(kBlock)
    WeightedGradient(const float* weights, const T* gated, const T* silu, const T* dy, int64_t f, T* dgated, float* dweights) {
  using Row = RowPack<T, kPacked>;
  const int64_t row = blockIdx.x;
  const float weight = weights[row];
  const bool has_token = weight != kNoRow;
  float dweight = 0;
  for (int64_t at = threadIdx.x * kPackOf<T>; at < f; at += kBlock * kPackOf<T>) {
    typename Row::P dsilu{}, dup{};
    if (has_token) {
      const auto up = Row::Load(gated + (2 * row + 1) * f, at, f), open = Row::Load(silu + row * f, at, f),
                 gradient = Row::Load(dy + row * f, at, f);
#pragma unroll
      for (int i = 0; i < kPackOf<T>; ++i) {
        dweight += gradient.at[i] * (open.at[i] * up.at[i]);
        dsilu.at[i] = gradient.at[i] * up.at[i] * weight;
        dup.at[i] = gradient.at[i] * open.at[i] * weight;
      }
    }
    Row::Store(dsilu, at, f, dgated + 2 * row * f);
    Row::Store(dup, at, f, dgated + (2 * row + 1) * f);
  }
  dweight = ReduceBlock<Sum>(dweight);
  if (threadIdx.x == 0) dweights[row] = dweight;
}

}  // namespace

template <class T>
void CudaOps<T>::ExpertSwigluForward(const ExpertShape& shape, const float* weights, const T* gated, const T* silu, int64_t f,
                                     T* y) {
  constexpr char kName[] = "swiglu of experts";
  const int64_t count = shape.rows() * f;
  if (!FitsPacks(f, gated, silu, y)) {
    return ForEach(this->stream_, kName, count, WeightedProduct<T, 1>{weights, gated, silu, f, y});
  }
  ForEach(this->stream_, kName, count / kPackOf<T>, WeightedProduct<T, kPackOf<T>>{weights, gated, silu, f, y});
}

template <class T>
void CudaOps<T>::ExpertSwigluBackward(const ExpertShape& shape, const float* weights, const T* gated, const T* silu,
                                      const T* dy, int64_t f, T* dgated, float* dweights) {
  const auto kernel = FitsPacks(f, gated, silu, dy, dgated) ? &WeightedGradient<T, true> : &WeightedGradient<T, false>;
  this->stream_.Launch("swiglu of experts backward", kernel, dim3(BlocksOf(shape.rows(), 1)), dim3(kBlock), weights, gated,
                       silu, dy, f, dgated, dweights);
}

#define LYNX_INSTANTIATE(T)                                                                                                   \
  template void CudaOps<T>::ExpertSwigluForward(const ExpertShape&, const float*, const T*, const T*, int64_t, T*);           \
  template void CudaOps<T>::ExpertSwigluBackward(const ExpertShape&, const float*, const T*, const T*, const T*, int64_t, T*, \
                                                 float*);
LYNX_INSTANTIATE(float)
LYNX_INSTANTIATE(Bfloat16)
#undef LYNX_INSTANTIATE

}  // namespace lynx::worker::cuda
