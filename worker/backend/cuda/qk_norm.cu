// Root mean square normalisation of each head of queries and keys (Henry et al. 2020). 8, 16 or 32 neighbouring threads hold a
// head in registers (HeldRow). For a head that is too large for that, a warp goes twice through it. In the kernel for the
// gradients of the two weights, each block sums a few of a head's elements over some of the heads.
//   x^ = x rstd,   y = x^ gamma
//   dx = rstd (g - x^ mean(g x^)),   g = dy gamma
#include <algorithm>

#include "worker/backend/cuda/column_sum.cuh"
#include "worker/backend/cuda/cuda_ops.h"

namespace lynx::worker::cuda {
namespace {

constexpr int kHeadsOfBlock = kBlock / kWarp;

// The heads that a kernel works on: the first `normed` of the `heads` heads of each token. Queries come first, then keys, then
// values.
struct Heads {
  int64_t tokens, queries, normed, heads, d;

  // Returns the index of the first element of head number `at`, if only the first `each` heads of each token are counted.
  __device__ int64_t Begin(int64_t at, int64_t each) const { return (at / each * heads + at % each) * d; }
};

Heads HeadsOf(const AttentionShape& shape, int64_t tokens) {
  return {tokens, shape.a, shape.a + shape.k, shape.a + 2 * shape.k, shape.d};
}

// Returns the number of the head of this thread's warp, counted over the whole grid.
__device__ int64_t HeadOfWarp() { return int64_t{blockIdx.x} * kHeadsOfBlock + threadIdx.x / kWarp; }

// Computes the value for a head in memory. All threads of a warp work on the same head.
template <class T>
__device__ float InverseRootMeanSquare(const T* x, int64_t d, float epsilon) {
  float squares = 0;
  for (int64_t i = threadIdx.x % kWarp; i < d; i += kWarp) squares += x[i] * x[i];
  return 1.0f / sqrtf(ReduceLanes<Sum, kWarp>(squares) / static_cast<float>(d) + epsilon);
}

// A head that is held in registers. Threads beyond the last head hold nothing, because they must take part in the sums of the
// other heads of their warp.
template <class T, class Row>
struct HeldHead {
  int held;  // the head's number of elements, or 0
  Row values;

