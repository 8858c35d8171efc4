#include "node/command.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "common/clock.h"
#include "common/status.h"
#include "node/process.h"

namespace lynx {
namespace {

constexpr size_t kOutputLimitBytes = 4 << 20;
constexpr size_t kErrorKeptBytes = 8 << 10;

struct Running {
  UniqueFd pidfd;
  UniqueFd out;
  UniqueFd error;
  std::string error_text;
  bool ended = true;
};

bool MakePipe(UniqueFd& read_end, UniqueFd& write_end) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return false;
  read_end = UniqueFd(ends[0]);
  write_end = UniqueFd(ends[1]);
  return ::fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0;
}

// A file in memory that contains `input`. Unlike a pipe, it never makes the writer wait for the reader. The descriptor is at
// the beginning of the file; it is -1 for an empty input.
absl::StatusOr<UniqueFd> InputFile(const std::string& input) {
  if (input.empty()) return UniqueFd();
  UniqueFd file(::memfd_create("lynx-input", MFD_CLOEXEC));
  if (!file.valid() || ::write(file.get(), input.data(), input.size()) != static_cast<ssize_t>(input.size()) ||
      ::lseek(file.get(), 0, SEEK_SET) != 0) {
    return absl::InternalError(
        absl::StrCat("cannot hold ", input.size(), " bytes of input in memory: ", std::string(::strerror(errno))));
  }
  return file;
}

absl::Status Start(const std::vector<std::string>& argv, const std::string& input, Running& running) {
  LYNX_ASSIGN_OR_RETURN(const UniqueFd in, InputFile(input));
  UniqueFd out_write;
  UniqueFd error_write;
  if (!MakePipe(running.out, out_write) || !MakePipe(running.error, error_write)) {
    return absl::InternalError(absl::StrCat("cannot make a pipe: ", std::string(::strerror(errno))));
  }
  LYNX_ASSIGN_OR_RETURN(Child child,
                        SpawnInSession(argv, {.in = in.get(), .out = out_write.get(), .error = error_write.get()}));
  running.pidfd = std::move(child.pidfd);
  running.ended = false;
  return absl::OkStatus();
}

// Appends to `text` what can be read now. Once `text` is longer than kOutputLimitBytes, drops what it reads. So the length of
// `text` shows that the limit was exceeded.
void Drain(UniqueFd& fd, std::string& text) {
  char buffer[16 * 1024];
  while (fd.valid()) {
    const ssize_t got = ::read(fd.get(), buffer, sizeof(buffer));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return;  // there is nothing to read now
    if (got == 0) {
      fd.Reset();
      return;
    }
    if (text.size() <= kOutputLimitBytes) text.append(buffer, static_cast<size_t>(got));
  }
}

void DrainBoth(Running& running, CommandResult& result) {
  Drain(running.out, result.output);
  Drain(running.error, running.error_text);
  if (running.error_text.size() > 2 * kErrorKeptBytes) {
    running.error_text.erase(0, running.error_text.size() - kErrorKeptBytes);
  }
}

absl::Status EndStatus(const std::string& binary, const ExitStatus& exit, const Running& running, const CommandResult& result) {
  if (exit != ExitStatus{}) {
    const std::string last = LastLine(running.error_text);
    return absl::InternalError(absl::StrCat(binary, " ended with ", ExitText(exit), last.empty() ? "" : ": ", last));
  }
  if (result.output.size() > kOutputLimitBytes) {
    return absl::ResourceExhaustedError(absl::StrCat(binary, " printed more than ", kOutputLimitBytes, " bytes"));
  }
  return absl::OkStatus();
}

}  // namespace

std::string LastLine(const std::string& text, size_t limit) {
  std::string stripped = std::string(absl::StripTrailingAsciiWhitespace(text));
  const size_t start = stripped.rfind('\n');
  if (start != std::string::npos) stripped.erase(0, start + 1);
  return stripped.substr(0, limit);
}

std::vector<CommandResult> RunCommands(const std::vector<std::vector<std::string>>& commands, Nanos limit,
                                       const WakeEvent& cancel, const std::string& input) {
  const RealClock clock;
  const Nanos deadline = clock.Monotonic() + limit;
  std::vector<CommandResult> results(commands.size());
  std::vector<Running> running(commands.size());
  for (size_t i = 0; i < commands.size(); ++i) results[i].status = Start(commands[i], input, running[i]);

  bool killed = false;
  while (std::any_of(running.begin(), running.end(), [](const Running& r) { return !r.ended; })) {
    std::vector<pollfd> fds;
    for (const Running& r : running) {
      if (r.ended) continue;
      fds.push_back({.fd = r.pidfd.get(), .events = POLLIN, .revents = 0});
      // The call of poll ignores negative descriptors.
      fds.push_back({.fd = r.out.get(), .events = POLLIN, .revents = 0});
      fds.push_back({.fd = r.error.get(), .events = POLLIN, .revents = 0});
    }
    fds.push_back({.fd = killed ? -1 : cancel.fd(), .events = POLLIN, .revents = 0});
    const int64_t left_ms = (deadline - clock.Monotonic()).value / 1'000'000 + 1;
    ::poll(fds.data(), fds.size(), killed ? -1 : static_cast<int>(std::clamp<int64_t>(left_ms, 0, 60'000)));

    const bool cancelled = !killed && (fds.back().revents & POLLIN) != 0;
    const bool late = !killed && clock.Monotonic() >= deadline;
    for (size_t i = 0; i < running.size(); ++i) {
      Running& r = running[i];
      if (r.ended) continue;
      DrainBoth(r, results[i]);
      const std::string& binary = commands[i][0];
      if (const std::optional<ExitStatus> exit = ReapChild(r.pidfd)) {
        r.ended = true;
        DrainBoth(r, results[i]);
        if (results[i].status.ok()) results[i].status = EndStatus(binary, *exit, r, results[i]);
      } else if (cancelled || late) {
        SignalProcess(r.pidfd, SIGKILL);
        results[i].status = cancelled ? absl::CancelledError(absl::StrCat(binary, " was stopped"))
                                      : absl::DeadlineExceededError(absl::StrCat(binary, " did not end within ",
                                                                                 FormatDuration(limit), " and was killed"));
      }
    }
    killed = killed || cancelled || late;
  }
  return results;
}

}  // namespace lynx
