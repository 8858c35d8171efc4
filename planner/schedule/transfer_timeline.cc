#include "planner/schedule/transfer_timeline.h"

#include <algorithm>
#include <numeric>

#include "common/check.h"
#include "planner/schedule/schedule_timeline.h"

namespace lynx {
namespace {

constexpr Nanos kNotYet{-1};
constexpr int32_t kNoLink = -1;

// Times of the slots of one kind of pass on one stage.
struct SlotCost {
  Nanos duration;
  Nanos posts_before_end;  // the slot posts a receive this long before its end
  Nanos transfer, early;   // times to transfer the result over `link`; see TransferPassTimes
  int32_t link = kNoLink;
  bool backward = false;
};

// A rank sends only to the rank after it and to the rank before it, so each rank has two links.
int32_t LinkBetween(const PipelineShape& shape, int32_t from, int32_t to) {
  return 2 * from + (to == (from + 1) % shape.ranks ? 0 : 1);
}

// The index is OfSlot::pass_and_stage.
std::vector<SlotCost> SlotCosts(const TransferOrder& order, const std::vector<TransferPassTimes>& costs) {
  const PipelineShape& shape = order.shape;
  const auto stages = static_cast<size_t>(shape.stages());
  LYNX_CHECK(costs.size() == stages);
  std::vector<SlotCost> of_slots(3 * stages);
  for (size_t i = 0; i < stages; ++i) {
    SlotCost &forward = of_slots[i], &backward = of_slots[stages + i], &weight = of_slots[2 * stages + i];
    forward.duration = forward.posts_before_end = costs[i].forward;
    backward.duration = order.splits_weight ? costs[i].backward : costs[i].backward + costs[i].weight;
    backward.posts_before_end = std::min(backward.duration, costs[i].after_post);
    backward.backward = true;
    weight.duration = weight.posts_before_end = costs[i].weight;
    const auto stage = static_cast<int32_t>(i);
    const int32_t next = shape.Next(stage);
    if (next == kNoStage || shape.RankOf(next) == shape.RankOf(stage)) continue;
    SlotCost& gradient = of_slots[stages + static_cast<size_t>(next)];
    forward.transfer = gradient.transfer = costs[i].transfer;
    forward.early = gradient.early = costs[i].early;
    forward.link = LinkBetween(shape, shape.RankOf(stage), shape.RankOf(next));
    gradient.link = LinkBetween(shape, shape.RankOf(next), shape.RankOf(stage));
  }
  return of_slots;
}

class Walk {
 public:
  Walk(const TransferOrder& order, const std::vector<TransferPassTimes>& costs, TransferScratch& scratch)
      : order_(order), costs_(SlotCosts(order, costs)), scratch_(scratch), free_(static_cast<size_t>(order.shape.ranks)),
        link_free_(2 * free_.size()) {
    const size_t size = order.slots.size() + 1;
    for (std::vector<Nanos>* times : {&scratch.arrivals, &scratch.begin_floors, &scratch.end_floors}) {
      times->assign(size, Nanos(0));
    }
    scratch.ends.assign(size, kNotYet);
    scratch.posts.assign(size, kNotYet);
  }

  Nanos Run() {
    for (const int32_t sender : order_.posted_first) Post(sender, Nanos(0));
    Nanos step;
    for (size_t i = 0; i < order_.slots.size(); ++i) step = std::max(step, RunSlot(static_cast<int32_t>(i) + 1));
    return step;
  }

 private:
  const TransferOrder::OfSlot& At(int32_t position) const { return order_.slots[static_cast<size_t>(position) - 1]; }
  static Nanos& In(std::vector<Nanos>& times, int32_t position) { return times[static_cast<size_t>(position)]; }
  const SlotCost& CostOf(int32_t position) const { return costs_[static_cast<size_t>(At(position).pass_and_stage)]; }

  Nanos RunSlot(int32_t position) {
    const TransferOrder::OfSlot& slot = At(position);
    const SlotCost& cost = CostOf(position);
    Nanos& rank_free = free_[static_cast<size_t>(slot.rank)];
    const Nanos begin = std::max({rank_free, In(scratch_.arrivals, slot.needs), In(scratch_.begin_floors, position)});
    const Nanos end = std::max(begin + cost.duration, In(scratch_.end_floors, position));
    rank_free = In(scratch_.ends, position) = end;
    if (slot.posts != 0) Post(slot.posts, begin + cost.duration - cost.posts_before_end);
    if (!slot.sends) {
      In(scratch_.arrivals, position) = end;
    } else if (In(scratch_.posts, position) != kNotYet) {
      Transfer(position);
    }
    return end;
  }

