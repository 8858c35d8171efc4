// Root mean square normalisation (Zhang and Sennrich 2019). A warp, or for longer rows a block, holds a row in registers, so
// that the row is read once (HeldRow). A block goes twice or three times through a row that is too long for that. In the kernel
// for the gradient of the weight, each block sums a few columns of some rows.
//   x^ = x rstd,   y = x^ gamma
//   dx = rstd (g - x^ mean(g x^)),   g = dy gamma
#include <algorithm>

#include "worker/backend/cuda/column_sum.cuh"
#include "worker/backend/cuda/cuda_ops.h"

namespace lynx::worker::cuda {
namespace {

// For a row that is held in registers.
template <class Row>
__device__ float InverseRootMeanSquare(const Row& x, int h, float epsilon) {
  return 1.0f / sqrtf(x.SumOf(h, [](float value) { return value * value; }) / static_cast<float>(h) + epsilon);
}

// For a row in memory.
template <class T>
__device__ float InverseRootMeanSquare(const T* x, int64_t h, float epsilon) {
  float squares = 0;
  for (int64_t i = threadIdx.x; i < h; i += kBlock) squares += x[i] * x[i];
  return 1.0f / sqrtf(ReduceBlock<Sum>(squares) / static_cast<float>(h) + epsilon);
}

template <class T, class Row>
__global__ void __launch_bounds__(kBlock) ForwardHeld(const T* x, const T* gamma, int64_t n, int h, float epsilon, T* y) {
  const int64_t row = Row::Number();
  if (row >= n) return;
  Row values = Row::Load(x + row * h, h);
  const float rstd = InverseRootMeanSquare(values, h, epsilon);
#pragma unroll
  for (int pack = 0; pack < Row::kPacksHeld; ++pack) {
    const auto gammas = Row::LoadPack(gamma, pack, h);
#pragma unroll
    for (int i = 0; i < Row::kWidth; ++i) {
      T& value = values.packs[pack].at[i];
      value = value * rstd * gammas.at[i];
    }
    Row::StorePack(values.packs[pack], pack, h, y + row * h);
  }
}

template <class T>
__global__ void __launch_bounds__(kBlock) Forward(const T* x, const T* gamma, int64_t h, float epsilon, T* y) {
  x += blockIdx.x * h;
  y += blockIdx.x * h;
  const float rstd = InverseRootMeanSquare(x, h, epsilon);
  for (int64_t i = threadIdx.x; i < h; i += kBlock) y[i] = x[i] * rstd * gamma[i];
}

template <class T>
struct BackwardOf {
  const T* x;
  const T* gamma;
  const T* dy;
  int64_t n, h;
  float epsilon;
  bool accumulate;
  float* of_rows;  // where each row's rstd is written, for WeightGradient
  T* dx;
};

template <class T, class Row>
__global__ void __launch_bounds__(kBlock, kResident) BackwardHeld(BackwardOf<T> of) {
  const int64_t row = Row::Number();
  if (row >= of.n) return;
  const int h = static_cast<int>(of.h);
  T* const dx = of.dx + row * h;
  const Row values = Row::Load(of.x + row * h, h), gradients = Row::Load(of.dy + row * h, h);
  const float rstd = InverseRootMeanSquare(values, h, of.epsilon);
  float sum_g_normal = 0;
#pragma unroll
  for (int pack = 0; pack < Row::kPacksHeld; ++pack) {
    const auto gammas = Row::LoadPack(of.gamma, pack, h);
#pragma unroll
    for (int i = 0; i < Row::kWidth; ++i) {
      sum_g_normal += gradients.packs[pack].at[i] * gammas.at[i] * (values.packs[pack].at[i] * rstd);
    }
  }
  const float mean_g_normal = Row::SumOfThreads(sum_g_normal) / static_cast<float>(h);
#pragma unroll
  for (int pack = 0; pack < Row::kPacksHeld; ++pack) {
    const auto gammas = Row::LoadPack(of.gamma, pack, h);
    auto out = of.accumulate ? Row::LoadPack(dx, pack, h) : Pack<T, Row::kWidth>{};
#pragma unroll
    for (int i = 0; i < Row::kWidth; ++i) {
      const float normal = values.packs[pack].at[i] * rstd;
      const float gradient = rstd * (gradients.packs[pack].at[i] * gammas.at[i] - normal * mean_g_normal);
      out.at[i] = of.accumulate ? out.at[i] + gradient : gradient;
    }
    Row::StorePack(out, pack, h, dx);
  }
  if (Row::At(0) == 0) of.of_rows[row] = rstd;
}

template <class T>
__global__ void __launch_bounds__(kBlock) Backward(BackwardOf<T> of) {
  const int64_t h = of.h, row = blockIdx.x;
  const T *const x = of.x + row * h, *const dy = of.dy + row * h, *const gamma = of.gamma;
  T* const dx = of.dx + row * h;
  const float rstd = InverseRootMeanSquare(x, h, of.epsilon);
  float sum_g_normal = 0;
  for (int64_t i = threadIdx.x; i < h; i += kBlock) sum_g_normal += dy[i] * gamma[i] * (x[i] * rstd);
  const float mean_g_normal = ReduceBlock<Sum>(sum_g_normal) / static_cast<float>(h);
  for (int64_t i = threadIdx.x; i < h; i += kBlock) {
    const float gradient = rstd * (dy[i] * gamma[i] - x[i] * rstd * mean_g_normal);
    dx[i] = of.accumulate ? dx[i] + gradient : gradient;
  }
  if (threadIdx.x == 0) of.of_rows[row] = rstd;
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
  constexpr char kName[] = "RMS norm";
  const bool held = WithHeldRow<T>(h, FitsPacks(h, x, gamma, y), [&]<class Row>(std::type_identity<Row>) {
    this->stream_.Launch(kName, &ForwardHeld<T, Row>, dim3(BlocksOf(n, Row::kRowsOfBlock)), dim3(kBlock), x, gamma, n, h,
                         epsilon, y);
  });
  if (!held) this->stream_.Launch(kName, &Forward<T>, dim3(BlocksOf(n, 1)), dim3(kBlock), x, gamma, h, epsilon, y);
}

template <class T>
void CudaOps<T>::RmsNormBackward(const T* x, const T* gamma, const T* dy, int64_t n, int64_t h, float epsilon, bool accumulate,
                                 T* dx, float* dgamma) {
  constexpr char kName[] = "RMS norm backward";
  constexpr int64_t kMaxRows = (Stream::kScratch - kPartSums).value / static_cast<int64_t>(sizeof(float));
  for (int64_t row = 0; row < n; row += kMaxRows) {
    const int64_t rows = std::min(kMaxRows, n - row), at = row * h;
    auto* const of_rows = this->stream_.template ScratchOf<float>(rows, kPartSums);
    const BackwardOf<T> of{x + at, gamma, dy + at, rows, h, epsilon, accumulate, of_rows, dx + at};
    const bool held = WithHeldRow<T>(h, FitsPacks(h, of.x, gamma, of.dy, of.dx), [&]<class Row>(std::type_identity<Row>) {
      this->stream_.Launch(kName, &BackwardHeld<T, Row>, dim3(BlocksOf(rows, Row::kRowsOfBlock)), dim3(kBlock), of);
    });
    if (!held) this->stream_.Launch(kName, &Backward<T>, dim3(BlocksOf(rows, 1)), dim3(kBlock), of);
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
