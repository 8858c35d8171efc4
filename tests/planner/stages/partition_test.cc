#include "planner/stages/partition.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <tuple>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace lynx {
namespace {

using ::testing::ElementsAre;

// The largest cost of a stage, the sum of all costs, and the number of layers of each stage, for a partition that fits. The
// expected partition is the one with the smallest value.
using Valued = std::tuple<int64_t, int64_t, std::vector<int32_t>>;

void ForEachPartition(int32_t stages, int32_t layers, std::vector<int32_t>& head, auto&& visit) {
  if (stages == 0) {
    if (layers == 0) visit(head);
    return;
  }
  for (int32_t mine = 1; mine <= layers; ++mine) {
    head.push_back(mine);
    ForEachPartition(stages - 1, layers - mine, head, visit);
    head.pop_back();
  }
}

std::optional<std::vector<int32_t>> BruteForce(int32_t stages, int32_t layers, const StageCost& cost) {
  std::optional<Valued> best;
  std::vector<int32_t> head;
  ForEachPartition(stages, layers, head, [&](const std::vector<int32_t>& partition) {
    int64_t largest = 0, sum = 0;
    for (int32_t s = 0; s < stages; ++s) {
      const std::optional<int64_t> time = cost(s, partition[s]);
      if (!time) return;
      largest = std::max(largest, *time);
      sum += *time;
    }
    const Valued valued{largest, sum, partition};
    if (!best || valued < *best) best = valued;
  });
  if (!best) return std::nullopt;
  return std::get<2>(*best);
}

TEST(Partition, EqualsBruteForce) {
  int fitting = 0;
  for (uint32_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937 rng(seed);
    const int32_t stages = 1 + static_cast<int32_t>(rng() % 4);
    const int32_t layers = stages + static_cast<int32_t>(rng() % 6);
    std::vector<std::vector<std::optional<int64_t>>> table(stages, std::vector<std::optional<int64_t>>(layers + 1));
    for (auto& row : table) {
      for (auto& time : row) {
        if (rng() % 4 != 0) time = static_cast<int64_t>(rng() % 6);
      }
    }
    const StageCost cost = [&](int32_t stage, int32_t n) { return table[stage][n]; };
    const auto expected = BruteForce(stages, layers, cost);
    EXPECT_EQ(BalancedPartition(stages, layers, cost), expected);
    fitting += expected.has_value();
  }
  EXPECT_GT(fitting, 20);
  EXPECT_LT(fitting, 200);
}

// `floor`, a lower bound of the cost, changes only how often the cost function is called.
TEST(Partition, IsTheSameWithAFloor) {
  int64_t asked = 0, asked_with_floor = 0;
  for (uint32_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937 rng(seed);
    const int32_t stages = 1 + static_cast<int32_t>(rng() % 4);
    const int32_t layers = stages + static_cast<int32_t>(rng() % 8);
    std::vector<std::vector<std::optional<int64_t>>> table(stages, std::vector<std::optional<int64_t>>(layers + 1));
    const auto floor = [](int32_t stage, int32_t n) { return int64_t{n} * (3 + stage); };
    for (int32_t stage = 0; stage < stages; ++stage) {
      for (int32_t n = 0; n <= layers; ++n) {
        if (rng() % 8 != 0) table[stage][n] = floor(stage, n) + static_cast<int64_t>(rng() % 4);
      }
    }
    const auto counting = [&](int64_t& count) {
      return [&](int32_t stage, int32_t n) {
        ++count;
        return table[stage][n];
      };
    };
    EXPECT_EQ(BalancedPartition(stages, layers, counting(asked_with_floor), floor),
              BalancedPartition(stages, layers, counting(asked)));
  }
  EXPECT_LT(asked_with_floor, asked * 9 / 10);
}

TEST(Partition, BalancesWhatRecomputationCosts) {
  // A layer costs 1.5 times as much on stage 0, as if this stage had to recompute. On stage 1, the head costs as much as a
  // layer.
  const StageCost cost = [](int32_t stage, int32_t n) -> std::optional<int64_t> {
    return stage == 0 ? 150 * n : 100 * n + 100;
  };
  EXPECT_THAT(*BalancedPartition(2, 10, cost), ElementsAre(4, 6));
}

TEST(Partition, EvenSharesSumUp) {
  EXPECT_THAT(EvenPartition(3, 8), ElementsAre(2, 3, 3));
  EXPECT_THAT(EvenPartition(4, 4), ElementsAre(1, 1, 1, 1));
  EXPECT_THAT(EvenPartition(1, 7), ElementsAre(7));
}

TEST(GreedyPartition, MovesLayersAwayFromTheLongestStage) {
  // The last stage costs 3 more than its number of layers, so it gets fewer layers.
  const StageCost with_head = [](int32_t stage, int32_t layers) {
    return std::optional<int64_t>(layers + (stage == 3 ? 3 : 0));
  };
  EXPECT_THAT(GreedyPartition({4, 4, 4, 4}, 1, with_head), ElementsAre(5, 5, 4, 2));
  const StageCost alike = [](int32_t, int32_t layers) { return std::optional<int64_t>(layers * 10); };
  EXPECT_THAT(GreedyPartition({2, 6, 4}, 1, alike), ElementsAre(4, 4, 4));
  EXPECT_THAT(GreedyPartition({2, 2, 2}, 2, alike), ElementsAre(2, 2, 2));
  EXPECT_THAT(GreedyPartition({7}, 1, alike), ElementsAre(7));
  // A stage must not have fewer layers than the given minimum. A stage that does not fit counts as the slowest stage.
  const StageCost slow_first = [](int32_t stage, int32_t layers) {
    return std::optional<int64_t>(stage == 0 ? 100 * layers : layers);
  };
  EXPECT_THAT(GreedyPartition({4, 4}, 3, slow_first), ElementsAre(3, 5));
  const StageCost small_first = [](int32_t stage, int32_t layers) {
    return stage == 0 && layers > 2 ? std::nullopt : std::optional<int64_t>(layers);
  };
  EXPECT_THAT(GreedyPartition({3, 3}, 1, small_first), ElementsAre(2, 4));
}

// The costs grow with the number of layers, by different amounts.
TEST(GreedyPartition, IsNeverBetterThanTheExactOne) {
  int worse = 0;
  for (uint32_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937 rng(seed);
    const int32_t stages = 2 + static_cast<int32_t>(rng() % 5);
    const int32_t layers = stages + static_cast<int32_t>(rng() % 12);
    std::vector<std::vector<int64_t>> table(stages, std::vector<int64_t>(layers + 1));
    for (auto& row : table) {
      for (int32_t n = 1; n <= layers; ++n) row[n] = row[n - 1] + static_cast<int64_t>(rng() % 9);
    }
    const StageCost cost = [&](int32_t stage, int32_t n) { return std::optional<int64_t>(table[stage][n]); };
    const auto largest = [&](const std::vector<int32_t>& partition) {
      int64_t most = 0;
      for (int32_t s = 0; s < stages; ++s) most = std::max(most, table[s][partition[s]]);
      return most;
    };
    const std::vector<int32_t> even = EvenPartition(stages, layers);
    const std::vector<int32_t> greedy = GreedyPartition(even, 1, cost);
    EXPECT_EQ(std::accumulate(greedy.begin(), greedy.end(), 0), layers);
    const int64_t exact = largest(*BalancedPartition(stages, layers, cost));
    EXPECT_LE(exact, largest(greedy));
    EXPECT_LE(largest(greedy), largest(even));
    worse += exact < largest(greedy);
  }
  EXPECT_GT(worse, 0) << "a move at a time gets stuck";
  EXPECT_LT(worse, 150);
}

}  // namespace
}  // namespace lynx
