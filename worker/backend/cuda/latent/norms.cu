// The norms of latents (DeepSeek-V2, arXiv 2405.04434): one norm of the latents of queries, if there are any, and one of those
// of keys and values. A block works on one token, and goes two or three times through it.
//   x^ = x rstd,   y = x^ gamma
//   dx = rstd (g - x^ mean(g x^)),   g = dy gamma
#include <algorithm>

#include "worker/backend/cuda/column_sum.cuh"
#include "worker/backend/cuda/cuda_ops.h"

namespace lynx::worker::cuda {
namespace {

// The latents [begin, begin + count) of each token, which have a norm together.
struct Part {
  int64_t begin, count;
};

// Calls function(part, number of the part) for each part that has latents.
template <class Function>
__device__ void ForEachPart(const LatentShape& shape, const Function& function) {
  if (shape.p > 0) function(Part{0, shape.p}, 0);
  function(Part{shape.p, shape.r}, 1);
}

template <class T>
__device__ float InverseRootMeanSquare(const T* x, int64_t count, float epsilon) {
  float squares = 0;
  for (int64_t i = threadIdx.x; i < count; i += kBlock) squares += x[i] * x[i];
  return 1.0f / sqrtf(ReduceBlock<Sum>(squares) / static_cast<float>(count) + epsilon);
}

template <class T>
__global__ void __launch_bounds__(kBlock)
    Forward(LatentShape shape, const T* latent, const T* gamma, float epsilon, T* normed) {
  const int64_t z = shape.z(), copied = shape.p + shape.r;
  latent += blockIdx.x * z;
  normed += blockIdx.x * z;
  ForEachPart(shape, [&](const Part& part, int) {
    const T* const x = latent + part.begin;
    const float rstd = InverseRootMeanSquare(x, part.count, epsilon);
    for (int64_t i = threadIdx.x; i < part.count; i += kBlock) normed[part.begin + i] = x[i] * rstd * gamma[part.begin + i];
  });
  for (int64_t i = copied + threadIdx.x; i < z; i += kBlock) normed[i] = latent[i];
}

// Writes the factors rstd of both norms of each token to of_tokens (tokens, 2).
template <class T>
__global__ void __launch_bounds__(kBlock) Statistics(LatentShape shape, const T* latent, float epsilon, float* of_tokens) {
  ForEachPart(shape, [&](const Part& part, int number) {
    const float rstd = InverseRootMeanSquare(latent + blockIdx.x * shape.z() + part.begin, part.count, epsilon);
    if (threadIdx.x == 0) of_tokens[blockIdx.x * 2 + number] = rstd;
  });
}

template <class T>
__global__ void __launch_bounds__(kBlock)
    Backward(LatentShape shape, const T* latent, const T* gamma, const float* of_tokens, T* dlatent) {
  ForEachPart(shape, [&](const Part& part, int number) {
    const int64_t begin = blockIdx.x * shape.z() + part.begin;
    const T *const x = latent + begin, *const scale = gamma + part.begin;
    T* const dy = dlatent + begin;
    const float rstd = of_tokens[blockIdx.x * 2 + number];
    float sum_g_normal = 0;
    for (int64_t i = threadIdx.x; i < part.count; i += kBlock) sum_g_normal += dy[i] * scale[i] * (x[i] * rstd);
    const float mean_g_normal = ReduceBlock<Sum>(sum_g_normal) / static_cast<float>(part.count);
    for (int64_t i = threadIdx.x; i < part.count; i += kBlock) {
      dy[i] = rstd * (dy[i] * scale[i] - x[i] * rstd * mean_g_normal);
    }
  });
}

// The terms for SumColumns: its columns are the latents that have norms.
template <class Element>
struct WeightGradient {
  using T = Element;
  static constexpr int kSums = 1;
  LatentShape shape;
  const T* latent;
  const T* dlatent;
  const float* of_tokens;
  float* dgamma;

  template <int kWidth>
  __device__ void Add(int64_t row, int64_t column, float (&sums)[kSums][kWidth]) const {
    const float rstd = of_tokens[row * 2 + (column < shape.p ? 0 : 1)];
    const auto values = Pack<T, kWidth>::Load(latent + row * shape.z() + column);
    const auto gradients = Pack<T, kWidth>::Load(dlatent + row * shape.z() + column);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) sums[0][i] += gradients.at[i] * (values.at[i] * rstd);
  }
  // A pack must not have latents of both norms, and every row must begin with a pack.
  bool FitsPacks(int64_t columns) const {
    return shape.p % kPackOf<T> == 0 && shape.z() % kPackOf<T> == 0 && cuda::FitsPacks(columns, latent, dlatent);
  }
  __device__ float& At(int, int64_t column) const { return dgamma[column]; }
};

}  // namespace

template <class T>
void CudaOps<T>::LatentNormForward(const LatentShape& shape, const T* latent, const T* gamma, float epsilon, T* normed) {
  this->stream_.Launch("norms of latents", &Forward<T>, dim3(BlocksOf(shape.n, 1)), dim3(kBlock), shape, latent, gamma, epsilon,
                       normed);
}

template <class T>
void CudaOps<T>::LatentNormBackward(const LatentShape& shape, const T* latent, const T* gamma, float epsilon, T* dlatent,
                                    float* dgamma) {
  constexpr int64_t kMaxTokens = (Stream::kScratch - kPartSums).value / static_cast<int64_t>(2 * sizeof(float));
  for (int64_t token = 0; token < shape.n; token += kMaxTokens) {
    LatentShape some = shape;
    some.n = std::min(kMaxTokens, shape.n - token);
    const T* const x = latent + token * shape.z();
    T* const dx = dlatent + token * shape.z();
    auto* const of_tokens = this->stream_.template ScratchOf<float>(some.n * 2, kPartSums);
    const dim3 grid(BlocksOf(some.n, 1));
    this->stream_.Launch("norms of latents, statistics", &Statistics<T>, grid, dim3(kBlock), some, x, epsilon, of_tokens);
    // The sums come first, because they read the gradient that dx overwrites later.
    SumColumns(this->stream_, "latents' norms' weight backward", some.n, shape.p + shape.r,
               WeightGradient<T>{some, x, dx, of_tokens, dgamma});
    this->stream_.Launch("norms of latents backward", &Backward<T>, grid, dim3(kBlock), some, x, gamma,
                         static_cast<const float*>(of_tokens), dx);
  }
}

#define LYNX_INSTANTIATE(T)                                                                       \
  template void CudaOps<T>::LatentNormForward(const LatentShape&, const T*, const T*, float, T*); \
  template void CudaOps<T>::LatentNormBackward(const LatentShape&, const T*, const T*, float, T*, float*);
LYNX_INSTANTIATE(float)
LYNX_INSTANTIATE(Bfloat16)
#undef LYNX_INSTANTIATE

}  // namespace lynx::worker::cuda
