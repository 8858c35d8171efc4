// AllowedPaths names the directories in which jobs may read data and keep checkpoints on this node. A path is resolved before
// it is compared, so neither ".." nor a link can lead out of a directory. Free functions; thread-safe.
#ifndef LYNX_WORKER_DAEMON_ALLOWED_PATHS_H_
#define LYNX_WORKER_DAEMON_ALLOWED_PATHS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/contract/rank_config.h"

namespace lynx::worker {

struct AllowedPaths {
  // Absolute paths without links. An empty list allows all paths.
  std::vector<std::string> data_roots;
  std::vector<std::string> checkpoint_roots;
};

// Parses a flag: paths separated by commas. Returns NotFound if a path does not exist, and InvalidArgument if a path is not
// absolute.
absl::StatusOr<std::vector<std::string>> RootsOf(const std::string& flag, const std::string& text);

// Returns PermissionDenied if the resolved path is not below one of the roots. The text names the field, the path, the resolved
// path and the roots. The last part of the path may not exist yet. Returns Unavailable if the path cannot be resolved now: a
// file system fails, or a link leads to something that does not exist.
absl::Status CheckWithin(const std::vector<std::string>& roots, const std::string& field, const std::string& path);

// Checks all of the job's paths. The operator must trust the content of the roots: if somebody makes a link there later, ranks
// follow it.
absl::Status CheckPaths(const AllowedPaths& allowed, const RankConfig& config);

}  // namespace lynx::worker

#endif  // LYNX_WORKER_DAEMON_ALLOWED_PATHS_H_
