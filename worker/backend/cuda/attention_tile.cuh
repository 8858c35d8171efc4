// Tiles (kTile, kTile) of one head's scores, and what a block of kTile / 2 x kTile / 2 threads computes from them. Thread (x,
// y) has the elements (y + 16 i, x + 16 j) of a tile, where i and j are 0 or 1. In a result (kTile, d) it has the columns x +
// 16 j of its rows. All arithmetic is fp32, whatever the type of the stored elements is. A sum is computed one term after
// another.
#ifndef LYNX_WORKER_BACKEND_CUDA_ATTENTION_TILE_CUH_
#define LYNX_WORKER_BACKEND_CUDA_ATTENTION_TILE_CUH_

#include <cuda_runtime.h>

#include <cstdint>

#include "worker/backend/backend.h"
#include "worker/backend/cuda/block.cuh"
#include "worker/backend/cuda/dropout.cuh"

namespace lynx::worker::cuda {

inline constexpr int kTile = 32;
inline constexpr int kSide = kTile / 2;  // number of threads in each direction
inline constexpr int kTileThreads = kSide * kSide;
// The length of a row in shared memory. With it, the elements of a column are in different banks.
inline constexpr int kPadded = kTile + 1;
inline constexpr int64_t kMaxHeadSize = 256;

// Rows of a head in memory. Each row begins `stride` elements after the row before it. The first `rows` of them exist.
template <class T>
struct RowsOf {
  T* data;
  int64_t stride, rows;

  __device__ RowsOf From(int64_t row) const { return {data + row * stride, stride, rows - row}; }
};

// The places in qkv (AttentionShape) of query head `head` of a sample, and of the keys and values that this head uses.
template <class T>
struct HeadRows {
  RowsOf<T> q, k, v;

  __device__ HeadRows(T* qkv, const AttentionShape& shape, int64_t sample, int64_t head) {
    T* const row = qkv + sample * shape.s * shape.width();
    const int64_t key_head = head / (shape.a / shape.k);
    q = {row + head * shape.d, shape.width(), shape.s};
    k = {row + (shape.a + key_head) * shape.d, shape.width(), shape.s};
    v = {row + (shape.a + shape.k) * shape.d + key_head * shape.value_size(), shape.width(), shape.s};
  }
};

// Returns the place of the head in context (b, s, a, e).
template <class T>
__device__ RowsOf<T> ContextRows(T* context, const AttentionShape& shape, int64_t sample, int64_t head) {
  const int64_t size = shape.value_size();
  return {context + (sample * shape.s * shape.a + head) * size, shape.a * size, shape.s};
}

// The place of one tile in one head of one sample. Also says which rows and columns a thread's elements have.
struct TilePlace {
  int64_t sample, head, s;  // head: counted among this rank's heads
  int64_t first_row = 0, first_column = 0;

  __device__ int64_t Row(int i) const { return first_row + threadIdx.y + i * kSide; }
  __device__ int64_t Column(int j) const { return first_column + threadIdx.x + j * kSide; }
  // True if the row exists and may use the column.
  __device__ bool Visible(int i, int j) const { return Row(i) < s && Column(j) <= Row(i); }
  __device__ float Factor(const Dropout& dropout, const AttentionShape& shape, int i, int j) const {
    return dropout.Factor(sample, ((shape.first_head + head) * s + Row(i)) * s + Column(j));
  }
  // Returns the index of row `row` of the head among the rows (b, a, s) of all heads.
  __device__ int64_t RowOfAll(const AttentionShape& shape, int64_t row) const { return (sample * shape.a + head) * s + row; }
};

struct Tile {
  float at[kTile][kPadded];
};

// Copies kTile rows and the columns [first, first + kTile) of a matrix (.., d) into shared memory. Writes zeros for elements
// that do not exist.
template <class T>
__device__ void Fetch(const RowsOf<T>& from, int64_t first, int64_t d, Tile& tile) {
  for (int i = threadIdx.y; i < kTile; i += kSide) {
    for (int j = threadIdx.x; j < kTile; j += kSide) {
      const bool exists = i < from.rows && first + j < d;
      tile.at[i][j] = exists ? float{from.data[i * from.stride + first + j]} : 0.0f;
    }
  }
}

// The four elements that a thread has of a tile.
struct Four {
  float at[2][2] = {};

