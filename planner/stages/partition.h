// A partition says how many consecutive transformer layers each pipeline stage gets. The caller defines the cost of a stage, so
// the cost can include the time of recomputation, which depends on the stage's memory. Pure.
#ifndef LYNX_PLANNER_STAGES_PARTITION_H_
#define LYNX_PLANNER_STAGES_PARTITION_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace lynx {

// Cost of a stage with `layers` transformer layers (at least one). It is the stage's time per microbatch in nanoseconds, or the
// bytes of memory that the stage lacks. nullopt: the layers do not fit.
using StageCost = std::function<std::optional<int64_t>(int32_t stage, int32_t layers)>;

// Returns the number of layers of each stage, at least one, with which the largest cost is as small as possible. Among such
// partitions, it takes the one with the smallest sum of costs, then the one with the fewest layers on early stages. Exact:
// dynamic programming over (stage, layers so far). nullopt if no partition fits. 1 <= stages <= layers must hold.
std::optional<std::vector<int32_t>> BalancedPartition(int32_t stages, int32_t layers, const StageCost& cost);

// Returns the same partition, with fewer calls of an expensive `cost`. `floor(stage, layers)` is a cheap lower bound of `cost`
// that never decreases with more layers. It returns the largest int64_t if the layers do not fit. `cost` is not called for
// numbers of layers that `floor` excludes from every best partition.
using StageLowerBound = std::function<int64_t(int32_t stage, int32_t layers)>;
std::optional<std::vector<int32_t>> BalancedPartition(int32_t stages, int32_t layers, const StageCost& cost,
                                                      const StageLowerBound& floor);

// Changes the partition `start` step by step, as the Lynx paper does. In each round, one layer moves out of the stage with the
// largest cost, if that stage keeps at least `least` layers. It moves to the stage for which the larger cost of the two stages
// becomes smallest. Stops when the largest cost of all stages does not decrease. A stage that does not fit costs more than any
// stage that fits.
std::vector<int32_t> GreedyPartition(std::vector<int32_t> start, int32_t least, const StageCost& cost);

// Gives each stage the same number of layers. The remaining layers go to the later stages, which hold fewer microbatches.
std::vector<int32_t> EvenPartition(int32_t stages, int32_t layers);

}  // namespace lynx

#endif  // LYNX_PLANNER_STAGES_PARTITION_H_
