#include "python/extension/background.h"

#include <pybind11/pybind11.h>
#include <unistd.h>

#include <thread>
#include <vector>

namespace lynx::python {
namespace {

namespace py = pybind11;

constexpr std::chrono::milliseconds kTick{50};
constexpr int kInterruptedCode = 130;  // as shells report a program that Ctrl-C has ended

// A thread and its task.
struct Running {
  std::shared_ptr<BackgroundTask> task;
  std::thread thread;
};

std::mutex running_mutex;

// The list is never destroyed, because its threads may use it until the process ends.
std::vector<Running>& AllRunning() {
  static auto* const running = new std::vector<Running>();
  return *running;
}

// Joins the threads of tasks that have ended. The caller must hold running_mutex.
void Forget(std::vector<Running>& running) {
  std::erase_if(running, [](Running& one) {
    if (!one.task->WaitFor(std::chrono::milliseconds(0))) return false;
    one.thread.join();
    return true;
  });
}

// Waits without the interpreter's lock. Returns false if a signal handler has raised an exception; then the exception is set.
bool WaitUninterrupted(BackgroundTask& task) {
  while (true) {
    bool ended = false;
    {
      const py::gil_scoped_release unlocked;
      ended = task.WaitFor(kTick);
    }
    if (ended) return true;
    if (PyErr_CheckSignals() != 0) return false;
  }
}

}  // namespace

std::shared_ptr<BackgroundTask> BackgroundTask::Start(std::function<void(const BackgroundTask&)> work) {
  const auto task = std::make_shared<BackgroundTask>();
  const std::lock_guard lock(running_mutex);
  Forget(AllRunning());
  AllRunning().push_back({task, std::thread([task, work = std::move(work)]() mutable {
                            try {
                              work(*task);
                            } catch (...) {
                              task->thrown_ = std::current_exception();
                            }
                            work = nullptr;  // destroys the objects that the task owns before others are told that it has ended
                            const std::lock_guard ended(task->mutex_);
                            task->ended_ = true;
                            task->changed_.notify_all();
                          })});
  return task;
}

bool BackgroundTask::WaitFor(std::chrono::milliseconds time) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, time, [&] { return ended_; });
}

void BackgroundTask::Rethrow() const {
  if (thrown_ != nullptr) std::rethrow_exception(thrown_);
}

void AwaitTask(BackgroundTask& task) {
  if (!WaitUninterrupted(task)) throw py::error_already_set();
  task.Rethrow();
}

void FinishBackground() {
  std::vector<std::shared_ptr<BackgroundTask>> tasks;
  {
    const std::lock_guard lock(running_mutex);
    for (const Running& one : AllRunning()) tasks.push_back(one.task);
  }
  for (const auto& task : tasks) task->Stop();
  for (const auto& task : tasks) {
    if (!WaitUninterrupted(*task)) _exit(kInterruptedCode);
  }
  const std::lock_guard lock(running_mutex);
  Forget(AllRunning());
}

}  // namespace lynx::python
