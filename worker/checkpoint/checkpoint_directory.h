// A checkpoint directory: the names in it, what they mean, and who may change what.
//
//   step-00000100/               a visible checkpoint
//   .step-00000100.JOB.gG/       an attempt at one, of a generation of a job
//   .removed-step-00000100/      on its way out
//   .fence-JOB.gG                generation G of the job has begun: no older one may change anything any more
//
// A fence is a name and nothing else. Names only add up, so an older generation that comes late cannot undo a newer
// one's fence, whatever the order of their writes.
//
// Several jobs may have one directory, as long as no two come to the same step: each touches only what is its own.
// Free functions; thread-safe as the file system is.
#ifndef LYNX_WORKER_CHECKPOINT_CHECKPOINT_DIRECTORY_H_
#define LYNX_WORKER_CHECKPOINT_CHECKPOINT_DIRECTORY_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/checkpoint/checkpoint.h"

namespace lynx {

std::string StepName(int64_t step);
std::string AttemptPath(const std::string& directory, const CheckpointIdentity& identity);
std::string RemovedPath(const std::string& directory, int64_t step);
std::string FencePath(const std::string& directory, const JobId& job, Generation generation);

// The checkpoint that a path such as "runs/a/step-00000100/" names; nothing where it names something else, perhaps a
// directory of checkpoints.
struct CheckpointPlace {
  std::string directory;
  int64_t step = 0;
};
std::optional<CheckpointPlace> ParseCheckpointPath(std::string path);

struct DirectoryContents {
  std::vector<std::string> names;              // all, hidden ones too
  std::vector<CheckpointSummary> checkpoints;  // newest first
  std::vector<std::string> damaged;            // what is wrong with each unreadable one
};
// Fails only if the directory cannot be listed.
absl::StatusOr<DirectoryContents> ReadDirectory(FileSystem& files, const std::string& directory);

// By its index only. NotFound when there is no folder of that step; DataLoss when its index is missing or damaged.
absl::StatusOr<CheckpointSummary> ReadSummary(FileSystem& files, const std::string& directory, int64_t step);

// AlreadyExists when a newer generation of the job has raised its fence or published a checkpoint.
absl::Status CheckNotReplaced(const std::string& directory, const DirectoryContents& contents,
                              const CheckpointIdentity& identity);
// The same by the fences alone, from a new look at the directory.
absl::Status CheckFence(FileSystem& files, const std::string& directory, const CheckpointIdentity& identity);

// What older generations of the job left behind, and checkpoints that were being removed. Names in the directory.
std::vector<std::string> LeftOvers(const DirectoryContents& contents, const CheckpointIdentity& identity);

}  // namespace lynx

#endif  // LYNX_WORKER_CHECKPOINT_CHECKPOINT_DIRECTORY_H_
