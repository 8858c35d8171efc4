// Doctor: whether a machine is fit to run Lynx's daemons, and to reach its cluster: what was looked at, what was found, and how
// to mend it. LookAt* look; Diagnose judges, and is pure. One thread.
#ifndef LYNX_CLI_LOCAL_DOCTOR_H_
#define LYNX_CLI_LOCAL_DOCTOR_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/units.h"

namespace lynx {

// A hint says what may be worth mending, and leaves the exit code alone.
enum class Verdict : uint8_t { kOk, kHint, kWarning, kProblem };
const char* VerdictName(Verdict verdict);  // "ok", "hint", "warning", "problem"

struct Finding {
  Verdict verdict = Verdict::kOk;
  std::string what;  // "open files"
  std::string found;
  std::string mend;  // what to do; "" where it is ok
};

struct PortFacts {
  int port = 0;
  std::string purpose;  // "lynx-server"
  bool taken = false;
  bool of_server = true;  // else of a node's daemon
  bool answers = false;   // what listens there serves the metrics of just that daemon
};

struct DiskFacts {
  std::string folder;
  absl::Status status;  // why it could not be written to
  Bytes size, available;
  double bytes_per_second = 0;  // written and synced
};

struct NodeFacts {
  std::string name, state, agent_version, worker_version;
};

// What a server said; `status`: why it did not.
struct ServerFacts {
  std::string address, source;
  bool is_here = false;  // the address is loopback, or this machine's
  absl::Status status;
  std::string version;
  int64_t clock_ahead_ns = 0;  // of the server's clock before this machine's
  int64_t clock_error_ns = 0;  // how far that may be wrong: half of what the call took
  std::vector<NodeFacts> nodes;
};

inline constexpr int64_t kNoLimit = -1;

struct MachineFacts {
  std::string version;  // of this program
  std::string kernel;
  int cores = 0;  // that this process may use
  bool nvidia_driver = false;
  int gpus = 0;  // with device files
  Bytes memory, memory_available;
  std::optional<Bytes> shared, shared_available;            // of /dev/shm; nullopt: there is none
  int64_t open_files = 0, locked_bytes = 0, processes = 0;  // limits; kNoLimit
  std::optional<bool> clock_synchronized;                   // as the kernel was told; nullopt: it does not say
  std::vector<PortFacts> ports;
  DiskFacts disk;
  std::optional<ServerFacts> server;  // nullopt: not asked
};

// Looks at this machine. Writes and removes a file of 64 MiB in `folder`.
MachineFacts LookAtMachine(const std::string& folder);
// Whether what listens there on loopback serves a page of metrics in which that one is; it is given two seconds.
bool ServesMetric(int port, const std::string& name);
// True if the host of "host:port" is this machine. The host is a name or numeric. False if the name cannot be resolved.
bool IsThisMachine(const std::string& address);

std::vector<Finding> Diagnose(const MachineFacts& facts);
Verdict WorstOf(const std::vector<Finding>& findings);

}  // namespace lynx

#endif  // LYNX_CLI_LOCAL_DOCTOR_H_
