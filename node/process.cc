#include "node/process.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "common/check.h"
#include "common/status.h"
#include "node/file.h"

namespace lynx {
namespace {

const std::string& MachineBoot() {
  static const std::string boot = [] {
    absl::StatusOr<std::string> text = ReadFile("/proc/sys/kernel/random/boot_id", 128);
    if (!text.ok()) return std::string();
    while (!text->empty() && text->back() == '\n') text->pop_back();
    return *std::move(text);
  }();
  return boot;
}

// Owns the two C structures that posix_spawn reads.
struct SpawnPlan {
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;

  SpawnPlan() {
    LYNX_CHECK(::posix_spawn_file_actions_init(&files) == 0);
    LYNX_CHECK(::posix_spawnattr_init(&attributes) == 0);
  }
  ~SpawnPlan() {
    ::posix_spawn_file_actions_destroy(&files);
    ::posix_spawnattr_destroy(&attributes);
  }

  void Place(int fd, int target, int flags) {
    const int rc = fd >= 0 ? ::posix_spawn_file_actions_adddup2(&files, fd, target)
                           : ::posix_spawn_file_actions_addopen(&files, target, "/dev/null", flags, 0);
    LYNX_CHECK(rc == 0);
  }
  void CloseFrom(int first) { LYNX_CHECK(::posix_spawn_file_actions_addclosefrom_np(&files, first) == 0); }

  void ResetSignalsInNewSession() {
    sigset_t all;
    sigset_t none;
    sigfillset(&all);
    sigemptyset(&none);
    LYNX_CHECK(::posix_spawnattr_setsigdefault(&attributes, &all) == 0);
    LYNX_CHECK(::posix_spawnattr_setsigmask(&attributes, &none) == 0);
    LYNX_CHECK(::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSID) ==
               0);
  }
};

// Copies the descriptor to a number above those of the new process, so that placing one descriptor never overwrites another.
absl::StatusOr<UniqueFd> Lifted(int fd) {
  if (fd < 0) return UniqueFd();
  UniqueFd copy(::fcntl(fd, F_DUPFD_CLOEXEC, kPassedFd + 1));
  if (!copy.valid()) return absl::InternalError(absl::StrCat("dup of descriptor ", fd, ": ", std::string(::strerror(errno))));
  return copy;
}

absl::Status SpawnError(int error, const std::string& binary) {
  const std::string text = absl::StrCat("cannot start ", binary, ": ", std::string(::strerror(error)));
  if (error == ENOENT) return absl::NotFoundError(text);
  if (error == EACCES) return absl::PermissionDeniedError(text);
  return absl::InternalError(text);
}

// Live processes of which at least one argument passes the test `wanted`.
std::vector<pid_t> FindProcesses(const std::function<bool(const std::string&)>& wanted) {
  std::vector<pid_t> found;
  DIR* proc = ::opendir("/proc");
  if (proc == nullptr) return found;
  while (const dirent* entry = ::readdir(proc)) {
    pid_t pid = 0;
    if (!absl::SimpleAtoi(std::string(entry->d_name), &pid)) continue;
    const absl::StatusOr<std::string> line = ReadFile(absl::StrCat("/proc/", pid, "/cmdline"), 1 << 20);
    if (!line.ok()) continue;
    for (const std::string& word : std::vector<std::string>(absl::StrSplit(*line, '\0'))) {
      if (wanted(word) && IdentifyProcess(pid).has_value()) {
        found.push_back(pid);
        break;
      }
    }
  }
  ::closedir(proc);
  return found;
}

constexpr size_t kState = 0;  // in StatFields

// The fields of a process or a thread, from its file in /proc, beginning with its state; empty if there is no such file.
std::vector<std::string> StatFields(const std::string& path) {
  const absl::StatusOr<std::string> stat = ReadFile(path, 8192);
  if (!stat.ok()) return {};
  // The second field is the command in parentheses and may contain anything; the state follows the last parenthesis.
  const size_t close = stat->rfind(')');
  if (close == std::string::npos || close + 2 >= stat->size()) return {};
  return absl::StrSplit(stat->substr(close + 2), ' ');
}

}  // namespace

