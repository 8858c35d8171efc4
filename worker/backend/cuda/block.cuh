// Helpers of kernels: reductions over the threads of a warp or a block, and reads and writes of several elements at once. The
// order of a sum depends only on the shape, so that an op repeats its bits.
#ifndef LYNX_WORKER_BACKEND_CUDA_BLOCK_CUH_
#define LYNX_WORKER_BACKEND_CUDA_BLOCK_CUH_

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

namespace lynx::worker::cuda {

inline constexpr unsigned kWholeWarp = 0xffffffffu;
inline constexpr int kWarp = 32;
inline constexpr int kBlock = 256;  // threads of a block that works on one row, or on single elements

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

  __device__ static Pack Load(const T* from) { return *reinterpret_cast<const Pack*>(from); }
  __device__ void Store(T* to) const { *reinterpret_cast<Pack*>(to) = *this; }
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

// Returns the index of this thread in the whole grid, which has one dimension.
__device__ inline int64_t GlobalThread() { return int64_t{blockIdx.x} * blockDim.x + threadIdx.x; }

}  // namespace lynx::worker::cuda

#endif  // LYNX_WORKER_BACKEND_CUDA_BLOCK_CUH_
