#include "cuda_runtime.h"

#include <atomic>
#include <cstring>

#include "scheduler.h"

namespace lynx::worker::cuda_on_host {
namespace {

std::atomic<int64_t> calls_left = 0;  // k: the k-th call from now on fails, and all later ones; 0: none fails

std::atomic<int> compute_major = 9;

}  // namespace

void SetComputeMajor(int major) { compute_major = major; }
void FailFromCall(int64_t k) { calls_left = k; }
bool Fails() {
  int64_t left = calls_left;
  while (left > 1 && !calls_left.compare_exchange_weak(left, left - 1)) continue;
  return left == 1;  // every later call fails too
}

}  // namespace lynx::worker::cuda_on_host

cudaError_t cudaGetLastError() { return cudaSuccess; }
const char* cudaGetErrorName(cudaError_t error) {
  return error == cudaErrorMemoryAllocation ? "cudaErrorMemoryAllocation"
         : error == cudaErrorNotReady       ? "cudaErrorNotReady"
                                            : "cudaErrorInvalidValue";
}
const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorMemoryAllocation ? "out of memory" : "invalid argument";
}

cudaError_t cudaGetDeviceCount(int* count) {
  if (lynx::worker::cuda_on_host::Fails()) return cudaErrorInvalidValue;
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) { return device == 0 ? cudaSuccess : cudaErrorInvalidValue; }
cudaError_t cudaGetDevice(int* device) {
  if (lynx::worker::cuda_on_host::Fails()) return cudaErrorInvalidValue;
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  if (lynx::worker::cuda_on_host::Fails()) return cudaErrorInvalidValue;
  *value = lynx::worker::cuda_on_host::compute_major;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  if (lynx::worker::cuda_on_host::Fails()) return cudaErrorInvalidValue;
  *properties = {.name = "CUDA on the host"};
  return cudaSuccess;
}

namespace {

// The device has as much memory as a small GPU. A request for more memory is refused, as on a GPU.
constexpr size_t kDeviceBytes = size_t{8} << 30;
constexpr int kLowestPriority = 0, kHighestPriority = -5;  // a lower number is a higher priority

cudaError_t ResultOf(void* memory) { return memory != nullptr ? cudaSuccess : cudaErrorMemoryAllocation; }

}  // namespace

cudaError_t cudaMalloc(void** memory, size_t bytes) {
  if (lynx::worker::cuda_on_host::Fails()) return cudaErrorInvalidValue;
  if (bytes > kDeviceBytes - lynx::worker::cuda_on_host::DeviceMemoryTaken()) return cudaErrorMemoryAllocation;
  *memory = lynx::worker::cuda_on_host::TakeDeviceMemory(bytes);
  return ResultOf(*memory);
}
cudaError_t cudaFree(void* memory) {
  lynx::worker::cuda_on_host::FreeDeviceMemory(memory);
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  if (lynx::worker::cuda_on_host::Fails()) return cudaErrorInvalidValue;
  *total_bytes = kDeviceBytes;
  *free_bytes = kDeviceBytes - lynx::worker::cuda_on_host::DeviceMemoryTaken();
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* memory, int value, size_t bytes, cudaStream_t stream) {
  if (lynx::worker::cuda_on_host::Fails()) return cudaErrorInvalidValue;
  lynx::worker::cuda_on_host::Issue(stream, [memory, value, bytes] { std::memset(memory, value, bytes); });
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  if (lynx::worker::cuda_on_host::Fails()) return cudaErrorInvalidValue;
  lynx::worker::cuda_on_host::CopyAsync(stream, from, bytes, to);
  return cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* memory) {
  if (lynx::worker::cuda_on_host::Fails()) return cudaErrorInvalidValue;
  attributes->type = lynx::worker::cuda_on_host::KindOf(memory);
  return cudaSuccess;
}
cudaError_t cudaHostAlloc(void** memory, size_t bytes, unsigned) {
  *memory = lynx::worker::cuda_on_host::TakePinnedMemory(bytes);
  return ResultOf(*memory);
}
cudaError_t cudaFreeHost(void* memory) {
  lynx::worker::cuda_on_host::FreePinnedMemory(memory);
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  if (lynx::worker::cuda_on_host::Fails()) return cudaErrorInvalidValue;
  *stream = lynx::worker::cuda_on_host::MakeStream();
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  if (priority < kHighestPriority || priority > kLowestPriority) return cudaErrorInvalidValue;
  return cudaStreamCreateWithFlags(stream, flags);
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* lowest, int* highest) {
  if (lynx::worker::cuda_on_host::Fails()) return cudaErrorInvalidValue;
  *lowest = kLowestPriority;
  *highest = kHighestPriority;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  lynx::worker::cuda_on_host::FreeStream(stream);
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (lynx::worker::cuda_on_host::Fails()) return cudaErrorInvalidValue;
  lynx::worker::cuda_on_host::Synchronize(stream);
  return cudaSuccess;
}
