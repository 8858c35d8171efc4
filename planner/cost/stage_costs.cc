#include "planner/cost/stage_costs.h"

#include <algorithm>
#include <map>
#include <utility>

namespace lynx {

StageCosts::StageCosts(const ClusterTopology& cluster, const ModelSpec& model, const ParallelLayout& layout,
                       int32_t micro_batch)
    : sharing_(cluster, layout) {
  std::map<std::pair<std::vector<int32_t>, int32_t>, std::shared_ptr<const CostModel>> models;
  for (int32_t stage = 0; stage < layout.pp; ++stage) {
    const int32_t slowdown = sharing_.OwnSlowdown(stage);
    const std::vector<int32_t> groups = GroupsOfStage(cluster, layout, stage);
    std::shared_ptr<const CostModel>& costs = models[{groups, slowdown}];
    if (costs == nullptr) {
      ClusterTopology used;
      for (const int32_t group : groups) used.groups.push_back(cluster.groups[static_cast<size_t>(group)]);
      costs = std::make_shared<const CostModel>(OnSharedCores(SlowestProfile(used), slowdown), model, layout, micro_batch,
                                                used.least_devices_per_node());
    }
    of_stage_.push_back(costs);
  }
  distinct_ = static_cast<int32_t>(models.size());
}

StageCosts::StageCosts(const CostModel& costs, int32_t stages)
    : of_stage_(static_cast<size_t>(stages), std::make_shared<const CostModel>(costs)) {}

bool StageCosts::measured() const {
  return std::all_of(of_stage_.begin(), of_stage_.end(), [](const auto& costs) { return costs->measured(); });
}

}  // namespace lynx
