// Products of small matrices on the tensor cores of a warp: mma.m16n8k16 on bfloat16 with sums in fp32, and ldmatrix (PTX ISA
// 7.0). Lane l has group g = l / 4 and t = l % 4. A pair is two neighbouring elements of a row; the first one is in the low
// half of a word. The lane holds:
//   left (16, 16)   pairs at rows g, g + 8, g, g + 8 and columns 2t, 2t, 2t + 8, 2t + 8
//   right (16, 8)   pairs down columns g, at rows 2t and 2t + 8
//   sums (16, 8)    rows g, g, g + 8, g + 8 and columns 2t, 2t + 1, 2t, 2t + 1
// So two neighbouring sums, rounded, can be the left side of another product (see LeftOf). Also: copies to shared memory that
// run at the same time as the thread (cp.async), powers of two (ex2), and the rounding of a pair (cvt).
//
// All lanes of the warp must call the functions on matrices together. On the host, the tests replace the instructions by
// functions.
#ifndef LYNX_WORKER_BACKEND_CUDA_TENSOR_CORE_CUH_
#define LYNX_WORKER_BACKEND_CUDA_TENSOR_CORE_CUH_

#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>

#include "common/bfloat16.h"
#include "worker/backend/cuda/block.cuh"

namespace lynx::worker::cuda {

struct LeftFragment {
  uint32_t at[4];
};
// Two right fragments (16, 8): of eight columns, and of the next eight columns.
struct RightFragments {
  uint32_t at[4];
};
struct SumFragment {
  float at[4] = {};
};

__device__ inline int LaneOfWarp() { return static_cast<int>(threadIdx.x) % kWarp; }
__device__ inline int WarpOfBlock() { return static_cast<int>(threadIdx.x) / kWarp; }

#ifdef __CUDACC__
// An address in shared memory. Adding n gives the address n bytes later.
using SharedAddress = uint32_t;
__device__ inline SharedAddress AddressOf(const void* shared) {
  return static_cast<SharedAddress>(__cvta_generic_to_shared(shared));
}

// sums += left right, where right is the fragment `which`, 0 or 1, of a pair.
__device__ inline void MultiplyAdd(const LeftFragment& left, const RightFragments& right, int which, SumFragment& sums) {
  const SumFragment before = sums;  // a separate operand, because zeros then need no registers
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%10, %11, %12, %13};"
      : "=f"(sums.at[0]), "=f"(sums.at[1]), "=f"(sums.at[2]), "=f"(sums.at[3])
      : "r"(left.at[0]), "r"(left.at[1]), "r"(left.at[2]), "r"(left.at[3]), "r"(right.at[2 * which]),
        "r"(right.at[2 * which + 1]), "f"(before.at[0]), "f"(before.at[1]), "f"(before.at[2]), "f"(before.at[3]));
}

// LoadFour loads four matrices (8, 8) as they are, LoadFourTransposed loads them transposed. Lane l gives the address of row
// l % 8 of matrix l / 8. The row must be 16-byte aligned.
__device__ inline void LoadFour(SharedAddress row, uint32_t (&words)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(row)
               : "memory");
}
__device__ inline void LoadFourTransposed(SharedAddress row, uint32_t (&words)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(row)
               : "memory");
}

// Begins to copy kBytes bytes, 4 or 16, to shared memory; both places are aligned to kBytes. If the source does not exist, the
// copy writes zeros, and does not read. WaitForCopies waits for all copies that this thread began. Other threads see them
// after the next barrier.
template <int kBytes>
__device__ void BeginCopy(const void* from, bool exists, SharedAddress to) {
  if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(exists ? 16 : 0) : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(exists ? 4 : 0) : "memory");
  }
}
__device__ inline void WaitForCopies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// Returns 2^x, with a relative error of at most 2^-22. Results below 2^-126 are 0.
__device__ inline float PowerOfTwo(float x) {
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
  return power;
}

