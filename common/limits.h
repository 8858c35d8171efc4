// Limits that hold everywhere, so that what one part accepts, no other refuses.
#ifndef LYNX_COMMON_LIMITS_H_
#define LYNX_COMMON_LIMITS_H_

#include <cstdint>

namespace lynx {

// Ranks of a job, and so each of its parallel degrees.
inline constexpr int32_t kMaxRanks = 1 << 16;

}  // namespace lynx

#endif  // LYNX_COMMON_LIMITS_H_
