// Defines the order of samples within an epoch. It is a permutation of [0, samples) for every (seed, epoch). Its value at any
// position is computed without a table.
//
// A Feistel network (Luby and Rackoff 1988) permutes the smallest domain of 2^(2k) numbers that holds `samples` numbers. If a
// result is outside of [0, samples), it is permuted again until it is inside ("cycle walking", Black and Rogaway 2002). The
// result is still a permutation, and needs fewer than four passes through the network on average. Pure; thread-safe.
#ifndef LYNX_WORKER_DATA_SAMPLE_ORDER_H_
#define LYNX_WORKER_DATA_SAMPLE_ORDER_H_

#include <cstdint>

namespace lynx::worker {

// Returns the sample at `position` of `epoch`. Needs 0 <= position < samples <= 2^62 and epoch >= 0.
int64_t SampleAt(int64_t position, int64_t samples, int64_t epoch, uint64_t seed);

}  // namespace lynx::worker

#endif  // LYNX_WORKER_DATA_SAMPLE_ORDER_H_
