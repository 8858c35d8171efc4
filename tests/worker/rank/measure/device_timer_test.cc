// Tests the timer of ops on a GPU, with CUDA on the host.
#include "worker/rank/measure/device_timer.h"

#include <gtest/gtest.h>

namespace lynx::worker {
namespace {

// The first run of an op may take much longer than the others, because it chooses an algorithm. If it decided how many runs
// follow each other, these would be so few that the time to start them were measured.
TEST(DeviceTimer, TheFirstRunOnlyWarmsUp) {
  constexpr int32_t kRepetitions = 3;
  const std::unique_ptr<Backend> backend = MakeCudaBackend(0).value();
  const std::span<float> memory = backend->Allocate(Bytes(4), "memory").value();
  const Stopwatch stopwatch(kRepetitions, 600);
  int64_t runs = 0;
  const Nanos time = DeviceTimer(*backend, stopwatch).MedianOf([&] {
    ++runs;
    backend->Fill(memory.data(), 1, 1);
  });
  ASSERT_TRUE(backend->Finish().ok());
  EXPECT_GT(time, Nanos(0));
  // One run warms up, and one decides how many follow each other. As many follow in each repetition and once before them.
  EXPECT_EQ((runs - 2) % (kRepetitions + 1), 0) << runs;
  EXPECT_GE(runs, 2 + kRepetitions + 1);
}

}  // namespace
}  // namespace lynx::worker
