#include "planner/schedule/schedule_timeline.h"

#include <algorithm>

#include "common/check.h"

namespace lynx {
namespace {

// `duration` is the time of a pass of a stage. `delay` is the time of the transfer of the result that the pass needs.
struct SlotCost {
  Nanos duration, delay;
};

// One entry for each kind of pass on each stage. The index is OrderedSlot::pass_and_stage.
std::vector<SlotCost> SlotCosts(const SlotOrder& order, const std::vector<StagePassTimes>& costs) {
  const PipelineShape& shape = order.shape;
  const size_t stages = static_cast<size_t>(shape.stages());
  LYNX_CHECK(costs.size() == stages);
  std::vector<SlotCost> slot_costs(3 * stages);
  for (int32_t stage = 0; stage < shape.stages(); ++stage) {
    const size_t i = static_cast<size_t>(stage);
    slot_costs[i].duration = costs[i].forward;
    slot_costs[stages + i].duration = order.splits_weight ? costs[i].backward : costs[i].backward + costs[i].weight;
    slot_costs[2 * stages + i].duration = costs[i].weight;
    const int32_t next = shape.Next(stage);
    if (next == kNoStage || shape.RankOf(next) == shape.RankOf(stage)) continue;
    slot_costs[static_cast<size_t>(next)].delay = costs[i].transfer;
    slot_costs[stages + i].delay = costs[i].transfer;
  }
  return slot_costs;
}

// Calls visit(slot, begin, end) for each slot in order. Afterwards ends[i] is the end of the i-th slot, counted from 1. ends[0]
// is time 0; slots that need no other slot use this entry.
template <class Visit>
void Walk(const SlotOrder& order, const std::vector<StagePassTimes>& costs, std::vector<Nanos>& ends, const Visit& visit) {
  const std::vector<SlotCost> slot_costs = SlotCosts(order, costs);
  std::vector<Nanos> free(static_cast<size_t>(order.shape.ranks));
  ends.resize(order.slots.size() + 1);
  ends[0] = Nanos(0);
  Nanos* end = ends.data() + 1;
  for (const OrderedSlot& slot : order.slots) {
    const SlotCost& cost = slot_costs[static_cast<size_t>(slot.pass_and_stage)];
    Nanos& rank_free = free[static_cast<size_t>(slot.rank)];
    const Nanos begin = std::max(rank_free, ends[static_cast<size_t>(slot.needs)] + cost.delay);
    *end = begin + cost.duration;
    visit(slot, rank_free, begin, *end);
    rank_free = *end++;
  }
}

}  // namespace

Timeline ComputeTimeline(const SlotOrder& order, const std::vector<StagePassTimes>& costs) {
  Timeline timeline;
  timeline.ranks.resize(static_cast<size_t>(order.shape.ranks));
  for (RankTimeline& rank : timeline.ranks) rank.slots.reserve(order.slots.size() / timeline.ranks.size() + 1);
  std::vector<Nanos> ends;
  Walk(order, costs, ends, [&](const OrderedSlot& slot, Nanos free, Nanos begin, Nanos end) {
    RankTimeline& rank = timeline.ranks[static_cast<size_t>(slot.rank)];
    rank.busy += end - begin;
    rank.slots.push_back({.begin = begin, .end = end, .stall = begin - free});
  });
  for (RankTimeline& rank : timeline.ranks) {
    if (!rank.slots.empty()) rank.end = rank.slots.back().end;
    timeline.end = std::max(timeline.end, rank.end);
  }
  return timeline;
}

Nanos StepTime(const SlotOrder& order, const std::vector<StagePassTimes>& costs, TimelineScratch& scratch) {
  Nanos step;
  Walk(order, costs, scratch.ends, [&](const OrderedSlot&, Nanos, Nanos, Nanos end) { step = std::max(step, end); });
  return step;
}

}  // namespace lynx
