// A Moment is a point in the work of a rank. On the host it is a time. On a device it is a mark in the order of the device's
// work (CUDA: an event). The mark has a time once the device has reached it (Backend::TimeOf), and other work can be made to
// wait for the mark (Backend::Follow).
//
// A plain value.
#ifndef LYNX_COMMON_MOMENT_H_
#define LYNX_COMMON_MOMENT_H_

#include <cstdint>

#include "common/units.h"

namespace lynx {

struct Moment {
  Nanos time;         // time on the monotonic clock; has no meaning for a mark
  int32_t mark = -1;  // number of the mark; -1: the moment is not a mark

  constexpr Moment() = default;
  constexpr Moment(Nanos when) : time(when) {}  // NOLINT: a time is a moment
  static constexpr Moment OfMark(int32_t mark) {
    Moment moment;
    moment.mark = mark;
    return moment;
  }

  constexpr bool is_mark() const { return mark >= 0; }
};

}  // namespace lynx

#endif  // LYNX_COMMON_MOMENT_H_
