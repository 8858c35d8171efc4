// CUDA on the host: the part of the runtime's interface that worker/backend/cuda uses. With it, the kernels compile as C++ and
// run on a CPU, in tests on machines without a GPU. The tests show that a kernel computes the right result. They show nothing
// about speed, or about properties of the hardware (memory models, occupancy).
//
// The threads of a block are fibers. Only one runs at a time, up to the next barrier. In every second launch they run in the
// order of their numbers, in the other launches in the reverse order. Each warp runs up to the block's next barrier before
// another warp runs. So a kernel that lacks a barrier gives a wrong result. If some threads never reach a barrier, the program
// aborts. Blocks run one after another, also in the order of their numbers or in the reverse order. scheduler.h says when the
// work of streams is done; by default it is done as soon as possible. Each OS thread has its own device. As on a machine with a
// GPU, the host cannot reach the memory that cudaMalloc returns.
#ifndef LYNX_TESTS_CUDA_ON_HOST_CUDA_RUNTIME_H_
#define LYNX_TESTS_CUDA_ON_HOST_CUDA_RUNTIME_H_

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <tuple>
#include <utility>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static thread_local

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

// The indices and sizes of the fiber that runs now.
extern thread_local dim3 threadIdx, blockIdx, blockDim, gridDim;

struct CudaOnHostStream;
struct CudaOnHostEvent;

namespace lynx::worker::cuda_on_host {

// Makes calls fail on all threads: the k-th call from now on that can fail, and all later ones. 0: no call fails.
void FailFromCall(int64_t k);
bool Fails();

// Adds work to the stream: a function that runs while the device's memory is reachable, or the threads of a kernel.
void Issue(CudaOnHostStream* stream, std::function<void()> run);
void Launch(CudaOnHostStream* stream, dim3 grid, dim3 block, std::function<void()> thread);
// Sets the major number of the compute capability that every device reports from now on. The default is 9.
void SetComputeMajor(int major);
// Every lane of the fiber's warp gives a word. The function returns the words of all lanes.
const uint64_t* Exchange(uint64_t word);
int Lane();

// The fiber's warp does mma.m16n8k16 on bfloat16, or ldmatrix. The lanes hold the operands as the PTX ISA says. MultiplyAdd:
// sums (16, 8) += left (16, 16) right (16, 8). LoadMatrices: `count` matrices (8, 8); each lane gives the address of a row.
void MultiplyAdd(const uint32_t left[4], const uint32_t right[2], float sums[4]);
void LoadMatrices(const void* row, int count, bool transposed, uint32_t* words);

// cp.async: a copy of 4 or 16 bytes that the fiber begins and later waits for. `from`: null if the copy writes zeros. In a
// launch whose threads run in the order of their numbers, the copy is done at once; in other launches, only when the fiber
// waits. So a kernel that does not wait, or that overwrites what others still read, gives a wrong result. A fiber must not end
// before it has waited.
void BeginCopy(const void* from, int bytes, void* to);
void WaitForCopies();

template <class T>
uint64_t WordOf(T value) {
  static_assert(sizeof(T) <= sizeof(uint64_t));
  uint64_t word = 0;
  std::memcpy(&word, &value, sizeof(T));
  return word;
}

template <class T>
T ValueOf(uint64_t word) {
  T value;
  std::memcpy(&value, &word, sizeof(T));
  return value;
}

}  // namespace lynx::worker::cuda_on_host

void __syncthreads();
template <class T>
T __shfl_xor_sync(unsigned, T value, int mask) {
  using namespace lynx::worker::cuda_on_host;
  return ValueOf<T>(Exchange(WordOf(value))[Lane() ^ mask]);
}
inline unsigned __ballot_sync(unsigned, int predicate) {
  using namespace lynx::worker::cuda_on_host;
  const uint64_t* const words = Exchange(predicate != 0);
  unsigned ballot = 0;
  for (int lane = 0; lane < 32; ++lane) ballot |= static_cast<unsigned>(words[lane]) << lane;
  return ballot;
}
inline int __ffs(unsigned word) { return __builtin_ffs(static_cast<int>(word)); }

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorDevicesUnavailable = 46,
  cudaErrorECCUncorrectable = 214,
  cudaErrorNvlinkUncorrectable = 220,
  cudaErrorNotReady = 600,
  cudaErrorHardwareStackError = 714
};
enum cudaMemcpyKind { cudaMemcpyDefault = 4 };
enum {
  cudaStreamNonBlocking = 1,
  cudaHostAllocDefault = 0,
  cudaEventDefault = 0,
  cudaEventDisableTiming = 2,
  cudaEventWaitDefault = 0
};
enum cudaMemoryType { cudaMemoryTypeUnregistered = 0, cudaMemoryTypeHost = 1, cudaMemoryTypeDevice = 2 };
struct cudaPointerAttributes {
  cudaMemoryType type;
};
enum cudaDeviceAttr { cudaDevAttrComputeCapabilityMajor = 75 };
using cudaStream_t = CudaOnHostStream*;
using cudaEvent_t = CudaOnHostEvent*;
struct cudaLaunchAttribute;

struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  size_t dynamicSmemBytes = 0;
  cudaStream_t stream = nullptr;
  cudaLaunchAttribute* attrs = nullptr;
  unsigned numAttrs = 0;
};

template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...), Arguments&&... arguments) {
  if (lynx::worker::cuda_on_host::Fails()) return cudaErrorInvalidValue;
  const std::tuple<Parameters...> values(std::forward<Arguments>(arguments)...);
  lynx::worker::cuda_on_host::Launch(config->stream, config->gridDim, config->blockDim,
                                     [kernel, values] { std::apply(kernel, values); });
  return cudaSuccess;
}

struct cudaDeviceProp {
  char name[256];
};

cudaError_t cudaGetLastError();
const char* cudaGetErrorName(cudaError_t error);
const char* cudaGetErrorString(cudaError_t error);
cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
cudaError_t cudaMalloc(void** memory, size_t bytes);
cudaError_t cudaFree(void* memory);
cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes);
cudaError_t cudaMemsetAsync(void* memory, int value, size_t bytes, cudaStream_t stream);
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* memory);
cudaError_t cudaHostAlloc(void** memory, size_t bytes, unsigned flags);
cudaError_t cudaFreeHost(void* memory);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority);
cudaError_t cudaDeviceGetStreamPriorityRange(int* lowest, int* highest);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end);

#endif  // LYNX_TESTS_CUDA_ON_HOST_CUDA_RUNTIME_H_
