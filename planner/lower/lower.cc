// Lowers the slots of one rank, and the transfers between ranks. See lower.h.
//
// A receive is posted in an earlier slot, usually the one before (RankSlot::post_begin), or before the first slot. A forward
// slot posts it after its own input has come, a weight slot at its start. A backward slot posts it before the attention of the
// bottom layer, when most of the slot's memory is free again. The wait for a sent activation is in a backward slot after the
// slot's gradient has come, in a forward slot before the next activation is sent, or at the end of a weight slot. The wait for
// a sent gradient is at the end of a slot. Each of these waits is in the first slot in which it cannot block another rank
// (RankSlot::sent_by). So each transfer has the time of one slot, and no two ranks wait for each other.
#include "planner/lower/lower.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "common/check.h"
#include "planner/lower/lower_chain.h"
#include "planner/lower/lower_layers.h"
#include "planner/lower/lower_offload.h"
#include "planner/lower/lower_sharing.h"
#include "planner/problem/layout_schedule.h"

namespace lynx {
namespace {

using enum ActionKind;

class StageLowering {
 public:
  StageLowering(const StageContext& context, const std::vector<RankSlot>& slots, const std::vector<StagePolicy>& policies)
      : context_(context), slots_(slots) {
    LYNX_CHECK(!context.slices.empty() && policies.size() == context.slices.size());
    const PipelineShape pipeline = context.pipeline();
    for (size_t i = 0; i < policies.size(); ++i) {
      const StageSlice& slice = context.slices[i];
      const bool stall = !slice.has_head && pipeline.RankOf(pipeline.Next(slice.stage)) != context.pipeline_rank;
      slices_.emplace_back(context, slice, policies[i], stall, program_);
    }
  }

  Program Lower() && {
    PostReceives(0, FirstPosted());
    for (at_ = 0; at_ < slots_.size(); ++at_) {
      switch (slots_[at_].slot.pass) {
        case Pass::kForward: ForwardSlot(slots_[at_]); break;
        case Pass::kBackward: BackwardSlot(slots_[at_]); break;
        case Pass::kWeight: WeightSlot(slots_[at_]); break;
      }
    }
    WaitForSent(activations_);
    WaitForSent(gradients_);
    for (SliceLowering& slice : slices_) slice.ReduceTiedEmbedding();
    for (const Action& start : Reduced()) {
      Emit({.kind = InfoOf(start.kind).counterpart, .stage = start.stage, .layer = start.layer});
    }
    const int32_t stage = context_.slices.front().stage;
    for (const ActionKind kind : {kNormStart, kNormWait, kOptimizer}) Emit({.kind = kind, .stage = stage});
    return std::move(program_);
  }

 private:
  // A send that has started and whose wait has not been emitted yet.
  struct Sent {
    ActionKind kind;
    Slot slot;
    int32_t sent_by;
  };

  void Emit(const Action& action) { program_.push_back(action); }
  void Boundary(ActionKind kind, const Slot& slot) { Emit({.kind = kind, .stage = slot.stage, .microbatch = slot.microbatch}); }

  SliceLowering& SliceOfStage(int32_t stage) {
    const auto found =
        std::find_if(slices_.begin(), slices_.end(), [&](const SliceLowering& slice) { return slice.slice().stage == stage; });
    LYNX_CHECK(found != slices_.end());
    return *found;
  }

  // Posts the receives that the slots [begin, end) need.
  void PostReceives(int32_t begin, int32_t end) {
    for (int32_t i = begin; i < end; ++i) {
      const RankSlot& slot = slots_[static_cast<size_t>(i)];
      if (!slot.receives) continue;
      Boundary(slot.slot.pass == Pass::kForward ? kRecvForwardStart : kRecvBackwardStart, slot.slot);
    }
  }
  void PostReceivesOf(const RankSlot& slot) { PostReceives(slot.post_begin, slot.post_end); }
  // The first slot whose receive another slot posts. The receives of all slots before it are posted before the first slot.
  int32_t FirstPosted() const {
    for (const RankSlot& slot : slots_) {
      if (slot.post_begin < slot.post_end) return slot.post_begin;
    }
    return static_cast<int32_t>(slots_.size());
  }

