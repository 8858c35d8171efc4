// The cores on which threads may run, on machines with any number of cores (a cpu_set_t has room for only 1024), and work that
// uses all of them. Thread-safe.
#ifndef LYNX_COMMON_CORES_H_
#define LYNX_COMMON_CORES_H_

#include <sched.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace lynx {

// More cores than any kernel supports.
inline constexpr int32_t kMaxKernelCores = 1 << 16;

// Does what sched_getaffinity does for the calling thread: writes the cores into a set of `bytes` bytes. Returns 0, or -1 with
// errno EINVAL if the set is too small.
using ReadAffinity = std::function<int(size_t bytes, cpu_set_t* set)>;

// Returns the cores on which the calling thread may run, in ascending order. Empty if the kernel gives no answer.
std::vector<int32_t> AvailableCores();
std::vector<int32_t> AvailableCores(const ReadAffinity& read);

// Restricts the calling thread to these cores. Each core is a number from 0 to kMaxKernelCores - 1. Returns false, with errno,
// if the kernel refuses.
bool RunOnCores(const std::vector<int32_t>& cores);

// Limit for the number of tasks that run at the same time. Each task may hold the programs of a plan for thousands of devices,
// so more tasks would need more memory than a laptop has.
inline constexpr size_t kMaxTasksAtOnce = 8;

// Runs each task once. As many tasks run at the same time as this process has cores, but at most kMaxTasksAtOnce. Returns when
// all are done.
// The calling thread runs some of the tasks itself. What a task throws, such as std::bad_alloc, is thrown again when all
// threads have ended; then some tasks may not have run.
void RunOnAllCores(const std::vector<std::function<void()>>& tasks);

}  // namespace lynx

#endif  // LYNX_COMMON_CORES_H_
