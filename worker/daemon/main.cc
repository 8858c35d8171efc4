// lynx-worker is the daemon that runs the ranks of a node. See worker/daemon/supervisor.h.
//
// Exit codes: 0 after SIGTERM, SIGINT or --stop-all; 1 when it cannot start; 2 for wrong flags.
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "common/clock.h"
#include "common/status.h"
#include "common/version.h"
#include "node/daemon.h"
#include "node/flags.h"
#include "node/log.h"
#include "node/metrics_endpoint.h"
#include "node/rate.h"
#include "security/node_identity.h"
#include "worker/copies/copies_directory.h"
#include "worker/daemon/worker_daemon.h"

namespace lynx::worker {
namespace {

struct WorkerFlags {
  std::string node = DefaultNodeName();
  std::string server = "127.0.0.1:7470";
  std::string address = "127.0.0.1";
  std::string data_dir = "/var/lib/lynx/worker";
  std::string rank_binary = BesideThisBinary("lynx-rank");
  std::string link_rate;
  std::string copies_dir = "auto";
  std::string oom_counter = "auto";
  int64_t copies_limit_mib = 0;
  std::string metrics_address;
  bool rank_metrics = false;
  std::string log_level = "info";
  bool stop_ranks_on_exit = false;
  bool stop_all = false;
  int64_t stop_grace_ms = 5000;
  std::string job_user;
  bool root_ranks = false;
  std::string data_root;
  std::string checkpoint_root;
  IdentityFlags identity;

