#include "cli/verbs/run_tasks.h"

#include <gtest/gtest.h>

#include <atomic>
#include <vector>

namespace lynx::cli {
namespace {

TEST(RunTasks, EachRunsOnce) {
  for (const size_t count : {0u, 1u, 100u}) {
    std::vector<std::atomic<int>> runs(count);
    std::vector<std::function<void()>> tasks;
    for (std::atomic<int>& of : runs) tasks.push_back([&of] { ++of; });
    RunOnAllCores(tasks);
    for (const std::atomic<int>& of : runs) EXPECT_EQ(of, 1);
  }
}

}  // namespace
}  // namespace lynx::cli
