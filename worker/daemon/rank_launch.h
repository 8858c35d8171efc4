// Starts a rank process from the server's assignment. Free functions; not thread-safe for the same folder.
#ifndef LYNX_WORKER_DAEMON_RANK_LAUNCH_H_
#define LYNX_WORKER_DAEMON_RANK_LAUNCH_H_

#include <string>

#include "absl/status/statusor.h"
#include "lynx/v1/cluster.pb.h"
#include "node/process.h"
#include "worker/contract/rank_config.h"
#include "worker/daemon/job_user.h"
#include "worker/daemon/rank_folder.h"

namespace lynx::worker {

RankKey KeyOf(const v1::RankAssignment& assignment);

// Checks the whole assignment and adds the daemon's own settings: one compute thread per core, at least one. InvalidArgument
// names the field; all peers and the checkpoint directory must be there.
absl::StatusOr<RankConfig> ConfigFor(const v1::RankAssignment& assignment, int64_t pacing_bytes_per_second);

struct LaunchedRank {
  Child child;
  StoredRank record;  // kRunning, as stored
};

// The rank program, and the user that it runs as.
struct RankProgram {
  std::string binary;
  std::string lease_file;
  JobUser user;
};

// Writes the configuration and the record, starts the program with the socket as descriptor 3, and records the process. The
// caller keeps the socket. After an error nothing runs, and the caller must update the record. The folder belongs to the
// daemon's user. If ranks run as another user, this user can write only the report file and the configuration in it. Only this
// user can read the configuration, because it contains the secret of the ranks' connections.
absl::StatusOr<LaunchedRank> LaunchRank(const RankFolder& folder, const RankConfig& config, const PeerAddress& address,
                                        int socket, const RankProgram& program);

}  // namespace lynx::worker

#endif  // LYNX_WORKER_DAEMON_RANK_LAUNCH_H_
