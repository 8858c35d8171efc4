// The backend on which the tests of ops run, and memory that it can read. One test program links the CPU's backend, another one
// CUDA's.
#ifndef LYNX_TESTS_WORKER_BACKEND_TEST_BACKEND_H_
#define LYNX_TESTS_WORKER_BACKEND_TEST_BACKEND_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <type_traits>

#include "worker/backend/backend.h"

namespace lynx::worker {

// `threads`: the number of threads of a CPU backend.
std::unique_ptr<Backend> MakeTestBackend(int threads = 1);

// Returns the backend's ops on T.
template <class T>
LayerBackend<T>& OpsOf(Backend& backend) {
  if constexpr (std::is_same_v<T, float>) {
    return backend;
  } else {
    return backend.bfloat16();
  }
}

// The relative difference that is allowed for fused attention on bfloat16, in addition to one rounding of the result. It is
// larger if the device rounds probabilities between the two products.
double FusedAttentionTolerance();

using TestFloats = std::unique_ptr<float[], std::function<void(float*)>>;
// Returns memory for `count` floats. This process too can read and write it while no op runs.
TestFloats TestFloatsOf(int64_t count);

}  // namespace lynx::worker

#endif  // LYNX_TESTS_WORKER_BACKEND_TEST_BACKEND_H_
