// A cluster on this machine: one server and some nodes, each an agent and a worker daemon, on loopback. What runs is
// written in DIRECTORY/cluster.json; every command works from that file, so it is idempotent: `up` starts what is not
// running, `down` stops what is.
#ifndef LYNX_CLI_LOCAL_CLUSTER_H_
#define LYNX_CLI_LOCAL_CLUSTER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "node/process.h"

namespace lynx {

struct LocalDaemon {
  std::string name;               // "server", "node0.agent", "node0.worker"
  std::vector<std::string> argv;
  std::string log;                // path
  std::string metrics_address;
  ProcessIdentity process;        // pid 0 = not started
};

struct LocalCluster {
  std::string server_address;
  std::vector<LocalDaemon> daemons;
};

// What is not given is as the existing cluster has it, or for a new one the default.
struct LocalOptions {
  std::string directory;
  std::optional<int32_t> nodes;
  // Of each node, as lynx-agent's --devices takes it: "2" or "cpu:2", "cuda", "cuda:1", "auto". A cluster that may offer GPUs
  // has one node: two agents would offer the same ones.
  std::optional<std::string> devices;
  // E.g. "1Gbit": paced, to stand for a network; "" = as fast as loopback goes.
  std::optional<std::string> link_rate;
};
inline constexpr int32_t kDefaultLocalNodes = 2;
inline constexpr char kDefaultLocalDevices[] = "2";

absl::StatusOr<LocalCluster> ReadLocalCluster(const std::string& directory);
// Starts what is not running and waits until the server answers and every agent and worker is attached. An existing
// cluster keeps its shape: options that differ from it are FailedPrecondition. GPUs on several nodes: InvalidArgument. A daemon is started and written down, or
// neither: an interrupt in between waits.
absl::StatusOr<LocalCluster> LocalUp(const LocalOptions& options);
bool IsRunning(const LocalDaemon& daemon);
// HOST:PORT of the server's live page; "" where it serves none.
std::string LivePageAddress(const std::string& directory);
// Stops ranks and daemons (SIGTERM, then SIGKILL) and forgets the cluster; jobs and checkpoints stay on disk. OK when
// nothing runs. Where a node's ranks cannot be stopped, those of the others still are, and the cluster is kept, so that
// it can be tried again; the error is the first.
absl::Status LocalDown(const std::string& directory);

}  // namespace lynx

#endif  // LYNX_CLI_LOCAL_CLUSTER_H_
