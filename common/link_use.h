// LinkUse: what one rank has sent to another over the network, and how long that took.
#ifndef LYNX_COMMON_LINK_USE_H_
#define LYNX_COMMON_LINK_USE_H_

#include <cstddef>
#include <cstdint>

#include "common/units.h"

namespace lynx {

// Plain data.
struct LinkUse {
  int32_t peer = 0;   // rank at the other end, on another host
  int64_t bytes = 0;  // bytes that the other host has acknowledged
  // Time during which sent bytes were not yet acknowledged, without time in which the peer's process did not read. The kernel
  // counts in ticks of a few milliseconds. The times of several connections to the same peer are added up.
  Nanos busy;
  bool operator==(const LinkUse&) const = default;
};

// Limit for one rank in one step: more than the number of neighbours in any layout.
inline constexpr size_t kMaxLinkUses = 64;

}  // namespace lynx

#endif  // LYNX_COMMON_LINK_USE_H_