// Returns the pair of the two values, rounded as Bfloat16 rounds.
__device__ inline uint32_t RoundedPair(float low, float high) {
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
#else
using SharedAddress = char*;
inline SharedAddress AddressOf(const void* shared) { return static_cast<char*>(const_cast<void*>(shared)); }
inline void MultiplyAdd(const LeftFragment& left, const RightFragments& right, int which, SumFragment& sums) {
  cuda_on_host::MultiplyAdd(left.at, right.at + 2 * which, sums.at);
}
inline void LoadFour(SharedAddress row, uint32_t (&words)[4]) { cuda_on_host::LoadMatrices(row, 4, false, words); }
inline void LoadFourTransposed(SharedAddress row, uint32_t (&words)[4]) { cuda_on_host::LoadMatrices(row, 4, true, words); }
template <int kBytes>
void BeginCopy(const void* from, bool exists, SharedAddress to) {
  cuda_on_host::BeginCopy(exists ? from : nullptr, kBytes, to);
}
inline void WaitForCopies() { cuda_on_host::WaitForCopies(); }
inline float PowerOfTwo(float x) { return std::exp2(x); }
inline uint32_t RoundedPair(float low, float high) {
  return uint32_t{Bfloat16(low).bits} | uint32_t{Bfloat16(high).bits} << 16;
}
#endif

// Rows in shared memory. The padding after kColumns puts the rows that a warp reads at once into different banks.
template <int kRows, int kColumns>
struct alignas(16) SharedRows {
  Bfloat16 at[kRows][kColumns + 8];
};

// Where a lane finds its rows of matrices in SharedRows with kColumns columns: bytes from the first element.
template <int kColumns>
struct LanePlaces {
  static constexpr int kRowBytes = (kColumns + 8) * static_cast<int>(sizeof(Bfloat16));

  __device__ static constexpr int At(int row, int column) {
    return row * kRowBytes + column * static_cast<int>(sizeof(Bfloat16));
  }
  // For LoadLeft and LoadRight.
  __device__ static int Straight() { return At(LaneOfWarp() % 16, LaneOfWarp() / 16 * 8); }
  // For LoadRightTransposed.
  __device__ static int Turned() { return At(LaneOfWarp() % 8 + LaneOfWarp() / 16 * 8, LaneOfWarp() / 8 % 2 * 8); }
};

// Returns the left fragment (16, 16) of 16 rows and 16 columns. `place`: LanePlaces::Straight() bytes after their first
// element.
__device__ inline LeftFragment LoadLeft(SharedAddress place) {
  LeftFragment fragment;
  LoadFour(place, fragment.at);
  return fragment;
}

// Returns the right fragments (16, 8) of 16 columns of 16 rows: the transpose of the first eight rows, and of the others.
// `place`: LanePlaces::Turned() bytes after their first element.
__device__ inline RightFragments LoadRightTransposed(SharedAddress place) {
  RightFragments fragments;
  LoadFour(place, fragments.at);
  return fragments;
}

// Returns the right fragments (16, 8) of 16 rows: of the first eight columns, and of the next eight; not transposed. `place`:
// LanePlaces::Straight() bytes after their first element.
__device__ inline RightFragments LoadRight(SharedAddress place) {
  RightFragments fragments;
  LoadFourTransposed(place, fragments.at);
  return fragments;
}

// Returns the left fragment (16, 16) of two neighbouring sums (16, 8), rounded.
__device__ inline LeftFragment LeftOf(const SumFragment& first, const SumFragment& second) {
  return {{RoundedPair(first.at[0], first.at[1]), RoundedPair(first.at[2], first.at[3]),
           RoundedPair(second.at[0], second.at[1]), RoundedPair(second.at[2], second.at[3])}};
}

}  // namespace lynx::worker::cuda

#endif  // LYNX_WORKER_BACKEND_CUDA_TENSOR_CORE_CUH_
