// The order of samples within an epoch: a permutation of [0, samples) for every (seed, epoch), computed at any
// position without a table.
//
// A Feistel network (Luby and Rackoff 1988) permutes the smallest domain of 2^(2k) numbers that holds `samples`. A result
// outside of [0, samples) is permuted again until it falls inside ("cycle walking", Black and Rogaway 2002). The whole is still
// a permutation and takes fewer than four rounds on average. Pure; thread-safe.
#ifndef LYNX_WORKER_DATA_SAMPLE_ORDER_H_
#define LYNX_WORKER_DATA_SAMPLE_ORDER_H_

#include <cstdint>

namespace lynx::worker {

// The sample at `position` of `epoch`. Needs 0 <= position < samples <= 2^62 and epoch >= 0.
int64_t SampleAt(int64_t position, int64_t samples, int64_t epoch, uint64_t seed);

}  // namespace lynx::worker

#endif  // LYNX_WORKER_DATA_SAMPLE_ORDER_H_
