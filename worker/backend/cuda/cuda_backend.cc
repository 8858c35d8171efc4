// Construction, memory and name of the CUDA backend. The ops are in the other files of this folder.
#include "worker/backend/cuda/cuda_backend.h"

#include <nvtx3/nvToolsExt.h>

#include <cstdlib>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status.h"
#include "worker/backend/cuda/queue.h"

namespace lynx::worker {
namespace cuda {

CudaBackend::CudaBackend(DeviceParts parts, std::string name)
    : DeviceParts(std::move(parts)), CudaOps<float>(*stream, *gemm), bfloat16_(*stream, *gemm), marks_(*stream),
      name_(std::move(name)) {}

CudaBackend::~CudaBackend() {
  (void)stream_.Synchronize();  // a caller that needs the error has called Finish before
  for (void* memory : allocations_) cudaFree(memory);
  for (void* memory : pinned_) cudaFreeHost(memory);
}

void CudaBackend::Copy(const void* from, Bytes bytes, void* to) { stream_.Copy(from, bytes, to); }

absl::StatusOr<std::span<float>> CudaBackend::Allocate(Bytes bytes, const std::string& what) {
  LYNX_CHECK(bytes.value >= 0 && bytes.value % static_cast<int64_t>(sizeof(float)) == 0);
  if (bytes.value == 0) return std::span<float>();
  const auto size = static_cast<size_t>(bytes.value);
  void* memory = nullptr;
  if (const cudaError_t error = cudaMalloc(&memory, size); error != cudaSuccess) {
    if (error != cudaErrorMemoryAllocation)
      return StatusOf(error, absl::StrCat("allocating ", FormatBytes(bytes), " for ", what));
    size_t free_bytes = 0, total_bytes = 0;
    (void)cudaMemGetInfo(&free_bytes, &total_bytes);
    cudaGetLastError();  // clears the error, which is returned here
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot allocate ", FormatBytes(bytes), " (", bytes.value, " bytes) for ", what, " on ", name_, ": ",
                     cudaGetErrorString(error), "; of its ", FormatBytes(Bytes(static_cast<int64_t>(total_bytes))), ", ",
                     FormatBytes(Bytes(static_cast<int64_t>(free_bytes))),
                     " are free; end what else runs on it, or lower the job's memory per rank"));
  }
  allocations_.push_back(memory);
  stream_.Note(cudaMemsetAsync(memory, 0, size, stream_.handle()), "zeroing memory");
  return std::span<float>(static_cast<float*>(memory), size / sizeof(float));
}

void CudaBackend::Release(std::span<float> memory) {
  if (memory.empty()) return;
  LYNX_CHECK(std::erase(allocations_, memory.data()) == 1);
  (void)stream_.Synchronize();  // the error is ignored, because the next Finish returns it again
  cudaFree(memory.data());
}

absl::StatusOr<Bytes> CudaBackend::FreeMemory() const {
  size_t free_bytes = 0, total_bytes = 0;
  LYNX_RETURN_IF_ERROR(StatusOf(cudaMemGetInfo(&free_bytes, &total_bytes), "asking how much memory is free"));
  return Bytes(static_cast<int64_t>(free_bytes));
}

absl::StatusOr<std::span<float>> CudaBackend::AllocatePinned(Bytes bytes, const std::string& what) {
  LYNX_CHECK(bytes.value >= 0 && bytes.value % static_cast<int64_t>(sizeof(float)) == 0);
  if (bytes.value == 0) return std::span<float>();
  const auto size = static_cast<size_t>(bytes.value);
  void* memory = nullptr;
  if (const cudaError_t error = cudaHostAlloc(&memory, size, cudaHostAllocDefault); error != cudaSuccess) {
    cudaGetLastError();  // clears the error, which is returned here
    return absl::ResourceExhaustedError(absl::StrCat("cannot allocate ", FormatBytes(bytes), " (", bytes.value,
                                                     " bytes) of pinned memory for ", what, ": ", cudaGetErrorString(error),
                                                     "; free memory on this node or lower the job's host memory per rank"));
  }
  pinned_.push_back(memory);
  return std::span<float>(static_cast<float*>(memory), size / sizeof(float));
}

// NVTX: Nsight Systems shows these ranges above the kernels that were launched within them. Without a profiler a call costs
// nanoseconds.
void CudaBackend::BeginRange(const char* name) { nvtxRangePushA(name); }
void CudaBackend::EndRange() { nvtxRangePop(); }

absl::StatusOr<std::unique_ptr<DeviceQueue>> CudaBackend::MakeQueue() { return Queue::Create(stream_, marks_); }

}  // namespace cuda

namespace {

// Sets two variables of CUDA, unless the environment has them. Must run before the first call of CUDA.
//
// CUDA_DEVICE_MAX_CONNECTIONS: by default a device has 8 hardware queues, and further streams share one of them. Then a
// transfer that waits for its peer could block another transfer in the same queue, for which the peer may be waiting.
//
// CUDA_MODULE_LOADING: by default a kernel is loaded when it is first launched, and loading may wait for all that runs on the
// device. A transfer that runs there may wait for a peer, which may wait for that kernel's result: then both ranks hang.
void SetVariables() {
  static const int connections = setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", /*overwrite=*/0);
  static const int loading = setenv("CUDA_MODULE_LOADING", "EAGER", /*overwrite=*/0);
  LYNX_CHECK(connections == 0 && loading == 0);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> MakeCudaBackend(int device) {
  SetVariables();
  int devices = 0;
  LYNX_RETURN_IF_ERROR(cuda::StatusOf(cudaGetDeviceCount(&devices), "looking for devices"));
  if (device < 0 || device >= devices) {
    return absl::NotFoundError(absl::StrCat("there is no CUDA device ", device, ": this machine has ", devices));
  }
  LYNX_RETURN_IF_ERROR(cuda::StatusOf(cudaSetDevice(device), absl::StrCat("using device ", device)));
  cudaDeviceProp properties;
  LYNX_RETURN_IF_ERROR(cuda::StatusOf(cudaGetDeviceProperties(&properties, device), absl::StrCat("asking device ", device)));
  cuda::DeviceParts parts;
  LYNX_ASSIGN_OR_RETURN(parts.stream, cuda::Stream::Create());
  LYNX_ASSIGN_OR_RETURN(parts.gemm, cuda::Gemm::Create(*parts.stream));
  std::string name = absl::StrCat("cuda:", device, ": ", properties.name, ", cuBLASLt ", cublasLtGetVersion());
  return std::make_unique<cuda::CudaBackend>(std::move(parts), std::move(name));
}

}  // namespace lynx::worker
