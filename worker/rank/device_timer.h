// DeviceTimer: how long a device takes for ops that are alone on it: medians, as Stopwatch takes them. Borrows both.
#ifndef LYNX_WORKER_RANK_DEVICE_TIMER_H_
#define LYNX_WORKER_RANK_DEVICE_TIMER_H_

#include "worker/backend/backend.h"
#include "worker/rank/stopwatch.h"

namespace lynx {

class DeviceTimer {
 public:
  DeviceTimer(Backend& backend, const Stopwatch& stopwatch) : backend_(backend), stopwatch_(stopwatch) {}

  // `run` calls ops of the backend. What of them failed, the backend's Finish tells.
  template <class Run>
  Nanos MedianOf(Run run) const {
    return stopwatch_.MedianOf([&] {
      run();
      (void)backend_.Finish();
    });
  }

 private:
  Backend& backend_;
  const Stopwatch& stopwatch_;
};

}  // namespace lynx

#endif  // LYNX_WORKER_RANK_DEVICE_TIMER_H_
