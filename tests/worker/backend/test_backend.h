// The backend that the ops' tests run on, and memory that it reads. One program links the CPU's, another CUDA's.
#ifndef LYNX_TESTS_WORKER_BACKEND_TEST_BACKEND_H_
#define LYNX_TESTS_WORKER_BACKEND_TEST_BACKEND_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "worker/backend/backend.h"

namespace lynx {

// `threads`: of the CPU's.
std::unique_ptr<Backend> MakeTestBackend(int threads = 1);

// What fused attention on bfloat16 may differ by, relative, beside one rounding of the result: whether probabilities are
// rounded between two products.
double FusedAttentionTolerance();

using TestFloats = std::unique_ptr<float[], std::function<void(float*)>>;
// So many, which this process reads and writes too, once an op is done.
TestFloats TestFloatsOf(int64_t count);

}  // namespace lynx

#endif  // LYNX_TESTS_WORKER_BACKEND_TEST_BACKEND_H_
