// Processes: starting one so that it outlives its starter, recognising it later, and learning how it ended. Free
// functions over process ids and pidfds; thread-safe.
//
// A process id alone is never trusted: ids are used again. A process is named by its id, its start time and the boot
// of the machine, and signalled through a pidfd that was opened before those were compared.
#ifndef LYNX_NODE_PROCESS_H_
#define LYNX_NODE_PROCESS_H_

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "node/fd.h"

namespace lynx {

struct ProcessIdentity {
  pid_t pid = 0;
  int64_t start_ticks = 0;   // field 22 of /proc/PID/stat: clock ticks since boot
  std::string machine_boot;  // /proc/sys/kernel/random/boot_id
  bool operator==(const ProcessIdentity&) const = default;
};

// What the new process has as descriptors 0, 1, 2 and 3. -1: /dev/null; 3 is closed then. All others are closed.
struct SpawnFds {
  int in = -1;
  int out = -1;
  int error = -1;
  int passed = -1;
};
inline constexpr int kPassedFd = 3;

struct Child {
  pid_t pid = 0;
  UniqueFd pidfd;
};

// Starts argv[0], a path, as the leader of a new session, so that neither a terminal's Ctrl-C nor the end of this
// process reaches it; signals unblocked and at their defaults. NotFound and PermissionDenied name the binary.
absl::StatusOr<Child> SpawnInSession(const std::vector<std::string>& argv, const SpawnFds& fds);

// Of a live process; nullopt when there is none or it is a zombie.
std::optional<ProcessIdentity> IdentifyProcess(pid_t pid);
// Whether the process is on its way out and still holds its files and connections: it has been killed and has not ended, or its
// first thread is gone and others are not. False when there is none.
bool IsEnding(pid_t pid);
// A pidfd of exactly that process; NotFound when it is no more.
absl::StatusOr<UniqueFd> OpenProcess(const ProcessIdentity& identity);
// Live processes that have `argument` among their arguments.
std::vector<pid_t> FindProcessesByArgument(const std::string& argument);
// Live processes that have the path of something in the directory, whose own ends without a slash, among their arguments.
std::vector<pid_t> FindProcessesBelow(const std::string& directory);

// False when the process is gone (errno is ESRCH) or may not be signalled by this user (EPERM).
bool SignalProcess(const UniqueFd& pidfd, int signal);
// Whether the process has ended (its pidfd is readable).
bool HasEnded(const UniqueFd& pidfd);

struct ExitStatus {
  int code = 0;    // exit code, or 128 + signal
  int signal = 0;  // 0 = none
  bool operator==(const ExitStatus&) const = default;
};
// Reaps an ended child. nullopt when it has not ended or is not a child of this process.
std::optional<ExitStatus> ReapChild(const UniqueFd& pidfd);
// "exit code 3", "killed by signal 9 (Killed)".
std::string ExitText(const ExitStatus& status);

}  // namespace lynx

#endif  // LYNX_NODE_PROCESS_H_
