// Decides which pairs of ranks are checked before a generation, in which order, and which of their links are slow. Pure;
// thread-safe.
#ifndef LYNX_WORKER_RANK_CHECK_CHECK_PAIRS_H_
#define LYNX_WORKER_RANK_CHECK_CHECK_PAIRS_H_

#include <cstdint>
#include <vector>

#include "common/units.h"
#include "planner/problem/layout.h"

namespace lynx::worker {

// Two ranks that communicate while they train. In one round no rank is in two pairs. Each rank checks its own pairs in the
// order of their rounds. So ranks never wait for each other in a circle.
struct CheckedPair {
  int32_t low = 0, high = 0;
  int32_t round = 0;
  bool operator==(const CheckedPair&) const = default;
};
// Returns the pairs, sorted by round, then by rank. `experts`: true if the model has experts (group.h).
std::vector<CheckedPair> PairsOf(const ParallelLayout& layout, bool experts = false);

struct PairTime {
  int64_t kind = 0;  // the kind of the link; only links of the same kind are compared
  Nanos best;        // the shortest time of all exchanges so far
};
// A link is slow if its time is above both limits: kSlowFactor times the median of the other links of its kind, and kSlowLeast.
// The scheduler of a busy machine may stop a rank, but always for less than kSlowLeast.
inline constexpr int64_t kSlowFactor = 8;
inline constexpr Nanos kSlowLeast{50'000'000};
// Returns the slow links as indices into `pairs`, ascending.
std::vector<size_t> SlowPairs(const std::vector<PairTime>& pairs);
// Returns the median of the other links of the same kind, or 0 if there are no others.
Nanos MedianOfOthers(const std::vector<PairTime>& pairs, size_t pair);

}  // namespace lynx::worker

#endif  // LYNX_WORKER_RANK_CHECK_CHECK_PAIRS_H_
