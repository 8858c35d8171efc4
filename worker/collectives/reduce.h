// The sum of a reduction. Thread-safe for distinct targets.
#ifndef LYNX_WORKER_COLLECTIVES_REDUCE_H_
#define LYNX_WORKER_COLLECTIVES_REDUCE_H_

#include <cstdint>

namespace lynx {

// target (count) += source (count). The two do not overlap.
void AddInto(float* target, const float* source, int64_t count);

}  // namespace lynx

#endif  // LYNX_WORKER_COLLECTIVES_REDUCE_H_
