// Runs the tests of ops on a real device.
#include <cstdlib>

#include "tests/worker/backend/cuda_device.h"

int main(int argc, char** argv) {
  // The tests read the results of an op as soon as it returns.
  setenv("CUDA_LAUNCH_BLOCKING", "1", 1);
  return lynx::worker::RunTestsOnDevice(argc, argv);
}
