// Runs lynxctl's own computations, such as plans to compare, on all cores. Thread-safe.
#ifndef LYNX_CLI_VERBS_RUN_TASKS_H_
#define LYNX_CLI_VERBS_RUN_TASKS_H_

#include <cstddef>
#include <functional>
#include <vector>

namespace lynx::cli {

// Limit for tasks that run at once. Each task may hold the programs of a plan for thousands of devices, so more tasks would
// need more memory than a laptop has.
inline constexpr size_t kMaxTasksAtOnce = 8;

// Runs each task once, as many at a time as this process has cores, at most kMaxTasksAtOnce. Returns when all are done.
// The calling thread runs some of the tasks itself.
void RunOnAllCores(const std::vector<std::function<void()>>& tasks);

}  // namespace lynx::cli

#endif  // LYNX_CLI_VERBS_RUN_TASKS_H_
