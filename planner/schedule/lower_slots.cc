// See lower_slots.h.
#include "planner/schedule/lower_slots.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "planner/schedule/schedule_generate.h"
#include "planner/schedule/schedule_order.h"
#include "planner/schedule/schedule_timeline.h"

namespace lynx {
namespace {

constexpr Nanos kTick{1};

absl::Status CheckMicrobatchOrder(const Schedule& schedule) {
  for (size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    std::vector<int32_t> latest(3 * static_cast<size_t>(schedule.shape.stages()), -1);
    for (const Slot& slot : schedule.ranks[rank]) {
      int32_t& before = latest[static_cast<size_t>(slot.pass) * static_cast<size_t>(schedule.shape.stages()) +
                               static_cast<size_t>(slot.stage)];
      if (slot.microbatch < before) {
        return absl::InvalidArgumentError(
            absl::StrCat("rank ", rank, ": ", SlotText(slot), " stands after ", SlotText({slot.pass, slot.stage, before}),
                         "; programs are made of schedules in which each stage runs its microbatches in ascending order"));
      }
      before = slot.microbatch;
    }
  }
  return absl::OkStatus();
}

// For each kind of pass, each virtual stage and each microbatch: the position of its slot on its rank.
class Places {
 public:
  explicit Places(const Schedule& schedule)
      : stages_(static_cast<size_t>(schedule.shape.stages())), microbatches_(static_cast<size_t>(schedule.microbatches)),
        places_(3 * stages_ * microbatches_, -1) {
    for (const std::vector<Slot>& slots : schedule.ranks) {
      for (size_t i = 0; i < slots.size(); ++i) places_[Index(slots[i])] = static_cast<int32_t>(i);
    }
  }
  int32_t Of(const Slot& slot) const { return places_[Index(slot)]; }

