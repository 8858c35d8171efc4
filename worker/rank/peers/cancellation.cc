#include "worker/rank/peers/cancellation.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <utility>

#include "common/check.h"
#include "worker/contract/rank_report.h"

namespace lynx::worker {
namespace {

constexpr int kGraceMillis = 2000;

absl::Status CancelledStatus() { return absl::CancelledError("the rank was told to stop (SIGTERM)"); }

sigset_t StopSignalSet() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  return signals;
}

// Waits until the descriptor is readable. Returns false if the timeout passed before (-1: no timeout).
bool Readable(int fd, int timeout_millis) {
  pollfd one{.fd = fd, .events = POLLIN, .revents = 0};
  while (true) {
    const int ready = poll(&one, 1, timeout_millis);
    if (ready >= 0) return ready > 0;
    LYNX_CHECK(errno == EINTR);
  }
}

}  // namespace

BlockResult BlockStopSignals() {
  const sigset_t signals = StopSignalSet();
  sigset_t before;
  LYNX_CHECK(pthread_sigmask(SIG_BLOCK, &signals, &before) == 0);
  const bool were_blocked = sigismember(&before, SIGTERM) == 1 && sigismember(&before, SIGINT) == 1;
  return were_blocked ? BlockResult::kWereBlocked : BlockResult::kBlocked;
}

Cancellation::Cancellation(std::string yield_file) : yield_file_(std::move(yield_file)) {
  LYNX_CHECK(BlockStopSignals() == BlockResult::kWereBlocked);
  const sigset_t signals = StopSignalSet();
  signal_fd_ = signalfd(-1, &signals, SFD_CLOEXEC);
  stop_fd_ = eventfd(0, EFD_CLOEXEC);
  LYNX_CHECK(signal_fd_ >= 0 && stop_fd_ >= 0);
  watcher_ = std::thread([this] { Watch(); });
}

Cancellation::~Cancellation() {
  const uint64_t one = 1;
  LYNX_CHECK(write(stop_fd_, &one, sizeof(one)) == sizeof(one));
  watcher_.join();
  close(signal_fd_);
  close(stop_fd_);
}

bool Cancellation::YieldRequested() const { return !yield_file_.empty() && access(yield_file_.c_str(), F_OK) == 0; }

void Cancellation::Attach(Communicator* communicator) {
  const std::lock_guard lock(mutex_);
  communicator_ = communicator;
  if (requested_ && communicator_ != nullptr) communicator_->Abort(CancelledStatus());
}

void Cancellation::Watch() {
  pollfd both[2] = {{.fd = signal_fd_, .events = POLLIN, .revents = 0}, {.fd = stop_fd_, .events = POLLIN, .revents = 0}};
  while (poll(both, 2, -1) < 0) LYNX_CHECK(errno == EINTR);
  if (both[1].revents != 0) return;
  {
    const std::lock_guard lock(mutex_);
    requested_ = true;
    if (communicator_ == nullptr) _exit(kRankExitCancelled);
    communicator_->Abort(CancelledStatus());
  }
  if (Readable(stop_fd_, kGraceMillis)) return;
  std::fprintf(stderr, "told to stop, but still busy after %d ms: exiting without waiting longer\n", kGraceMillis);
  _exit(kRankExitCancelled);
}

}  // namespace lynx::worker
