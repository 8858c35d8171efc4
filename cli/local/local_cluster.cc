#include "cli/local/local_cluster.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <thread>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "cli/connect/client.h"
#include "cli/connect/server_place.h"
#include "common/clock.h"
#include "common/cores.h"
#include "common/status.h"
#include "common/utf8.h"
#include "node/file.h"
#include "node/process.h"
#include "node/rate.h"

namespace lynx::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr Nanos kReadyTimeout{60'000'000'000};
constexpr Nanos kStopTimeout{10'000'000'000};
// How long `down` waits until the ranks of one node have stopped. A rank that does not end within 5 s is killed.
constexpr Nanos kStopRanksTimeout{60'000'000'000};
// How long a command waits for another command that holds the lock. An `up` takes less time, and so does a `down`, unless it
// waits for the ranks of several nodes.
constexpr Nanos kLockTimeout{120'000'000'000};
constexpr Nanos kPause{50'000'000};
constexpr uintmax_t kMaxLog = 16 << 20;

absl::Status WriteCluster(const std::string& directory, const LocalCluster& cluster) {
  json daemons = json::array();
  for (const LocalDaemon& d : cluster.daemons) {
    daemons.push_back({{"name", d.name},
                       {"argv", d.argv},
                       {"log", d.log},
                       {"metricsAddress", d.metrics_address},
                       {"pid", d.process.pid},
                       {"startTicks", d.process.start_ticks},
                       {"machineBoot", d.process.machine_boot}});
  }
  const json root = {{"serverAddress", cluster.server_address}, {"daemons", daemons}};
  return WriteFileDurably(LocalClusterFile(directory), root.dump(2, ' ', false, json::error_handler_t::replace) + "\n");
}

// A loopback address with a port that is free now and was not returned before. The port is below the range from which
// the kernel takes ports of outgoing connections, so that no such connection takes it before the daemon does.
std::string FreeAddress() {
  constexpr int kFirst = 20'000, kCount = 12'000;
  static std::set<int> given;
  static std::minstd_rand random{std::random_device{}()};
  for (int attempt = 0; attempt < 1'000; ++attempt) {
    const int port = kFirst + static_cast<int>(random() % kCount);
    if (given.count(port) != 0) continue;
    const UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(port));
    if (bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) continue;
    given.insert(port);
    return absl::StrCat("127.0.0.1:", port);
  }
  return "127.0.0.1:0";  // no free port was found; the daemon then takes any port, which is not recorded
}

// The path of a daemon's program, which is in the folder of lynxctl.
std::string BinaryPath(const std::string& name) {
  std::error_code error;
  return (fs::read_symlink("/proc/self/exe", error).parent_path() / name).string();
}

// The cores of one node: an equal share, or a single core if there are more nodes than cores. "" if the kernel does not
// say which cores there are; then the agent reports it.
std::string CoresOf(int32_t node, int32_t nodes) {
  const std::vector<int32_t> cores = AvailableCores();
  if (cores.empty()) return "";
  const size_t share = cores.size() / nodes;
  if (share == 0) return absl::StrCat(cores[node % cores.size()]);
  return absl::StrJoin(cores.begin() + node * share, cores.begin() + (node + 1) * share, ",");
}

// The value of the daemon's argument --NAME=VALUE; "" if it has no such argument.
std::string ArgumentOf(const LocalDaemon& daemon, const std::string& name) {
  const std::string prefix = absl::StrCat("--", name, "=");
  for (const std::string& argument : daemon.argv) {
    if (argument.compare(0, prefix.size(), prefix) == 0) return argument.substr(prefix.size());
  }
  return "";
}

size_t NodesOf(const LocalCluster& cluster) { return (cluster.daemons.size() - 1) / 2; }

// Checks that all options that are given agree with the existing cluster.
absl::Status CheckShape(const LocalCluster& cluster, const LocalOptions& options) {
  std::vector<std::string> differences;
  const auto compare = [&](const std::string& flag, const std::string& given, const std::string& has) {
    if (given != has) differences.push_back(absl::StrCat(flag, " ", has.empty() ? "0" : has, ", not ", given));
  };
  // The agent of the first node. One agent is enough, because all agents are started with the same options.
  const LocalDaemon agent = cluster.daemons.size() > 1 ? cluster.daemons[1] : LocalDaemon();
  if (options.nodes.has_value()) compare("--nodes", absl::StrCat(*options.nodes), absl::StrCat(NodesOf(cluster)));
  if (options.devices.has_value()) compare("--devices", *options.devices, ArgumentOf(agent, "devices"));
  if (options.link_rate.has_value()) {
    const std::string has = ArgumentOf(agent, "link-rate");
    LYNX_ASSIGN_OR_RETURN(const int64_t given_rate, ParseRate(*options.link_rate));
    const absl::StatusOr<int64_t> rate = ParseRate(has);
    if (!rate.ok() || given_rate != *rate) compare("--link-rate", *options.link_rate, has);
  }
  if (differences.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("the local cluster in ", options.directory, " has ",
                                                    absl::StrJoin(differences, "; "),
                                                    "; leave that out, or 'lynxctl local down' first"));
}

bool MayBeGpus(const std::string& devices) {
  const std::string kind = devices.substr(0, devices.find(':'));
  return kind == "cuda" || kind == "auto";
}

LocalCluster Describe(const LocalOptions& options) {
  const std::string devices = options.devices.value_or(kDefaultLocalDevices);
  const int32_t nodes = options.nodes.value_or(MayBeGpus(devices) ? 1 : kDefaultLocalNodes);
  const std::string link_rate = options.link_rate.value_or("");
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
  add("server", "lynx-server", {"--listen=" + cluster.server_address, "--data-dir=" + options.directory + "/server"});
  for (int32_t i = 0; i < nodes; ++i) {
    const std::string node = absl::StrCat("node", i);
    const std::string home = absl::StrCat(options.directory, "/", node);
    std::vector<std::string> common = {"--node=" + node, "--server=" + cluster.server_address, "--address=127.0.0.1"};
    if (!link_rate.empty()) common.push_back("--link-rate=" + link_rate);
    std::vector<std::string> agent = common;
    agent.push_back("--data-dir=" + home + "/agent");
    agent.push_back(absl::StrCat("--devices=", devices));
    agent.push_back("--cores=" + CoresOf(i, nodes));
    add(node + ".agent", "lynx-agent", agent);
    std::vector<std::string> worker = common;
    worker.push_back("--data-dir=" + home + "/worker");
    worker.push_back("--copies-dir=" + home + "/copies");
    add(node + ".worker", "lynx-worker", worker);
  }
  return cluster;
}

// Renames a long log to LOG.1. A daemon has at most two logs, so that a cluster that lives long does not fill the disk.
void TurnLongLog(const std::string& log) {
  std::error_code error;
  const uintmax_t size = fs::file_size(log, error);
  if (!error && size > kMaxLog) fs::rename(log, log + ".1", error);
}

// Starts the daemon in its own session, so that Ctrl-C here does not reach it.
absl::StatusOr<Child> Start(const LocalDaemon& daemon) {
  LYNX_RETURN_IF_ERROR(MakeDirectories(fs::path(daemon.log).parent_path().string()));
  TurnLongLog(daemon.log);
  const UniqueFd log(open(daemon.log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (log.get() < 0) {
    return absl::UnavailableError(absl::StrCat("cannot write ", daemon.log, ": ", std::strerror(errno)));
  }
  return SpawnInSession(daemon.argv, {.out = log.get(), .error = log.get()});
}

absl::Status AwaitAttached(const LocalCluster& cluster, size_t nodes) {
  const RealClock clock;
  const Nanos deadline = clock.Monotonic() + kReadyTimeout;
  Client client({.address = cluster.server_address, .source = "the local cluster"}, NanosFromSeconds(2));
  while (true) {
    auto response = client.Nodes();
    size_t attached = 0;
    if (response.ok()) {
      for (const v1::Node& node : response->nodes()) attached += node.agent_attached() && node.worker_attached();
    }
    for (const LocalDaemon& daemon : cluster.daemons) {
      if (!IsRunning(daemon)) {
        return absl::UnavailableError(absl::StrCat(daemon.name, " ended while starting; the end of its log, ", daemon.log,
                                                   ":\n", LastLines(daemon.log, 5)));
      }
    }
    if (attached >= nodes) return absl::OkStatus();
    if (clock.Monotonic() > deadline) {
      return absl::DeadlineExceededError(absl::StrCat(attached, " of ", nodes, " nodes are attached after ",
                                                      FormatDuration(kReadyTimeout), "; see the logs beside ",
                                                      cluster.daemons[0].log));
    }
    client.Pause(kPause);
  }
}

// Daemons that were just killed, for example by 'kill -9', look alive and hold their directories until the kernel has
// removed them.
void AwaitEnding(const LocalCluster& cluster) {
  const RealClock clock;
  const Nanos deadline = clock.Monotonic() + kStopTimeout;
  for (const LocalDaemon& daemon : cluster.daemons) {
    while (daemon.process.pid != 0 && IsEnding(daemon.process.pid) && clock.Monotonic() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }
}

struct Alive {
  const LocalDaemon* daemon;
  UniqueFd process;
};

std::string CannotStop(const LocalDaemon& daemon, const std::string& why) {
  return absl::StrCat(daemon.name, " (process ", daemon.process.pid, ") cannot be stopped: ", why);
}

// If the daemon is running, asks it to end and adds it to `alive`.
absl::Status Ask(const LocalDaemon& daemon, std::vector<Alive>& alive) {
  if (daemon.process.pid == 0) return absl::OkStatus();
  absl::StatusOr<UniqueFd> process = OpenProcess(daemon.process);
  if (absl::IsNotFound(process.status())) return absl::OkStatus();
  if (!process.ok()) return absl::UnavailableError(CannotStop(daemon, std::string(process.status().message())));
  if (!SignalProcess(*process, SIGTERM) && errno == EPERM) {
    struct stat owned {};
    const bool known = stat(absl::StrCat("/proc/", daemon.process.pid).c_str(), &owned) == 0;
    const std::string user = known ? absl::StrCat("it belongs to user ", owned.st_uid) : "it belongs to another user";
    return absl::PermissionDeniedError(CannotStop(daemon, user + "; run 'lynxctl local down' as that user, or as root"));
  }
  alive.push_back({&daemon, *std::move(process)});
  return absl::OkStatus();
}

// Waits until these daemons have ended, at most for `patience`. Removes the daemons that have ended from the list.
void AwaitEnd(std::vector<Alive>& alive, Nanos patience) {
  const RealClock clock;
  const Nanos deadline = clock.Monotonic() + patience;
  while (true) {
    std::erase_if(alive, [](const Alive& one) { return HasEnded(one.process); });
    if (alive.empty() || clock.Monotonic() > deadline) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

// Stops all daemons even if some of them cannot be stopped. The error names the first daemon that could not be stopped, and
// says why.
absl::Status Stop(const std::vector<LocalDaemon>& daemons) {
  absl::Status first;
  std::vector<Alive> alive;
  for (const LocalDaemon& daemon : daemons) first.Update(Ask(daemon, alive));
  AwaitEnd(alive, kStopTimeout);
  for (const Alive& one : alive) SignalProcess(one.process, SIGKILL);
  AwaitEnd(alive, kStopTimeout);
  for (const Alive& one : alive) {
    first.Update(absl::UnavailableError(
        CannotStop(*one.daemon, absl::StrCat("it has not ended ", FormatDuration(kStopTimeout),
                                             " after it was killed, so the kernel holds it: 'cat /proc/",
                                             one.daemon->process.pid, "/wchan' tells where; try again when it is gone"))));
  }
  return first;
}

// While an object of this class exists, SIGINT, SIGTERM and SIGHUP stay pending. Use it only while there are no other threads,
// because they would receive the signals.
class InterruptsHeld {
 public:
  InterruptsHeld() {
    sigset_t interrupts;
    sigemptyset(&interrupts);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&interrupts, signal);
    pthread_sigmask(SIG_BLOCK, &interrupts, &before_);
  }
  ~InterruptsHeld() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  InterruptsHeld(const InterruptsHeld&) = delete;
  InterruptsHeld& operator=(const InterruptsHeld&) = delete;

 private:
  sigset_t before_;
};

// Starts the daemon and records it. No interrupt can come in between, because `local down` could not stop a daemon that runs
// but is not recorded.
absl::Status StartAndRecord(const std::string& directory, const LocalCluster& cluster, LocalDaemon& daemon) {
  const InterruptsHeld held;
  LYNX_ASSIGN_OR_RETURN(const Child child, Start(daemon));
  daemon.process = IdentifyProcess(child.pid).value_or(ProcessIdentity{.pid = child.pid});
  const absl::Status recorded = WriteCluster(directory, cluster);
  if (!recorded.ok()) LYNX_RETURN_IF_ERROR(Stop({daemon}));
  return recorded;
}

// The command that stops the ranks of the worker daemon. It has only the arguments that are needed for that, because the daemon
// may have refused the other arguments. If the daemon's own program is gone, the command uses the program in the folder of
// lynxctl.
LocalDaemon StopperOf(const LocalDaemon& worker) {
  LocalDaemon stopper = worker;
  const bool there = !worker.argv.empty() && access(worker.argv[0].c_str(), X_OK) == 0;
  stopper.argv = {there ? worker.argv[0] : BinaryPath("lynx-worker"), "--stop-all"};
  for (const char* name : {"node", "data-dir", "copies-dir"}) {
    if (const std::string value = ArgumentOf(worker, name); !value.empty())
      stopper.argv.push_back(absl::StrCat("--", name, "=", value));
  }
  return stopper;
}

// Stops the ranks of a node. Ranks outlive their daemon; the daemon's records tell which ranks there are.
absl::Status RunStopper(const LocalDaemon& stopper) {
  LYNX_ASSIGN_OR_RETURN(const Child child, Start(stopper));
  const RealClock clock;
  const Nanos deadline = clock.Monotonic() + kStopRanksTimeout;
  std::optional<ExitStatus> ended;
  std::string why;
  while (!(ended = ReapChild(child.pidfd)).has_value()) {
    if (clock.Monotonic() > deadline) {
      SignalProcess(child.pidfd, SIGKILL);
      why = absl::StrCat(" within ", FormatDuration(kStopRanksTimeout));
      break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  if (ended == ExitStatus{}) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("some ranks of ", stopper.name, " could not be stopped", why, "; the end of ",
                                             stopper.log, ":\n", LastLines(stopper.log, 3)));
}

absl::Status StopRanks(const LocalDaemon& worker) {
  const std::string directory = ArgumentOf(worker, "data-dir");
  if (directory.empty()) {  // lynx-worker would use its default directory, which is not of this cluster
    return absl::DataLossError(
        absl::StrCat("the local cluster's file does not say where the ranks of ", worker.name, " are; stop them by hand"));
  }
  const absl::Status stopped = RunStopper(StopperOf(worker));
  // If no process of the node is left, its ranks are stopped even if the worker daemon could not be started to stop them. So
  // the cluster can be forgotten.
  return fs::path(directory).is_absolute() && FindProcessesBelow(directory).empty() ? absl::OkStatus() : stopped;
}

// Locks the directory, so that only one command works on it at a time; a second command waits. Without the lock, both commands
// would start the daemons that are not running.
absl::StatusOr<UniqueFd> LockCluster(const std::string& directory) {
  const RealClock clock;
  const Nanos deadline = clock.Monotonic() + kLockTimeout;
  while (true) {
    absl::StatusOr<UniqueFd> lock = LockFile(directory + "/lock");
    if (lock.ok() || !absl::IsFailedPrecondition(lock.status())) return lock;
    if (clock.Monotonic() > deadline) {
      return absl::FailedPreconditionError(
          absl::StrCat("another 'lynxctl local up' or 'down' is at work: ", std::string(lock.status().message()), " for ",
                       FormatDuration(kLockTimeout), "; try again when it has ended"));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

// Checks options before anything is written or started. Otherwise a daemon that refuses an option would stay in the cluster's
// file.
absl::Status CheckOptions(const LocalOptions& options) {
  LYNX_RETURN_IF_ERROR(CheckLocalDirectory(options.directory));
  return options.link_rate.has_value() ? Annotate(ParseRate(*options.link_rate).status(), "--link-rate") : absl::OkStatus();
}

// Makes the description of a new cluster and writes it to the cluster's file. Starts no daemon.
absl::StatusOr<LocalCluster> Begin(const LocalOptions& options) {
  if (options.nodes.value_or(1) > 1 && MayBeGpus(options.devices.value_or(kDefaultLocalDevices))) {
    return absl::InvalidArgumentError(absl::StrCat("--devices ", *options.devices, " with --nodes ", *options.nodes,
                                                   ": the nodes would share this machine's GPUs; give --nodes 1"));
  }
  const LocalCluster cluster = Describe(options);
  for (const LocalDaemon& daemon : cluster.daemons) {
    for (const std::string& argument : daemon.argv) {
      if (ValidUtf8Prefix(argument) == argument.size()) continue;
      return absl::InvalidArgumentError(absl::StrCat("'", VisibleLine(argument),
                                                     "' is not UTF-8, as the local cluster's file is: give another folder "
                                                     "with --dir, or move the programs to one"));
    }
  }
  LYNX_RETURN_IF_ERROR(WriteCluster(options.directory, cluster));
  return cluster;
}

}  // namespace

bool IsRunning(const LocalDaemon& daemon) {
  return daemon.process.pid != 0 && IdentifyProcess(daemon.process.pid) == daemon.process;
}

std::string LivePageAddress(const std::string& directory) {
  std::ifstream in(directory + "/server/page.address");
  std::string address;
  in >> address;
  return address;
}

absl::Status CheckLocalDirectory(const std::string& directory) {
  if (!directory.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "there is no folder for a local cluster: neither HOME nor LYNX_HOME says where it would be; set HOME or LYNX_HOME, "
      "or give --dir");
}

absl::StatusOr<LocalCluster> ReadLocalCluster(const std::string& directory) {
  LYNX_ASSIGN_OR_RETURN(const std::string text, ReadLocalClusterFile(directory));
  const json root = json::parse(text, nullptr, /*allow_exceptions=*/false);
  try {
    LocalCluster cluster;
    cluster.server_address = root.at("serverAddress").get<std::string>();
    for (const json& d : root.at("daemons")) {
      LocalDaemon daemon;
      daemon.name = d.at("name").get<std::string>();
      daemon.argv = d.at("argv").get<std::vector<std::string>>();
      daemon.log = d.at("log").get<std::string>();
      daemon.metrics_address = d.at("metricsAddress").get<std::string>();
      daemon.process = {.pid = d.at("pid").get<pid_t>(),
                        .start_ticks = d.at("startTicks").get<int64_t>(),
                        .machine_boot = d.at("machineBoot").get<std::string>()};
      cluster.daemons.push_back(daemon);
    }
    return cluster;
  } catch (const json::exception& error) {
    return absl::DataLossError(absl::StrCat(LocalClusterFile(directory), " is damaged (", error.what(),
                                            "); stop its processes by hand and remove the file"));
  }
}

absl::StatusOr<LocalCluster> LocalUp(const LocalOptions& options) {
  LYNX_RETURN_IF_ERROR(CheckOptions(options));
  LYNX_RETURN_IF_ERROR(MakeDirectories(options.directory));
  LYNX_ASSIGN_OR_RETURN(const UniqueFd lock, LockCluster(options.directory));
  absl::StatusOr<LocalCluster> cluster = ReadLocalCluster(options.directory);
  if (cluster.ok()) {
    LYNX_RETURN_IF_ERROR(CheckShape(*cluster, options));
  } else {
    if (!absl::IsNotFound(cluster.status())) return cluster.status();
    LYNX_ASSIGN_OR_RETURN(cluster, Begin(options));
  }
  AwaitEnding(*cluster);
  for (LocalDaemon& daemon : cluster->daemons) {
    if (!IsRunning(daemon)) LYNX_RETURN_IF_ERROR(StartAndRecord(options.directory, *cluster, daemon));
  }
  LYNX_RETURN_IF_ERROR(AwaitAttached(*cluster, NodesOf(*cluster)));
  return cluster;
}

absl::Status LocalDown(const std::string& directory) {
  // The cluster is looked up before the lock is taken: if there is no cluster, there may be no folder to lock.
  const absl::Status there = ReadLocalCluster(directory).status();
  if (absl::IsNotFound(there)) return absl::OkStatus();
  LYNX_RETURN_IF_ERROR(there);
  LYNX_ASSIGN_OR_RETURN(const UniqueFd lock, LockCluster(directory));
  const absl::StatusOr<LocalCluster> cluster = ReadLocalCluster(directory);
  if (absl::IsNotFound(cluster.status())) return absl::OkStatus();
  LYNX_RETURN_IF_ERROR(cluster.status());
  absl::Status first = Stop(cluster->daemons);
  for (const LocalDaemon& daemon : cluster->daemons) {
    if (daemon.name.find(".worker") != std::string::npos) first.Update(StopRanks(daemon));
  }
  LYNX_RETURN_IF_ERROR(first);
  if (std::remove(LocalClusterFile(directory).c_str()) != 0) {
    return absl::UnavailableError(absl::StrCat("cannot remove ", LocalClusterFile(directory), ": ", std::strerror(errno)));
  }
  return absl::OkStatus();
}

}  // namespace lynx::cli
