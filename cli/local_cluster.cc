#include "cli/local_cluster.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "cli/client.h"
#include "common/clock.h"
#include "common/status.h"

namespace lynx {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr Nanos kReadyTimeout{60'000'000'000};
constexpr Nanos kStopTimeout{10'000'000'000};

std::string ClusterFile(const std::string& directory) { return directory + "/cluster.json"; }

absl::Status WriteCluster(const std::string& directory, const LocalCluster& cluster) {
  json daemons = json::array();
  for (const LocalDaemon& d : cluster.daemons) {
    daemons.push_back({{"name", d.name}, {"argv", d.argv}, {"log", d.log}, {"metricsAddress", d.metrics_address},
                       {"pid", d.pid}, {"startTicks", d.start_ticks}});
  }
  const json root = {{"serverAddress", cluster.server_address}, {"daemons", daemons}};
  const std::string temporary = ClusterFile(directory) + ".new";
  std::ofstream out(temporary, std::ios::trunc);
  out << root.dump(2) << "\n";
  out.close();
  if (!out || std::rename(temporary.c_str(), ClusterFile(directory).c_str()) != 0) {
    return absl::UnavailableError(absl::StrCat("cannot write ", ClusterFile(directory), ": ", std::strerror(errno)));
  }
  return absl::OkStatus();
}

// 0 when there is no such process, or only its zombie.
int64_t StartTicks(int64_t pid) {
  std::ifstream in(absl::StrCat("/proc/", pid, "/stat"));
  std::string line;
  if (!std::getline(in, line)) return 0;
  // The second field is in parentheses and may hold anything, so count from the last ')'.
  const std::vector<std::string> fields = absl::StrSplit(line.substr(line.rfind(')') + 2), ' ');
  if (fields.size() < 20 || fields[0] == "Z") return 0;
  return std::strtoll(fields[19].c_str(), nullptr, 10);
}

// A TCP port that is free now.
int32_t FreePort() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  int32_t port = 0;
  if (bind(fd, reinterpret_cast<sockaddr*>(&address), length) == 0 &&
      getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) == 0) {
    port = ntohs(address.sin_port);
  }
  close(fd);
  return port;
}

std::string FreeAddress() { return absl::StrCat("127.0.0.1:", FreePort()); }

// The daemons lie beside lynxctl.
std::string BinaryPath(const std::string& name) {
  std::error_code error;
  return (fs::read_symlink("/proc/self/exe", error).parent_path() / name).string();
}

std::vector<int> AvailableCores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  sched_getaffinity(0, sizeof set, &set);
  std::vector<int> cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  }
  return cores;
}

// The cores of one node: an equal share, or one core in turn where nodes outnumber them.
std::string CoresOf(int32_t node, int32_t nodes) {
  const std::vector<int> cores = AvailableCores();
  const size_t share = cores.size() / nodes;
  if (share == 0) return absl::StrCat(cores[node % cores.size()]);
  return absl::StrJoin(cores.begin() + node * share, cores.begin() + (node + 1) * share, ",");
}

LocalCluster Describe(const LocalOptions& options) {
  LocalCluster cluster;
  cluster.server_address = FreeAddress();
  auto add = [&](const std::string& name, const std::string& binary, std::vector<std::string> arguments) {
    LocalDaemon daemon;
    daemon.name = name;
    daemon.metrics_address = FreeAddress();
    daemon.log = absl::StrCat(options.directory, "/logs/", name, ".log");
    daemon.argv = {BinaryPath(binary)};
    arguments.push_back("--metrics-address=" + daemon.metrics_address);
    daemon.argv.insert(daemon.argv.end(), arguments.begin(), arguments.end());
    cluster.daemons.push_back(daemon);
  };
  add("server", "lynx-server",
      {"--listen=" + cluster.server_address, "--data-dir=" + options.directory + "/server"});
  for (int32_t i = 0; i < options.nodes; ++i) {
    const std::string node = absl::StrCat("node", i);
    const std::string home = absl::StrCat(options.directory, "/", node);
    std::vector<std::string> common = {"--node=" + node, "--server=" + cluster.server_address, "--address=127.0.0.1"};
    if (!options.link_rate.empty()) common.push_back("--link-rate=" + options.link_rate);
    std::vector<std::string> agent = common;
    agent.push_back("--data-dir=" + home + "/agent");
    agent.push_back(absl::StrCat("--devices=", options.devices_per_node));
    agent.push_back("--cores=" + CoresOf(i, options.nodes));
    add(node + ".agent", "lynx-agent", agent);
    std::vector<std::string> worker = common;
    worker.push_back("--data-dir=" + home + "/worker");
    add(node + ".worker", "lynx-worker", worker);
  }
  return cluster;
}

