#include "worker/engine/core_wait.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <fstream>
#include <thread>

namespace lynx::worker {
namespace {

TEST(CoreWait, IsTheSecondNumber) {
  EXPECT_EQ(CoreWait("3189200 3397294 3\n"), Nanos(3397294));
  EXPECT_EQ(CoreWait("0 0 0\n"), Nanos(0));
}

TEST(CoreWait, OfAnythingElseIsZero) {
  for (const char* text :
       {"", "3189200", "3189200 ", "3189200 3397294", "3189200 many 3", "3189200 -5 3", "1 99999999999999999999 3"}) {
    EXPECT_EQ(CoreWait(text), Nanos(0)) << text;
  }
}

// True if the kernel counts in /proc/self/schedstat how long threads run and wait for a core. A kernel that does not count
// reports zeros.
bool KernelKeepsIt() {
  std::ifstream file("/proc/self/schedstat");
  int64_t ran = 0;
  return file >> ran && ran > 0;
}

// Lets the calling thread run only on this core.
void BindTo(int core) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(core, &cores);
  ASSERT_EQ(pthread_setaffinity_np(pthread_self(), sizeof cores, &cores), 0);
}

// Two threads that never sleep share a core. So each thread waits for the core while the other one runs, whatever else the
// machine does.
TEST(CoreWait, GrowsWhileAnotherHasTheCore) {
  if (!KernelKeepsIt()) GTEST_SKIP() << "this kernel does not keep how long threads wait for a core";
  const int core = sched_getcpu();
  std::atomic<bool> waited = false;
  const auto spin = [&] {
    BindTo(core);
    while (!waited) {
      if (ThreadCoreWait() > Nanos(1'000'000)) waited = true;
    }
  };
  std::thread first(spin), second(spin);
  first.join();
  second.join();
}

TEST(CoreWait, DoesNotCountSleep) {
  Nanos waited, slept;
  std::thread sleeper([&] {
    const Nanos before = ThreadCoreWait();
    for (int i = 0; i < 20; ++i) usleep(10'000);
    waited = ThreadCoreWait() - before;
    slept = Nanos(200'000'000);
  });
  sleeper.join();
  EXPECT_LT(waited, slept);
}

}  // namespace
}  // namespace lynx::worker
