#include "node/wake.h"

#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>

#include <cstdint>

#include "common/check.h"

namespace lynx {

WakeEvent::WakeEvent() : fd_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) { LYNX_CHECK(fd_.valid()); }

void WakeEvent::Raise() {
  const uint64_t one = 1;
  // The write fails only if the counter is full. Then the event is already raised.
  [[maybe_unused]] const ssize_t written = ::write(fd_.get(), &one, sizeof(one));
}

void WakeEvent::Clear() {
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = ::read(fd_.get(), &count, sizeof(count));
}

StopSignals::StopSignals() {
  ::signal(SIGPIPE, SIG_IGN);
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  LYNX_CHECK(::pthread_sigmask(SIG_BLOCK, &set, nullptr) == 0);
  fd_ = UniqueFd(::signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC));
  LYNX_CHECK(fd_.valid());
}

std::optional<int> StopSignals::Take() {
  signalfd_siginfo got;
  if (::read(fd_.get(), &got, sizeof(got)) != static_cast<ssize_t>(sizeof(got))) return std::nullopt;
  return static_cast<int>(got.ssi_signo);
}

}  // namespace lynx
