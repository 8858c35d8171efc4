// Checkpoints as people handle them: found by a path, looked at and verified without a job. The command line includes
// this and hugging_face.h of the worker, and nothing else of it.
//
// Free functions that read the disk; thread-safe.
#ifndef LYNX_WORKER_CHECKPOINT_OFFLINE_H_
#define LYNX_WORKER_CHECKPOINT_OFFLINE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/checkpoint/checkpoint.h"

namespace lynx {

struct FoundCheckpoints {
  std::vector<CheckpointSummary> checkpoints;  // newest first
  std::vector<std::string> damaged;            // why each that has no readable index has none
};
// The checkpoint that a path such as "runs/a/step-00000100" names, or all of the directory that it names. NotFound
// when there is none; an error when the directory cannot be listed.
absl::StatusOr<FoundCheckpoints> FindCheckpoints(const std::string& path, FileSystem& files = PosixFileSystem());

struct TensorSummary {
  std::string name;
  std::vector<int64_t> shape;  // of the whole
  int32_t shards = 0;          // that have a part of it
};
// The whole tensors of a checkpoint, by name. DataLoss naming the file whose header cannot be read.
absl::StatusOr<std::vector<TensorSummary>> TensorsOf(const CheckpointSummary& checkpoint,
                                                     FileSystem& files = PosixFileSystem());

// What is wrong with each shard: nothing, if the checkpoint is whole. Reads all of it.
std::vector<std::string> VerifyCheckpoint(const CheckpointSummary& checkpoint, FileSystem& files = PosixFileSystem());

}  // namespace lynx

#endif  // LYNX_WORKER_CHECKPOINT_OFFLINE_H_
