#include "node/process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "absl/strings/str_cat.h"
#include "node/file.h"

namespace lynx {
namespace {

ExitStatus WaitFor(const Child& child) {
  pollfd fd{.fd = child.pidfd.get(), .events = POLLIN, .revents = 0};
  EXPECT_EQ(::poll(&fd, 1, 30'000), 1) << "the process did not end";
  const std::optional<ExitStatus> exit = ReapChild(child.pidfd);
  EXPECT_TRUE(exit.has_value());
  return exit.value_or(ExitStatus{.code = -1});
}

absl::StatusOr<Child> Shell(const std::string& script, SpawnFds fds = {}) {
  return SpawnInSession({"/bin/sh", "-c", script}, fds);
}

TEST(Spawn, TellsExitCodesAndSignals) {
  absl::StatusOr<Child> three = Shell("exit 3");
  ASSERT_TRUE(three.ok());
  const ExitStatus code = WaitFor(*three);
  EXPECT_EQ(code, (ExitStatus{.code = 3, .signal = 0}));
  EXPECT_EQ(ExitText(code), "exit code 3");

  absl::StatusOr<Child> killed = Shell("kill -9 $$");
  ASSERT_TRUE(killed.ok());
  const ExitStatus signal = WaitFor(*killed);
  EXPECT_EQ(signal, (ExitStatus{.code = 137, .signal = 9}));
  EXPECT_EQ(ExitText(signal), "killed by signal 9 (Killed)");
}

TEST(Spawn, SaysWhichBinaryIsMissing) {
  const absl::Status missing = SpawnInSession({"/no/such/binary"}, {}).status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_NE(std::string(missing.message()).find("/no/such/binary"), std::string::npos);
}

TEST(Spawn, PassesOneDescriptorAndClosesAllOthers) {
  char path[] = "/tmp/lynx-process-test-XXXXXX";
  UniqueFd out(::mkstemp(path));
  // Neither descriptor is close-on-exec, so a child would inherit both.
  UniqueFd passed(::fcntl(out.get(), F_DUPFD, 40));
  UniqueFd leaked(::fcntl(out.get(), F_DUPFD, 50));
  const SpawnFds fds{.out = out.get(), .error = -1, .passed = passed.get()};
  absl::StatusOr<Child> list = SpawnInSession({"/bin/ls", "/proc/self/fd"}, fds);
  ASSERT_TRUE(list.ok());
  EXPECT_EQ(WaitFor(*list).code, 0);
  absl::StatusOr<Child> writer = Shell("echo passed >&3", fds);
  ASSERT_TRUE(writer.ok());
  EXPECT_EQ(WaitFor(*writer).code, 0);
  // Descriptor 4 is the folder that ls reads.
  EXPECT_EQ(*ReadFile(path), "0\n1\n2\n3\n4\npassed\n");
  ::unlink(path);
}

// The parent of a vfork waits in the kernel until its child runs another program or ends.
TEST(WaitsInKernel, IsTrueOnlyWhileAThreadCannotBeInterrupted) {
  int words[2];
  ASSERT_EQ(::pipe(words), 0);
  const pid_t waiter = ::fork();
  ASSERT_GE(waiter, 0);
  if (waiter == 0) {
    if (::vfork() == 0) {
      char word;
      [[maybe_unused]] const ssize_t bytes = ::read(words[0], &word, 1);
      ::_exit(0);
    }
    ::pause();
  }
  while (!WaitsInKernel(waiter)) ::usleep(1000);
  ASSERT_EQ(::write(words[1], "x", 1), 1);
  while (WaitsInKernel(waiter)) ::usleep(1000);
  ::kill(waiter, SIGKILL);
  ::waitpid(waiter, nullptr, 0);
  EXPECT_FALSE(WaitsInKernel(waiter));
  ::close(words[0]);
  ::close(words[1]);
}

TEST(Spawn, ChildLeadsItsOwnSessionWithSignalsUnblocked) {
  sigset_t set;
  sigset_t before;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  ::pthread_sigmask(SIG_BLOCK, &set, &before);
  absl::StatusOr<Child> child = Shell("kill -TERM $$; exit 5");
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  ASSERT_TRUE(child.ok());
  EXPECT_EQ(WaitFor(*child).signal, SIGTERM);

  absl::StatusOr<Child> sleeper = Shell("exec sleep 60");
  ASSERT_TRUE(sleeper.ok());
  EXPECT_EQ(::getsid(sleeper->pid), sleeper->pid);
  EXPECT_TRUE(SignalProcess(sleeper->pidfd, SIGKILL));
  EXPECT_EQ(WaitFor(*sleeper).signal, SIGKILL);
  EXPECT_FALSE(SignalProcess(sleeper->pidfd, SIGKILL));
}

TEST(Identity, IsTrustedOnlyIfStartTimeAndBootMatch) {
  absl::StatusOr<Child> child = Shell("exec sleep 60");
  ASSERT_TRUE(child.ok());
  const std::optional<ProcessIdentity> identity = IdentifyProcess(child->pid);
  ASSERT_TRUE(identity.has_value());
  EXPECT_GT(identity->start_ticks, 0);
  EXPECT_FALSE(identity->machine_boot.empty());
  EXPECT_TRUE(OpenProcess(*identity).ok());

  ProcessIdentity other = *identity;
  other.start_ticks -= 1;
  EXPECT_EQ(OpenProcess(other).status().code(), absl::StatusCode::kNotFound);
  other = *identity;
  other.machine_boot = "another boot";
  EXPECT_EQ(OpenProcess(other).status().code(), absl::StatusCode::kNotFound);

  EXPECT_FALSE(HasEnded(child->pidfd));
  SignalProcess(child->pidfd, SIGKILL);
  pollfd fd{.fd = child->pidfd.get(), .events = POLLIN, .revents = 0};
  ASSERT_EQ(::poll(&fd, 1, 30'000), 1);
  // A zombie does not count as alive.
  EXPECT_FALSE(IdentifyProcess(child->pid).has_value());
  EXPECT_EQ(WaitFor(*child).signal, SIGKILL);
  EXPECT_EQ(OpenProcess(*identity).status().code(), absl::StatusCode::kNotFound);
}

TEST(Ending, IsAProcessWhoseOtherThreadsStillRun) {
  int go[2];
  ASSERT_EQ(::pipe(go), 0);
  const pid_t pid = ::fork();
  if (pid == 0) {
    std::thread([] {
      while (true) ::pause();
    }).detach();
    char byte;
    (void)!::read(go[0], &byte, 1);
    ::syscall(SYS_exit, 0);  // ends only this thread
  }
  const UniqueFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  EXPECT_FALSE(IsEnding(pid));
  ASSERT_EQ(::write(go[1], "x", 1), 1);
  for (int i = 0; i < 3000 && !IsEnding(pid); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_TRUE(IsEnding(pid));
  EXPECT_FALSE(IdentifyProcess(pid).has_value());
  EXPECT_FALSE(HasEnded(pidfd));
  ::kill(pid, SIGKILL);
  pollfd fd{.fd = pidfd.get(), .events = POLLIN, .revents = 0};
  ASSERT_EQ(::poll(&fd, 1, 30'000), 1);
  EXPECT_FALSE(IsEnding(pid)) << "a zombie holds nothing any more";
  EXPECT_TRUE(ReapChild(pidfd).has_value());
  EXPECT_FALSE(IsEnding(pid));
  ::close(go[0]);
  ::close(go[1]);
}

TEST(FindProcesses, ByOneOfTheirArguments) {
  const std::string folder = absl::StrCat("/tmp/lynx-process-test-mark-", ::getpid()), mark = folder + "/ranks/config.json";
  EXPECT_TRUE(FindProcessesByArgument(mark).empty());
  absl::StatusOr<Child> child = SpawnInSession({"/bin/sh", "-c", "kill -STOP $$", "--config", mark}, {});
  ASSERT_TRUE(child.ok());
  // The kernel shows the arguments of a new process only a little after the process has started.
  std::vector<pid_t> found;
  while (found.empty()) found = FindProcessesByArgument(mark);
  EXPECT_EQ(found, std::vector<pid_t>{child->pid});
  EXPECT_EQ(FindProcessesBelow(folder), std::vector<pid_t>{child->pid});
  EXPECT_EQ(FindProcessesBelow(folder + "/ranks"), std::vector<pid_t>{child->pid});
  for (const char* other : {"/rank", "/ranks/config.json", "/copies"})
    EXPECT_TRUE(FindProcessesBelow(folder + other).empty()) << other;
  SignalProcess(child->pidfd, SIGKILL);
  WaitFor(*child);
}

}  // namespace
}  // namespace lynx
