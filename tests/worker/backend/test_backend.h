// The backend on which the tests of ops run, and memory that it can read. One program links the CPU's, another CUDA's.
#ifndef LYNX_TESTS_WORKER_BACKEND_TEST_BACKEND_H_
#define LYNX_TESTS_WORKER_BACKEND_TEST_BACKEND_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "worker/backend/backend.h"

namespace lynx::worker {

// `threads`: the number of threads of a CPU backend.
std::unique_ptr<Backend> MakeTestBackend(int threads = 1);

// The relative difference allowed for fused attention on bfloat16, in addition to one rounding of the result. It
// depends on whether probabilities are rounded between the two products.
double FusedAttentionTolerance();

using TestFloats = std::unique_ptr<float[], std::function<void(float*)>>;
// `count` floats that this process can read and write too, when no op runs.
TestFloats TestFloatsOf(int64_t count);

}  // namespace lynx::worker

#endif  // LYNX_TESTS_WORKER_BACKEND_TEST_BACKEND_H_
