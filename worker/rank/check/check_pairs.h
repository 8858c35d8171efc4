// Which pairs of ranks are checked before a generation, in which order, and which of their links are slow. Pure; thread-safe.
#ifndef LYNX_WORKER_RANK_CHECK_CHECK_PAIRS_H_
#define LYNX_WORKER_RANK_CHECK_CHECK_PAIRS_H_

#include <cstdint>
#include <vector>

#include "common/units.h"
#include "planner/problem/layout.h"

namespace lynx {

// Two ranks that talk to each other while they train. In a round no rank is in two pairs; each goes through its own in the
// order of their rounds, and so no ranks wait for each other in a circle.
struct CheckedPair {
  int32_t low = 0, high = 0;
  int32_t round = 0;
  bool operator==(const CheckedPair&) const = default;
};
// By round, then by rank.
std::vector<CheckedPair> PairsOf(const ParallelLayout& layout);

struct PairTime {
  int64_t kind = 0;  // links of one kind are compared
  Nanos best;        // of all exchanges so far
};
// A link is slow if it takes so many times as long as the median of the others of its kind, and longer than a rank may be kept
// from running at a bad time.
inline constexpr int64_t kSlowFactor = 8;
inline constexpr Nanos kSlowLeast{50'000'000};
// Indices into `pairs`, rising.
std::vector<size_t> SlowPairs(const std::vector<PairTime>& pairs);
// Of the others of its kind; 0: there is none.
Nanos MedianOfOthers(const std::vector<PairTime>& pairs, size_t pair);

}  // namespace lynx

#endif  // LYNX_WORKER_RANK_CHECK_CHECK_PAIRS_H_
