// ItemNumbers holds one number from 0 to 15 for each item of a layer, all packed into one word. The numbers are moments or
// phases of the backward pass. A plain value.
#ifndef LYNX_PLANNER_RECOMPUTE_ITEM_NUMBERS_H_
#define LYNX_PLANNER_RECOMPUTE_ITEM_NUMBERS_H_

#include <cstdint>

#include "planner/recompute/recompute_problem.h"

namespace lynx {

class ItemNumbers {
 public:
  int Get(int i) const { return static_cast<int>(bits_ >> (4 * i) & 15); }
  void Set(int i, int value) { bits_ = (bits_ & ~(uint64_t{15} << (4 * i))) | uint64_t(value) << (4 * i); }
  uint64_t bits() const { return bits_; }

 private:
  static_assert(kMaxItems <= 16);
  uint64_t bits_ = 0;
};

}  // namespace lynx

#endif  // LYNX_PLANNER_RECOMPUTE_ITEM_NUMBERS_H_
