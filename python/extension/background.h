// Runs work that may take long on its own thread, so that the interpreter continues and Ctrl-C works. If a call is interrupted,
// its work continues to its end and the result is dropped, because the planner cannot be stopped. When the interpreter ends,
// FinishBackground waits for such work.
#ifndef LYNX_PYTHON_EXTENSION_BACKGROUND_H_
#define LYNX_PYTHON_EXTENSION_BACKGROUND_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

namespace lynx::python {

// One piece of work. Thread-safe.
class BackgroundTask {
 public:
  // Starts `work`, which must own everything that it uses and must not use the interpreter. Other tasks that have ended are
  // forgotten.
  static std::shared_ptr<BackgroundTask> Start(std::function<void(const BackgroundTask&)> work);

  // Waits until the work has ended, at most for this time. Returns true if it has ended.
  bool WaitFor(std::chrono::milliseconds time);
  // Throws the exception again that the work has thrown. The work must have ended.
  void Rethrow() const;
  // Asks the work to end early. This affects only work that checks `stopped`.
  void Stop() { stopped_ = true; }
  bool stopped() const { return stopped_; }

 private:
  std::atomic<bool> stopped_ = false;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ended_ = false;         // guarded by mutex_
  std::exception_ptr thrown_;  // set before ended_
};

// Waits for the task with the interpreter unlocked. Throws KeyboardInterrupt, and what other signal handlers raise. The caller
// must hold the interpreter's lock.
void AwaitTask(BackgroundTask& task);

// Runs `work` as a task and returns its result. `work` must own everything that it uses.
template <class Work>
auto Unlocked(Work work) {
  auto result = std::make_shared<std::optional<decltype(work())>>();
  const auto task = BackgroundTask::Start([result, work = std::move(work)](const BackgroundTask&) { *result = work(); });
  AwaitTask(*task);
  return *std::move(*result);
}

// Stops all tasks and waits for them. If a second Ctrl-C interrupts this, ends the process at once, because no thread may run
// while the process unloads its libraries.
void FinishBackground();

}  // namespace lynx::python

#endif  // LYNX_PYTHON_EXTENSION_BACKGROUND_H_
