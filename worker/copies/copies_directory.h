// A node's directory of in-memory checkpoints. The directory has one folder for each job with in-memory checkpoints on this
// node (copy_store.h). The worker daemon owns the directory and removes the folders that no job needs any more. The ranks write
// the files.
//
// Free functions over paths; thread-safe.
#ifndef LYNX_WORKER_COPIES_COPIES_DIRECTORY_H_
#define LYNX_WORKER_COPIES_COPIES_DIRECTORY_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/ids.h"

namespace lynx::worker {

// Returns the default path of the directory. The directory is in the machine's memory: its files survive the end of processes,
// but not of the machine. Its name depends on the daemon's data directory, so that each daemon has its own directory.
std::string DefaultCopiesDirectory(const std::string& data_directory);
// Creates the directory and its parents if they do not exist. Only this user may access the directory. Returns PermissionDenied
// if another user owns it.
absl::Status MakeCopiesDirectory(const std::string& directory);
// Returns the names in a folder, sorted. The result is empty if the folder does not exist.
std::vector<std::string> NamesIn(const std::string& folder);
// Returns the jobs that have a folder in the directory, sorted.
std::vector<JobId> JobsWithCopies(const std::string& directory);
// Removes the job's in-memory checkpoints. Ignores errors.
void RemoveCopies(const std::string& directory, const JobId& job);

}  // namespace lynx::worker

#endif  // LYNX_WORKER_COPIES_COPIES_DIRECTORY_H_
