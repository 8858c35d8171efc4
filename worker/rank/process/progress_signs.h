// ProgressSigns tells the worker daemon every second how far this process has come (worker/contract/progress_file.h), whatever
// the rank is doing at that time. It runs one thread from its construction to its destruction.
#ifndef LYNX_WORKER_RANK_PROCESS_PROGRESS_SIGNS_H_
#define LYNX_WORKER_RANK_PROCESS_PROGRESS_SIGNS_H_

#include <condition_variable>
#include <mutex>
#include <thread>

#include "worker/contract/progress_file.h"

namespace lynx::worker {

class ProgressSigns {
 public:
  explicit ProgressSigns(ProgressFile file);
  ProgressSigns(const ProgressSigns&) = delete;
  ProgressSigns& operator=(const ProgressSigns&) = delete;
  ~ProgressSigns();

 private:
  void Run();

  const ProgressFile file_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stop_ = false;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace lynx::worker

#endif  // LYNX_WORKER_RANK_PROCESS_PROGRESS_SIGNS_H_
