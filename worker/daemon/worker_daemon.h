// WorkerDaemon is the main loop of lynx-worker. One thread owns the supervisor. The stream to the server has its own threads.
#ifndef LYNX_WORKER_DAEMON_WORKER_DAEMON_H_
#define LYNX_WORKER_DAEMON_WORKER_DAEMON_H_

#include <string>

#include "node/server_addresses.h"
#include "node/wake.h"
#include "security/node_identity.h"
#include "worker/daemon/supervisor.h"

namespace lynx::worker {

struct WorkerDaemonOptions {
  std::string node;
  ServerAddresses servers;
  std::string address;  // a numeric address of this node
  bool stop_ranks_on_exit = false;
  CredentialSource credentials;  // for the connection to the server; null: plain text
  PeerCredentials peers;         // for connections to and from other nodes' daemons
};

// Runs until a stop signal. By default the ranks go on afterwards. With stop_ranks_on_exit, the daemon first ends the ranks
// (SIGTERM, and SIGKILL after the grace), which takes at most a little longer than the grace. Returns an error if the daemon
// could not start.
absl::Status RunWorkerDaemon(const WorkerDaemonOptions& options, RankSupervisor& supervisor, WorkerMetrics& metrics,
                             StopSignals& signals, const Clock& clock);

// Ends all ranks that the supervisor has in its table, and returns when their processes have ended.
void StopAllRanks(RankSupervisor& supervisor);

}  // namespace lynx::worker

#endif  // LYNX_WORKER_DAEMON_WORKER_DAEMON_H_
