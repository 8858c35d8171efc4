// Checkpoints for people: finds them by a path, shows and verifies them without a job. The command line includes only this
// header and hugging_face.h of the worker.
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
  std::vector<std::string> damaged;            // for each without a readable index, the reason
};
// The checkpoint that a path such as "runs/a/step-00000100" names, or all checkpoints of the directory that it names. NotFound
// when there is none; an error when the directory cannot be listed.
absl::StatusOr<FoundCheckpoints> FindCheckpoints(const std::string& path, FileSystem& files = PosixFileSystem());

struct TensorSummary {
  std::string name;
  std::vector<int64_t> shape;  // of the whole tensor
  int32_t shards = 0;          // number of shards that have a part of it
};
// The whole tensors of a checkpoint, by name. DataLoss, naming the file, when a file's header cannot be read.
absl::StatusOr<std::vector<TensorSummary>> TensorsOf(const CheckpointSummary& checkpoint,
                                                     FileSystem& files = PosixFileSystem());

// Describes the damage of each damaged shard; empty if the checkpoint is whole. Reads all of it.
std::vector<std::string> VerifyCheckpoint(const CheckpointSummary& checkpoint, FileSystem& files = PosixFileSystem());

}  // namespace lynx

#endif  // LYNX_WORKER_CHECKPOINT_OFFLINE_H_
