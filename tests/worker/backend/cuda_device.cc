#include "tests/worker/backend/cuda_device.h"

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "worker/backend/backend.h"

namespace lynx::worker {

int RunTestsOnDevice(int argc, char** argv) {
  constexpr int kSkipped = 77;
  testing::InitGoogleTest(&argc, argv);
  if (GTEST_FLAG_GET(list_tests)) return RUN_ALL_TESTS();
  // The first call must be this one: it sets the variables of CUDA with which ranks run.
  const absl::StatusOr<std::unique_ptr<Backend>> backend = MakeCudaBackend(0);
  if (backend.ok()) {
    std::printf("on %s\n", (*backend)->Name().c_str());
    return RUN_ALL_TESTS();
  }
  int devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&devices);
  if (error != cudaSuccess || devices == 0) {
    std::printf("skipped: this machine has no CUDA device (%s)\n", cudaGetErrorString(error));
    return kSkipped;
  }
  std::printf("cannot use the first of %d CUDA devices: %s\n", devices, std::string(backend.status().message()).c_str());
  return 1;
}

}  // namespace lynx::worker