  void Send(ActionKind start, const RankSlot& slot, std::deque<Sent>& sent) {
    if (!slot.sends) return;
    Boundary(start, slot.slot);
    sent.push_back({InfoOf(start).counterpart, slot.slot, slot.sent_by});
  }

  // Emits the waits of the sends whose `sent_by` is at most the current slot.
  void WaitForSent(std::deque<Sent>& sent) {
    for (const Sent& one : sent) {
      if (one.sent_by <= static_cast<int64_t>(at_)) Boundary(one.kind, one.slot);
    }
    std::erase_if(sent, [&](const Sent& one) { return one.sent_by <= static_cast<int64_t>(at_); });
  }

  // Returns the backward that follows this forward slot, if it may use the windows of the forward for recomputation. (Weight
  // slots between the two do not matter.)
  SliceLowering::Guest GuestOf(const RankSlot& forward) {
    size_t next = at_ + 1;
    while (next < slots_.size() && slots_[next].slot.pass == Pass::kWeight) ++next;
    if (next == slots_.size() || slots_[next].slot.pass != Pass::kBackward) return {};
    const Slot& backward = slots_[next].slot;
    if (backward.stage == forward.slot.stage && backward.microbatch == forward.slot.microbatch) return {};
    return {&SliceOfStage(backward.stage), backward.microbatch};
  }

  void ForwardSlot(const RankSlot& slot) {
    SliceLowering& slice = SliceOfStage(slot.slot.stage);
    if (slot.receives) Boundary(kRecvForwardWait, slot.slot);
    PostReceivesOf(slot);
    const SliceLowering::Guest guest = GuestOf(slot);
    slice.Forward(slot.slot.microbatch, guest);
    hosts_ = guest.slice == nullptr ? 0 : slice.slice().layers();
    WaitForSent(activations_);
    Send(kSendForwardStart, slot, activations_);
    WaitForSent(gradients_);
    if (slice.slice().has_head) slice.ForwardHead(slot.slot.microbatch);
  }

  void BackwardSlot(const RankSlot& slot) {
    SliceLowering& slice = SliceOfStage(slot.slot.stage);
    const SliceLowering::BackwardSlot backward{slot.slot.microbatch, std::exchange(hosts_, 0), slot.last};
    slice.BackwardTop(backward);
    if (slot.receives) Boundary(kRecvBackwardWait, slot.slot);
    WaitForSent(activations_);
    slice.Backward(backward, [&] { PostReceivesOf(slot); });
    WaitForSent(gradients_);
    Send(kSendBackwardStart, slot, gradients_);
  }

  void WeightSlot(const RankSlot& slot) {
    PostReceivesOf(slot);
    SliceOfStage(slot.slot.stage).Weight(slot.slot.microbatch, slot.last);
    WaitForSent(activations_);
    WaitForSent(gradients_);
  }

  // The starts of all reductions, in their order.
  Program Reduced() const {
    Program reduced;
    for (const Action& action : program_) {
      if (action.kind == kDataReduceStart || action.kind == kExpertReduceStart) reduced.push_back(action);
    }
    return reduced;
  }

  const StageContext& context_;
  const std::vector<RankSlot>& slots_;
  std::deque<SliceLowering> slices_;  // the index is the chunk
  size_t at_ = 0;                     // index of the current slot
  int32_t hosts_ = 0;  // number of layers of the last forward if the next backward recomputes in its windows, else 0
  std::deque<Sent> activations_, gradients_;
  Program program_;
};

}  // namespace

int32_t InFlight(int32_t stage, int32_t stages, int32_t microbatches) { return std::min(stages - stage, microbatches); }

Program LowerStage(const StageContext& context, const std::vector<RankSlot>& slots, const std::vector<StagePolicy>& policies) {
  Program program = RecomputeInputs(StageLowering(context, slots, policies).Lower(), context, policies);
  program = OffloadTensors(std::move(program), context, policies);
  return ShareStates(std::move(program), context);
}

Program LowerStage(const StageContext& context, const std::vector<StagePolicy>& policies) {
  return LowerStage(context, SlotsOfRank(context.layout, context.microbatches, context.pipeline_rank), policies);
}

Program LowerStage(const StageContext& context, const StagePolicy& policy) {
  return LowerStage(context, std::vector<StagePolicy>{policy});
}

}  // namespace lynx
