// PackedNumbers holds four numbers in one word, rounded down to 15 bits each. It makes dominance tests fast: one subtraction of
// two words finds most pairs of words in which some number of the first word is larger than the same number of the second.
// Above each number there is a guard bit. If the subtraction borrows from this bit, the first word's number is larger.
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

  // `most`: the largest number to expect for each position. All larger numbers may be packed alike, and so are all numbers
  // below 0.
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
