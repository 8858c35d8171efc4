// The products of the gradients of a router's scores, which are fp32, with matrices of the model's type, in fp32. cuBLASLt has
// no product of two types.
//
// A block computes a tile of the result, each thread some neighbouring elements of it, from tiles of the operands in shared
// memory. The order of a sum depends only on the shape.
#ifndef LYNX_WORKER_BACKEND_CUDA_EXPERTS_SCORES_PRODUCT_CUH_
#define LYNX_WORKER_BACKEND_CUDA_EXPERTS_SCORES_PRODUCT_CUH_

#include <algorithm>

#include "worker/backend/cuda/block.cuh"
#include "worker/backend/cuda/elementwise.cuh"
#include "worker/backend/cuda/stream.h"

namespace lynx::worker::cuda {

inline constexpr int kScoresTile = 64;   // rows and columns of a tile of the result
inline constexpr int kScoresDepth = 16;  // terms of the sums that the tiles in shared memory have
inline constexpr int kScoresEdge = 4;    // a thread computes this number of rows and of columns
static_assert(kScoresTile / kScoresEdge * (kScoresTile / kScoresEdge) == kBlock);

// c (m, n) += op(a) (m, k) b (k, n). kTransposed: a is stored as (k, m). `parts` (k / terms_of_part, m, n): null, or where each
// part of the sums is written instead; blockIdx.z is the number of the part.
template <bool kTransposed, class B, class C>
__global__ void __launch_bounds__(kBlock)
    AddScoresProduct(int64_t m, int64_t n, int64_t k, int64_t terms_of_part, const float* a, const B* b, C* c, float* parts) {
  __shared__ float of_a[kScoresDepth][kScoresTile], of_b[kScoresDepth][kScoresTile];
  const int64_t first_row = int64_t{blockIdx.y} * kScoresTile, first_column = int64_t{blockIdx.x} * kScoresTile;
  const int64_t begin = blockIdx.z * terms_of_part, end = begin + terms_of_part < k ? begin + terms_of_part : k;
  const int across = static_cast<int>(threadIdx.x) % (kScoresTile / kScoresEdge) * kScoresEdge;
  const int down = static_cast<int>(threadIdx.x) / (kScoresTile / kScoresEdge) * kScoresEdge;
  float sums[kScoresEdge][kScoresEdge] = {};
  for (int64_t first = begin; first < end; first += kScoresDepth) {
    __syncthreads();  // all threads have read the tiles before these
    for (int i = static_cast<int>(threadIdx.x); i < kScoresDepth * kScoresTile; i += kBlock) {
      const int row = kTransposed ? i % kScoresTile : i / kScoresDepth;
      const int depth = kTransposed ? i / kScoresTile : i % kScoresDepth;
      const int64_t at_row = first_row + row, at = first + depth;
      of_a[depth][row] = at_row < m && at < end ? a[kTransposed ? at * m + at_row : at_row * k + at] : 0.0f;
      const int64_t at_column = first_column + i % kScoresTile, of = first + i / kScoresTile;
      of_b[i / kScoresTile][i % kScoresTile] = at_column < n && of < end ? float{b[of * n + at_column]} : 0.0f;
    }
    __syncthreads();
#pragma unroll
    for (int depth = 0; depth < kScoresDepth; ++depth) {
#pragma unroll
      for (int i = 0; i < kScoresEdge; ++i) {
#pragma unroll
        for (int j = 0; j < kScoresEdge; ++j) sums[i][j] += of_a[depth][down + i] * of_b[depth][across + j];
      }
    }
  }
  for (int i = 0; i < kScoresEdge; ++i) {
    for (int j = 0; j < kScoresEdge; ++j) {
      const int64_t row = first_row + down + i, column = first_column + across + j;
      if (row >= m || column >= n) continue;
      if (parts != nullptr) {
        parts[(blockIdx.z * m + row) * n + column] = sums[i][j];
      } else {
        c[row * n + column] = c[row * n + column] + sums[i][j];
      }
    }
  }
}

// c += the sum of all parts, in their order.
struct AddParts {
  const float* parts;
  int64_t count, elements;
  float* c;

  __device__ void operator()(int64_t at) const {
    float sum = 0;
    for (int64_t part = 0; part < count; ++part) sum += parts[part * elements + at];
    c[at] += sum;
  }
};

// c (m, n) += a (m, k) b (k, n), rounded once
template <class T>
void AddScoresTimes(Stream& stream, const char* name, int64_t m, int64_t n, int64_t k, const float* a, const T* b, T* c) {
  stream.Launch(name, &AddScoresProduct<false, T, T>, dim3(BlocksOf(n, kScoresTile), BlocksOf(m, kScoresTile)), dim3(kBlock), m,
                n, k, k, a, b, c, static_cast<float*>(nullptr));
}

// c (m, n) += a^T b   a (k, m), b (k, n). The sums are long and the result is small, so blocks compute parts of the sums.
template <class T>
void AddTransposedScoresTimes(Stream& stream, const char* name, int64_t m, int64_t n, int64_t k, const float* a, const T* b,
                              float* c) {
  constexpr int64_t kMaxParts = 16, kMinTerms = 512;
  constexpr int64_t kMaxElements = Stream::kScratch.value / static_cast<int64_t>(sizeof(float));
  const int64_t wanted = std::max<int64_t>(1, std::min({kMaxParts, k / kMinTerms, kMaxElements / (m * n)}));
  const int64_t terms = std::max<int64_t>(1, (k + wanted - 1) / wanted), count = (k + terms - 1) / terms;
  float* const parts = count > 1 ? stream.ScratchOf<float>(count * m * n) : nullptr;
  stream.Launch(name, &AddScoresProduct<true, T, float>,
                dim3(BlocksOf(n, kScoresTile), BlocksOf(m, kScoresTile), static_cast<unsigned>(count)), dim3(kBlock), m, n, k,
                terms, a, b, c, parts);
  if (parts != nullptr) ForEach(stream, name, m * n, AddParts{parts, count, m * n, c});
}

}  // namespace lynx::worker::cuda

#endif  // LYNX_WORKER_BACKEND_CUDA_EXPERTS_SCORES_PRODUCT_CUH_
