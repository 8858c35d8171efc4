// Processes: starting a process that outlives its starter, recognizing it later, and finding out how it ended. Free functions
// over process ids and pidfds; thread-safe.
//
// A process id alone is never trusted, because ids are reused. A process is identified by its id, its start time and the boot
// of the machine. A signal is sent through a pidfd that was opened before these three values were compared.
#ifndef LYNX_NODE_PROCESS_H_
#define LYNX_NODE_PROCESS_H_

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/fd.h"

namespace lynx {

struct ProcessIdentity {
  pid_t pid = 0;
  int64_t start_ticks = 0;   // field 22 of /proc/PID/stat: clock ticks since boot
  std::string machine_boot;  // the text of /proc/sys/kernel/random/boot_id
  bool operator==(const ProcessIdentity&) const = default;
};

// The descriptors 0, 1, 2 and 3 of the new process. -1: the new process gets /dev/null as 0, 1 or 2, and no descriptor 3. All
// other descriptors are closed.
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

// Starts argv[0], a path, as the leader of a new session. So neither a terminal's Ctrl-C nor the end of this process reaches
// the new process. Signals are unblocked and have their default actions. NotFound and PermissionDenied name the binary.
absl::StatusOr<Child> SpawnInSession(const std::vector<std::string>& argv, const SpawnFds& fds);

// The identity of a live process; nullopt: there is no such process, or it is a zombie.
std::optional<ProcessIdentity> IdentifyProcess(pid_t pid);
// True if a thread of the process waits in the kernel and cannot be interrupted (state D of proc(5)), mostly for a disk. False
// if there is no such process.
bool WaitsInKernel(pid_t pid);
// True if the process is ending but still holds its files and connections. Either it has been killed and has not ended yet, or
// its first thread has ended and others have not. False if there is no such process.
bool IsEnding(pid_t pid);
// A pidfd of exactly that process; NotFound: it no longer exists.
absl::StatusOr<UniqueFd> OpenProcess(const ProcessIdentity& identity);
// Live processes with `argument` among their arguments.
std::vector<pid_t> FindProcessesByArgument(const std::string& argument);
// Live processes with an argument that is a path below `directory`, which must not end with a slash.
std::vector<pid_t> FindProcessesBelow(const std::string& directory);

// Sends the signal. False: the process is gone (errno is ESRCH), or this user may not signal it (EPERM).
bool SignalProcess(const UniqueFd& pidfd, int signal);
// True if the process has ended (its pidfd is readable).
bool HasEnded(const UniqueFd& pidfd);

struct ExitStatus {
  int code = 0;    // exit code, or 128 + signal
  int signal = 0;  // 0: no signal ended the process
  bool operator==(const ExitStatus&) const = default;
};
// Reaps an ended child. nullopt: it has not ended, or is not a child of this process.
std::optional<ExitStatus> ReapChild(const UniqueFd& pidfd);
// How a process ended, as text, such as "exit code 3", "killed by signal 9 (Killed)".
std::string ExitText(const ExitStatus& status);

}  // namespace lynx

#endif  // LYNX_NODE_PROCESS_H_
