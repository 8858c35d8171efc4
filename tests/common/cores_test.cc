#include "common/cores.h"

#include <cerrno>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <atomic>
#include <new>

namespace lynx {
namespace {

TEST(Cores, AMachineOfMoreThanACpuSetHoldsIsReadWhole) {
  const auto kernel = [](int32_t cores) {
    return [cores](size_t bytes, cpu_set_t* set) {
      if (static_cast<size_t>(cores) > 8 * bytes) {
        errno = EINVAL;
        return -1;
      }
      for (const int32_t core : {0, 7, cores - 1}) CPU_SET_S(static_cast<size_t>(core), bytes, set);
      return 0;
    };
  };
  EXPECT_EQ(AvailableCores(kernel(64)), (std::vector<int32_t>{0, 7, 63}));
  EXPECT_EQ(AvailableCores(kernel(1024)), (std::vector<int32_t>{0, 7, 1023}));
  EXPECT_EQ(AvailableCores(kernel(1500)), (std::vector<int32_t>{0, 7, 1499}));
  EXPECT_EQ(AvailableCores(kernel(kMaxKernelCores)), (std::vector<int32_t>{0, 7, kMaxKernelCores - 1}));
  EXPECT_EQ(AvailableCores(kernel(kMaxKernelCores + 1)), (std::vector<int32_t>{}));
}

TEST(Cores, AKernelThatDoesNotSayIsNotAskedAgain) {
  int asked = 0;
  EXPECT_TRUE(AvailableCores([&](size_t, cpu_set_t*) {
                ++asked;
                errno = EPERM;
                return -1;
              }).empty());
  EXPECT_EQ(asked, 1);
}

TEST(Cores, AThreadRunsWhereItIsTold) {
  std::thread([] {
    const std::vector<int32_t> all = AvailableCores();
    ASSERT_FALSE(all.empty());
    ASSERT_TRUE(RunOnCores({all.back()}));
    EXPECT_EQ(AvailableCores(), std::vector<int32_t>{all.back()});
    EXPECT_FALSE(RunOnCores({kMaxKernelCores - 1})) << "there is no such core";
    EXPECT_TRUE(RunOnCores(all));
  }).join();
}

TEST(RunTasks, EachRunsOnce) {
  for (const size_t count : {0u, 1u, 100u}) {
    std::vector<std::atomic<int>> runs(count);
    std::vector<std::function<void()>> tasks;
    for (std::atomic<int>& of : runs) tasks.push_back([&of] { ++of; });
    RunOnAllCores(tasks);
    for (const std::atomic<int>& of : runs) EXPECT_EQ(of, 1);
  }
}

TEST(RunTasks, WhatATaskThrowsIsThrownAgain) {
  std::vector<std::function<void()>> tasks(20, [] { throw std::bad_alloc(); });
  EXPECT_THROW(RunOnAllCores(tasks), std::bad_alloc);
}

}  // namespace
}  // namespace lynx