  __device__ static HeldHead Load(const T* x, bool exists, int64_t d) {
    const int held = exists ? static_cast<int>(d) : 0;
    return {held, Row::Load(x, held)};
  }
  __device__ float InverseRootMeanSquare(int64_t d, float epsilon) const {
    const float squares = values.SumOf(held, [](float value) { return value * value; });
    return 1.0f / sqrtf(squares / static_cast<float>(d) + epsilon);
  }
};

// Calls launch(std::type_identity<Row>()) with the HeldRow for heads of d elements. Returns false, and does not call it, if the
// heads are larger. `packed`: the heads fit packs.
template <class T, class Launch>
bool WithHeldHead(int64_t d, bool packed, const Launch& launch) {
  const auto with = [&]<int kThreads>(std::integral_constant<int, kThreads>) {
    if (d > HeldRow<T, kThreads, 1, true>::kMax) return false;
    if (packed) {
      launch(std::type_identity<HeldRow<T, kThreads, 1, true>>());
    } else {
      launch(std::type_identity<HeldRow<T, kThreads, 1, false>>());
    }
    return true;
  };
  return with(std::integral_constant<int, 8>()) || with(std::integral_constant<int, 16>()) ||
         with(std::integral_constant<int, kWarp>());
}

template <class T, class Row>
__global__ void __launch_bounds__(kBlock)
    ForwardHeld(Heads heads, const T* qkv, const T* q_gamma, const T* k_gamma, float epsilon, T* normed) {
  const int64_t at = Row::Number(), head = at % heads.heads;
  const auto x = HeldHead<T, Row>::Load(qkv + at * heads.d, at < heads.tokens * heads.heads, heads.d);
  const float rstd = x.InverseRootMeanSquare(heads.d, epsilon);
  auto values = x.values.packs[0];
  if (head < heads.normed) {
    const auto gammas = Row::LoadPack(head < heads.queries ? q_gamma : k_gamma, 0, x.held);
#pragma unroll
    for (int i = 0; i < Row::kWidth; ++i) values.at[i] = values.at[i] * rstd * gammas.at[i];
  }
  Row::StorePack(values, 0, x.held, normed + at * heads.d);
}

template <class T>
__global__ void __launch_bounds__(kBlock)
    Forward(Heads heads, const T* qkv, const T* q_gamma, const T* k_gamma, float epsilon, T* normed) {
  const int64_t at = HeadOfWarp();
  if (at >= heads.tokens * heads.heads) return;
  const int64_t head = at % heads.heads;
  const T* const x = qkv + at * heads.d;
  T* const y = normed + at * heads.d;
  if (head >= heads.normed) {
    for (int64_t i = threadIdx.x % kWarp; i < heads.d; i += kWarp) y[i] = x[i];
    return;
  }
  const T* const gamma = head < heads.queries ? q_gamma : k_gamma;
  const float rstd = InverseRootMeanSquare(x, heads.d, epsilon);
  for (int64_t i = threadIdx.x % kWarp; i < heads.d; i += kWarp) y[i] = x[i] * rstd * gamma[i];
}

// Writes rstd = 1 / sqrt(mean(x^2) + epsilon) of every query head and key head to of_heads (tokens, query and key heads).
template <class T, class Row>
__global__ void __launch_bounds__(kBlock) StatsHeld(Heads heads, const T* qkv, float epsilon, float* of_heads) {
  const int64_t at = Row::Number();
  const bool exists = at < heads.tokens * heads.normed;
  const auto head = HeldHead<T, Row>::Load(qkv + heads.Begin(at, heads.normed), exists, heads.d);
  const float rstd = head.InverseRootMeanSquare(heads.d, epsilon);
  if (exists && Row::At(0) == 0) of_heads[at] = rstd;
}

template <class T>
__global__ void __launch_bounds__(kBlock) Stats(Heads heads, const T* qkv, float epsilon, float* of_heads) {
  const int64_t at = HeadOfWarp();
  if (at >= heads.tokens * heads.normed) return;
  const float rstd = InverseRootMeanSquare(qkv + heads.Begin(at, heads.normed), heads.d, epsilon);
  if (threadIdx.x % kWarp == 0) of_heads[at] = rstd;
}

template <class T, class Row>
__global__ void __launch_bounds__(kBlock)
    BackwardHeld(Heads heads, const T* qkv, const T* q_gamma, const T* k_gamma, const float* of_heads, T* dqkv) {
  const int64_t at = Row::Number(), begin = heads.Begin(at, heads.normed);
  const bool exists = at < heads.tokens * heads.normed;
  const int held = exists ? static_cast<int>(heads.d) : 0;
  const auto gammas = Row::LoadPack(at % heads.normed < heads.queries ? q_gamma : k_gamma, 0, held);
  const auto values = Row::LoadPack(qkv + begin, 0, held);
  auto gradients = Row::LoadPack(dqkv + begin, 0, held);
  const float rstd = exists ? of_heads[at] : 0.0f;
  float sum_g_normal = 0;
#pragma unroll
  for (int i = 0; i < Row::kWidth; ++i) sum_g_normal += gradients.at[i] * gammas.at[i] * (values.at[i] * rstd);
  const float mean_g_normal = Row::SumOfThreads(sum_g_normal) / static_cast<float>(heads.d);
#pragma unroll
  for (int i = 0; i < Row::kWidth; ++i) {
    gradients.at[i] = rstd * (gradients.at[i] * gammas.at[i] - values.at[i] * rstd * mean_g_normal);
  }
  Row::StorePack(gradients, 0, held, dqkv + begin);
}

template <class T>
__global__ void __launch_bounds__(kBlock)
    Backward(Heads heads, const T* qkv, const T* q_gamma, const T* k_gamma, const float* of_heads, T* dqkv) {
  const int64_t at = HeadOfWarp();
  if (at >= heads.tokens * heads.normed) return;
  const T* const gamma = at % heads.normed < heads.queries ? q_gamma : k_gamma;
  const T* const x = qkv + heads.Begin(at, heads.normed);
  T* const dy = dqkv + heads.Begin(at, heads.normed);
  const float rstd = of_heads[at];
  float sum_g_normal = 0;
  for (int64_t i = threadIdx.x % kWarp; i < heads.d; i += kWarp) sum_g_normal += dy[i] * gamma[i] * (x[i] * rstd);
  const float mean_g_normal = ReduceLanes<Sum, kWarp>(sum_g_normal) / static_cast<float>(heads.d);
  for (int64_t i = threadIdx.x % kWarp; i < heads.d; i += kWarp) {
    dy[i] = rstd * (dy[i] * gamma[i] - x[i] * rstd * mean_g_normal);
  }
}

// The terms for SumColumns. Their rows are heads: `each` heads of every token, beginning with head number `first`.
template <class Element>
struct WeightGradient {
  using T = Element;
  static constexpr int kSums = 1;
  Heads heads;
  int64_t first, each;
  const T* qkv;
  const T* dqkv;
  const float* of_heads;
  float* dgamma;

