// Root mean square normalisation (Zhang and Sennrich 2019), with one block for each row. In the kernel for the gradient of the
// weight, each block sums a few columns.
//   x^ = x rstd,   y = x^ gamma
//   dx = rstd (g - x^ mean(g x^)),   g = dy gamma
#include <algorithm>

#include "worker/backend/cuda/column_sum.cuh"
#include "worker/backend/cuda/cuda_ops.h"

namespace lynx::worker::cuda {
namespace {

template <class T>
__device__ float InverseRootMeanSquare(const T* x, int64_t h, float epsilon) {
  float squares = 0;
  for (int64_t i = threadIdx.x; i < h; i += kBlock) squares += x[i] * x[i];
  return 1.0f / sqrtf(ReduceBlock<Sum>(squares) / static_cast<float>(h) + epsilon);
}

template <class T>
__global__ void __launch_bounds__(kBlock) Forward(const T* x, const T* gamma, int64_t h, float epsilon, T* y) {
  x += blockIdx.x * h;
  y += blockIdx.x * h;
  const float rstd = InverseRootMeanSquare(x, h, epsilon);
  for (int64_t i = threadIdx.x; i < h; i += kBlock) y[i] = x[i] * rstd * gamma[i];
}

// Computes the input gradient of each row, and writes the row's rstd for WeightGradient.
template <class T>
__global__ void __launch_bounds__(kBlock)
    Backward(const T* x, const T* gamma, const T* dy, int64_t h, float epsilon, bool accumulate, float* of_rows, T* dx) {
  x += blockIdx.x * h;
  dy += blockIdx.x * h;
  dx += blockIdx.x * h;
  const float rstd = InverseRootMeanSquare(x, h, epsilon);
  float sum_g_normal = 0;
  for (int64_t i = threadIdx.x; i < h; i += kBlock) sum_g_normal += dy[i] * gamma[i] * (x[i] * rstd);
  const float mean_g_normal = ReduceBlock<Sum>(sum_g_normal) / static_cast<float>(h);
  for (int64_t i = threadIdx.x; i < h; i += kBlock) {
    const float gradient = rstd * (dy[i] * gamma[i] - x[i] * rstd * mean_g_normal);
    dx[i] = accumulate ? dx[i] + gradient : gradient;
  }
  if (threadIdx.x == 0) of_rows[blockIdx.x] = rstd;
}

template <class Element>
struct WeightGradient {
  using T = Element;
  static constexpr int kSums = 1;
  const T* x;
  const T* dy;
  const float* of_rows;
  int64_t h;
  float* dgamma;

  template <int kWidth>
  __device__ void Add(int64_t row, int64_t column, float (&sums)[kSums][kWidth]) const {
    const float rstd = of_rows[row];
    const auto values = Pack<T, kWidth>::Load(x + row * h + column);
    const auto gradients = Pack<T, kWidth>::Load(dy + row * h + column);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) sums[0][i] += gradients.at[i] * (values.at[i] * rstd);
  }
  bool FitsPacks(int64_t columns) const { return cuda::FitsPacks(columns, x, dy); }
  __device__ float& At(int, int64_t column) const { return dgamma[column]; }
};

}  // namespace

template <class T>
void CudaOps<T>::RmsNormForward(const T* x, const T* gamma, int64_t n, int64_t h, float epsilon, T* y) {
  this->stream_.Launch("RMS norm", &Forward<T>, dim3(BlocksOf(n, 1)), dim3(kBlock), x, gamma, h, epsilon, y);
}

template <class T>
void CudaOps<T>::RmsNormBackward(const T* x, const T* gamma, const T* dy, int64_t n, int64_t h, float epsilon, bool accumulate,
                                 T* dx, float* dgamma) {
  constexpr int64_t kMaxRows = (Stream::kScratch - kPartSums).value / static_cast<int64_t>(sizeof(float));
  for (int64_t row = 0; row < n; row += kMaxRows) {
    const int64_t rows = std::min(kMaxRows, n - row), at = row * h;
    auto* const of_rows = this->stream_.template ScratchOf<float>(rows, kPartSums);
    this->stream_.Launch("RMS norm backward", &Backward<T>, dim3(BlocksOf(rows, 1)), dim3(kBlock), x + at, gamma, dy + at, h,
                         epsilon, accumulate, of_rows, dx + at);
    SumColumns(this->stream_, "RMS norm's weight backward", rows, h, WeightGradient<T>{x + at, dy + at, of_rows, h, dgamma});
  }
}

#define LYNX_INSTANTIATE(T)                                                                  \
  template void CudaOps<T>::RmsNormForward(const T*, const T*, int64_t, int64_t, float, T*); \
  template void CudaOps<T>::RmsNormBackward(const T*, const T*, const T*, int64_t, int64_t, float, bool, T*, float*);
LYNX_INSTANTIATE(float)
LYNX_INSTANTIATE(Bfloat16)
#undef LYNX_INSTANTIATE

}  // namespace lynx::worker::cuda
