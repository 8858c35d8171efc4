// Limits that all parts of the program share, so that no part refuses what another part has accepted.
#ifndef LYNX_COMMON_LIMITS_H_
#define LYNX_COMMON_LIMITS_H_

#include <cstdint>

namespace lynx {

// Maximum number of ranks of a job. It is also the limit for each parallel degree of a job.
inline constexpr int32_t kMaxRanks = 1 << 16;

// Maximum number of experts of a layer.
inline constexpr int32_t kMaxExperts = 1 << 12;

// Limits for messages between processes. They are far above what a correct sender sends, and far below values with which
// arithmetic could overflow.
inline constexpr int64_t kMaxWireNanos = 1'000'000'000'000'000;     // 11 days
inline constexpr int64_t kMaxWireBytes = int64_t{1} << 50;          // 1 PiB
inline constexpr int64_t kMaxWireRate = 1'000'000'000'000'000'000;  // FLOP/s or bytes/s
inline constexpr int64_t kMaxWireSteps = 1'000'000'000'000;
inline constexpr int64_t kMaxWireRanks = kMaxRanks;
inline constexpr int64_t kMaxWirePathLength = 4096;

}  // namespace lynx

#endif  // LYNX_COMMON_LIMITS_H_
