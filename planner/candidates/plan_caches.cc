#include "planner/candidates/plan_caches.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "common/check.h"
#include "planner/cost/cost_model.h"
#include "planner/problem/layout_schedule.h"

namespace lynx {

const StageHeu& ParetoCache::Solve(RecomputeProblem problem) {
  problem.budget = Bytes(0);
  if (problem.stall.value == 0 && problem.host_budget.value == 0) problem.layers = 1;
  const auto known = fronts_.find(problem);
  if (known != fronts_.end()) return known->second;
  RecomputeProblem any = problem;
  any.layers = 1;
  any.in_flight = std::min(any.in_flight, 2);
  any.stall = Nanos(0);
  const auto [shared, first] = of_any_stage_.try_emplace(any, nullptr);
  StageHeu heu = first ? StageHeu(problem) : shared->second->ForStage(problem.layers, problem.in_flight, problem.stall);
  const StageHeu& added = fronts_.emplace(problem, std::move(heu)).first->second;
  if (first) shared->second = &added;
  return added;
}

StagePeaks& PlanCaches::Peaks(const Candidate& candidate) {
  const ModelSpec& model = request_.spec.model;
  const ParallelLayout layer = LayerLayout(candidate.layout);
  const std::tuple key(ShapeOf(model, layer, candidate.micro_batch), layer.dp, layer.zero);
  const auto it = peaks_.find(key);
  return it != peaks_.end() ? it->second
                            : peaks_.emplace(key, StagePeaks(model, candidate.layout, candidate.micro_batch)).first->second;
}

const LayerLowerBound& PlanCaches::Floor(const Candidate& candidate) {
  const ModelSpec& model = request_.spec.model;
  const LayerShape shape = ShapeOf(model, candidate.layout, candidate.micro_batch);
  const std::pair key(shape, candidate.layout.weave != WeaveMode::kOff);
  const auto it = floors_.find(key);
  if (it != floors_.end()) return it->second;
  // This layout has one group: the first tensor-parallel group of a node, or the first ranks that make up an expert group. No
  // other group has better links.
  const int32_t replica = candidate.layout.tp * candidate.layout.cp;
  const ParallelLayout layout{.tp = candidate.layout.tp,
                              .dp = (candidate.layout.ep + replica - 1) / replica,
                              .cp = candidate.layout.cp,
                              .ep = candidate.layout.ep,
                              .sequence_parallel = candidate.layout.sequence_parallel,
                              .weave = candidate.layout.weave};
  std::optional<LayerLowerBound> floor;
  for (const NodeGroup& group : request_.cluster.groups) {
    const LayerLowerBound of_group(CostModel(group.profile, model, layout, candidate.micro_batch, group.devices_per_node),
                                   shape);
    if (floor) {
      floor->Lower(of_group);
    } else {
      floor = of_group;
    }
  }
  return floors_.emplace(key, *std::move(floor)).first->second;
}

const StateLowerBound& PlanCaches::States(const Candidate& candidate) {
  const ParallelLayout& layout = candidate.layout;
  const StatesKey key(layout.tp, layout.pp, layout.cp, layout.dp, layout.ep, layout.zero, layout.zero_group, layout.rank_order);
  const auto it = states_.find(key);
  if (it != states_.end()) return it->second;
  const ParallelLayout degrees{.tp = layout.tp,
                               .pp = layout.pp,
                               .dp = layout.dp,
                               .cp = layout.cp,
                               .ep = layout.ep,
                               .zero = layout.zero,
                               .rank_order = layout.rank_order,
                               .zero_group = layout.zero_group};
  return states_.emplace(key, StateLowerBound(request_.cluster, request_.spec.model, degrees)).first->second;
}

PlanCaches::ScheduleKey PlanCaches::KeyOf(const ParallelLayout& layout, int32_t microbatches) {
  return {layout.schedule, layout.pp, layout.virtual_stages, GroupOf(layout.weave), microbatches};
}

const PlanCaches::ScheduleFacts& PlanCaches::FactsOf(const ParallelLayout& layout, int32_t microbatches) {
  auto [it, inserted] = facts_.try_emplace(KeyOf(layout, microbatches));
  if (inserted) {
    Schedule schedule = ScheduleOf(layout, microbatches);
    absl::StatusOr<SlotOrder> order = OrderSlots(schedule);
    LYNX_CHECK(order.ok());
    it->second = {std::move(schedule), *std::move(order), {}};
    it->second.in_flight = CountInFlight(it->second.schedule);
  }
  return it->second;
}

const PipelineSlots& PlanCaches::SlotsOf(const ParallelLayout& layout, int32_t microbatches) {
  auto [it, inserted] = slots_.try_emplace(KeyOf(layout, microbatches));
  if (inserted) it->second = SlotsToLower(layout, microbatches);
  return it->second;
}

const TransferOrder& PlanCaches::TransfersOf(const ParallelLayout& layout, int32_t microbatches) {
  auto [it, inserted] = transfers_.try_emplace(KeyOf(layout, microbatches));
  if (inserted) it->second = OrderTransfers(FactsOf(layout, microbatches).order, SlotsOf(layout, microbatches));
  return it->second;
}

}  // namespace lynx