absl::Status Spawn(LocalDaemon& daemon) {
  std::error_code error;
  fs::create_directories(fs::path(daemon.log).parent_path(), error);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, 1, daemon.log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
  posix_spawn_file_actions_adddup2(&files, 1, 2);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID);  // Ctrl-C here must not reach it
  std::vector<char*> argv;
  for (std::string& argument : daemon.argv) argv.push_back(argument.data());
  argv.push_back(nullptr);
  pid_t pid = 0;
  const int failed = posix_spawn(&pid, argv[0], &files, &attributes, argv.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  if (failed != 0) {
    return absl::UnavailableError(absl::StrCat("cannot start ", daemon.argv[0], ": ", std::strerror(failed),
                                               "; is the build complete?"));
  }
  daemon.pid = pid;
  daemon.start_ticks = StartTicks(pid);
  return absl::OkStatus();
}

std::string LastLines(const std::string& path, size_t lines) {
  std::ifstream in(path);
  std::vector<std::string> all;
  for (std::string line; std::getline(in, line);) all.push_back(line);
  if (all.size() > lines) all.erase(all.begin(), all.end() - static_cast<int64_t>(lines));
  return absl::StrJoin(all, "\n");
}

absl::Status AwaitAttached(const LocalCluster& cluster, size_t nodes) {
  const RealClock clock;
  const Nanos deadline = clock.Monotonic() + kReadyTimeout;
  Client client({cluster.server_address, "the local cluster"}, NanosFromSeconds(2));
  while (true) {
    auto response = client.Nodes();
    size_t attached = 0;
    if (response.ok()) {
      for (const v1::Node& node : response->nodes()) attached += node.agent_attached() && node.worker_attached();
      if (attached >= nodes) return absl::OkStatus();
    }
    for (const LocalDaemon& daemon : cluster.daemons) {
      int unused;
      waitpid(static_cast<pid_t>(daemon.pid), &unused, WNOHANG);  // so that one that died is not taken for running
      if (!IsRunning(daemon)) {
        return absl::UnavailableError(absl::StrCat(daemon.name, " ended while starting; the end of its log, ", daemon.log,
                                                   ":\n", LastLines(daemon.log, 5)));
      }
    }
    if (clock.Monotonic() > deadline) {
      return absl::DeadlineExceededError(absl::StrCat(attached, " of ", nodes, " nodes are attached after ",
                                                      FormatDuration(kReadyTimeout), "; see the logs beside ",
                                                      cluster.daemons[0].log));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

void Stop(const std::vector<const LocalDaemon*>& daemons) {
  const RealClock clock;
  for (const LocalDaemon* daemon : daemons) {
    if (IsRunning(*daemon)) kill(static_cast<pid_t>(daemon->pid), SIGTERM);
  }
  const Nanos deadline = clock.Monotonic() + kStopTimeout;
  for (const LocalDaemon* daemon : daemons) {
    while (IsRunning(*daemon)) {
      if (clock.Monotonic() > deadline) kill(static_cast<pid_t>(daemon->pid), SIGKILL);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }
}

// Ranks survive their daemon, so they are stopped by their own records.
void StopRanks(const LocalDaemon& worker) {
  LocalDaemon stopper = worker;
  stopper.argv.push_back("--stop-all");
  if (Spawn(stopper).ok()) waitpid(static_cast<pid_t>(stopper.pid), nullptr, 0);
}

}  // namespace

std::string LocalDirectory() {
  if (const char* home = std::getenv("LYNX_HOME"); home != nullptr && *home != '\0') return std::string(home) + "/local";
  const char* home = std::getenv("HOME");
  return std::string(home == nullptr ? "/tmp" : home) + "/.lynx/local";
}

bool IsRunning(const LocalDaemon& daemon) {
  return daemon.pid != 0 && daemon.start_ticks != 0 && StartTicks(daemon.pid) == daemon.start_ticks;
}

absl::StatusOr<LocalCluster> ReadLocalCluster(const std::string& directory) {
  std::ifstream in(ClusterFile(directory));
  if (!in) return absl::NotFoundError(absl::StrCat("there is no local cluster in ", directory, "; start one with 'lynxctl local up'"));
  const json root = json::parse(in, nullptr, /*allow_exceptions=*/false);
  try {
    LocalCluster cluster;
    cluster.server_address = root.at("serverAddress").get<std::string>();
    for (const json& d : root.at("daemons")) {
      LocalDaemon daemon;
      daemon.name = d.at("name").get<std::string>();
      daemon.argv = d.at("argv").get<std::vector<std::string>>();
      daemon.log = d.at("log").get<std::string>();
      daemon.metrics_address = d.at("metricsAddress").get<std::string>();
      daemon.pid = d.at("pid").get<int64_t>();
      daemon.start_ticks = d.at("startTicks").get<int64_t>();
      cluster.daemons.push_back(daemon);
    }
    return cluster;
  } catch (const json::exception& error) {
    return absl::DataLossError(absl::StrCat(ClusterFile(directory), " is damaged (", error.what(),
                                            "); stop its processes by hand and remove the file"));
  }
}

absl::StatusOr<LocalCluster> LocalUp(const LocalOptions& options) {
  std::error_code error;
  fs::create_directories(options.directory, error);
  if (error) return absl::UnavailableError(absl::StrCat("cannot create ", options.directory, ": ", error.message()));
  const LocalCluster wanted = Describe(options);
  LocalCluster cluster = wanted;
  if (auto existing = ReadLocalCluster(options.directory); existing.ok()) {
    if (existing->daemons.size() != wanted.daemons.size()) {
      return absl::FailedPreconditionError(
          absl::StrCat("a local cluster of ", (existing->daemons.size() - 1) / 2, " nodes is in ", options.directory,
                       "; 'lynxctl local down' first, or leave --nodes out"));
    }
    cluster = *existing;
  } else if (!absl::IsNotFound(existing.status())) {
    return existing.status();
  }
  for (LocalDaemon& daemon : cluster.daemons) {
    if (IsRunning(daemon)) continue;
    LYNX_RETURN_IF_ERROR(Spawn(daemon));
    LYNX_RETURN_IF_ERROR(WriteCluster(options.directory, cluster));
  }
  LYNX_RETURN_IF_ERROR(AwaitAttached(cluster, (cluster.daemons.size() - 1) / 2));
  return cluster;
}

absl::Status LocalDown(const std::string& directory) {
  auto cluster = ReadLocalCluster(directory);
  if (absl::IsNotFound(cluster.status())) return absl::OkStatus();
  LYNX_RETURN_IF_ERROR(cluster.status());
  std::vector<const LocalDaemon*> daemons;
  for (const LocalDaemon& daemon : cluster->daemons) daemons.push_back(&daemon);
  Stop(daemons);
  for (const LocalDaemon& daemon : cluster->daemons) {
    if (daemon.name.find(".worker") != std::string::npos) StopRanks(daemon);
  }
  if (std::remove(ClusterFile(directory).c_str()) != 0) {
    return absl::UnavailableError(absl::StrCat("cannot remove ", ClusterFile(directory), ": ", std::strerror(errno)));
  }
  return absl::OkStatus();
}

}  // namespace lynx
