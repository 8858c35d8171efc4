// CopyThread makes the rank's copies to and from its host pool, one after another, on its own thread. The thread sleeps while
// there is nothing to copy.
//
// Only one other thread may call Start and Wait. No memory is allocated after construction.
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

namespace lynx::worker {

struct HostCopy {
  const void* from = nullptr;
  void* to = nullptr;
  Bytes bytes;
};

class CopyThread {
 public:
  using Ticket = int64_t;

  // `most_open`: the largest number of tickets that are started and not yet waited for.
  explicit CopyThread(int32_t most_open);
  // Waits until all copies that were started are done.
  ~CopyThread();
  CopyThread(const CopyThread&) = delete;
  CopyThread& operator=(const CopyThread&) = delete;

  // Starts the copies. `copies` and the memory that they point to must not change until the copies are done.
  Ticket Start(std::span<const HostCopy> copies);
  // Blocks until the copies are done. Returns the time at which they were done, on the monotonic clock. Call it once for each
  // ticket.
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
  std::vector<Task> tasks_;  // a ring buffer, indexed by ticket
  int64_t started_ = 0;      // tickets below this are started
  int64_t done_ = 0;         // tickets below this are done
  int64_t open_ = 0;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace lynx::worker

#endif  // LYNX_WORKER_ENGINE_COPY_THREAD_H_
