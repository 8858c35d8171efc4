#include "worker/engine/copy_thread.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <cstring>

#include "common/check.h"

namespace lynx::worker {

CopyThread::CopyThread(int32_t most_open) : tasks_(static_cast<size_t>(std::max(most_open, 1))) {
  // Blocks all signals in the new thread, so that the kernel delivers them to the threads that the program has made for
  // signals.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { Run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_setname_np(thread_.native_handle(), "lynx-copy");
}

CopyThread::~CopyThread() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

CopyThread::Ticket CopyThread::Start(std::span<const HostCopy> copies) {
  Ticket ticket;
  {
    const std::lock_guard lock(mutex_);
    LYNX_CHECK(open_ < static_cast<int64_t>(tasks_.size()));
    ticket = started_++;
    ++open_;
    At(ticket) = {copies, Nanos(0)};
  }
  changed_.notify_all();
  return ticket;
}

Nanos CopyThread::Wait(Ticket ticket) {
  std::unique_lock lock(mutex_);
  LYNX_CHECK(ticket < started_ && open_ > 0);
  changed_.wait(lock, [&] { return ticket < done_; });
  --open_;
  return At(ticket).done;
}

void CopyThread::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return done_ < started_ || stop_; });
    if (done_ == started_) return;
    const std::span<const HostCopy> copies = At(done_).copies;
    lock.unlock();
    for (const HostCopy& copy : copies) {
      std::memcpy(copy.to, copy.from, static_cast<size_t>(copy.bytes.value));
    }
    lock.lock();
    At(done_).done = clock_.Monotonic();
    ++done_;
    changed_.notify_all();
  }
}

}  // namespace lynx::worker
