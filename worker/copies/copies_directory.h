// A node's directory of in-memory checkpoints. It has one folder for each job that has in-memory checkpoints on this node
// (copy_store.h). The worker daemon owns the directory and removes what no job needs any more; the ranks fill it.
//
// Free functions over paths; thread-safe.
#ifndef LYNX_WORKER_COPIES_COPIES_DIRECTORY_H_
#define LYNX_WORKER_COPIES_COPIES_DIRECTORY_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/ids.h"

namespace lynx::worker {

// The default path of the directory. It is in memory, so it survives processes but not the machine. Its name depends on the
// daemon's data directory, so that each daemon has its own.
std::string DefaultCopiesDirectory(const std::string& data_directory);
// Creates the directory for this user alone if it does not exist, with its parents. PermissionDenied when another user owns it.
absl::Status MakeCopiesDirectory(const std::string& directory);
// The names in a folder, sorted; empty if the folder does not exist.
std::vector<std::string> NamesIn(const std::string& folder);
// The jobs that have a folder in the directory, sorted.
std::vector<JobId> JobsWithCopies(const std::string& directory);
// Removes the job's in-memory checkpoints, best effort.
void RemoveCopies(const std::string& directory, const JobId& job);

}  // namespace lynx::worker

#endif  // LYNX_WORKER_COPIES_COPIES_DIRECTORY_H_
