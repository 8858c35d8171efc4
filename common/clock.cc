#include "common/clock.h"

#include <ctime>

namespace lynx {
namespace {

Nanos Read(clockid_t clock) {
  timespec t{};
  clock_gettime(clock, &t);
  return Nanos(t.tv_sec * 1'000'000'000LL + t.tv_nsec);
}

}  // namespace

Nanos RealClock::Monotonic() const { return Read(CLOCK_MONOTONIC); }
Nanos RealClock::Wall() const { return Read(CLOCK_REALTIME); }
Nanos BootTime() { return Read(CLOCK_BOOTTIME); }

}  // namespace lynx