  __device__ void Store(Tile& tile) const {
    for (int i = 0; i < 2; ++i) {
      for (int j = 0; j < 2; ++j) tile.at[threadIdx.y + i * kSide][threadIdx.x + j * kSide] = at[i][j];
    }
  }
};

// Returns the thread's elements of a b^T, where a and b are rows of d columns. `left` and `right` are shared memory. All
// threads of the block must call it, because it contains barriers.
template <class A, class B>
__device__ Four Dot(const RowsOf<A>& a, const RowsOf<B>& b, int64_t d, Tile& left, Tile& right) {
  Four sums;
  const int y = threadIdx.y, x = threadIdx.x;
  for (int64_t first = 0; first < d; first += kTile) {
    __syncthreads();
    Fetch(a, first, d, left);
    Fetch(b, first, d, right);
    __syncthreads();
#pragma unroll 8
    for (int i = 0; i < kTile; ++i) {
      const float a0 = left.at[y][i], a1 = left.at[y + kSide][i];
      const float b0 = right.at[x][i], b1 = right.at[x + kSide][i];
      sums.at[0][0] += a0 * b0;
      sums.at[0][1] += a0 * b1;
      sums.at[1][0] += a1 * b0;
      sums.at[1][1] += a1 * b1;
    }
  }
  return sums;
}

enum class Transposed : bool { kNo, kYes };

// The part that a thread has of a result (kTile, d), with d <= kMost.
template <int kMost>
struct Rows {
  static constexpr int kParts = kMost / kTile;  // each has kTile columns
  float at[2][2 * kParts] = {};

  __device__ void Scale(int i, float factor) {
#pragma unroll
    for (float& value : at[i]) value *= factor;
  }

  // Adds weights (kTile, kTile) times values (kTile, d), or the transposed weights times the values. `part` is shared memory.
  // All threads of the block must call it, because it contains barriers.
  template <Transposed kTransposed, class T>
  __device__ void Add(const Tile& weights, const RowsOf<T>& values, int64_t d, Tile& part) {
    const int y = threadIdx.y, x = threadIdx.x;
#pragma unroll
    for (int p = 0; p < kParts; ++p) {
      if (p * kTile >= d) break;
      __syncthreads();
      Fetch(values, p * kTile, d, part);
      __syncthreads();
#pragma unroll 8
      for (int i = 0; i < kTile; ++i) {
        const float w0 = kTransposed == Transposed::kYes ? weights.at[i][y] : weights.at[y][i];
        const float w1 = kTransposed == Transposed::kYes ? weights.at[i][y + kSide] : weights.at[y + kSide][i];
        const float v0 = part.at[i][x], v1 = part.at[i][x + kSide];
        at[0][2 * p] += w0 * v0;
        at[0][2 * p + 1] += w0 * v1;
        at[1][2 * p] += w1 * v0;
        at[1][2 * p + 1] += w1 * v1;
      }
    }
  }

  // Writes this result to `to`. A thread has two rows; each is multiplied by its scale.
  template <class T>
  __device__ void Store(const RowsOf<T>& to, int64_t d, float scale0, float scale1) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = threadIdx.y + i * kSide;
#pragma unroll
      for (int j = 0; j < 2 * kParts; ++j) {
        const int64_t column = threadIdx.x + j * kSide;
        if (row < to.rows && column < d) to.data[row * to.stride + column] = at[i][j] * (i == 0 ? scale0 : scale1);
      }
    }
  }
};

}  // namespace lynx::worker::cuda

#endif  // LYNX_WORKER_BACKEND_CUDA_ATTENTION_TILE_CUH_
