// See cores.h.
#include "common/cores.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>

#include "common/check.h"

namespace lynx {
namespace {

struct FreeSet {
  void operator()(cpu_set_t* set) const { CPU_FREE(set); }
};
using CoreSet = std::unique_ptr<cpu_set_t, FreeSet>;

CoreSet EmptySet(int32_t cores) {
  CoreSet set(CPU_ALLOC(cores));
  LYNX_CHECK(set != nullptr);
  CPU_ZERO_S(CPU_ALLOC_SIZE(cores), set.get());
  return set;
}

}  // namespace

std::vector<int32_t> AvailableCores() {
  return AvailableCores([](size_t bytes, cpu_set_t* set) { return ::sched_getaffinity(0, bytes, set); });
}

std::vector<int32_t> AvailableCores(const ReadAffinity& read) {
  std::vector<int32_t> cores;
  for (int32_t most = CPU_SETSIZE; most <= kMaxKernelCores; most *= 2) {
    const CoreSet set = EmptySet(most);
    const size_t bytes = CPU_ALLOC_SIZE(most);
    if (read(bytes, set.get()) != 0) {
      if (errno == EINVAL) continue;  // the kernel has more cores than fit in `set`
      break;
    }
    for (int32_t core = 0; core < most; ++core) {
      if (CPU_ISSET_S(static_cast<size_t>(core), bytes, set.get())) cores.push_back(core);
    }
    break;
  }
  return cores;
}

bool RunOnCores(const std::vector<int32_t>& cores) {
  int32_t most = CPU_SETSIZE;
  for (const int32_t core : cores) {
    LYNX_CHECK(core >= 0 && core < kMaxKernelCores);
    most = std::max(most, core + 1);
  }
  const CoreSet set = EmptySet(most);
  const size_t bytes = CPU_ALLOC_SIZE(most);
  for (const int32_t core : cores) CPU_SET_S(static_cast<size_t>(core), bytes, set.get());
  return ::sched_setaffinity(0, bytes, set.get()) == 0;
}

void RunOnAllCores(const std::vector<std::function<void()>>& tasks) {
  std::atomic<size_t> next = 0;
  std::mutex mutex;
  std::exception_ptr thrown;  // guarded by mutex
  const auto work = [&] {
    try {
      for (size_t i = next++; i < tasks.size(); i = next++) tasks[i]();
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (thrown == nullptr) thrown = std::current_exception();
    }
  };
  const size_t threads = std::min({tasks.size(), AvailableCores().size(), kMaxTasksAtOnce});
  {
    std::vector<std::jthread> others;
    for (size_t i = 1; i < threads; ++i) others.emplace_back(work);
    work();
  }
  if (thrown != nullptr) std::rethrow_exception(thrown);
}

}  // namespace lynx
