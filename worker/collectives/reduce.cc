#include "worker/collectives/reduce.h"

namespace lynx {

void AddInto(float* __restrict target, const float* __restrict source, int64_t count) {
  for (int64_t i = 0; i < count; ++i) target[i] += source[i];
}

}  // namespace lynx
