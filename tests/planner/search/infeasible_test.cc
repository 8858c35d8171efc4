#include "planner/search/infeasible.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lynx {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(Infeasible, SaysWhatActivationsLack) {
  const Shortfall shortfall{.stage = 2, .needed = kMiB * 30, .limit = kMiB * 24, .states = kMiB};
  EXPECT_EQ(NeededOf(shortfall), kMiB * 30);
  EXPECT_EQ(LackingText(shortfall, "with everything recomputed"),
            "stage 2 needs 6.0 MiB more with everything recomputed: its activations take 30.0 MiB");
}

// `needed` is the need of programs with few microbatches, which fit: it does not exceed the limit. Only the arena of the whole
// step does not fit. The text must then not say that a negative amount is lacking.
TEST(Infeasible, WhereOnlyArenasFailNothingNegativeIsLacking) {
  for (const Bytes spare : {Bytes(0), Bytes(1), kMiB * 3}) {
    const Shortfall shortfall{.stage = 1, .needed = kMiB * 24 - spare, .limit = kMiB * 24, .states = kMiB};
    EXPECT_GT(NeededOf(shortfall), shortfall.limit);
    const std::string text = LackingText(shortfall, "with recompute heu");
    EXPECT_THAT(text, HasSubstr("stage 1 needs a little more with recompute heu"));
    EXPECT_THAT(text, HasSubstr(FormatBytes(shortfall.needed)));
    EXPECT_THAT(text, HasSubstr("arena"));
    EXPECT_THAT(text, Not(HasSubstr(" -")));
  }
}

}  // namespace
}  // namespace lynx
