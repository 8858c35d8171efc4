// SerialExecutor: one thread that runs tasks one after another, in order. Its tasks encode messages and pass them to gRPC. On
// the owner thread this work would delay decisions, because gRPC may write to sockets within the call. Thread-safe.
#ifndef LYNX_SERVER_LOOP_SERIAL_EXECUTOR_H_
#define LYNX_SERVER_LOOP_SERIAL_EXECUTOR_H_

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace lynx::server {

class SerialExecutor {
 public:
  using Task = std::function<void()>;

  SerialExecutor() : thread_([this] { Main(); }) {}
  ~SerialExecutor() { Stop(); }
  SerialExecutor(const SerialExecutor&) = delete;
  SerialExecutor& operator=(const SerialExecutor&) = delete;

  // Never blocks. Does nothing after Stop.
  void Post(Task task);
  // Number of tasks that are not done. The thread takes tasks in batches. All tasks of a batch count until the last of them is
  // done.
  size_t Length() const;
  // Returns after all tasks that were posted before are done. Idempotent. Must not be called from a task.
  void Stop();

 private:
  void Main();

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Task> tasks_;  // guarded by mutex_
  size_t taken_ = 0;        // guarded by mutex_; size of the batch that is being done
  bool stopping_ = false;   // guarded by mutex_
  std::thread thread_;      // the last member, because the thread uses the others
};

}  // namespace lynx::server

#endif  // LYNX_SERVER_LOOP_SERIAL_EXECUTOR_H_