  template <int kWidth>
  __device__ void Add(int64_t row, int64_t column, float (&sums)[kSums][kWidth]) const {
    const int64_t token = row / each, head = first + row % each;
    const int64_t at = (token * heads.heads + head) * heads.d + column;
    const float rstd = of_heads[token * heads.normed + head];
    const auto values = Pack<T, kWidth>::Load(qkv + at);
    const auto gradients = Pack<T, kWidth>::Load(dqkv + at);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) sums[0][i] += gradients.at[i] * (values.at[i] * rstd);
  }
  bool FitsPacks(int64_t columns) const { return cuda::FitsPacks(columns, qkv, dqkv); }
  __device__ float& At(int, int64_t column) const { return dgamma[column]; }
};

}  // namespace

template <class T>
void CudaOps<T>::QkNormForward(const AttentionShape& shape, const T* qkv, const T* q_gamma, const T* k_gamma, float epsilon,
                               T* normed) {
  constexpr char kName[] = "norms of queries and keys";
  const Heads heads = HeadsOf(shape, shape.b * shape.s);
  const int64_t all = heads.tokens * heads.heads;
  const bool packed = FitsPacks(heads.d, qkv, q_gamma, k_gamma, normed);
  const bool held = WithHeldHead<T>(heads.d, packed, [&]<class Row>(std::type_identity<Row>) {
    this->stream_.Launch(kName, &ForwardHeld<T, Row>, dim3(BlocksOf(all, Row::kRowsOfBlock)), dim3(kBlock), heads, qkv, q_gamma,
                         k_gamma, epsilon, normed);
  });
  if (held) return;
  this->stream_.Launch(kName, &Forward<T>, dim3(BlocksOf(all, kHeadsOfBlock)), dim3(kBlock), heads, qkv, q_gamma, k_gamma,
                       epsilon, normed);
}

template <class T>
void CudaOps<T>::QkNormBackward(const AttentionShape& shape, const T* qkv, const T* q_gamma, const T* k_gamma, float epsilon,
                                T* dqkv, float* dq_gamma, float* dk_gamma) {
  constexpr char kStatistics[] = "norms of queries and keys, statistics", kName[] = "norms of queries and keys backward";
  const int64_t all = shape.b * shape.s, normed = shape.a + shape.k;
  const int64_t at_once = (Stream::kScratch - kPartSums).value / static_cast<int64_t>(sizeof(float)) / normed;
  const bool packed = FitsPacks(shape.d, qkv, q_gamma, k_gamma, dqkv);
  for (int64_t token = 0; token < all; token += at_once) {
    const Heads heads = HeadsOf(shape, std::min(at_once, all - token));
    const T* const x = qkv + token * shape.width();
    T* const dx = dqkv + token * shape.width();
    auto* const of_heads = this->stream_.template ScratchOf<float>(heads.tokens * normed, kPartSums);
    const dim3 grid(BlocksOf(heads.tokens * normed, kHeadsOfBlock));
    const bool held = WithHeldHead<T>(shape.d, packed, [&]<class Row>(std::type_identity<Row>) {
      this->stream_.Launch(kStatistics, &StatsHeld<T, Row>, dim3(BlocksOf(heads.tokens * normed, Row::kRowsOfBlock)),
                           dim3(kBlock), heads, x, epsilon, of_heads);
    });
    if (!held) this->stream_.Launch(kStatistics, &Stats<T>, grid, dim3(kBlock), heads, x, epsilon, of_heads);
    // The sums come first, because they read the gradient that dx overwrites later.
    SumColumns(this->stream_, "queries' norm's weight backward", heads.tokens * shape.a, shape.d,
               WeightGradient<T>{heads, 0, shape.a, x, dx, of_heads, dq_gamma});
    SumColumns(this->stream_, "keys' norm's weight backward", heads.tokens * shape.k, shape.d,
               WeightGradient<T>{heads, shape.a, shape.k, x, dx, of_heads, dk_gamma});
    WithHeldHead<T>(shape.d, packed, [&]<class Row>(std::type_identity<Row>) {
      this->stream_.Launch(kName, &BackwardHeld<T, Row>, dim3(BlocksOf(heads.tokens * normed, Row::kRowsOfBlock)), dim3(kBlock),
                           heads, x, q_gamma, k_gamma, static_cast<const float*>(of_heads), dx);
    });
    if (held) continue;
    this->stream_.Launch(kName, &Backward<T>, grid, dim3(kBlock), heads, x, q_gamma, k_gamma,
                         static_cast<const float*>(of_heads), dx);
  }
}

#define LYNX_INSTANTIATE(T)                                                                                \
  template void CudaOps<T>::QkNormForward(const AttentionShape&, const T*, const T*, const T*, float, T*); \
  template void CudaOps<T>::QkNormBackward(const AttentionShape&, const T*, const T*, const T*, float, T*, float*, float*);
LYNX_INSTANTIATE(float)
LYNX_INSTANTIATE(Bfloat16)
#undef LYNX_INSTANTIATE

}  // namespace lynx::worker::cuda
