// Helpers of kernels: reductions over the threads of a warp or a block, reads and writes of several elements at once, and rows
// that threads hold in registers. The order of a sum depends only on the shape, so that an op repeats its bits.
#ifndef LYNX_WORKER_BACKEND_CUDA_BLOCK_CUH_
#define LYNX_WORKER_BACKEND_CUDA_BLOCK_CUH_

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "common/check.h"

namespace lynx::worker::cuda {

inline constexpr unsigned kWholeWarp = 0xffffffffu;
inline constexpr int kWarp = 32;
inline constexpr int kBlock = 256;  // threads of a block that works on one row, or on single elements
// Kernels that would take many registers are limited to so few that a multiprocessor has room for this number of blocks.
inline constexpr int kResident = 2;

struct Sum {
  template <class T>
  __device__ static T Of(T a, T b) {
    return a + b;
  }
};
struct Max {
  template <class T>
  __device__ static T Of(T a, T b) {
    return a > b ? a : b;
  }
};

// Reduces `value` over `kLanes` neighbouring lanes. Each of these lanes gets the result.
template <class Operation, int kLanes, class T>
__device__ T ReduceLanes(T value) {
#pragma unroll
  for (int distance = kLanes / 2; distance > 0; distance /= 2) {
    value = Operation::Of(value, __shfl_xor_sync(kWholeWarp, value, distance));
  }
  return value;
}

// Reduces `value` over all kBlock threads. Each thread gets the result. All threads of the block must call it, because it
// contains barriers.
template <class Operation, class T>
__device__ T ReduceBlock(T value) {
  __shared__ T of_warps[kBlock / kWarp];
  value = ReduceLanes<Operation, kWarp>(value);
  __syncthreads();  // all threads have read the values of an earlier call
  if (threadIdx.x % kWarp == 0) of_warps[threadIdx.x / kWarp] = value;
  __syncthreads();
  T all = of_warps[0];
#pragma unroll
  for (int warp = 1; warp < kBlock / kWarp; ++warp) all = Operation::Of(all, of_warps[warp]);
  return all;
}

// kWidth neighbouring elements, which are read or written with one access.
template <class T, int kWidth>
struct alignas(sizeof(T) * kWidth) Pack {
  T at[kWidth];

  __device__ static Pack Load(const T* from) {
    CheckAligned(from);
    return *reinterpret_cast<const Pack*>(from);
  }
  __device__ void Store(T* to) const {
    CheckAligned(to);
    *reinterpret_cast<Pack*>(to) = *this;
  }

 private:
  // A GPU stops at an address that is no multiple of a pack. The host, where tests run the kernels, would not.
  __device__ static void CheckAligned([[maybe_unused]] const T* address) {
#ifndef __CUDACC__
    LYNX_CHECK(reinterpret_cast<uintptr_t>(address) % sizeof(Pack) == 0);
#endif
  }
};

// The number of elements that one access of 16 bytes, the largest one, reads or writes.
template <class T>
inline constexpr int kPackOf = 16 / sizeof(T);

// True if rows of `columns` elements can be read in packs of kPackOf<T> in all of these tensors. With 0 columns it says whether
// the tensors' addresses fit packs.
template <class T, class... More>
bool FitsPacks(int64_t columns, const T* tensor, const More*... more) {
  static_assert((std::is_same_v<T, More> && ...));
  const auto aligned = [](const T* address) { return reinterpret_cast<uintptr_t>(address) % 16 == 0; };
  return columns % kPackOf<T> == 0 && aligned(tensor) && (aligned(more) && ...);
}

// A row of at most kMax elements, which kThreads neighbouring threads hold in registers, with kPacks packs each. So a kernel
// reads a row once, even if it goes through it several times. The elements that a thread holds, and so the order of sums, do
// not depend on kPacked. kPacked: a pack is read and written with one access; the row must fit (FitsPacks).
template <class T, int kThreads, int kPacks, bool kPacked>
struct HeldRow {
  static constexpr int kWidth = kPackOf<T>, kMax = kThreads * kPacks * kWidth, kRowsOfBlock = kBlock / kThreads,
                       kPacksHeld = kPacks;
  Pack<T, kWidth> packs[kPacks];

  // Returns the number of the row of this thread.
  __device__ static int64_t Number() { return int64_t{blockIdx.x} * kRowsOfBlock + threadIdx.x / kThreads; }
  // Returns the index in the row of element i of this thread's pack number `pack`.
  __device__ static int At(int pack, int i = 0) {
    return (pack * kThreads + static_cast<int>(threadIdx.x) % kThreads) * kWidth + i;
  }
  // True if the row, of h elements, has this element.
  __device__ static bool Has(int pack, int i, int h) { return kPacked ? At(pack) < h : At(pack, i) < h; }

  // Reads a pack. Elements that the row does not have become 0.
  __device__ static Pack<T, kWidth> LoadPack(const T* row, int pack, int h) {
    Pack<T, kWidth> values{};
    if constexpr (kPacked) {
      if (Has(pack, 0, h)) values = Pack<T, kWidth>::Load(row + At(pack));
    } else {
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        if (Has(pack, i, h)) values.at[i] = row[At(pack, i)];
      }
    }
    return values;
  }
  __device__ static void StorePack(const Pack<T, kWidth>& values, int pack, int h, T* row) {
    if constexpr (kPacked) {
      if (Has(pack, 0, h)) values.Store(row + At(pack));
    } else {
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        if (Has(pack, i, h)) row[At(pack, i)] = values.at[i];
      }
    }
  }

  __device__ static HeldRow Load(const T* row, int h) {
    HeldRow held;
#pragma unroll
    for (int pack = 0; pack < kPacks; ++pack) held.packs[pack] = LoadPack(row, pack, h);
    return held;
  }

  // Returns the sum of term(value) over all elements of the row, in all of its threads. All of them must call it.
  template <class Term>
  __device__ float SumOf(int h, const Term& term) const {
    float sum = 0;
#pragma unroll
    for (int pack = 0; pack < kPacks; ++pack) {
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        if (Has(pack, i, h)) sum += term(packs[pack].at[i]);
      }
    }
    return SumOfThreads(sum);
  }
  __device__ static float SumOfThreads(float sum) {
    if constexpr (kThreads == kBlock) {
      return ReduceBlock<Sum>(sum);
    } else {
      return ReduceLanes<Sum, kThreads>(sum);
    }
  }
};

// Calls launch(std::type_identity<Row>()) with the HeldRow for rows of h elements: a warp holds 1,024 of them, a block 8,192.
// Returns false, and does not call it, if the rows are longer. `packed`: the rows fit packs.
template <class T, class Launch>
bool WithHeldRow(int64_t h, bool packed, const Launch& launch) {
  constexpr int kPacks = 32 / kPackOf<T>;
  const auto with = [&]<int kThreads>(std::integral_constant<int, kThreads>) {
    if (h > HeldRow<T, kThreads, kPacks, true>::kMax) return false;
    if (packed) {
      launch(std::type_identity<HeldRow<T, kThreads, kPacks, true>>());
    } else {
      launch(std::type_identity<HeldRow<T, kThreads, kPacks, false>>());
    }
    return true;
  };
  return with(std::integral_constant<int, kWarp>()) || with(std::integral_constant<int, kBlock>());
}

// Returns the index of this thread in the whole grid, which has one dimension.
__device__ inline int64_t GlobalThread() { return int64_t{blockIdx.x} * blockDim.x + threadIdx.x; }

}  // namespace lynx::worker::cuda

#endif  // LYNX_WORKER_BACKEND_CUDA_BLOCK_CUH_
