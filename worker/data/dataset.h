// Dataset holds memory-mapped tokens and the order of samples. The order depends only on (seed, sample number), so it is the
// same for every parallel layout and micro-batch size. A sample is seq + 1 consecutive tokens: the first seq are the inputs,
// the last seq are the targets. Immutable after opening; thread-safe.
#ifndef LYNX_WORKER_DATA_DATASET_H_
#define LYNX_WORKER_DATA_DATASET_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "planner/problem/job_spec.h"
#include "worker/data/data_fingerprint.h"

namespace lynx::worker {

class Dataset {
 public:
  virtual ~Dataset() = default;

  // Returns the number of samples in one epoch: floor((tokens - 1) / seq). It is at least 1.
  virtual int64_t SamplesPerEpoch() const = 0;
  // Reads sample number i of the training, where i = step * global_batch + index in batch. Epoch i / SamplesPerEpoch() visits
  // each sample once, in an order that depends on the seed and the epoch (a Feistel permutation, which needs no table). inputs,
  // targets: (seq). Returns DataLoss if a token is not in the vocabulary (below 0, or >= vocab); the error names file, token
  // and position. A repeated read returns the same error.
  virtual absl::Status Read(int64_t sample_number, int32_t* inputs, int32_t* targets) const = 0;
  // Returns the fingerprint that the data set's files had when they were opened.
  virtual const DataFingerprint& fingerprint() const = 0;
};

// Opens a data set. NotFound: there is no such file. InvalidArgument: the file is empty, has fewer than seq + 1 tokens, or is
// not of its kind (an .idx with a bad magic number, a .bin shorter than its index). Every message names the file.
absl::StatusOr<std::unique_ptr<Dataset>> OpenDataset(const DataSpec& data, int32_t seq, int32_t vocab, uint64_t seed);

}  // namespace lynx::worker

#endif  // LYNX_WORKER_DATA_DATASET_H_
