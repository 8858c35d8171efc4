// Doctor: checks whether a machine can run Lynx's daemons and reach its cluster, and says how to mend what is wrong.
// LookAt* collect facts; Diagnose judges them and is pure. One thread.
#ifndef LYNX_CLI_LOCAL_DOCTOR_H_
#define LYNX_CLI_LOCAL_DOCTOR_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/units.h"

namespace lynx::cli {

// kHint: something that may be worth mending; it does not change the exit code.
enum class Verdict : uint8_t { kOk, kHint, kWarning, kProblem };
const char* VerdictName(Verdict verdict);  // "ok", "hint", "warning", "problem"

struct Finding {
  Verdict verdict = Verdict::kOk;
  std::string what;  // "open files"
  std::string found;
  std::string mend;  // what the person should do; "" if nothing is wrong
};

struct PortFacts {
  int port = 0;
  std::string purpose;  // "lynx-server"
  bool taken = false;
  bool of_server = true;  // false: the port of a node's daemon
  bool answers = false;   // the program that listens there serves the metrics of this daemon
};

struct DiskFacts {
  std::string folder;
  absl::Status status;  // why the folder cannot be written to
  Bytes size, available;
  double bytes_per_second = 0;  // speed of writing and syncing
};

struct NodeFacts {
  std::string name, state, agent_version, worker_version;
};

// One of several servers. `status`: why it does not answer. `leader`: the leader that it names as a standby; "": none.
struct OneServer {
  std::string address;
  absl::Status status;
  std::optional<std::string> leader = {};
};

// The answer of a server. `status`: why it did not answer.
struct ServerFacts {
  std::string address, source;  // the address of the server that answered, and what named it
  bool is_here = false;         // the address is loopback or another address of this machine
  absl::Status status;
  std::string version;
  int64_t clock_ahead_ns = 0;  // how far the server's clock is ahead of this machine's
  int64_t clock_error_ns = 0;  // largest error of clock_ahead_ns: half of the duration of the call
  std::vector<NodeFacts> nodes;
  std::vector<OneServer> all = {};  // all servers, where several are named
};

inline constexpr int64_t kNoLimit = -1;

struct MachineFacts {
  std::string version;  // the version of this program
  std::string kernel;
  int cores = 0;  // cores that this process may use
  bool nvidia_driver = false;
  int gpus = 0;  // GPUs that have device files
  Bytes memory, memory_available;
  std::optional<Bytes> shared, shared_available;            // size and free space of /dev/shm; nullopt: it does not exist
  int64_t open_files = 0, locked_bytes = 0, processes = 0;  // limits; may be kNoLimit
  std::optional<bool> clock_synchronized;                   // as the kernel reports; else nullopt
  std::vector<PortFacts> ports;
  DiskFacts disk;
  std::optional<ServerFacts> server;  // nullopt: no server was asked
};

// Looks at this machine. Writes and removes a file of 64 MiB in `folder`.
MachineFacts LookAtMachine(const std::string& folder);
// True if a program listens on this port on loopback and its page of metrics has the metric `name`. Waits up to two
// seconds.
bool ServesMetric(int port, const std::string& name);
// True if the host of "host:port" is this machine. The host is a name or numeric. False if the name cannot be resolved.
bool IsThisMachine(const std::string& address);

std::vector<Finding> Diagnose(const MachineFacts& facts);
Verdict WorstOf(const std::vector<Finding>& findings);

}  // namespace lynx::cli

#endif  // LYNX_CLI_LOCAL_DOCTOR_H_
