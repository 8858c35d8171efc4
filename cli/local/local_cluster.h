// A cluster on this machine: one server and some nodes, each an agent and a worker daemon, on loopback. What runs is
// written in DIRECTORY/cluster.json; every command works from that file, so it is idempotent: `up` starts what is not
// running, `down` stops what is.
#ifndef LYNX_CLI_LOCAL_LOCAL_CLUSTER_H_
#define LYNX_CLI_LOCAL_LOCAL_CLUSTER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "node/process.h"

namespace lynx {

struct LocalDaemon {
  std::string name;  // "server", "node0.agent", "node0.worker"
  std::vector<std::string> argv;
  std::string log;  // path
  std::string metrics_address;
  ProcessIdentity process;  // pid 0 = not started
};

struct LocalCluster {
  std::string server_address;
  std::vector<LocalDaemon> daemons;
};

// What is not given is as the existing cluster has it, or for a new one the default.
struct LocalOptions {
  std::string directory;  // absolute
  std::optional<int32_t> nodes;
  // The devices of each node, in the form of lynx-agent's --devices: "2" or "cpu:2", "cuda", "cuda:1", "auto". A
  // cluster that may offer GPUs has one node, because two agents would offer the same GPUs.
  std::optional<std::string> devices;
  // E.g. "1Gbit": paced, to stand for a network; "" = as fast as loopback goes.
  std::optional<std::string> link_rate;
};
inline constexpr int32_t kDefaultLocalNodes = 2;
inline constexpr char kDefaultLocalDevices[] = "2";

// InvalidArgument for "", which LocalDirectory() gives where there is no home.
absl::Status CheckLocalDirectory(const std::string& directory);
// NotFound and FailedPrecondition as ReadLocalClusterFile (cli/connect/server_place.h); DataLoss for a damaged file.
absl::StatusOr<LocalCluster> ReadLocalCluster(const std::string& directory);
// Starts what is not running and waits until the server answers and every agent and worker is attached. An existing
// cluster keeps its shape: options that differ from it are FailedPrecondition. GPUs on several nodes, a rate that is none, and
// names that are not UTF-8 are InvalidArgument, before anything is started. A daemon is started and written down, or neither:
// an interrupt in between waits. So does another LocalUp or LocalDown of the directory.
absl::StatusOr<LocalCluster> LocalUp(const LocalOptions& options);
bool IsRunning(const LocalDaemon& daemon);
// HOST:PORT of the server's live page; "" where it serves none.
std::string LivePageAddress(const std::string& directory);
// Stops ranks and daemons (SIGTERM, then SIGKILL) and forgets the cluster; jobs and checkpoints stay on disk. OK when
// nothing runs. Where a daemon or a node's ranks cannot be stopped, the others still are, and the cluster is kept, so that
// it can be tried again; the error is the first, and says why. Takes a bounded time.
absl::Status LocalDown(const std::string& directory);

}  // namespace lynx

#endif  // LYNX_CLI_LOCAL_LOCAL_CLUSTER_H_
