// Clock is the interface through which code asks for the time. RealClock reads the machine's clock. Tests set the time of
// SimulatedClock. The planner reads no clock, except for the time limit of the exact solver.
#ifndef LYNX_COMMON_CLOCK_H_
#define LYNX_COMMON_CLOCK_H_

#include <atomic>

#include "common/units.h"

namespace lynx {

class Clock {
 public:
  virtual ~Clock() = default;
  // Nanoseconds since an arbitrary time; the value never goes back. Thread-safe.
  virtual Nanos Monotonic() const = 0;
  // Nanoseconds since the Unix epoch. Thread-safe.
  virtual Nanos Wall() const = 0;
};

class RealClock : public Clock {
 public:
  Nanos Monotonic() const override;
  Nanos Wall() const override;
};

// Nanoseconds since the machine booted. Time in which the machine sleeps is included. All processes of a machine get the same
// value. Thread-safe.
Nanos BootTime();

class SimulatedClock : public Clock {
 public:
  Nanos Monotonic() const override { return Nanos(now_.load()); }
  Nanos Wall() const override { return Nanos(now_.load()); }
  void Advance(Nanos by) { now_ += by.value; }

 private:
  std::atomic<int64_t> now_{1'000'000'000'000};
};

}  // namespace lynx

#endif  // LYNX_COMMON_CLOCK_H_
