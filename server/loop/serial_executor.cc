// See serial_executor.h.
#include "server/loop/serial_executor.h"

#include <utility>

namespace lynx::server {

void SerialExecutor::Post(Task task) {
  const std::lock_guard lock(mutex_);
  if (stopping_) return;
  tasks_.push_back(std::move(task));
  if (tasks_.size() == 1) wake_.notify_one();
}

size_t SerialExecutor::Length() const {
  const std::lock_guard lock(mutex_);
  return tasks_.size() + taken_;
}

void SerialExecutor::Stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    wake_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
}

void SerialExecutor::Main() {
  while (true) {
    std::deque<Task> tasks;
    {
      std::unique_lock lock(mutex_);
      taken_ = 0;
      wake_.wait(lock, [this] { return stopping_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      tasks = std::exchange(tasks_, {});
      taken_ = tasks.size();
    }
    for (Task& task : tasks) std::exchange(task, nullptr)();
  }
}

}  // namespace lynx::server
