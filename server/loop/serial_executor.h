// SerialExecutor: one thread that does, one after another and in their order, what would keep the owner thread from deciding:
// encoding messages and handing them to gRPC, which may write to sockets within the call. Thread-safe.
#ifndef LYNX_SERVER_LOOP_SERIAL_EXECUTOR_H_
#define LYNX_SERVER_LOOP_SERIAL_EXECUTOR_H_

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace lynx {

class SerialExecutor {
 public:
  using Task = std::function<void()>;

  SerialExecutor() : thread_([this] { Main(); }) {}
  ~SerialExecutor() { Stop(); }
  SerialExecutor(const SerialExecutor&) = delete;
  SerialExecutor& operator=(const SerialExecutor&) = delete;

  // Never blocks. Nothing happens once it stops.
  void Post(Task errand);
  // Errands that are not done; those that it has taken together count until the last of them is.
  size_t Length() const;
  // What is posted is still done. Idempotent; not from an errand.
  void Stop();

 private:
  void Main();

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Task> errands_;  // guarded by mutex_
  size_t taken_ = 0;          // guarded by mutex_; of a batch that is being done
  bool stopping_ = false;     // guarded by mutex_
  std::thread thread_;        // the last member: it uses the others
};

}  // namespace lynx

#endif  // LYNX_SERVER_LOOP_SERIAL_EXECUTOR_H_
