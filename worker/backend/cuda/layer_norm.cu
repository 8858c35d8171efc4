// Layer normalisation (Ba et al. 2016). A warp, or for longer rows a block, holds a row in registers, so that the row is read
// once (HeldRow). A block goes three times through a row that is too long for that. In the kernel for the gradients of the
// weights, each block sums a few columns of some rows.
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

// The statistics of a row that is held in registers. The variance is computed from the differences to the mean, so it loses no
// precision if the mean is large.
template <class Row>
__device__ RowStats Stats(const Row& x, int h, float epsilon) {
  const auto count = static_cast<float>(h);
  const float mean = x.SumOf(h, [](float value) { return value; }) / count;
  const float squares = x.SumOf(h, [mean](float value) { return (value - mean) * (value - mean); });
  return {mean, 1.0f / sqrtf(squares / count + epsilon)};
}

// Computes the statistics of a row that is in memory.
template <class T>
__device__ RowStats Stats(const T* x, int64_t h, float epsilon) {
  float sum = 0;
  for (int64_t i = threadIdx.x; i < h; i += kBlock) sum += x[i];
  const float mean = ReduceBlock<Sum>(sum) / static_cast<float>(h);
  float squares = 0;
  for (int64_t i = threadIdx.x; i < h; i += kBlock) squares += (x[i] - mean) * (x[i] - mean);
  return {mean, 1.0f / sqrtf(ReduceBlock<Sum>(squares) / static_cast<float>(h) + epsilon)};
}

template <class T, class Row>
__global__ void __launch_bounds__(kBlock)
    ForwardHeld(const T* x, const T* gamma, const T* beta, int64_t n, int h, float epsilon, T* y) {
  const int64_t row = Row::Number();
  if (row >= n) return;
  Row values = Row::Load(x + row * h, h);
  const RowStats stats = Stats(values, h, epsilon);
#pragma unroll
  for (int pack = 0; pack < Row::kPacksHeld; ++pack) {
    const auto gammas = Row::LoadPack(gamma, pack, h), betas = Row::LoadPack(beta, pack, h);
#pragma unroll
    for (int i = 0; i < Row::kWidth; ++i) {
      T& value = values.packs[pack].at[i];
      value = (value - stats.mean) * stats.rstd * gammas.at[i] + betas.at[i];
    }
    Row::StorePack(values.packs[pack], pack, h, y + row * h);
  }
}

template <class T>
__global__ void __launch_bounds__(kBlock) Forward(const T* x, const T* gamma, const T* beta, int64_t h, float epsilon, T* y) {
  x += blockIdx.x * h;
  y += blockIdx.x * h;
  const RowStats stats = Stats(x, h, epsilon);
  for (int64_t i = threadIdx.x; i < h; i += kBlock) y[i] = (x[i] - stats.mean) * stats.rstd * gamma[i] + beta[i];
}

template <class T>
struct BackwardOf {
  const T* x;
  const T* gamma;
  const T* dy;
  int64_t n, h;
  float epsilon;
  bool accumulate;
  RowStats* of_rows;  // where the rows' statistics are written, for WeightGradient
  T* dx;
};

template <class T, class Row>
__global__ void __launch_bounds__(kBlock, kResident) BackwardHeld(BackwardOf<T> of) {
  const int64_t row = Row::Number();
  if (row >= of.n) return;
  const int h = static_cast<int>(of.h);
  T* const dx = of.dx + row * h;
  const Row values = Row::Load(of.x + row * h, h), gradients = Row::Load(of.dy + row * h, h);
  const RowStats stats = Stats(values, h, of.epsilon);
  const auto normal = [&](int pack, int i) { return (values.packs[pack].at[i] - stats.mean) * stats.rstd; };
  float sum_g = 0, sum_g_normal = 0;
#pragma unroll
  for (int pack = 0; pack < Row::kPacksHeld; ++pack) {
    const auto gammas = Row::LoadPack(of.gamma, pack, h);
#pragma unroll
    for (int i = 0; i < Row::kWidth; ++i) {
      const float g = gradients.packs[pack].at[i] * gammas.at[i];  // 0 where the row has no element
      sum_g += g;
      sum_g_normal += g * normal(pack, i);
    }
  }
  const float mean_g = Row::SumOfThreads(sum_g) / static_cast<float>(h);
  const float mean_g_normal = Row::SumOfThreads(sum_g_normal) / static_cast<float>(h);
#pragma unroll
  for (int pack = 0; pack < Row::kPacksHeld; ++pack) {
    const auto gammas = Row::LoadPack(of.gamma, pack, h);
    auto out = of.accumulate ? Row::LoadPack(dx, pack, h) : Pack<T, Row::kWidth>{};
#pragma unroll
    for (int i = 0; i < Row::kWidth; ++i) {
      const float g = gradients.packs[pack].at[i] * gammas.at[i];
      const float gradient = stats.rstd * (g - mean_g - normal(pack, i) * mean_g_normal);
      out.at[i] = of.accumulate ? out.at[i] + gradient : gradient;
    }
    Row::StorePack(out, pack, h, dx);
  }
  if (Row::At(0) == 0) of.of_rows[row] = stats;
}

template <class T>
__global__ void __launch_bounds__(kBlock) Backward(BackwardOf<T> of) {
  const int64_t h = of.h, row = blockIdx.x;
  const T *const x = of.x + row * h, *const dy = of.dy + row * h, *const gamma = of.gamma;
  T* const dx = of.dx + row * h;
  const RowStats stats = Stats(x, h, of.epsilon);
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
    dx[i] = of.accumulate ? dx[i] + gradient : gradient;
  }
  if (threadIdx.x == 0) of.of_rows[row] = stats;
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
  constexpr char kName[] = "layer norm";
  const bool held = WithHeldRow<T>(h, FitsPacks(h, x, gamma, beta, y), [&]<class Row>(std::type_identity<Row>) {
    this->stream_.Launch(kName, &ForwardHeld<T, Row>, dim3(BlocksOf(n, Row::kRowsOfBlock)), dim3(kBlock), x, gamma, beta, n, h,
                         epsilon, y);
  });
  if (held) return;
  this->stream_.Launch(kName, &Forward<T>, dim3(BlocksOf(n, 1)), dim3(kBlock), x, gamma, beta, h, epsilon, y);
}

template <class T>
void CudaOps<T>::LayerNormBackward(const T* x, const T* gamma, const T* dy, int64_t n, int64_t h, float epsilon,
                                   bool accumulate, T* dx, float* dgamma, float* dbeta) {
  constexpr char kName[] = "layer norm backward";
  constexpr int64_t kMaxRows = (Stream::kScratch - kPartSums).value / static_cast<int64_t>(sizeof(RowStats));
  for (int64_t row = 0; row < n; row += kMaxRows) {
    const int64_t rows = std::min(kMaxRows, n - row), at = row * h;
    auto* const of_rows = this->stream_.template ScratchOf<RowStats>(rows, kPartSums);
    const BackwardOf<T> of{x + at, gamma, dy + at, rows, h, epsilon, accumulate, of_rows, dx + at};
    const bool held = WithHeldRow<T>(h, FitsPacks(h, of.x, gamma, of.dy, of.dx), [&]<class Row>(std::type_identity<Row>) {
      this->stream_.Launch(kName, &BackwardHeld<T, Row>, dim3(BlocksOf(rows, Row::kRowsOfBlock)), dim3(kBlock), of);
    });
    if (!held) this->stream_.Launch(kName, &Backward<T>, dim3(BlocksOf(rows, 1)), dim3(kBlock), of);
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
