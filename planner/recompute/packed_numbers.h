// PackedNumbers holds four numbers in one 64-bit word, each rounded down to 15 bits. This makes dominance tests fast: one
// subtraction compares all four numbers of two words a and b. Above each number there is a guard bit, which is set in b before
// a is subtracted from b. If the subtraction borrows from a guard bit, this number is larger in a than in b.
//
// Pure values; thread-safe.
#ifndef LYNX_PLANNER_RECOMPUTE_PACKED_NUMBERS_H_
#define LYNX_PLANNER_RECOMPUTE_PACKED_NUMBERS_H_

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

namespace lynx {

class PackedNumbers {
 public:
  using Numbers = std::array<int64_t, 4>;

  // `most` has the largest number that is expected at each position. All larger numbers may be packed as the same value, and so
  // may all numbers below 0.
  explicit PackedNumbers(const Numbers& most) {
    for (size_t i = 0; i < most.size(); ++i) {
      shifts_[i] = std::max(0, static_cast<int>(std::bit_width(static_cast<uint64_t>(most[i]))) - kBits);
    }
  }

  uint64_t Pack(const Numbers& numbers) const {
    uint64_t packed = 0;
    for (size_t i = 0; i < numbers.size(); ++i) {
      packed |= static_cast<uint64_t>(std::clamp<int64_t>(numbers[i] >> shifts_[i], 0, kLargest)) << (16 * i);
    }
    return packed;
  }
  // If this returns false, some number of `a` is larger than the same number of `b`. If it returns true, a number of `a` may
  // still be larger, because the packed numbers are rounded.
  static bool MayAllBeAtMost(uint64_t a, uint64_t b) { return (((b | kGuards) - a) & kGuards) == kGuards; }

 private:
  static constexpr int kBits = 15;
  static constexpr int64_t kLargest = (1 << kBits) - 1;
  static constexpr uint64_t kGuards = 0x8000'8000'8000'8000;

  std::array<int, 4> shifts_{};
};

}  // namespace lynx

#endif  // LYNX_PLANNER_RECOMPUTE_PACKED_NUMBERS_H_
