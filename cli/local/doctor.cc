// See doctor.h.
#include "cli/local/doctor.h"

#include <algorithm>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace lynx::cli {
namespace {

constexpr Bytes kLittleMemory{kGiB.value}, kLittleShared{256 * kMiB.value};
constexpr Bytes kLittleDisk{5 * kGiB.value}, kNoDisk{512 * kMiB.value};
constexpr double kSlowDisk = 32.0 * 1024 * 1024;  // bytes/s; a change of plan is estimated with this speed for each rank
constexpr int64_t kFewFiles = 1024, kTooFewFiles = 256;
constexpr int64_t kFewProcesses = 1024;
constexpr int64_t kClockApart = 1'000'000'000, kClockFarApart = 60'000'000'000;

Finding Of(const char* what, Verdict verdict, std::string found, std::string mend) {
  return {verdict, what, std::move(found), verdict == Verdict::kOk ? "" : std::move(mend)};
}

Verdict Below(int64_t value, int64_t warning, int64_t problem) {
  return value < problem ? Verdict::kProblem : value < warning ? Verdict::kWarning : Verdict::kOk;
}

std::string LimitText(int64_t limit) { return limit == kNoLimit ? "no limit" : absl::StrCat(limit); }

Finding Devices(const MachineFacts& facts) {
  const std::string cores = absl::StrCat(facts.cores, facts.cores == 1 ? " core" : " cores");
  if (!facts.nvidia_driver)
    return Of("devices", Verdict::kOk, absl::StrCat(cores, "; no NVIDIA driver, so ranks run on cores"), "");
  return Of("devices", facts.gpus > 0 ? Verdict::kOk : Verdict::kProblem,
            absl::StrCat(cores, "; NVIDIA driver, ", facts.gpus, facts.gpus == 1 ? " GPU" : " GPUs"),
            "the driver is loaded but there is no /dev/nvidia0: run nvidia-smi as root once, or give the container its GPUs");
}

Finding Memory(const MachineFacts& facts) {
  return Of(
      "memory", facts.memory_available < kLittleMemory ? Verdict::kWarning : Verdict::kOk,
      absl::StrCat(FormatBytes(facts.memory_available), " of ", FormatBytes(facts.memory), " available"),
      "ranks take what their plan says at once: end what else runs here, or state less with resources.activationMemoryPerRank");
}

Finding Shared(const MachineFacts& facts) {
  if (!facts.shared.has_value()) {
    return Of("/dev/shm", Verdict::kWarning, "not there",
              "mount a tmpfs there, or start lynx-worker with another --copies-dir: copies of states in memory need one");
  }
  return Of("/dev/shm", *facts.shared_available < kLittleShared ? Verdict::kWarning : Verdict::kOk,
            absl::StrCat(FormatBytes(*facts.shared_available), " of ", FormatBytes(*facts.shared), " free"),
            "copies of states in memory (checkpoint.copyEverySteps) do not fit: mount -o remount,size=50% /dev/shm, or docker "
            "run --shm-size");
}

Finding Files(const MachineFacts& facts) {
  const int64_t limit = facts.open_files == kNoLimit ? kFewFiles : facts.open_files;
  return Of("open files", Below(limit, kFewFiles, kTooFewFiles), absl::StrCat("limit ", LimitText(facts.open_files)),
            "each rank holds a connection to its peers: ulimit -n 65536, or LimitNOFILE= of the unit");
}

Finding Locked(const MachineFacts& facts) {
  const bool enough = facts.gpus == 0 || facts.locked_bytes == kNoLimit || facts.locked_bytes >= kGiB.value;
  return Of(
      "locked memory", enough ? Verdict::kOk : Verdict::kWarning,
      facts.locked_bytes == kNoLimit ? "no limit" : absl::StrCat("limit ", FormatBytes(Bytes(facts.locked_bytes))),
      "transfers between GPUs and the host may want pinned memory: ulimit -l unlimited, or LimitMEMLOCK=infinity of the unit");
}

Finding Processes(const MachineFacts& facts) {
  const bool enough = facts.processes == kNoLimit || facts.processes >= kFewProcesses;
  return Of("processes", enough ? Verdict::kOk : Verdict::kWarning, absl::StrCat("limit ", LimitText(facts.processes)),
            "every thread of every rank counts: ulimit -u 8192, or TasksMax= of the unit");
}

void DiskFindings(const DiskFacts& disk, std::vector<Finding>& findings) {
  if (!disk.status.ok()) {
    findings.push_back(Of("disk", Verdict::kProblem, std::string(disk.status.message()),
                          "give another folder with --dir, or mend its permissions and its disk"));
    return;
  }
  findings.push_back(Of("disk space", Below(disk.available.value, kLittleDisk.value, kNoDisk.value),
                        absl::StrCat(FormatBytes(disk.available), " of ", FormatBytes(disk.size), " free in ", disk.folder),
                        "checkpoints fill it: make space, keep fewer (checkpoint.keep), or take another folder"));
  findings.push_back(
      Of("disk speed", disk.bytes_per_second < kSlowDisk ? Verdict::kWarning : Verdict::kOk,
         absl::StrCat(FormatBytes(Bytes(static_cast<int64_t>(disk.bytes_per_second))), "/s written and synced"),
         "changes of plan count with 32 MiB/s for each rank: take a faster disk for checkpoints, or write fewer of them"));
}

void PortFindings(const MachineFacts& facts, std::vector<Finding>& findings) {
  const auto is_own = [&](const PortFacts& port) {
    return facts.server.has_value() && facts.server->is_here && facts.server->status.ok() &&
           facts.server->address.ends_with(absl::StrCat(":", port.port));
  };
  // If the server that was asked runs on this machine, it is also the server that listens on the ports of the pages.
  const bool runs_here =
      std::any_of(facts.ports.begin(), facts.ports.end(), [&](const PortFacts& port) { return port.taken && is_own(port); });
  for (const PortFacts& port : facts.ports) {
    const bool own = is_own(port) || (port.taken && runs_here && port.of_server);
    const bool other = port.taken && !own && !port.answers;
    const char* found = own ? "the server's that was asked" : other ? "taken" : port.taken ? "served by one that runs" : "free";
    findings.push_back(
        Of("port", other ? Verdict::kWarning : Verdict::kOk, absl::StrCat(port.port, " of ", port.purpose, " is ", found),
           absl::StrCat("if a ", port.purpose,
                        " is to start here: end what listens there ('ss -ltnp' names it), or give it another address")));
  }
}

// An unsynchronized clock gives only a hint, not a warning. Some time services never tell the kernel, and containers and
// virtual machines may get their time from outside.
Finding Clock(const MachineFacts& facts) {
  if (!facts.clock_synchronized.has_value())
    return Of("time service", Verdict::kOk, "the kernel does not say whether the clock is synchronised", "");
  return Of(
      "time service", *facts.clock_synchronized ? Verdict::kOk : Verdict::kHint,
      *facts.clock_synchronized ? "the clock is synchronised" : "nobody has told the kernel that the clock is synchronised",
      "certificates and tokens hold from one time of day to another, and the times of events are told by it: run chrony or "
      "systemd-timesyncd; "
      "training, checkpoints and leases do not go by it");
}

// Shows what each of several servers reports. A server that does not answer is only a warning, because the others do its work.
Finding Of(const OneServer& server) {
  if (!server.status.ok()) {
    return Of("server", Verdict::kWarning, absl::StrCat(server.address, " does not answer: ", server.status.message()),
              "start lynx-server there, or take the address out where servers are named");
  }
  if (!server.leader.has_value()) return Of("server", Verdict::kOk, absl::StrCat(server.address, " leads"), "");
  return Of("server", Verdict::kOk,
            absl::StrCat(server.address, " stands by",
                         server.leader->empty() ? "; no server leads at present" : absl::StrCat(" for ", *server.leader)),
            "");
}

void ServerFindings(const MachineFacts& facts, std::vector<Finding>& findings) {
  if (!facts.server.has_value()) return;
  const ServerFacts& server = *facts.server;
  for (const OneServer& one : server.all) findings.push_back(Of(one));
  if (!server.status.ok()) {
    findings.push_back(Of("server", Verdict::kProblem, std::string(server.status.message()),
                          "without a server to ask: lynxctl doctor --no-server"));
    return;
  }
  findings.push_back(Of("server", Verdict::kOk,
                        absl::StrCat("lynx-server ", server.version, " at ", server.address, " (from ", server.source, ")"),
                        ""));
  const int64_t apart = std::max<int64_t>(0, std::abs(server.clock_ahead_ns) - server.clock_error_ns);
  findings.push_back(
      Of("clock",
         apart >= kClockFarApart ? Verdict::kProblem
         : apart >= kClockApart  ? Verdict::kWarning
                                 : Verdict::kOk,
         absl::StrCat("the server's is ", FormatDuration(Nanos(std::abs(server.clock_ahead_ns))),
                      server.clock_ahead_ns < 0 ? " behind" : " ahead of", " this machine's, give or take ",
                      FormatDuration(Nanos(server.clock_error_ns))),
         "certificates, tokens and the times of events need clocks that agree: run chrony or systemd-timesyncd on both"));
  if (server.version != facts.version) {
    findings.push_back(Of("versions", Verdict::kWarning,
                          absl::StrCat("lynxctl ", facts.version, ", lynx-server ", server.version),
                          "install the same release on both"));
  }
  for (const NodeFacts& node : server.nodes) {
    if (!node.state.starts_with("ready")) {
      findings.push_back(
          Of("node", Verdict::kWarning, absl::StrCat(node.name, " is ", node.state),
             absl::StrCat("look at lynx-agent and lynx-worker on ", node.name, ": their logs say why they do not attach")));
    }
    for (const auto& [daemon, version] :
         {std::pair("lynx-agent", node.agent_version), std::pair("lynx-worker", node.worker_version)}) {
      if (version.empty() || version == server.version) continue;
      findings.push_back(Of("versions", Verdict::kWarning,
                            absl::StrCat(daemon, " ", version, " on ", node.name, ", lynx-server ", server.version),
                            "install the same release on all machines, and restart the daemons: a server works with its own "
                            "minor version and the one before it"));
    }
  }
}

}  // namespace

const char* VerdictName(Verdict verdict) {
  switch (verdict) {
    case Verdict::kOk: return "ok";
    case Verdict::kHint: return "hint";
    case Verdict::kWarning: return "warning";
    case Verdict::kProblem: return "problem";
  }
  return "";
}

std::vector<Finding> Diagnose(const MachineFacts& facts) {
  std::vector<Finding> findings = {
      Of("version", Verdict::kOk, absl::StrCat("lynxctl ", facts.version, " on ", facts.kernel), ""),
      Devices(facts),
      Memory(facts),
      Shared(facts),
      Files(facts),
      Locked(facts),
      Processes(facts)};
  DiskFindings(facts.disk, findings);
  PortFindings(facts, findings);
  findings.push_back(Clock(facts));
  ServerFindings(facts, findings);
  return findings;
}

Verdict WorstOf(const std::vector<Finding>& findings) {
  Verdict worst = Verdict::kOk;
  for (const Finding& finding : findings) worst = std::max(worst, finding.verdict);
  return worst;
}

}  // namespace lynx::cli
