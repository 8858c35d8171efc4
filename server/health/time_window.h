// TimeWindow: what took how long in the first steps that are watched, and in the newest ones. Bounded. Not thread-safe.
#ifndef LYNX_SERVER_HEALTH_TIME_WINDOW_H_
#define LYNX_SERVER_HEALTH_TIME_WINDOW_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/units.h"

namespace lynx {

class TimeWindow {
 public:
  static constexpr size_t kSteps = 16;

  // Of the next step. The first ones of all do not count: caches are cold, pages are touched for the first time.
  void Add(Nanos time);
  // As many steps are known as either median is of.
  bool complete() const { return newest_.size() == kSteps; }
  // Medians over kSteps steps. LYNX_CHECK fails unless complete.
  Nanos First() const;
  Nanos Newest() const;
  // Median over the latest kSteps / 2: what it has come to once Newest() has changed, when half of its steps are still those
  // before. LYNX_CHECK fails unless complete.
  Nanos Latest() const;
  // From now on the latest kSteps / 2 and those that follow are the first. Nothing happens unless complete.
  void Rebase();

 private:
  std::vector<Nanos> LatestSteps() const;

  int64_t seen_ = 0;
  std::vector<Nanos> first_, newest_;  // at most kSteps each; the newest begin when the first are complete
  size_t next_ = 0;                    // of newest_, once it is full: the oldest
};

}  // namespace lynx

#endif  // LYNX_SERVER_HEALTH_TIME_WINDOW_H_
