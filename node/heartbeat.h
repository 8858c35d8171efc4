// Heartbeat: when a node's next report is due though nothing has changed. Not thread-safe.
#ifndef LYNX_NODE_HEARTBEAT_H_
#define LYNX_NODE_HEARTBEAT_H_

#include <algorithm>

#include "common/units.h"

namespace lynx {

class Heartbeat {
 public:
  // As the server asks; 0 or less keeps what is. Bounded, so that no server makes a node flood it or fall silent.
  void SetInterval(Nanos interval) {
    if (interval > Nanos(0)) interval_ = std::clamp(interval, kShortest, kLongest);
  }
  void MakeDue() { due_ = Nanos(0); }
  void Sent(Nanos now) { due_ = now + interval_; }
  bool Due(Nanos now) const { return now >= due_; }
  Nanos Left(Nanos now) const { return std::clamp(due_ - now, Nanos(0), interval_); }

  static constexpr Nanos kShortest{50'000'000};
  static constexpr Nanos kLongest{60'000'000'000};

 private:
  Nanos interval_{2'000'000'000};
  Nanos due_{0};
};

}  // namespace lynx

#endif  // LYNX_NODE_HEARTBEAT_H_
