// Moment: a point of a rank's time line. On the host it is a time; on a device a mark in the order of its work, which
// has a time once it is reached (Backend::TimeOf), and which other work can be made to come after (Backend::Follow).
//
// A plain value.
#ifndef LYNX_COMMON_MOMENT_H_
#define LYNX_COMMON_MOMENT_H_

#include <cstdint>

#include "common/units.h"

namespace lynx {

struct Moment {
  Nanos time;         // on the monotonic clock; of no meaning for a mark
  int32_t mark = -1;  // of a device; -1: none

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
