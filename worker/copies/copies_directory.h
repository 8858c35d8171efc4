// A node's directory of copies: one folder for each job of whose states it keeps some (copy_store.h). It is the worker
// daemon's, which removes what no job needs any more; the ranks fill it.
//
// Free functions over paths; thread-safe.
#ifndef LYNX_WORKER_COPIES_COPIES_DIRECTORY_H_
#define LYNX_WORKER_COPIES_COPIES_DIRECTORY_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/ids.h"

namespace lynx {

// In memory that outlives processes and not the machine; named for the daemon's data directory, of which each has its own.
std::string DefaultCopiesDirectory(const std::string& data_directory);
// For the user alone, made if it is not there, with its parents. PermissionDenied when it is somebody else's.
absl::Status MakeCopiesDirectory(const std::string& directory);
// Names in a folder, sorted; none where it is absent.
std::vector<std::string> NamesIn(const std::string& folder);
// Jobs that have a folder there, sorted.
std::vector<JobId> JobsWithCopies(const std::string& directory);
// Best effort.
void RemoveCopies(const std::string& directory, const JobId& job);

}  // namespace lynx

#endif  // LYNX_WORKER_COPIES_COPIES_DIRECTORY_H_
