// Tests which pairs of ranks are checked, in which rounds, and which links count as slow.
#include "worker/rank/check/check_pairs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "worker/collectives/group.h"

namespace lynx::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr Nanos Millis(int64_t millis) { return Nanos(millis * 1'000'000); }

TEST(PairsOf, AreAllThatTalkAndNoRankIsTwiceInARound) {
  for (const ParallelLayout& layout : {ParallelLayout{.tp = 2, .pp = 2, .dp = 2}, ParallelLayout{.tp = 1, .pp = 5, .dp = 3},
                                       ParallelLayout{.tp = 8, .pp = 1, .dp = 1}, ParallelLayout{.tp = 1, .pp = 1, .dp = 7}}) {
    const std::vector<CheckedPair> pairs = PairsOf(layout);
    std::set<std::pair<int32_t, int32_t>> found;
    std::set<std::pair<int32_t, int32_t>> busy;  // round and rank
    for (const CheckedPair& pair : pairs) {
      EXPECT_LT(pair.low, pair.high);
      EXPECT_TRUE(found.insert({pair.low, pair.high}).second);
      EXPECT_TRUE(busy.insert({pair.round, pair.low}).second) << LayoutText(layout);
      EXPECT_TRUE(busy.insert({pair.round, pair.high}).second) << LayoutText(layout);
    }
    std::set<std::pair<int32_t, int32_t>> talking;
    for (int32_t rank = 0; rank < layout.ranks(); ++rank) {
      for (const LinkKey& link : LinksOf(layout, rank)) talking.insert(std::minmax(rank, link.peer));
    }
    EXPECT_EQ(found, talking);
    EXPECT_TRUE(std::is_sorted(pairs.begin(), pairs.end(), [](const CheckedPair& a, const CheckedPair& b) {
      return std::tuple(a.round, a.low, a.high) < std::tuple(b.round, b.low, b.high);
    }));
  }
  EXPECT_THAT(PairsOf({.tp = 1, .pp = 1, .dp = 1}), IsEmpty());
  EXPECT_THAT(PairsOf({.tp = 2, .pp = 1, .dp = 1}), ElementsAre(CheckedPair{0, 1, 0}));
}

// The members of an expert group are all in pairs. With experts and ep 1, the ranks of a stage form a ring.
TEST(PairsOf, AreThoseOfExpertsToo) {
  EXPECT_EQ(PairsOf({.dp = 6}).size(), 6u);
  EXPECT_EQ(PairsOf({.dp = 6, .ep = 6}).size(), 15u);
  const auto has = [](const std::vector<CheckedPair>& pairs, int32_t low, int32_t high) {
    return std::any_of(pairs.begin(), pairs.end(), [&](const CheckedPair& p) { return p.low == low && p.high == high; });
  };
  const ParallelLayout layout{.tp = 3, .pp = 2, .dp = 2};  // ranks 2 and 6 are in no other group together
  EXPECT_FALSE(has(PairsOf(layout), 2, 6));
  EXPECT_TRUE(has(PairsOf(layout, /*experts=*/true), 2, 6));
}

TEST(SlowPairs, AreFarFromTheOthersOfTheirKind) {
  EXPECT_THAT(SlowPairs({}), IsEmpty());
  EXPECT_THAT(SlowPairs({{0, Millis(9000)}}), IsEmpty()) << "there is nothing to compare it with";
  EXPECT_THAT(SlowPairs({{0, Millis(1)}, {0, Millis(2)}, {0, Millis(90)}, {0, Millis(1)}}), ElementsAre(2u));
  EXPECT_THAT(SlowPairs({{0, Millis(1)}, {0, Millis(90)}}), ElementsAre(1u));
  EXPECT_THAT(SlowPairs({{0, Millis(1)}, {0, Millis(1)}, {0, Millis(40)}}), IsEmpty()) << "that may be one bad moment";
  EXPECT_THAT(SlowPairs({{0, Millis(100)}, {0, Millis(100)}, {0, Millis(700)}}), IsEmpty());
  EXPECT_THAT(SlowPairs({{0, Millis(1)}, {0, Millis(1)}, {1, Millis(90)}, {1, Millis(80)}}), IsEmpty())
      << "another kind of link";
  // All three links of one of the four ranks are slow.
  EXPECT_THAT(SlowPairs({{0, Millis(1)}, {0, Millis(1)}, {0, Millis(1)}, {0, Millis(99)}, {0, Millis(98)}, {0, Millis(97)}}),
              ElementsAre(3u, 4u, 5u));
}

TEST(MedianOfOthers, LeavesTheLinkItselfOut) {
  EXPECT_EQ(MedianOfOthers({{0, Millis(1)}, {0, Millis(5)}}, 1), Millis(1));
  EXPECT_EQ(MedianOfOthers({{0, Millis(1)}, {0, Millis(5)}}, 0), Millis(5));
  EXPECT_EQ(MedianOfOthers({{0, Millis(1)}, {0, Millis(3)}, {0, Millis(5)}, {0, Millis(7)}}, 0), Millis(5));
  EXPECT_EQ(MedianOfOthers({{0, Millis(1)}, {1, Millis(5)}}, 0), Nanos(0));
}

}  // namespace
}  // namespace lynx::worker