  std::vector<Flag> All() {
    std::vector<Flag> flags = {
        {"node", &node, "name of this node"},
        {"server", &server, "host:port of lynx-server; of several servers all, with commas: the one that leads is followed"},
        {"address", &address, "numeric address of this node that the ranks of other nodes reach"},
        {"data-dir", &data_dir, "directory for the ranks' files; one daemon per directory"},
        {"rank-binary", &rank_binary, "the rank process"},
        {"job-user", &job_user, "unprivileged user that ranks run as, where this daemon is root; empty: as the daemon"},
        {"root-ranks", &root_ranks, "ranks may run as root though the node has a certificate (--identity-dir)"},
        {"data-root", &data_root, "directories, with commas, below which jobs may read data; empty: everywhere"},
        {"checkpoint-root", &checkpoint_root,
         "directories, with commas, below which jobs may keep and take checkpoints; empty: everywhere"},
        {"link-rate", &link_rate,
         "pace every connection between ranks to this rate (bytes per second, or such as 1Gbit), to stand for a "
         "slower "
         "network; empty: not paced"},
        {"copies-dir", &copies_dir,
         "directory in memory for copies of ranks' states, which outlive the ranks; auto: one in /dev/shm, named for "
         "--data-dir; "
         "empty: this node keeps none"},
        {"copies-limit-mib", &copies_limit_mib,
         "the most that copies may take, in MiB; 0: half of the memory that is free when a job's ranks start"},
        {"oom-counter", &oom_counter,
         "file whose line 'oom_kill N' counts the processes that the kernel ended for want of memory; auto: of this process's "
         "cgroup, "
         "else of the machine"},
        {"metrics-address", &metrics_address, "host:port to serve /metrics, /healthz and /readyz on; empty: not served"},
        {"rank-metrics", &rank_metrics, "serve series of single ranks at /metrics, too: their number grows with the cluster"},
        {"log-level", &log_level, "trace, debug, info, warn or error"},
        {"stop-ranks-on-exit", &stop_ranks_on_exit,
         "end the ranks on SIGTERM and SIGINT; otherwise they go on without the daemon"},
        {"stop-grace-ms", &stop_grace_ms, "milliseconds from asking a rank to end to killing it"},
        {"stop-all", &stop_all, "end all ranks that an earlier daemon has left running in --data-dir, and exit"},
    };
    const std::vector<Flag> of_identity = identity.All();
    flags.insert(flags.end(), of_identity.begin(), of_identity.end());
    return flags;
  }
};

constexpr int64_t kMaxMebibytes = int64_t{1} << 30;

// Returns the directory for in-memory checkpoints. If the node cannot keep in-memory checkpoints, logs the reason and returns
// "".
std::string CopiesDirectoryOf(const WorkerFlags& flags, const std::string& data_directory, const JobUser& user) {
  if (flags.copies_dir.empty()) return "";
  if (user.user != 0 && user.user != ::geteuid()) {
    LogInfo("keeps no copies of ranks' states in memory: ranks are another user's (--job-user) than the daemon's");
    return "";
  }
  std::error_code error;
  const std::string directory = flags.copies_dir == "auto"
                                    ? DefaultCopiesDirectory(data_directory)
                                    : std::filesystem::absolute(flags.copies_dir, error).lexically_normal().string();
  const absl::Status made = MakeCopiesDirectory(directory);
  if (made.ok()) return directory;
  LogWarn("keeps no copies of ranks' states in memory: {}; give another --copies-dir", std::string(made.message()));
  return "";
}

absl::StatusOr<SupervisorOptions> SupervisorOptionsOf(const WorkerFlags& flags) {
  SupervisorOptions options;
  std::error_code error;
  options.data_directory = std::filesystem::absolute(flags.data_dir, error).lexically_normal().string();
  options.rank_binary = flags.rank_binary;
  if (flags.copies_limit_mib < 0 || flags.copies_limit_mib > kMaxMebibytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("--copies-limit-mib ", flags.copies_limit_mib, " is not between 0 and ", kMaxMebibytes));
  }
  options.copies_limit = kMiB * flags.copies_limit_mib;
  options.oom_counter = flags.oom_counter == "auto" ? OomCounterFile() : flags.oom_counter;
  options.address = flags.address;
  LYNX_RETURN_IF_ERROR(CheckNumericAddress(options.address, "--address"));
  LYNX_ASSIGN_OR_RETURN(options.user, FindJobUser(flags.job_user));
  const bool allowed = flags.root_ranks || flags.stop_all;
  const RootRanks unless_allowed = flags.identity.directory.empty() ? RootRanks::kNoTls : RootRanks::kNobody;
  LYNX_RETURN_IF_ERROR(CheckNotRoot(options.user, allowed ? RootRanks::kOperator : unless_allowed));
  options.copies_directory = CopiesDirectoryOf(flags, options.data_directory, options.user);
  LYNX_ASSIGN_OR_RETURN(options.allowed.data_roots, RootsOf("--data-root", flags.data_root));
  LYNX_ASSIGN_OR_RETURN(options.allowed.checkpoint_roots, RootsOf("--checkpoint-root", flags.checkpoint_root));
  absl::StatusOr<int64_t> rate = ParseRate(flags.link_rate);
  if (!rate.ok()) return Annotate(rate.status(), "--link-rate");
  options.pacing_bytes_per_second = *rate;
  if (flags.stop_grace_ms < 0 || flags.stop_grace_ms > 3'600'000) {
    return absl::InvalidArgumentError(absl::StrCat("--stop-grace-ms ", flags.stop_grace_ms, " is not between 0 and 3600000"));
  }
  options.grace = Nanos(flags.stop_grace_ms * 1'000'000);
  return options;
}

absl::Status Run(const WorkerFlags& flags, StopSignals& signals) {
  LYNX_RETURN_IF_ERROR(StartLog(flags.log_level));
  LYNX_ASSIGN_OR_RETURN(SupervisorOptions supervisor_options, SupervisorOptionsOf(flags));
  const absl::StatusOr<ServerAddresses> servers = ServerAddresses::Parse(flags.server);
  if (!servers.ok()) return Annotate(servers.status(), "--server");
  WorkerDaemonOptions options{.node = flags.node,
                              .servers = *servers,
                              .address = supervisor_options.address,
                              .stop_ranks_on_exit = flags.stop_ranks_on_exit};
  LYNX_RETURN_IF_ERROR(CheckNodeName(options.node));
  if (!flags.stop_all) LYNX_RETURN_IF_ERROR(CheckExecutable(supervisor_options.rank_binary, "--rank-binary"));

  const RealClock clock;
  WorkerMetrics metrics(flags.rank_metrics);
  LYNX_ASSIGN_OR_RETURN(const std::unique_ptr<RankSupervisor> supervisor,
                        RankSupervisor::Open(std::move(supervisor_options), clock, metrics));
  if (flags.stop_all) {
    StopAllRanks(*supervisor);
    return absl::OkStatus();
  }
  LYNX_ASSIGN_OR_RETURN(const std::unique_ptr<NodeIdentity> identity,
                        NodeIdentity::Open(flags.identity, flags.node, options.servers, clock));
  options.credentials = CredentialsOf(identity.get());
  options.peers = PeerCredentialsOf(identity.get());
  if (!flags.metrics_address.empty()) {
    LYNX_ASSIGN_OR_RETURN(const int port, ServeMetrics(flags.metrics_address, metrics.registry(),
                                                       ReadyWhileAttached(metrics.registry(), metrics.attached())));
    LogInfo("metrics on port {}", port);
  }
  LogInfo("lynx-worker {} of node {}, server {}", kVersion, options.node, options.servers.text());
  return RunWorkerDaemon(options, *supervisor, metrics, signals, clock);
}

}  // namespace
}  // namespace lynx::worker

int main(int argc, char** argv) {
  lynx::worker::WorkerFlags flags;
  lynx::ParseCommandLine(argc, argv, "lynx-worker", "runs the ranks of a node", flags.All());
  lynx::StopWatchingLockOrder();
  lynx::StopSignals signals;
  const absl::Status status = lynx::worker::Run(flags, signals);
  if (status.ok()) return 0;
  std::fprintf(stderr, "lynx-worker: %s\n", std::string(status.message()).c_str());
  return status.code() == absl::StatusCode::kInvalidArgument ? 2 : 1;
}
