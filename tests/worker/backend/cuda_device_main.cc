// Runs the tests of ops on a real device; runs none if there is no device.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

int main(int argc, char** argv) {
  constexpr int kSkipped = 77;
  // The tests read the results of an op as soon as it returns.
  setenv("CUDA_LAUNCH_BLOCKING", "1", 1);
  testing::InitGoogleTest(&argc, argv);
  int devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&devices);
  if (error != cudaSuccess || devices == 0) {
    std::printf("skipped: this machine has no CUDA device (%s)\n", cudaGetErrorString(error));
    return kSkipped;
  }
  return RUN_ALL_TESTS();
}
