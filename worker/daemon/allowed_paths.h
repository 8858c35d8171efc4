// AllowedPaths: the directories below which jobs may read data and keep checkpoints on this node. A path is followed to where
// it leads before it is compared: neither ".." nor a link leads out. Free functions; thread-safe.
#ifndef LYNX_WORKER_DAEMON_ALLOWED_PATHS_H_
#define LYNX_WORKER_DAEMON_ALLOWED_PATHS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/contract/rank_config.h"

namespace lynx {

struct AllowedPaths {
  // Absolute, without links. Empty = everywhere.
  std::vector<std::string> data_roots;
  std::vector<std::string> checkpoint_roots;
};

// From flags: paths with commas between them. NotFound for one that is not there; InvalidArgument for one that is not absolute.
absl::StatusOr<std::vector<std::string>> RootsOf(const std::string& flag, const std::string& text);

// PermissionDenied where the path leads below none of the roots; names field, path, where it leads and the roots. What is at
// its end need not be there yet. Unavailable where it cannot be followed now: a file system that fails, or a link to what is
// not there.
absl::Status CheckWithin(const std::vector<std::string>& roots, const std::string& field, const std::string& path);

// All of the job's paths. What is in the roots is trusted: a link that is made there later is followed.
absl::Status CheckPaths(const AllowedPaths& allowed, const RankConfig& config);

}  // namespace lynx

#endif  // LYNX_WORKER_DAEMON_ALLOWED_PATHS_H_
