// StageCosts holds the cost model of each pipeline stage. A model follows from the devices that the ranks of the stage run on.
// If nodes differ, a stage is as slow as its slowest rank, because its replicas and shards wait for each other. So a slow
// device or link slows only its own stage, and the planner can give this stage fewer layers or another policy.
//
// The node of a rank is computed as the rank's number divided by the devices per node. This is exact if the number of devices
// before each group of nodes is a multiple of the group's devices per node.
//
// Ranks of a stage that share cores are symmetric and compute at the same time, so all times of their stage are longer by the
// same factor.
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
  // Makes one model for all stages that run on the same groups of nodes and have the same slowdown by shared cores.
  StageCosts(const ClusterTopology& cluster, const ModelSpec& model, const ParallelLayout& layout, int32_t micro_batch);
  // Gives all stages the same costs.
  StageCosts(const CostModel& costs, int32_t stages);

  const CostModel& Of(int32_t stage) const { return *of_stage_[static_cast<size_t>(stage)]; }
  // Says which ranks share cores. The models already contain each stage's own slowdown.
  const CoreSharing& sharing() const { return sharing_; }
  int32_t stages() const { return static_cast<int32_t>(of_stage_.size()); }
  // True if all stages have the same model.
  bool alike() const { return distinct_ == 1; }
  bool measured() const;  // true if the models of all stages use measured times

 private:
  std::vector<std::shared_ptr<const CostModel>> of_stage_;
  CoreSharing sharing_;
  int32_t distinct_ = 1;
};

}  // namespace lynx

#endif  // LYNX_PLANNER_COST_STAGE_COSTS_H_
