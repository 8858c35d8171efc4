// Adds elements for reductions. Thread-safe for distinct targets.
#ifndef LYNX_WORKER_COLLECTIVES_REDUCE_H_
#define LYNX_WORKER_COLLECTIVES_REDUCE_H_

#include <cstdint>

#include "common/bfloat16.h"

namespace lynx::worker {

// target (count) += source (count). The two must not overlap. Bfloat16 elements are added in fp32 and rounded to the nearest.
void AddInto(float* target, const float* source, int64_t count);
void AddInto(Bfloat16* target, const Bfloat16* source, int64_t count);

}  // namespace lynx::worker

#endif  // LYNX_WORKER_COLLECTIVES_REDUCE_H_
