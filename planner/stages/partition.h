// Partition: how many consecutive transformer layers each pipeline stage gets. What a stage costs is the caller's to
// say, so that the time of recomputation, which depends on the stage's memory, counts. Pure.
#ifndef LYNX_PLANNER_STAGES_PARTITION_H_
#define LYNX_PLANNER_STAGES_PARTITION_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace lynx {

// What `stage` costs with `layers` >= 1 transformer layers: its time per microbatch in nanoseconds, or bytes that it
// lacks; nullopt: it does not fit.
using StageCost = std::function<std::optional<int64_t>(int32_t stage, int32_t layers)>;

// The number of layers of each stage, at least one, so that the largest cost is as small as possible; of those
// partitions one with the least sum of costs; of those the one whose early stages have fewest layers. Exact:
// dynamic programming over (stage, layers so far). nullopt when nothing fits. Precondition: 1 <= stages <= layers.
std::optional<std::vector<int32_t>> BalancedPartition(int32_t stages, int32_t layers, const StageCost& cost);

// The same partition, with fewer calls of a `cost` that takes time: `floor(stage, layers)` is cheap, never above `cost`,
// and does not fall with the layers; the largest number where it does not fit. Numbers of layers that it shows to be in no best
// partition are not asked for.
using StageFloor = std::function<int64_t(int32_t stage, int32_t layers)>;
std::optional<std::vector<int32_t>> BalancedPartition(int32_t stages, int32_t layers, const StageCost& cost,
                                                      const StageFloor& floor);

// From `start` on, as the Lynx paper balances stages: a layer moves from the stage of largest cost, if it keeps `least` layers,
// to the one where it makes the larger of both costs least, as long as the largest cost of all falls. Does not fit: costs
// more than anything that does.
std::vector<int32_t> GreedyPartition(std::vector<int32_t> start, int32_t least, const StageCost& cost);

// Equal shares; what is left over goes to the later stages, which hold fewer microbatches.
std::vector<int32_t> EvenPartition(int32_t stages, int32_t layers);

}  // namespace lynx

#endif  // LYNX_PLANNER_STAGES_PARTITION_H_
