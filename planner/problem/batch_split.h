// BatchSplit says how the samples of a step are divided over replicas and microbatches.
//
// Replica d takes the samples [d B / dp, (d + 1) B / dp) of a batch of B, both rounded down. So two replicas differ by one
// sample at most. All replicas run the same number of microbatches. If the samples of a replica do not fill its last
// microbatch, the places that are left are empty: they are computed, but they count in no loss and in no gradient. Pure;
// thread-safe.
#ifndef LYNX_PLANNER_PROBLEM_BATCH_SPLIT_H_
#define LYNX_PLANNER_PROBLEM_BATCH_SPLIT_H_

#include <cstdint>

namespace lynx {

struct BatchSplit {
  int32_t global_batch = 1;  // samples of a step
  int32_t replicas = 1;      // dp
  int32_t micro_batch = 1;   // samples of a microbatch

  // The largest number of samples that a replica has.
  int32_t MaxSamples() const { return (global_batch + replicas - 1) / replicas; }
  // The first sample of a replica, within the batch. With `replicas` as the argument: the end of the batch.
  int64_t FirstSample(int32_t replica) const { return int64_t{global_batch} * replica / replicas; }
  // The number of microbatches of each replica.
  int32_t microbatches() const { return (MaxSamples() + micro_batch - 1) / micro_batch; }
  // The places of all microbatches of all replicas that have no sample.
  int64_t EmptyPlaces() const { return int64_t{microbatches()} * micro_batch * replicas - global_batch; }

  // True if every replica has a sample, and one replica fills a microbatch.
  bool Possible() const { return replicas <= global_batch && micro_batch <= MaxSamples(); }
  // True if no place is empty. Other frameworks accept only such batches.
  bool Even() const { return EmptyPlaces() == 0; }
};

}  // namespace lynx

#endif  // LYNX_PLANNER_PROBLEM_BATCH_SPLIT_H_
