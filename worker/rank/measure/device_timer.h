// DeviceTimer measures how long a device takes for ops that run on it alone. It takes medians, as Stopwatch does. On a GPU it
// measures the time between two of the backend's marks. If ops run on the host's cores, it uses the stopwatch. Borrows the
// backend and the stopwatch.
#ifndef LYNX_WORKER_RANK_MEASURE_DEVICE_TIMER_H_
#define LYNX_WORKER_RANK_MEASURE_DEVICE_TIMER_H_

#include <algorithm>
#include <cstdint>

#include "worker/backend/backend.h"
#include "worker/rank/measure/stopwatch.h"

namespace lynx::worker {

class DeviceTimer {
 public:
  DeviceTimer(Backend& backend, const Stopwatch& stopwatch) : backend_(backend), stopwatch_(stopwatch) {}

  // Returns the time of one `run`. `run` must call the same ops of the backend each time. The backend's Finish returns their
  // errors.
  //
  // On a GPU, several runs follow each other, at most 100, so that the GPU is busy for about kBusy. The host issues the first
  // run while the GPU waits, and the other runs while the GPU works, as in training. The very first run does not count: it may
  // choose an algorithm or load a kernel.
  template <class Run>
  Nanos MedianOf(Run run) const {
    if (backend_.host_addressable()) return stopwatch_.MedianOf(run);
    (void)Once(run, 1);
    const int64_t runs = RunsFor(Once(run, 1));
    return stopwatch_.MedianTime([&] { return Once(run, runs); }) / runs;
  }

  static constexpr Nanos kBusy{200'000};

 private:
  static int64_t RunsFor(Nanos one) { return std::clamp<int64_t>(kBusy.value / std::max<int64_t>(one.value, 1), 1, 100); }

  template <class Run>
  Nanos Once(Run run, int64_t runs) const {
    backend_.BeginMarks();
    const Moment begin = backend_.Mark();
    for (int64_t i = 0; i < runs; ++i) run();
    const Moment end = backend_.Mark();
    (void)backend_.Finish();
    return backend_.TimeOf(end) - backend_.TimeOf(begin);
  }

  Backend& backend_;
  const Stopwatch& stopwatch_;
};

}  // namespace lynx::worker

#endif  // LYNX_WORKER_RANK_MEASURE_DEVICE_TIMER_H_