 private:
  size_t Index(const Slot& slot) const {
    return (static_cast<size_t>(slot.pass) * stages_ + static_cast<size_t>(slot.stage)) * microbatches_ +
           static_cast<size_t>(slot.microbatch);
  }
  size_t stages_, microbatches_;
  std::vector<int32_t> places_;
};

int32_t SourceOf(const PipelineShape& shape, const Slot& slot) {
  if (slot.pass == Pass::kWeight) return kNoStage;
  return slot.pass == Pass::kForward ? shape.Previous(slot.stage) : shape.Next(slot.stage);
}

int32_t TargetOf(const PipelineShape& shape, const Slot& slot) {
  if (slot.pass == Pass::kWeight) return kNoStage;
  return slot.pass == Pass::kForward ? shape.Next(slot.stage) : shape.Previous(slot.stage);
}

bool CrossesRanks(const PipelineShape& shape, const Slot& slot, int32_t other) {
  return other != kNoStage && shape.RankOf(other) != shape.RankOf(slot.stage);
}

// Sets post_begin and post_end so that each slot posts the receive of the next slot.
void PostNext(std::vector<RankSlot>& slots) {
  const auto count = static_cast<int32_t>(slots.size());
  for (int32_t i = 0; i < count; ++i) {
    slots[static_cast<size_t>(i)].post_begin = i + 1;
    slots[static_cast<size_t>(i)].post_end = std::min(i + 2, count);
  }
}

void MarkLast(int32_t stages, std::vector<RankSlot>& slots) {
  std::vector<bool> seen(3 * static_cast<size_t>(stages));
  for (auto slot = slots.rbegin(); slot != slots.rend(); ++slot) {
    const size_t index =
        static_cast<size_t>(slot->slot.pass) * static_cast<size_t>(stages) + static_cast<size_t>(slot->slot.stage);
    slot->last = !seen[index];
    seen[index] = true;
  }
}

}  // namespace

absl::StatusOr<PipelineSlots> SlotsToLower(const Schedule& schedule) {
  LYNX_ASSIGN_OR_RETURN(const SlotOrder order, OrderSlots(schedule));
  LYNX_RETURN_IF_ERROR(CheckMicrobatchOrder(schedule));
  const PipelineShape& shape = schedule.shape;
  if (shape.bidirectional() && shape.ranks % 2 != 0) {
    return absl::InvalidArgumentError(absl::StrCat("a bidirectional pipeline of ", shape.ranks,
                                                   " ranks has both copies of a piece on the one in the middle; programs "
                                                   "are made for an even number of ranks"));
  }
  const std::vector<StagePassTimes> ticks(static_cast<size_t>(shape.stages()), {kTick, kTick, kTick, Nanos(0)});
  const Timeline timeline = ComputeTimeline(order, ticks);
  const Places places(schedule);
  PipelineSlots result(schedule.ranks.size());
  for (size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    const std::vector<SlotTime>& times = timeline.ranks[rank].slots;
    for (size_t i = 0; i < schedule.ranks[rank].size(); ++i) {
      const Slot& slot = schedule.ranks[rank][i];
      RankSlot& to = result[rank].emplace_back(RankSlot{.slot = slot});
      to.receives = CrossesRanks(shape, slot, SourceOf(shape, slot));
      const int32_t target = TargetOf(shape, slot);
      to.sends = CrossesRanks(shape, slot, target);
      if (!to.sends) continue;
      // The receiver posts the receive of this slot's result one slot before the slot that needs the result. If its first slot
      // needs the result, it posts the receive before all slots.
      const auto receiver = static_cast<size_t>(shape.RankOf(target));
      const int32_t posted = places.Of({slot.pass, target, slot.microbatch}) - 1;
      const Nanos ready = posted < 0 ? Nanos(0) : timeline.ranks[receiver].slots[static_cast<size_t>(posted)].end;
      const auto first = std::lower_bound(times.begin() + static_cast<ptrdiff_t>(i) + 1, times.end(), ready,
                                          [](const SlotTime& time, Nanos at) { return time.begin < at; });
      to.sent_by = static_cast<int32_t>(first - times.begin());
    }
    MarkLast(shape.stages(), result[rank]);
    PostNext(result[rank]);
  }
  return result;
}

std::vector<RankSlot> SlotsWithoutClock(const Schedule& schedule, int32_t rank) {
  std::vector<RankSlot> slots;
  for (const Slot& slot : GenerateRank(schedule, rank)) {
    RankSlot& to = slots.emplace_back(RankSlot{.slot = slot});
    to.receives = SourceOf(schedule.shape, slot) != kNoStage;
    to.sends = TargetOf(schedule.shape, slot) != kNoStage;
    if (to.sends) to.sent_by = static_cast<int32_t>(slots.size());
  }
  MarkLast(schedule.shape.ranks, slots);
  PostNext(slots);
  return slots;
}

std::vector<RankSlot> GroupedSlots(const std::vector<RankSlot>& groups, int32_t group, int32_t microbatches) {
  std::vector<RankSlot> slots;
  std::vector<int32_t> first;  // the index of the first slot of each group; the last entry is the number of all slots
  for (const RankSlot& of_group : groups) {
    first.push_back(static_cast<int32_t>(slots.size()));
    const int32_t begin = of_group.slot.microbatch * group, end = std::min(begin + group, microbatches);
    for (int32_t microbatch = begin; microbatch < end; ++microbatch) {
      slots.push_back(of_group);
      slots.back().slot.microbatch = microbatch;
      slots.back().last = of_group.last && microbatch + 1 == end;
      slots.back().post_begin = slots.back().post_end = 0;
    }
  }
  first.push_back(static_cast<int32_t>(slots.size()));
  for (RankSlot& slot : slots) slot.sent_by = first[static_cast<size_t>(slot.sent_by)];
  for (size_t i = 0; i < groups.size(); ++i) {
    RankSlot& posts = slots[static_cast<size_t>(first[i + 1]) - 1];
    posts.post_begin = first[static_cast<size_t>(groups[i].post_begin)];
    posts.post_end = first[static_cast<size_t>(groups[i].post_end)];
  }
  return slots;
}

}  // namespace lynx
