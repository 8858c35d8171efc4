// Runs a test program on a real CUDA device.
#ifndef LYNX_TESTS_WORKER_BACKEND_CUDA_DEVICE_H_
#define LYNX_TESTS_WORKER_BACKEND_CUDA_DEVICE_H_

namespace lynx::worker {

// Runs the program's tests and returns its exit code. If there is no device that CUDA can use, runs none, prints why, and
// returns 77.
int RunTestsOnDevice(int argc, char** argv);

}  // namespace lynx::worker

#endif  // LYNX_TESTS_WORKER_BACKEND_CUDA_DEVICE_H_
