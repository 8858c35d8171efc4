#include "worker/rank/check/check_pairs.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "worker/collectives/group.h"

namespace lynx::worker {
namespace {

// Returns the median of sorted values, without the value at index `skipped`.
Nanos MedianWithout(const std::vector<Nanos>& sorted, size_t skipped) {
  if (sorted.size() < 2) return Nanos(0);
  const size_t middle = (sorted.size() - 1) / 2;
  return sorted[middle < skipped ? middle : middle + 1];
}

std::map<int64_t, std::vector<Nanos>> TimesByKind(const std::vector<PairTime>& pairs) {
  std::map<int64_t, std::vector<Nanos>> times;
  for (const PairTime& pair : pairs) times[pair.kind].push_back(pair.best);
  for (auto& [kind, values] : times) std::sort(values.begin(), values.end());
  return times;
}

Nanos MedianOfOthers(const std::map<int64_t, std::vector<Nanos>>& times, const PairTime& pair) {
  const std::vector<Nanos>& sorted = times.at(pair.kind);
  return MedianWithout(sorted, static_cast<size_t>(std::lower_bound(sorted.begin(), sorted.end(), pair.best) - sorted.begin()));
}

}  // namespace

std::vector<CheckedPair> PairsOf(const ParallelLayout& layout, bool experts) {
  std::vector<CheckedPair> pairs;
  // For each rank, the rounds in which the rank is in a pair.
  std::vector<std::set<int32_t>> rounds(static_cast<size_t>(layout.ranks()));
  for (int32_t low = 0; low < layout.ranks(); ++low) {
    std::set<int32_t> peers;
    for (const LinkKey& link : LinksOf(layout, low, experts)) {
      if (link.peer > low) peers.insert(link.peer);
    }
    for (const int32_t high : peers) {
      std::set<int32_t>& own = rounds[static_cast<size_t>(low)];
      std::set<int32_t>& others = rounds[static_cast<size_t>(high)];
      int32_t round = 0;
      while (own.contains(round) || others.contains(round)) ++round;
      own.insert(round);
      others.insert(round);
      pairs.push_back({low, high, round});
    }
  }
  std::sort(pairs.begin(), pairs.end(), [](const CheckedPair& a, const CheckedPair& b) {
    return std::tuple(a.round, a.low, a.high) < std::tuple(b.round, b.low, b.high);
  });
  return pairs;
}

std::vector<size_t> SlowPairs(const std::vector<PairTime>& pairs) {
  const std::map<int64_t, std::vector<Nanos>> times = TimesByKind(pairs);
  std::vector<size_t> slow;
  for (size_t i = 0; i < pairs.size(); ++i) {
    const Nanos others = MedianOfOthers(times, pairs[i]);
    if (others > Nanos(0) && pairs[i].best > kSlowLeast && pairs[i].best > others * kSlowFactor) slow.push_back(i);
  }
  return slow;
}

Nanos MedianOfOthers(const std::vector<PairTime>& pairs, size_t pair) {
  return MedianOfOthers(TimesByKind(pairs), pairs[pair]);
}

}  // namespace lynx::worker
