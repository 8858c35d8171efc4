// Heartbeat: when a node's next report is due if nothing changes. Not thread-safe.
//
// Reports come a little earlier than the server asks, by a random amount, and the second report after an attachment comes at a
// random time. Otherwise nodes that attached together, or waited together for a busy server, would always report at the same
// time.
#ifndef LYNX_NODE_HEARTBEAT_H_
#define LYNX_NODE_HEARTBEAT_H_

#include <algorithm>
#include <cstdint>

#include "common/rng.h"
#include "common/units.h"

namespace lynx {

class Heartbeat {
 public:
  explicit Heartbeat(uint64_t seed) : seed_(seed) {}
  // Sets the interval that the server asks for. If it is 0 or less, the present interval stays. The interval is bounded, so a
  // server can neither make a node flood it nor silence it.
  void SetInterval(Nanos interval) {
    if (interval > Nanos(0)) interval_ = std::clamp(interval, kShortest, kLongest);
  }
  // Call it when the node has attached: a report is due now.
  void Attached() {
    due_ = Nanos(0);
    first_ = true;
  }
  void Sent(Nanos now) {
    const double draw = static_cast<double>(Mix64(seed_ + drawn_++) >> 11) * 0x1p-53;  // a random number in [0, 1)
    const double share = first_ ? draw : 1 - draw * kSooner;
    first_ = false;
    due_ = now + Nanos(static_cast<int64_t>(share * static_cast<double>(interval_.value)));
  }
  bool Due(Nanos now) const { return now >= due_; }
  Nanos Left(Nanos now) const { return std::clamp(due_ - now, Nanos(0), interval_); }

  static constexpr Nanos kShortest{50'000'000};
  static constexpr Nanos kLongest{60'000'000'000};
  static constexpr double kSooner = 0.1;  // a report comes earlier by at most this share of the interval

 private:
  uint64_t seed_;
  uint64_t drawn_ = 0;
  Nanos interval_{2'000'000'000};
  Nanos due_{0};
  bool first_ = true;
};

}  // namespace lynx

#endif  // LYNX_NODE_HEARTBEAT_H_
