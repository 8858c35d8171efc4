// Dataset: tokens, memory-mapped, and the order of samples: a pure function of (seed, sample number), the same for
// every parallel layout and micro-batch size. A sample is seq + 1 consecutive tokens: inputs and, shifted by one,
// targets. Immutable after opening; thread-safe.
#ifndef LYNX_WORKER_DATA_DATASET_H_
#define LYNX_WORKER_DATA_DATASET_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "planner/problem/job_spec.h"
#include "worker/data/data_fingerprint.h"

namespace lynx {

class Dataset {
 public:
  virtual ~Dataset() = default;

  // Samples of one epoch: floor((tokens - 1) / seq). At least 1.
  virtual int64_t SamplesPerEpoch() const = 0;
  // Sample number i of training (i = step * global_batch + index in batch). Epoch i / SamplesPerEpoch() visits each
  // sample once, in an order of its own drawn from the seed (a Feistel permutation: no table, any position at once).
  // inputs, targets: (seq). DataLoss where a token is no word of the vocabulary (below 0, or >= vocab), which every
  // reading of it finds again: names file, token and position.
  virtual absl::Status Read(int64_t sample_number, int32_t* inputs, int32_t* targets) const = 0;
  // Of its files, as they were when it was opened.
  virtual const DataFingerprint& fingerprint() const = 0;
};

// NotFound: no such file. InvalidArgument: empty, shorter than seq + 1 tokens, or not what its kind says (a bad .idx
// magic, a .bin shorter than its index). Every message names the file.
absl::StatusOr<std::unique_ptr<Dataset>> OpenDataset(const DataSpec& data, int32_t seq, int32_t vocab, uint64_t seed);

}  // namespace lynx

#endif  // LYNX_WORKER_DATA_DATASET_H_