  void Post(int32_t sender, Nanos at) {
    In(scratch_.posts, sender) = at;
    if (In(scratch_.ends, sender) != kNotYet) Transfer(sender);
  }

  // Both ranks have started the transfer of the slot's result.
  void Transfer(int32_t position) {
    const SlotCost& cost = CostOf(position);
    Nanos& link_free = link_free_[static_cast<size_t>(cost.link)];
    const Nanos early_begin = std::max(In(scratch_.posts, position), link_free);
    const Nanos begin = std::max(In(scratch_.ends, position), early_begin + cost.early);
    link_free = In(scratch_.arrivals, position) = begin + cost.transfer;
    const int32_t waits = At(position).awaited_by;
    if (waits == 0) return;
    // Only a backward slot waits at its begin, and only for an activation. All other waits are at the end of a slot.
    const bool at_begin = !cost.backward && CostOf(waits).backward;
    Nanos& floor = In(at_begin ? scratch_.begin_floors : scratch_.end_floors, waits);
    floor = std::max(floor, link_free);
  }

  const TransferOrder& order_;
  const std::vector<SlotCost> costs_;
  TransferScratch& scratch_;
  std::vector<Nanos> free_;       // when each rank has run its last slot
  std::vector<Nanos> link_free_;  // when the last transfer of each link ends
};

}  // namespace

// The sequence is that of the simulated clock by which lower_slots.h places the waits.
TransferOrder OrderTransfers(const SlotOrder& order, const PipelineSlots& slots) {
  constexpr Nanos kTick{1};
  const std::vector<StagePassTimes> ticks(static_cast<size_t>(order.shape.stages()), {kTick, kTick, kTick, Nanos(0)});
  const Timeline timeline = ComputeTimeline(order, ticks);
  const auto count = static_cast<int32_t>(order.slots.size());
  std::vector<std::vector<int32_t>> of_rank(slots.size());  // for each rank, the indices of its slots in order.slots
  std::vector<Nanos> begins;
  for (int32_t i = 0; i < count; ++i) {
    const auto rank = static_cast<size_t>(order.slots[static_cast<size_t>(i)].rank);
    begins.push_back(timeline.ranks[rank].slots[of_rank[rank].size()].begin);
    of_rank[rank].push_back(i);
  }
  std::vector<int32_t> by_clock(order.slots.size());
  std::iota(by_clock.begin(), by_clock.end(), 0);
  std::stable_sort(by_clock.begin(), by_clock.end(),
                   [&](int32_t a, int32_t b) { return begins[static_cast<size_t>(a)] < begins[static_cast<size_t>(b)]; });
  std::vector<int32_t> position(order.slots.size() + 1);  // the index is a place in order.slots, from 1
  for (int32_t i = 0; i < count; ++i) position[static_cast<size_t>(by_clock[static_cast<size_t>(i)]) + 1] = i + 1;

  TransferOrder result{.shape = order.shape, .splits_weight = order.splits_weight, .slots = {}, .posted_first = {}};
  for (const int32_t place : by_clock) {
    const OrderedSlot& slot = order.slots[static_cast<size_t>(place)];
    result.slots.push_back(
        {.rank = slot.rank, .pass_and_stage = slot.pass_and_stage, .needs = position[static_cast<size_t>(slot.needs)]});
  }
  for (size_t rank = 0; rank < slots.size(); ++rank) {
    const auto at = [&](size_t i) -> TransferOrder::OfSlot& {
      return result.slots[static_cast<size_t>(position[static_cast<size_t>(of_rank[rank][i]) + 1]) - 1];
    };
    for (size_t i = 0; i < slots[rank].size(); ++i) {
      const RankSlot& slot = slots[rank][i];
      at(i).sends = slot.sends;
      if (slot.sends && slot.sent_by < std::ssize(slots[rank])) {
        at(i).awaited_by = position[static_cast<size_t>(of_rank[rank][static_cast<size_t>(slot.sent_by)]) + 1];
      }
      if (!slot.receives) continue;
      if (i == 0) {
        result.posted_first.push_back(at(i).needs);
      } else {
        at(i - 1).posts = at(i).needs;
      }
    }
  }
  return result;
}

Nanos StepTime(const TransferOrder& order, const std::vector<TransferPassTimes>& costs, TransferScratch& scratch) {
  return Walk(order, costs, scratch).Run();
}

}  // namespace lynx
