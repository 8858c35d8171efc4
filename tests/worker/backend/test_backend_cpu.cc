#include "tests/worker/backend/test_backend.h"

namespace lynx::worker {

std::unique_ptr<Backend> MakeTestBackend(int threads) { return MakeCpuBackend(threads); }

double FusedAttentionTolerance() { return 1e-5; }

TestFloats TestFloatsOf(int64_t count) {
  return TestFloats(new float[static_cast<size_t>(count)], [](float* floats) { delete[] floats; });
}

}  // namespace lynx::worker
