#include "planner/recompute/packed_numbers.h"

#include <random>

#include "gtest/gtest.h"

namespace lynx {
namespace {

using Numbers = PackedNumbers::Numbers;

TEST(PackedNumbers, RulesOutNoPairOfWhichAllAreAtMost) {
  std::mt19937_64 rng(17);
  int ruled_out = 0;
  for (int round = 0; round < 20'000; ++round) {
    Numbers most, a, b;
    bool at_most = true;
    for (size_t i = 0; i < most.size(); ++i) {
      most[i] = static_cast<int64_t>(rng() >> (3 + rng() % 60));
      // Some values are larger than `most`, some are negative, and in some places a and b are equal.
      const auto draw = [&] { return static_cast<int64_t>(rng() % (static_cast<uint64_t>(most[i]) + 3)) * 2 - most[i] / 4; };
      a[i] = draw();
      b[i] = rng() % 4 == 0 ? a[i] : draw();
      at_most = at_most && a[i] <= b[i];
    }
    const PackedNumbers packing(most);
    const bool may = PackedNumbers::MayAllBeAtMost(packing.Pack(a), packing.Pack(b));
    EXPECT_TRUE(may || !at_most) << "round " << round;
    ruled_out += may ? 0 : 1;
  }
  EXPECT_GT(ruled_out, 10'000);
}

TEST(PackedNumbers, TellsSmallNumbersApart) {
  const PackedNumbers packing({100, 100, 100, 100});
  const Numbers base{5, 5, 5, 5};
  for (size_t i = 0; i < base.size(); ++i) {
    Numbers more = base;
    ++more[i];
    EXPECT_FALSE(PackedNumbers::MayAllBeAtMost(packing.Pack(more), packing.Pack(base))) << i;
    EXPECT_TRUE(PackedNumbers::MayAllBeAtMost(packing.Pack(base), packing.Pack(more))) << i;
  }
}

}  // namespace
}  // namespace lynx
