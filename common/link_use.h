// LinkUse says how much one rank has sent to another over the network, and how long this took.
#ifndef LYNX_COMMON_LINK_USE_H_
#define LYNX_COMMON_LINK_USE_H_

#include <cstddef>
#include <cstdint>

#include "common/units.h"

namespace lynx {

// Plain data.
struct LinkUse {
  int32_t peer = 0;   // the rank at the other end; it is on another host
  int64_t bytes = 0;  // bytes that the other host has acknowledged
  // Time during which sent bytes were not yet acknowledged. Time in which the peer's process did not read is left out. The
  // kernel counts in ticks of a few milliseconds. The times of several connections to the same peer are added.
  Nanos busy;
  bool operator==(const LinkUse&) const = default;
};

// The largest number of LinkUses that one rank may report for one step. In every layout, a rank has fewer neighbours than this.
inline constexpr size_t kMaxLinkUses = 64;

}  // namespace lynx

#endif  // LYNX_COMMON_LINK_USE_H_
