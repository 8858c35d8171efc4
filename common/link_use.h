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
  int64_t bytes = 0;  // that its host has acknowledged
  // While some were under way, but for what the peer's process left unread. The kernel counts in ticks of a few milliseconds.
  // Connections to the same peer add up.
  Nanos busy;
  bool operator==(const LinkUse&) const = default;
};

// Of one rank in one step: more than any layout has neighbours.
inline constexpr size_t kMaxLinkUses = 64;

}  // namespace lynx

#endif  // LYNX_COMMON_LINK_USE_H_