absl::StatusOr<Child> SpawnInSession(const std::vector<std::string>& argv, const SpawnFds& fds) {
  LYNX_CHECK(!argv.empty());
  LYNX_ASSIGN_OR_RETURN(const UniqueFd in, Lifted(fds.in));
  LYNX_ASSIGN_OR_RETURN(const UniqueFd out, Lifted(fds.out));
  LYNX_ASSIGN_OR_RETURN(const UniqueFd error, Lifted(fds.error));
  LYNX_ASSIGN_OR_RETURN(const UniqueFd passed, Lifted(fds.passed));
  SpawnPlan plan;
  plan.Place(in.get(), 0, O_RDONLY);
  plan.Place(out.get(), 1, O_WRONLY);
  plan.Place(error.get(), 2, O_WRONLY);
  if (passed.valid()) plan.Place(passed.get(), kPassedFd, O_RDWR);
  plan.CloseFrom(passed.valid() ? kPassedFd + 1 : kPassedFd);
  plan.ResetSignalsInNewSession();

  std::vector<char*> arguments;
  for (const std::string& argument : argv) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  pid_t pid = 0;
  const int rc = ::posix_spawn(&pid, argv[0].c_str(), &plan.files, &plan.attributes, arguments.data(), environ);
  if (rc != 0) return SpawnError(rc, argv[0]);
  // The process id is still valid here: a child keeps it until it is reaped, and only the owner of the pidfd reaps the child.
  UniqueFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!pidfd.valid()) {
    const int error = errno;
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    return absl::InternalError(absl::StrCat("pidfd_open of the new process: ", std::string(::strerror(error))));
  }
  return Child{.pid = pid, .pidfd = std::move(pidfd)};
}

std::optional<ProcessIdentity> IdentifyProcess(pid_t pid) {
  const std::vector<std::string> fields = StatFields(absl::StrCat("/proc/", pid, "/stat"));
  constexpr size_t kStartTime = 19;
  if (fields.size() <= kStartTime || fields[kState] == "Z" || fields[kState] == "X") return std::nullopt;
  ProcessIdentity identity{.pid = pid, .machine_boot = MachineBoot()};
  if (!absl::SimpleAtoi(fields[kStartTime], &identity.start_ticks)) return std::nullopt;
  return identity;
}

bool WaitsInKernel(pid_t pid) {
  std::error_code error;
  const std::filesystem::path threads = absl::StrCat("/proc/", pid, "/task");
  for (std::filesystem::directory_iterator it(threads, error), end; !error && it != end; it.increment(error)) {
    const std::vector<std::string> fields = StatFields(it->path().string() + "/stat");
    if (!fields.empty() && fields[kState] == "D") return true;
  }
  return false;
}

bool IsEnding(pid_t pid) {
  const UniqueFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  const absl::StatusOr<std::string> status = ReadFile(absl::StrCat("/proc/", pid, "/status"), 65536);
  if (!pidfd.valid() || !status.ok() || HasEnded(pidfd)) return false;
  for (const absl::string_view line : absl::StrSplit(*status, '\n')) {
    const std::pair<absl::string_view, absl::string_view> field = absl::StrSplit(line, absl::MaxSplits(":\t", 1));
    if (field.first == "State" && absl::StartsWith(field.second, "Z")) return true;
    uint64_t pending = 0;
    if ((field.first == "SigPnd" || field.first == "ShdPnd") && absl::SimpleHexAtoi(field.second, &pending) &&
        (pending >> (SIGKILL - 1) & 1) != 0) {
      return true;
    }
  }
  return false;
}

absl::StatusOr<UniqueFd> OpenProcess(const ProcessIdentity& identity) {
  UniqueFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, identity.pid, 0)));
  if (!pidfd.valid() && errno != ESRCH) {
    return absl::InternalError(absl::StrCat("pidfd_open of process ", identity.pid, ": ", std::string(::strerror(errno))));
  }
  // The identity is compared after the pidfd was opened. So the pidfd refers to exactly this process, even if its id is reused
  // later.
  if (!pidfd.valid() || IdentifyProcess(identity.pid) != identity) {
    return absl::NotFoundError(absl::StrCat("process ", identity.pid, " is no more"));
  }
  return pidfd;
}

std::vector<pid_t> FindProcessesByArgument(const std::string& argument) {
  return FindProcesses([&](const std::string& word) { return word == argument; });
}

std::vector<pid_t> FindProcessesBelow(const std::string& directory) {
  return FindProcesses([&](const std::string& word) { return absl::StartsWith(word, directory + "/"); });
}

bool SignalProcess(const UniqueFd& pidfd, int signal) {
  return ::syscall(SYS_pidfd_send_signal, pidfd.get(), signal, nullptr, 0) == 0;
}

bool HasEnded(const UniqueFd& pidfd) {
  pollfd poll_fd{.fd = pidfd.get(), .events = POLLIN, .revents = 0};
  return ::poll(&poll_fd, 1, 0) == 1;
}

std::optional<ExitStatus> ReapChild(const UniqueFd& pidfd) {
  siginfo_t got{};
  if (::waitid(P_PIDFD, static_cast<id_t>(pidfd.get()), &got, WEXITED | WNOHANG) != 0 || got.si_pid == 0) {
    return std::nullopt;
  }
  if (got.si_code == CLD_EXITED) return ExitStatus{.code = got.si_status, .signal = 0};
  return ExitStatus{.code = 128 + got.si_status, .signal = got.si_status};
}

std::string ExitText(const ExitStatus& status) {
  if (status.signal == 0) return absl::StrCat("exit code ", status.code);
  return absl::StrCat("killed by signal ", status.signal, " (", std::string(::strsignal(status.signal)), ")");
}

}  // namespace lynx
