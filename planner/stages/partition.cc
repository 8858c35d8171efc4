#include "planner/stages/partition.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "common/check.h"

namespace lynx {
namespace {

enum class Objective : uint8_t { kLargest, kSum };

// The cost for each stage and number of layers. The table has every number that leaves at least one layer for each other stage.
// nullopt: a stage with this number of layers does not fit.
using CostTable = std::vector<std::vector<std::optional<int64_t>>>;

// The best value for a stage and all stages after it, if they hold the last layers of the model. layers_of_first: the number of
// layers of the first of these stages. Solve computes a Suffix for each stage, beginning with the last one, and for each number
// of last layers.
struct Suffix {
  std::optional<int64_t> value;
  int32_t layers_of_first = 0;
};

std::optional<std::vector<int32_t>> Solve(int32_t stages, int32_t layers, const CostTable& costs, Objective objective,
                                          int64_t* value) {
  std::vector<std::vector<Suffix>> best(stages + 1, std::vector<Suffix>(layers + 1));
  best[stages][0].value = 0;
  for (int32_t stage = stages - 1; stage >= 0; --stage) {
    for (int32_t left = stages - stage; left <= layers; ++left) {
      for (int32_t mine = 1; mine < static_cast<int32_t>(costs[stage].size()) && mine <= left; ++mine) {
        const std::optional<int64_t>& rest = best[stage + 1][left - mine].value;
        if (!costs[stage][mine] || !rest) continue;
        const int64_t total = objective == Objective::kSum ? *costs[stage][mine] + *rest : std::max(*costs[stage][mine], *rest);
        Suffix& suffix = best[stage][left];
        if (!suffix.value || total < *suffix.value) suffix = {total, mine};
      }
    }
  }
  if (!best[0][layers].value) return std::nullopt;
  *value = *best[0][layers].value;
  std::vector<int32_t> partition;
  for (int32_t stage = 0, left = layers; stage < stages; left -= partition.back(), ++stage) {
    partition.push_back(best[stage][left].layers_of_first);
  }
  return partition;
}

}  // namespace

std::optional<std::vector<int32_t>> BalancedPartition(int32_t stages, int32_t layers, const StageCost& cost) {
  return BalancedPartition(stages, layers, cost, [](int32_t, int32_t) { return std::numeric_limits<int64_t>::min(); });
}

std::optional<std::vector<int32_t>> BalancedPartition(int32_t stages, int32_t layers, const StageCost& cost,
                                                      const StageLowerBound& floor) {
  LYNX_CHECK(stages >= 1 && stages <= layers);
  // In the best partition, no stage costs more than the largest cost in any other partition.
  int64_t limit = std::numeric_limits<int64_t>::min();
  const std::vector<int32_t> even = EvenPartition(stages, layers);
  for (int32_t stage = 0; stage < stages; ++stage) {
    const std::optional<int64_t> of_even = cost(stage, even[stage]);
    limit = of_even ? std::max(limit, *of_even) : std::numeric_limits<int64_t>::max();
    if (!of_even) break;
  }
  std::vector<int32_t> most(stages, 0);
  int64_t most_of_all = 0;
  for (int32_t stage = 0; stage < stages; ++stage) {
    int32_t& mine = most[stage];
    while (mine < layers - stages + 1) {
      const int64_t next = floor(stage, mine + 1);
      if (next > limit || next == std::numeric_limits<int64_t>::max()) break;
      ++mine;
    }
    most_of_all += mine;
  }
  CostTable costs(stages);
  for (int32_t stage = 0; stage < stages; ++stage) {
    costs[stage].resize(most[stage] + 1);
    const int64_t least = std::max<int64_t>(1, layers - (most_of_all - most[stage]));
    for (int64_t mine = least; mine <= most[stage]; ++mine) {
      costs[stage][mine] = cost(stage, static_cast<int32_t>(mine));
    }
  }
  int64_t largest = 0, sum = 0;
  if (!Solve(stages, layers, costs, Objective::kLargest, &largest)) return std::nullopt;
  for (auto& row : costs) {
    for (auto& time : row) {
      if (time && *time > largest) time.reset();
    }
  }
  return Solve(stages, layers, costs, Objective::kSum, &sum);
}

std::vector<int32_t> GreedyPartition(std::vector<int32_t> start, int32_t least, const StageCost& cost) {
  const auto of = [&](size_t stage, int32_t layers) {
    return cost(static_cast<int32_t>(stage), layers).value_or(std::numeric_limits<int64_t>::max());
  };
  std::vector<int32_t> layers = std::move(start);
  std::vector<int64_t> costs;
  for (size_t stage = 0; stage < layers.size(); ++stage) costs.push_back(of(stage, layers[stage]));
  while (true) {
    const auto from = static_cast<size_t>(std::max_element(costs.begin(), costs.end()) - costs.begin());
    const int64_t largest = costs[from];
    if (std::count(costs.begin(), costs.end(), largest) > 1 || layers[from] <= least) return layers;
    const int64_t of_from = of(from, layers[from] - 1);
    size_t to = from;
    int64_t best = largest;
    for (size_t stage = 0; stage < layers.size(); ++stage) {
      if (stage == from) continue;
      const int64_t of_both = std::max(of_from, of(stage, layers[stage] + 1));
      if (of_both >= best) continue;
      best = of_both;
      to = stage;
    }
    if (to == from) return layers;
    costs[from] = of_from;
    costs[to] = of(to, layers[to] + 1);
    --layers[from];
    ++layers[to];
  }
}

std::vector<int32_t> EvenPartition(int32_t stages, int32_t layers) {
  LYNX_CHECK(stages >= 1 && stages <= layers);
  std::vector<int32_t> partition(stages, layers / stages);
  for (int32_t i = 0; i < layers % stages; ++i) ++partition[stages - 1 - i];
  return partition;
}

}  // namespace lynx
