// TimeWindow: times of the first watched steps and of the newest steps. Bounded. Not thread-safe.
#ifndef LYNX_SERVER_HEALTH_TIME_WINDOW_H_
#define LYNX_SERVER_HEALTH_TIME_WINDOW_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/units.h"

namespace lynx::server {

class TimeWindow {
 public:
  static constexpr size_t kSteps = 16;
  // The very first steps do not count, because caches are cold and pages are touched for the first time.
  static constexpr int64_t kWarmupSteps = 2;

  // Adds the next step's time.
  void Add(Nanos time);
  // True if First() and Newest() both have kSteps steps.
  bool complete() const { return newest_.size() == kSteps; }
  // Medians over kSteps steps. LYNX_CHECK fails unless complete().
  Nanos First() const;
  Nanos Newest() const;
  // Median over the latest kSteps / 2 steps. After a change of speed, half of the steps of Newest() may be from before the
  // change. Latest() has only the newer half. LYNX_CHECK fails unless complete().
  Nanos Latest() const;
  // Starts a new reference: from now on First() covers the latest kSteps / 2 steps and the next kSteps / 2 steps. Does nothing
  // unless complete().
  void Rebase();

 private:
  std::vector<Nanos> LatestSteps() const;

  int64_t seen_ = 0;
  std::vector<Nanos> first_, newest_;  // at most kSteps times each; newest_ is filled once first_ is full
  size_t next_ = 0;                    // index in newest_ of the oldest entry, once newest_ is full
};

}  // namespace lynx::server

#endif  // LYNX_SERVER_HEALTH_TIME_WINDOW_H_
