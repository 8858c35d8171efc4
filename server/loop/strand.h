// Strand: runs closures one after another, in the order of posting. A thread that posts to an idle strand runs the closure
// itself, and then all closures that were posted meanwhile. A thread that posts to a busy strand returns at once. Data that
// only the strand uses needs no lock. This matters because gRPC may call back from within a call, where a held lock could
// deadlock. Thread-safe.
#ifndef LYNX_SERVER_LOOP_STRAND_H_
#define LYNX_SERVER_LOOP_STRAND_H_

#include <deque>
#include <functional>
#include <mutex>
#include <utility>

namespace lynx::server {

class Strand {
 public:
  void Post(std::function<void()> closure) {
    {
      std::lock_guard lock(mutex_);
      queue_.push_back(std::move(closure));
      if (running_) return;
      running_ = true;
    }
    while (true) {
      std::function<void()> next;
      {
        std::lock_guard lock(mutex_);
        if (queue_.empty()) {
          running_ = false;
          return;
        }
        next = std::move(queue_.front());
        queue_.pop_front();
      }
      next();
    }
  }

 private:
  std::mutex mutex_;
  std::deque<std::function<void()>> queue_;  // guarded by mutex_
  bool running_ = false;                     // guarded by mutex_
};

}  // namespace lynx::server

#endif  // LYNX_SERVER_LOOP_STRAND_H_
