// Products of small matrices on the tensor cores of a warp: mma.m16n8k16 on bfloat16 with sums in fp32, and ldmatrix (PTX ISA
// 7.0). Lane l has group g = l / 4 and t = l % 4. A pair is two neighbouring elements of a row; the first one is in the low
// half of a word. The lane holds:
//   left (16, 16)   pairs at rows g, g + 8, g, g + 8 and columns 2t, 2t, 2t + 8, 2t + 8
//   right (16, 8)   pairs down columns g, at rows 2t and 2t + 8
//   sums (16, 8)    rows g, g, g + 8, g + 8 and columns 2t, 2t + 1, 2t, 2t + 1
// So two neighbouring sums, rounded, can be the left side of another product (see LeftOf).
//
// All lanes of the warp must call these functions together. On the host, the tests replace the two instructions by functions.
#ifndef LYNX_WORKER_BACKEND_CUDA_TENSOR_CORE_CUH_
#define LYNX_WORKER_BACKEND_CUDA_TENSOR_CORE_CUH_

#include <cuda_runtime.h>

#include <cstdint>

#include "common/bfloat16.h"
#include "worker/backend/cuda/block.cuh"

namespace lynx::worker::cuda {

struct LeftFragment {
  uint32_t at[4];
};
struct RightFragment {
  uint32_t at[2];
};
struct SumFragment {
  float at[4] = {};
};

__device__ inline int LaneOfWarp() { return static_cast<int>(threadIdx.x) % kWarp; }
__device__ inline int WarpOfBlock() { return static_cast<int>(threadIdx.x) / kWarp; }

#ifdef __CUDACC__
// sums += left right.
__device__ inline void MultiplyAdd(const LeftFragment& left, const RightFragment& right, SumFragment& sums) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sums.at[0]), "+f"(sums.at[1]), "+f"(sums.at[2]), "+f"(sums.at[3])
      : "r"(left.at[0]), "r"(left.at[1]), "r"(left.at[2]), "r"(left.at[3]), "r"(right.at[0]), "r"(right.at[1]));
}

__device__ inline unsigned SharedAddress(const Bfloat16* row) { return static_cast<unsigned>(__cvta_generic_to_shared(row)); }

// Loads four matrices (8, 8). Lane l gives the address of row l % 8 of matrix l / 8. The row must be in shared memory and
// 16-byte aligned.
__device__ inline void LoadFour(const Bfloat16* row, uint32_t (&words)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(SharedAddress(row))
               : "memory");
}
// LoadTwo loads two matrices as they are, LoadTwoTransposed loads them transposed. Lanes 0 to 15 give the addresses of their
// rows.
__device__ inline void LoadTwo(const Bfloat16* row, uint32_t (&words)[2]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
               : "=r"(words[0]), "=r"(words[1])
               : "r"(SharedAddress(row))
               : "memory");
}
__device__ inline void LoadTwoTransposed(const Bfloat16* row, uint32_t (&words)[2]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
               : "=r"(words[0]), "=r"(words[1])
               : "r"(SharedAddress(row))
               : "memory");
}
#else
inline void MultiplyAdd(const LeftFragment& left, const RightFragment& right, SumFragment& sums) {
  cuda_on_host::MultiplyAdd(left.at, right.at, sums.at);
}
inline void LoadFour(const Bfloat16* row, uint32_t (&words)[4]) { cuda_on_host::LoadMatrices(row, 4, false, words); }
inline void LoadTwo(const Bfloat16* row, uint32_t (&words)[2]) { cuda_on_host::LoadMatrices(row, 2, false, words); }
inline void LoadTwoTransposed(const Bfloat16* row, uint32_t (&words)[2]) { cuda_on_host::LoadMatrices(row, 2, true, words); }
#endif

// Rows in shared memory. The padding after kColumns puts the rows that a warp reads at once into different banks.
template <int kRowCount, int kColumns>
struct alignas(16) SharedRows {
  static constexpr int kRows = kRowCount;
  Bfloat16 at[kRowCount][kColumns + 8];
};

// Returns the left fragment (16, 16) of rows [row, row + 16) and columns [column, column + 16).
template <class Shared>
__device__ LeftFragment LoadLeft(const Shared& rows, int row, int column) {
  LeftFragment fragment;
  const int lane = LaneOfWarp();
  LoadFour(&rows.at[row + lane % 16][column + lane / 16 * 8], fragment.at);
  return fragment;
}

// Returns the right fragment (16, 8), which is the transpose of rows [row, row + 8) and columns [column, column + 16).
template <class Shared>
__device__ RightFragment LoadRightTransposed(const Shared& rows, int row, int column) {
  RightFragment fragment;
  const int lane = LaneOfWarp();
  LoadTwo(&rows.at[row + lane % 8][column + lane / 8 % 2 * 8], fragment.at);
  return fragment;
}

// Returns the right fragment (16, 8) of rows [row, row + 16) and columns [column, column + 8), not transposed.
template <class Shared>
__device__ RightFragment LoadRight(const Shared& rows, int row, int column) {
  RightFragment fragment;
  LoadTwoTransposed(&rows.at[row + LaneOfWarp() % 16][column], fragment.at);
  return fragment;
}

__device__ inline uint32_t RoundedPair(float low, float high) {
  return uint32_t{Bfloat16(low).bits} | uint32_t{Bfloat16(high).bits} << 16;
}

// Returns the left fragment (16, 16) of two neighbouring sums (16, 8), rounded.
__device__ inline LeftFragment LeftOf(const SumFragment& first, const SumFragment& second) {
  return {{RoundedPair(first.at[0], first.at[1]), RoundedPair(first.at[2], first.at[3]),
           RoundedPair(second.at[0], second.at[1]), RoundedPair(second.at[2], second.at[3])}};
}

}  // namespace lynx::worker::cuda

#endif  // LYNX_WORKER_BACKEND_CUDA_TENSOR_CORE_CUH_
