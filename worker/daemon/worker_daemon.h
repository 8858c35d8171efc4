// WorkerDaemon: the loop of lynx-worker. One thread owns the supervisor; the stream to the server has its own threads.
#ifndef LYNX_WORKER_DAEMON_WORKER_DAEMON_H_
#define LYNX_WORKER_DAEMON_WORKER_DAEMON_H_

#include <string>

#include "node/wake.h"
#include "security/node_identity.h"
#include "worker/daemon/supervisor.h"

namespace lynx::worker {

struct WorkerDaemonOptions {
  std::string node;
  std::string server;   // host:port
  std::string address;  // numeric
  bool stop_ranks_on_exit = false;
  CredentialSource credentials;  // to the server; null: plain text
  PeerCredentials peers;         // to and from other nodes' daemons
};

// Runs until a stop signal. After that the ranks continue. With stop_ranks_on_exit they are ended first (SIGTERM, and SIGKILL
// after the grace), which takes at most a little more than the grace. An error means that the daemon could not start.
absl::Status RunWorkerDaemon(const WorkerDaemonOptions& options, RankSupervisor& supervisor, WorkerMetrics& metrics,
                             StopSignals& signals, const Clock& clock);

// Ends all ranks that the supervisor has adopted, and returns when they are gone.
void StopAllRanks(RankSupervisor& supervisor);

}  // namespace lynx::worker

#endif  // LYNX_WORKER_DAEMON_WORKER_DAEMON_H_
