// ScoreKey orders the experts of a token by their scores. Every backend uses this file, so that all of them choose the same
// experts.
//
// The functions are constexpr, so that CUDA's compiler may call them on the device. Pure.
#ifndef LYNX_WORKER_BACKEND_SCORE_KEY_H_
#define LYNX_WORKER_BACKEND_SCORE_KEY_H_

#include <bit>
#include <cstdint>

namespace lynx::worker {

// A larger key is a higher score, or the same score of an expert with a lower number. All keys of a token are different from
// each other, even if scores are NaN, so the next choice is the largest key below that of the choice before it. Keys are above
// 0 and below kAboveAllKeys.
using ScoreKey = uint64_t;
inline constexpr ScoreKey kAboveAllKeys = UINT64_MAX;

constexpr ScoreKey ScoreKeyOf(float score, int64_t expert) {
  const auto bits = std::bit_cast<uint32_t>(score + 0.0f);  // -0 becomes 0, because they are equal
  const uint32_t ordered = (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
  return uint64_t{ordered} << 32 | (0xffffffffu - static_cast<uint32_t>(expert) - 1);
}

constexpr int32_t ExpertOf(ScoreKey key) {
  return static_cast<int32_t>(0xffffffffu - static_cast<uint32_t>(key & 0xffffffffu) - 1);
}

}  // namespace lynx::worker

#endif  // LYNX_WORKER_BACKEND_SCORE_KEY_H_
