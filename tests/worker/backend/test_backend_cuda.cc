// Makes a backend for a CUDA device, which is real or runs on the host (cuda_on_host/cuda_runtime.h).
#include <cuda_runtime.h>

#include "common/check.h"
#include "tests/worker/backend/test_backend.h"

namespace lynx::worker {

std::unique_ptr<Backend> MakeTestBackend(int) {
  absl::StatusOr<std::unique_ptr<Backend>> backend = MakeCudaBackend(0);
  LYNX_CHECK(backend.ok());
  return std::move(*backend);
}

double FusedAttentionTolerance() { return 2 * kBfloat16Rounding; }

TestFloats TestFloatsOf(int64_t count) {
  void* memory = nullptr;
  LYNX_CHECK(cudaHostAlloc(&memory, static_cast<size_t>(count) * sizeof(float), cudaHostAllocDefault) == cudaSuccess);
  return TestFloats(static_cast<float*>(memory), [](float* floats) { cudaFreeHost(floats); });
}

}  // namespace lynx::worker
