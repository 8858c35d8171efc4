#include "worker/collectives/reduce.h"

#include "worker/backend/simd.h"

namespace lynx::worker {

void AddInto(float* __restrict target, const float* __restrict source, int64_t count) {
  for (int64_t i = 0; i < count; ++i) target[i] += source[i];
}

LYNX_SIMD void AddInto(Bfloat16* __restrict target, const Bfloat16* __restrict source, int64_t count) {
  for (int64_t i = 0; i < count; ++i) target[i] = target[i] + source[i];
}

}  // namespace lynx::worker
