// Starting a rank process from what the server assigned. Free functions; not thread-safe for the same folder.
#ifndef LYNX_WORKER_DAEMON_RANK_LAUNCH_H_
#define LYNX_WORKER_DAEMON_RANK_LAUNCH_H_

#include <string>

#include "absl/status/statusor.h"
#include "lynx/v1/cluster.pb.h"
#include "node/process.h"
#include "worker/contract/rank_config.h"
#include "worker/daemon/job_user.h"
#include "worker/daemon/rank_folder.h"

namespace lynx {

RankKey KeyOf(const v1::RankAssignment& assignment);

// The whole assignment, checked, with the daemon's own settings: one compute thread per core, at least one.
// InvalidArgument names the field; the peers must be complete and the checkpoint directory given.
absl::StatusOr<RankConfig> ConfigFor(const v1::RankAssignment& assignment, int64_t pacing_bytes_per_second);

struct LaunchedRank {
  Child child;
  StoredRank record;  // kRunning, as stored
};

// The rank process, and whom it runs as.
struct RankProgram {
  std::string binary;
  std::string lease_file;
  JobUser user;
};

// Writes the configuration and the record, starts the program with the socket as descriptor 3, and records the process. The
// socket stays the caller's. On an error nothing runs; what the record then says is the caller's to write. The folder stays
// the daemon's: another user can write nothing in it but the
// report file and the configuration, which it alone reads: that has the secret of the ranks' connections.
absl::StatusOr<LaunchedRank> LaunchRank(const RankFolder& folder, const RankConfig& config, const PeerAddress& address,
                                        int socket, const RankProgram& program);

}  // namespace lynx

#endif  // LYNX_WORKER_DAEMON_RANK_LAUNCH_H_
