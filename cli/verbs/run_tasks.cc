#include "cli/verbs/run_tasks.h"

#include <algorithm>
#include <atomic>
#include <thread>

#include "common/cores.h"

namespace lynx::cli {

void RunOnAllCores(const std::vector<std::function<void()>>& tasks) {
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i = next++; i < tasks.size(); i = next++) tasks[i]();
  };
  const size_t threads = std::min({tasks.size(), AvailableCores().size(), kMaxTasksAtOnce});
  {
    std::vector<std::jthread> others;
    for (size_t i = 1; i < threads; ++i) others.emplace_back(work);
    work();
  }
}

}  // namespace lynx::cli
