// Finds, shows and verifies checkpoints for people, without a job. The command line includes only two headers of the worker:
// this one and hugging_face.h.
//
// Free functions that read the disk; thread-safe.
#ifndef LYNX_WORKER_CHECKPOINT_OFFLINE_H_
#define LYNX_WORKER_CHECKPOINT_OFFLINE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/checkpoint/checkpoint.h"

namespace lynx::worker {

struct FoundCheckpoints {
  std::vector<CheckpointSummary> checkpoints;  // newest first
  std::vector<std::string> damaged;            // the reason for each checkpoint without a readable index
};
// Finds the checkpoint that a path such as "runs/a/step-00000100" names. If the path names a directory of checkpoints, finds
// all of them. Returns NotFound if there is no checkpoint, and an error if the directory cannot be listed.
absl::StatusOr<FoundCheckpoints> FindCheckpoints(const std::string& path, FileSystem& files = PosixFileSystem());

struct TensorSummary {
  std::string name;
  std::vector<int64_t> shape;  // the shape of the whole tensor
  int32_t shards = 0;          // number of shards that have a part of it
};
// Returns the whole tensors of a checkpoint, sorted by name. Returns DataLoss, with the name of the file, if a file's header
// cannot be read.
absl::StatusOr<std::vector<TensorSummary>> TensorsOf(const CheckpointSummary& checkpoint,
                                                     FileSystem& files = PosixFileSystem());

// Returns a text for each damaged shard, which describes the damage. The result is empty if the checkpoint is whole. Reads the
// whole checkpoint.
std::vector<std::string> VerifyCheckpoint(const CheckpointSummary& checkpoint, FileSystem& files = PosixFileSystem());

}  // namespace lynx::worker

#endif  // LYNX_WORKER_CHECKPOINT_OFFLINE_H_
