// PackedNumbers holds four numbers in one word, rounded to 15 bits each. To compare two words, one subtraction excludes
// most pairs in which some number of the first is larger than that of the second. Each number lies below a guard bit that
// the subtraction must not borrow.
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

  // Numbers above `most` may be indistinguishable from each other, and so may numbers below 0.
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
  // False only if some number of `a` is larger than the same number of `b`.
  static bool MayAllBeAtMost(uint64_t a, uint64_t b) { return (((b | kGuards) - a) & kGuards) == kGuards; }

 private:
  static constexpr int kBits = 15;
  static constexpr int64_t kLargest = (1 << kBits) - 1;
  static constexpr uint64_t kGuards = 0x8000'8000'8000'8000;

  std::array<int, 4> shifts_{};
};

}  // namespace lynx

#endif  // LYNX_PLANNER_RECOMPUTE_PACKED_NUMBERS_H_
