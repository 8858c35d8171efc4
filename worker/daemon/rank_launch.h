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

// Checks the whole assignment, and adds the daemon's own settings: one compute thread for each core, but at least one. The
// assignment must have all peers and the checkpoint directory. Returns InvalidArgument with the name of the wrong field.
absl::StatusOr<RankConfig> ConfigFor(const v1::RankAssignment& assignment, int64_t pacing_bytes_per_second);

// True if the rank is the only one of its job. Then no peer watches it, and it tells its progress in a file.
bool IsAlone(const RankConfig& config);

struct LaunchedRank {
  Child child;
  StoredRank record;  // in the phase kRunning, as it was stored
};

// The rank program, and the user that it runs as.
struct RankProgram {
  std::string binary;
  std::string lease_file;
  JobUser user;
};

// Writes the configuration and the record, starts the program with the socket as descriptor 3, and records the process. The
// caller keeps the socket. After an error no process runs, and the caller must update the record. The folder belongs to the
// daemon's user. If ranks run as another user, that user can write only three files of the folder: the report file, the
// configuration and the progress file. No third user can read the configuration, because it contains the connection secret.
absl::StatusOr<LaunchedRank> LaunchRank(const RankFolder& folder, const RankConfig& config, const PeerAddress& address,
                                        int socket, const RankProgram& program);

}  // namespace lynx::worker

#endif  // LYNX_WORKER_DAEMON_RANK_LAUNCH_H_
