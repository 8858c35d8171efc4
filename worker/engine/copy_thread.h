// CopyThread: the rank's copies to and from its host pool, one after another on a thread of their own, which sleeps
// while there is nothing to copy.
//
// Start and Wait are for one other thread. Nothing is allocated after construction.
#ifndef LYNX_WORKER_ENGINE_COPY_THREAD_H_
#define LYNX_WORKER_ENGINE_COPY_THREAD_H_

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "common/clock.h"
#include "common/units.h"

namespace lynx {

struct HostCopy {
  const void* from = nullptr;
  void* to = nullptr;
  Bytes bytes;
};

class CopyThread {
 public:
  using Ticket = int64_t;

  // At most `most_open` copies are started and not yet waited for.
  explicit CopyThread(int32_t most_open);
  // Finishes what was started.
  ~CopyThread();
  CopyThread(const CopyThread&) = delete;
  CopyThread& operator=(const CopyThread&) = delete;

  // `copies` and what they point to stay as they are until it is done.
  Ticket Start(std::span<const HostCopy> copies);
  // Blocks until it is done; when it was, on the monotonic clock. Once per ticket.
  Nanos Wait(Ticket ticket);

 private:
  struct Task {
    std::span<const HostCopy> copies;
    Nanos done;
  };

  void Run();
  Task& At(Ticket ticket) { return tasks_[static_cast<size_t>(ticket) % tasks_.size()]; }

  const RealClock clock_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Task> tasks_;  // a ring, by ticket
  int64_t started_ = 0;      // tickets below it are started,
  int64_t done_ = 0;         // below this done
  int64_t open_ = 0;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace lynx

#endif  // LYNX_WORKER_ENGINE_COPY_THREAD_H_
