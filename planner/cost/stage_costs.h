// StageCosts: the cost model of each pipeline stage, from the devices that its ranks run on. Where nodes differ, a
// stage is as slow as its slowest rank, since its replicas and shards wait for each other; so a slow device or link
// makes its own stage slow, and partition and policy answer to that.
//
// Nodes are told apart by the rank's number over the devices of a node, which is exact as long as the devices before
// each group of nodes are a multiple of the group's devices per node.
//
// Ranks of a stage that share cores are symmetric and compute at the same time, so their stage's times are longer by
// a factor.
//
// Pure; immutable after construction; thread-safe.
#ifndef LYNX_PLANNER_COST_STAGE_COSTS_H_
#define LYNX_PLANNER_COST_STAGE_COSTS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "planner/cost/cluster_topology.h"
#include "planner/cost/core_sharing.h"
#include "planner/cost/cost_model.h"
#include "planner/problem/layout.h"

namespace lynx {

class StageCosts {
 public:
  // One model for stages that run on the same groups of nodes and share cores alike.
  StageCosts(const ClusterTopology& cluster, const ModelSpec& model, const ParallelLayout& layout, int32_t micro_batch);
  // Every stage alike.
  StageCosts(const CostModel& costs, int32_t stages);

  const CostModel& Of(int32_t stage) const { return *of_stage_[static_cast<size_t>(stage)]; }
  // Whose ranks share cores; the models have each stage's own slowdown in them.
  const CoreSharing& sharing() const { return sharing_; }
  int32_t stages() const { return static_cast<int32_t>(of_stage_.size()); }
  // Whether all stages have one model.
  bool alike() const { return distinct_ == 1; }
  bool measured() const;  // all of them

 private:
  std::vector<std::shared_ptr<const CostModel>> of_stage_;
  CoreSharing sharing_;
  int32_t distinct_ = 1;
};

}  // namespace lynx

#endif  // LYNX_PLANNER_COST_STAGE_COSTS_H_
