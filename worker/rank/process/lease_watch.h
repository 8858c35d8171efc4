// LeaseWatch ends the rank's process when its node may not train any longer (worker/contract/lease_file.h), whatever the rank
// is doing at that time. It runs one thread from its construction to its destruction.
#ifndef LYNX_WORKER_RANK_PROCESS_LEASE_WATCH_H_
#define LYNX_WORKER_RANK_PROCESS_LEASE_WATCH_H_

#include <condition_variable>
#include <mutex>
#include <thread>

#include "worker/contract/lease_file.h"

namespace lynx::worker {

class LeaseWatch {
 public:
  explicit LeaseWatch(LeaseFile file);
  LeaseWatch(const LeaseWatch&) = delete;
  LeaseWatch& operator=(const LeaseWatch&) = delete;
  ~LeaseWatch();

 private:
  void Watch();

  const LeaseFile file_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stop_ = false;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace lynx::worker

#endif  // LYNX_WORKER_RANK_PROCESS_LEASE_WATCH_H_
