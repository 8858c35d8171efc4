// Defines the names in a checkpoint directory: what each name means, and who may change what.
//
//   step-00000100/               a visible checkpoint
//   .step-00000100.JOB.gG/       a generation's attempt to write one
//   .removed-step-00000100/      a checkpoint that is being removed
//   .fence-JOB.gG                generation G of the job has begun: no older one may change anything from now on
//
// A fence is an entry of the directory whose content does not matter. A generation adds its fence and overwrites no other
// fence. So an older generation that writes late cannot undo the fence of a newer one.
//
// Several jobs may use one directory if no two of them reach the same step. Each job touches only its own names. Free
// functions; thread-safe if the file system is.
#ifndef LYNX_WORKER_CHECKPOINT_CHECKPOINT_DIRECTORY_H_
#define LYNX_WORKER_CHECKPOINT_CHECKPOINT_DIRECTORY_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/checkpoint/checkpoint.h"

namespace lynx::worker {

std::string StepName(int64_t step);
std::string AttemptPath(const std::string& directory, const CheckpointIdentity& identity);
std::string RemovedPath(const std::string& directory, int64_t step);
std::string FencePath(const std::string& directory, const JobId& job, Generation generation);

// Parses a path such as "runs/a/step-00000100/", which names a checkpoint. Returns nullopt if the path names something else,
// for example a directory of checkpoints.
struct CheckpointPlace {
  std::string directory;
  int64_t step = 0;
};
std::optional<CheckpointPlace> ParseCheckpointPath(std::string path);

struct DirectoryContents {
  std::vector<std::string> names;              // all names in the directory, including hidden ones
  std::vector<CheckpointSummary> checkpoints;  // newest first
  std::vector<std::string> damaged;            // says for each unreadable checkpoint what is wrong
};
// Returns an error only if the directory cannot be listed.
absl::StatusOr<DirectoryContents> ReadDirectory(FileSystem& files, const std::string& directory);

// Reads only the index of the checkpoint. NotFound: there is no folder of that step. DataLoss: its index is missing or damaged.
absl::StatusOr<CheckpointSummary> ReadSummary(FileSystem& files, const std::string& directory, int64_t step);

// Returns AlreadyExists if a newer generation of the job has raised its fence or published a checkpoint.
absl::Status CheckNotReplaced(const std::string& directory, const DirectoryContents& contents,
                              const CheckpointIdentity& identity);
// Lists the directory, and returns AlreadyExists if a newer generation of the job has raised its fence. Ignores checkpoints.
absl::Status CheckFence(FileSystem& files, const std::string& directory, const CheckpointIdentity& identity);

// Returns the names that older generations of the job left in the directory, and the names of checkpoints whose removal was
// interrupted.
std::vector<std::string> LeftOvers(const DirectoryContents& contents, const CheckpointIdentity& identity);

}  // namespace lynx::worker

#endif  // LYNX_WORKER_CHECKPOINT_CHECKPOINT_DIRECTORY_H_
