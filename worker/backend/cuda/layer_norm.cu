// Layer normalisation (Ba et al. 2016), with one block for each row. In the kernel for the gradients of the weights, each block
// sums a few columns.
//   x^ = (x - mean) rstd,   y = x^ gamma + beta
//   dx = rstd (g - mean(g) - x^ mean(g x^)),   g = dy gamma
#include <algorithm>

#include "worker/backend/cuda/column_sum.cuh"
#include "worker/backend/cuda/cuda_ops.h"

namespace lynx::worker::cuda {
namespace {

struct RowStats {
  float mean, rstd;
};

// Uses two passes. The second one computes the variance from the differences to the mean, so it loses no precision if the mean
// is large.
template <class T>
__device__ RowStats Stats(const T* x, int64_t h, float epsilon) {
  float sum = 0;
  for (int64_t i = threadIdx.x; i < h; i += kBlock) sum += x[i];
  const float mean = ReduceBlock<Sum>(sum) / static_cast<float>(h);
  float squares = 0;
  for (int64_t i = threadIdx.x; i < h; i += kBlock) squares += (x[i] - mean) * (x[i] - mean);
  return {mean, 1.0f / sqrtf(ReduceBlock<Sum>(squares) / static_cast<float>(h) + epsilon)};
}

template <class T>
__global__ void __launch_bounds__(kBlock) Forward(const T* x, const T* gamma, const T* beta, int64_t h, float epsilon, T* y) {
  x += blockIdx.x * h;
  y += blockIdx.x * h;
  const RowStats stats = Stats(x, h, epsilon);
  for (int64_t i = threadIdx.x; i < h; i += kBlock) y[i] = (x[i] - stats.mean) * stats.rstd * gamma[i] + beta[i];
}

// Computes the input gradient of each row, and writes the row's statistics for WeightGradient.
template <class T>
__global__ void __launch_bounds__(kBlock)
    Backward(const T* x, const T* gamma, const T* dy, int64_t h, float epsilon, bool accumulate, RowStats* of_rows, T* dx) {
  x += blockIdx.x * h;
  dy += blockIdx.x * h;
  dx += blockIdx.x * h;
  const RowStats stats = Stats(x, h, epsilon);
  float sum_g = 0, sum_g_normal = 0;
  for (int64_t i = threadIdx.x; i < h; i += kBlock) {
    const float g = dy[i] * gamma[i];
    sum_g += g;
    sum_g_normal += g * ((x[i] - stats.mean) * stats.rstd);
  }
  const float mean_g = ReduceBlock<Sum>(sum_g) / static_cast<float>(h);
  const float mean_g_normal = ReduceBlock<Sum>(sum_g_normal) / static_cast<float>(h);
  for (int64_t i = threadIdx.x; i < h; i += kBlock) {
    const float normal = (x[i] - stats.mean) * stats.rstd;
    const float gradient = stats.rstd * (dy[i] * gamma[i] - mean_g - normal * mean_g_normal);
    dx[i] = accumulate ? dx[i] + gradient : gradient;
  }
  if (threadIdx.x == 0) of_rows[blockIdx.x] = stats;
}

template <class Element>
struct WeightGradient {
  using T = Element;
  static constexpr int kSums = 2;
  const T* x;
  const T* dy;
  const RowStats* of_rows;
  int64_t h;
  float* dgamma;
  float* dbeta;

  template <int kWidth>
  __device__ void Add(int64_t row, int64_t column, float (&sums)[kSums][kWidth]) const {
    const RowStats stats = of_rows[row];
    const auto values = Pack<T, kWidth>::Load(x + row * h + column);
    const auto gradients = Pack<T, kWidth>::Load(dy + row * h + column);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      const float gradient = gradients.at[i];
      sums[0][i] += gradient * ((values.at[i] - stats.mean) * stats.rstd);
      sums[1][i] += gradient;
    }
  }
  bool FitsPacks(int64_t columns) const { return cuda::FitsPacks(columns, x, dy); }
  __device__ float& At(int which, int64_t column) const { return (which == 0 ? dgamma : dbeta)[column]; }
};

}  // namespace

template <class T>
void CudaOps<T>::LayerNormForward(const T* x, const T* gamma, const T* beta, int64_t n, int64_t h, float epsilon, T* y) {
  this->stream_.Launch("layer norm", &Forward<T>, dim3(BlocksOf(n, 1)), dim3(kBlock), x, gamma, beta, h, epsilon, y);
}

template <class T>
void CudaOps<T>::LayerNormBackward(const T* x, const T* gamma, const T* dy, int64_t n, int64_t h, float epsilon,
                                   bool accumulate, T* dx, float* dgamma, float* dbeta) {
  constexpr int64_t kMaxRows = (Stream::kScratch - kPartSums).value / static_cast<int64_t>(sizeof(RowStats));
  for (int64_t row = 0; row < n; row += kMaxRows) {
    const int64_t rows = std::min(kMaxRows, n - row), at = row * h;
    auto* const of_rows = this->stream_.template ScratchOf<RowStats>(rows, kPartSums);
    this->stream_.Launch("layer norm backward", &Backward<T>, dim3(BlocksOf(rows, 1)), dim3(kBlock), x + at, gamma, dy + at, h,
                         epsilon, accumulate, of_rows, dx + at);
    SumColumns(this->stream_, "layer norm's weights backward", rows, h,
               WeightGradient<T>{x + at, dy + at, of_rows, h, dgamma, dbeta});
  }
}

#define LYNX_INSTANTIATE(T)                                                                              \
  template void CudaOps<T>::LayerNormForward(const T*, const T*, const T*, int64_t, int64_t, float, T*); \
  template void CudaOps<T>::LayerNormBackward(const T*, const T*, const T*, int64_t, int64_t, float, bool, T*, float*, float*);
LYNX_INSTANTIATE(float)
LYNX_INSTANTIATE(Bfloat16)
#undef LYNX_INSTANTIATE

}  // namespace lynx::worker::cuda
