// A cluster on this machine: one server and some nodes on loopback. Each node has an agent and a worker daemon.
// DIRECTORY/cluster.json says what runs. Every command works from that file and is therefore idempotent: `up` starts
// what is not running, `down` stops what is.
#ifndef LYNX_CLI_LOCAL_LOCAL_CLUSTER_H_
#define LYNX_CLI_LOCAL_LOCAL_CLUSTER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "node/process.h"

namespace lynx::cli {

struct LocalDaemon {
  std::string name;  // "server", "node0.agent", "node0.worker"
  std::vector<std::string> argv;
  std::string log;  // path of the daemon's log
  std::string metrics_address;
  ProcessIdentity process;  // pid 0 = not started
};

struct LocalCluster {
  std::string server_address;
  std::vector<LocalDaemon> daemons;
};

// A value that is not given is taken from the existing cluster; for a new cluster it is the default.
struct LocalOptions {
  std::string directory;  // an absolute path
  std::optional<int32_t> nodes;
  // The devices of each node, in the form of lynx-agent's --devices: "2" or "cpu:2", "cuda", "cuda:1", "auto". A
  // cluster that may offer GPUs has one node, because two agents would offer the same GPUs.
  std::optional<std::string> devices;
  // The speed of the network to imitate, such as "1Gbit"; "" = as fast as loopback is.
  std::optional<std::string> link_rate;
};
inline constexpr int32_t kDefaultLocalNodes = 2;
inline constexpr char kDefaultLocalDevices[] = "2";

// InvalidArgument: the path is "", which LocalDirectory() returns if there is no home.
absl::Status CheckLocalDirectory(const std::string& directory);
// Reads what runs. NotFound and FailedPrecondition: as for ReadLocalClusterFile (cli/connect/server_place.h). DataLoss: the
// file is damaged.
absl::StatusOr<LocalCluster> ReadLocalCluster(const std::string& directory);
// Starts what is not running and waits until the server answers and every agent and worker is attached.
// FailedPrecondition: an option differs from the existing cluster, which keeps its shape. InvalidArgument, before
// anything is started: GPUs on several nodes, a text that is not a rate, or names that are not UTF-8. A daemon is
// either started and recorded, or neither; an interrupt waits until both are done. Another LocalUp or LocalDown of the
// directory waits too.
absl::StatusOr<LocalCluster> LocalUp(const LocalOptions& options);
bool IsRunning(const LocalDaemon& daemon);
// HOST:PORT of the server's live page; "" if it serves no live page.
std::string LivePageAddress(const std::string& directory);
// Stops ranks and daemons (SIGTERM, then SIGKILL) and forgets the cluster; jobs and checkpoints stay on disk. OK if nothing
// runs. If a daemon or a node's ranks cannot be stopped, the others are stopped nevertheless. Then the cluster is kept, so that
// a person can try again, and the first error is returned. Takes a bounded time.
absl::Status LocalDown(const std::string& directory);

}  // namespace lynx::cli

#endif  // LYNX_CLI_LOCAL_LOCAL_CLUSTER_H_
