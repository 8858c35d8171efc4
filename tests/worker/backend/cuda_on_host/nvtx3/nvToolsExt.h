// NVTX on the host: the ranges that worker/backend/cuda gives to profilers. The tests read them.
#ifndef LYNX_TESTS_CUDA_ON_HOST_NVTX3_NVTOOLSEXT_H_
#define LYNX_TESTS_CUDA_ON_HOST_NVTX3_NVTOOLSEXT_H_

#include <string>
#include <vector>

int nvtxRangePushA(const char* name);
int nvtxRangePop();

namespace lynx::worker::cuda_on_host {

// Returns the names of the ranges that the calling thread has ended since the last call, in the order of their ends. All ranges
// must have ended.
std::vector<std::string> TakeRanges();

}  // namespace lynx::worker::cuda_on_host

#endif  // LYNX_TESTS_CUDA_ON_HOST_NVTX3_NVTOOLSEXT_H_
