// Tests the timer of ops on a GPU, with CUDA on the host.
#include "worker/rank/measure/device_timer.h"

#include <gtest/gtest.h>

namespace lynx::worker {
namespace {

// The first run of an op may take much longer than the others, because it chooses an algorithm. If the first run decided how
// many runs follow each other, there would be too few of them, and the timer would measure the time to start them.
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
  // One run is the warm-up, and one run decides the number of runs that follow each other. Each repetition has this number of
  // runs, and so has one more round before the repetitions.
  EXPECT_EQ((runs - 2) % (kRepetitions + 1), 0) << runs;
  EXPECT_GE(runs, 2 + kRepetitions + 1);
}

}  // namespace
}  // namespace lynx::worker
