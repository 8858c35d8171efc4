// The passes of the lowering. See lower.h.
//
// Transfers between stages. Receives are posted a schedule slot before they are needed: in a forward slot at its
// start, in a backward slot before the bottom layer's attention, when most of the slot's memory is free again. A sent
// activation is waited for when the gradient that the stage waits for next has come, or, while the pipeline fills,
// after the next forward; a sent gradient after the next slot. So each transfer has the time of a slot, and no stage
// waits for a peer that waits for it.
#include "planner/lower.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "common/check.h"
#include "planner/lower_recompute.h"

namespace lynx {
namespace {

using enum ActionKind;

class StageLowering {
 public:
  StageLowering(const StageContext& context, const StagePolicy& policy)
      : context_(context), schedule_(OneForwardOneBackward(context.stage, context.layout.pp, context.microbatches)) {
    LYNX_CHECK(context.end_layer > context.first_layer);
    LYNX_CHECK(static_cast<int32_t>(policy.layers.size()) == context.end_layer - context.first_layer);
    for (const bool paired : {false, true}) {
      for (int32_t layer = context.first_layer; layer < context.end_layer; ++layer) {
        recompute_[paired].push_back(
            ResolveRecomputation(policy.layers[static_cast<size_t>(layer - context.first_layer)],
                                 {.collectives = collectives(),
                                  .paired_forward = paired,
                                  .stall = !context.has_head(),
                                  .layer_above = layer + 1 < context.end_layer}));
      }
    }
  }

  Program Lower() && {
    if (!schedule_.empty()) PostReceive(schedule_.front());
    for (slot_ = 0; slot_ < schedule_.size(); ++slot_) {
      if (schedule_[slot_].pass == Pass::kForward) {
        ForwardSlot(schedule_[slot_].microbatch);
      } else {
        BackwardSlot(schedule_[slot_].microbatch);
      }
    }
    WaitForSentGradient();
    for (const int32_t layer : reduced_layers_) Emit({.kind = kDataReduceWait, .layer = layer});
    Emit({.kind = kNormStart});
    Emit({.kind = kNormWait});
    Emit({.kind = kOptimizer});
    return std::move(program_);
  }

 private:
  bool collectives() const { return context_.layout.tp > 1; }
  int32_t top_layer() const { return context_.end_layer - 1; }

  void Emit(Action action) {
    action.stage = context_.stage;
    program_.push_back(action);
  }

  void EmitAll(const Program& actions) { program_.insert(program_.end(), actions.begin(), actions.end()); }

  void Boundary(ActionKind kind, int32_t microbatch) { Emit({.kind = kind, .microbatch = microbatch}); }

  void Run(ActionKind kind, int32_t microbatch, int32_t layer, Segment segment) {
    Emit({.kind = kind, .segment = segment, .microbatch = microbatch, .layer = layer});
  }

  const MicrobatchPass* NextSlot() const { return slot_ + 1 < schedule_.size() ? &schedule_[slot_ + 1] : nullptr; }

  // The microbatch whose backward follows this forward slot and may be recomputed in its windows.
  std::optional<int32_t> PairedBackward(int32_t forward) const {
    const MicrobatchPass* next = NextSlot();
    if (next == nullptr || next->pass != Pass::kBackward || next->microbatch == forward) return std::nullopt;
    return next->microbatch;
  }

  OpSet OpsAt(int32_t layer, RecomputePoint point) const {
    return recompute_[paired_][static_cast<size_t>(layer - context_.first_layer)][static_cast<size_t>(point)];
  }

  // Recomputation of `ops` of one layer, in forward order, with the collective that x1 needs.
  Program Recompute(int32_t microbatch, int32_t layer, OpSet ops) const {
    Program actions;
    for (const Segment segment : SegmentsOf(LayerType::kTransformer, Pass::kForward)) {
      OpSet here = 0;
      for (const Op op : OpsOf(LayerType::kTransformer, segment, Pass::kForward)) here |= ops & Bit(op);
      if (here == 0) continue;
      Action action{.kind = kRecompute,
                    .segment = segment,
                    .stage = context_.stage,
                    .microbatch = microbatch,
                    .layer = layer,
                    .ops = here};
      actions.push_back(action);
      if (!collectives() || !Contains(here, Op::kProj)) continue;
      action.ops = 0;
      action.kind = kRecomputeAllReduceStart;
      actions.push_back(action);
      action.kind = kRecomputeAllReduceWait;
      actions.push_back(action);
    }
    return actions;
  }

  void EmitRecompute(int32_t microbatch, int32_t layer, RecomputePoint point) {
    EmitAll(Recompute(microbatch, layer, OpsAt(layer, point)));
  }

  // Posts the receive that a slot needs, if it needs one.
  void PostReceive(const MicrobatchPass& slot) {
    if (slot.pass == Pass::kForward) {
      if (!context_.has_embedding()) Boundary(kRecvForwardStart, slot.microbatch);
    } else {
      if (!context_.has_head()) Boundary(kRecvBackwardStart, slot.microbatch);
    }
  }

  void PostNextReceive() {
    if (const MicrobatchPass* next = NextSlot()) PostReceive(*next);
  }

  void WaitForSentActivation() {
    if (sent_activation_) Boundary(kSendForwardWait, *sent_activation_);
    sent_activation_.reset();
  }

  void WaitForSentGradient() {
    if (sent_gradient_) Boundary(kSendBackwardWait, *sent_gradient_);
    sent_gradient_.reset();
  }

  void ForwardSlot(int32_t microbatch) {
    if (!context_.has_embedding()) Boundary(kRecvForwardWait, microbatch);
    PostNextReceive();
    const std::optional<int32_t> backward = PairedBackward(microbatch);
    paired_ = backward.has_value();
    if (context_.has_embedding()) ForwardLayer(microbatch, kEmbeddingLayer, std::nullopt);
    for (int32_t layer = context_.first_layer; layer < context_.end_layer; ++layer) {
      ForwardLayer(microbatch, layer, backward);
    }
    if (!context_.has_head()) {
      WaitForSentActivation();
      Boundary(kSendForwardStart, microbatch);
      sent_activation_ = microbatch;
    }
    WaitForSentGradient();
    if (context_.has_head()) ForwardLayer(microbatch, kHeadLayer, std::nullopt);
  }

  void ForwardLayer(int32_t microbatch, int32_t layer, std::optional<int32_t> backward) {
    const LayerType type = LayerTypeOf(layer);
    const bool head = type == LayerType::kHead;
    for (const Segment segment : SegmentsOf(type, Pass::kForward)) {
      Run(kForward, microbatch, layer, segment);
      if (!collectives() || !EndsInCollective(type, segment, Pass::kForward)) continue;
      Run(head ? kAllGatherStart : kAllReduceStart, microbatch, layer, segment);
      if (backward) {
        EmitRecompute(*backward, layer,
                      segment == Segment::kAttn ? RecomputePoint::kForwardAttn : RecomputePoint::kForwardMlp);
      }
      Run(head ? kAllGatherWait : kAllReduceWait, microbatch, layer, segment);
    }
  }

  void BackwardSlot(int32_t microbatch) {
    // What the top layer's first segment needs is made before the wait for the gradient: its memory is in use by then
    // in any case, and the wait may hide it.
    const OpSet first_needed = OpsAt(top_layer(), RecomputePoint::kBeforeMlp);
    if (context_.has_head()) {
      BackwardHead(microbatch, Recompute(microbatch, top_layer(), first_needed));
    } else {
      for (int32_t layer = top_layer(); layer >= context_.first_layer; --layer) {
        const OpSet ops = OpsAt(layer, RecomputePoint::kStall) | (layer == top_layer() ? first_needed : 0);
        EmitAll(Recompute(microbatch, layer, ops));
      }
      Boundary(kRecvBackwardWait, microbatch);
      WaitForSentActivation();
    }
    for (int32_t layer = top_layer(); layer >= context_.first_layer; --layer) BackwardLayer(microbatch, layer);
    if (context_.has_embedding()) {
      Run(kBackward, microbatch, kEmbeddingLayer, Segment::kEmbed);
      ReduceGradients(microbatch, kEmbeddingLayer);
    }
    WaitForSentGradient();
    if (!context_.has_embedding()) {
      Boundary(kSendBackwardStart, microbatch);
      sent_gradient_ = microbatch;
    }
    paired_ = false;
  }

  // The head's collective hides the beginning of `top`, up to the first collective that `top` repeats.
  void BackwardHead(int32_t microbatch, const Program& top) {
    Run(kBackward, microbatch, kHeadLayer, Segment::kHead);
    auto rest = top.begin();
    if (collectives()) Run(kBackwardAllReduceStart, microbatch, kHeadLayer, Segment::kHead);
    Run(kWeight, microbatch, kHeadLayer, Segment::kHead);
    if (collectives()) {
      rest = std::find_if(top.begin(), top.end(), [](const Action& a) { return a.kind != kRecompute; });
      EmitAll(Program(top.begin(), rest));
      Run(kBackwardAllReduceWait, microbatch, kHeadLayer, Segment::kHead);
    }
    Run(kBackward, microbatch, kHeadLayer, Segment::kEnd);
    ReduceGradients(microbatch, kHeadLayer);
    EmitAll(Program(rest, top.end()));
  }

  void BackwardLayer(int32_t microbatch, int32_t layer) {
    for (const Segment segment : SegmentsOf(LayerType::kTransformer, Pass::kBackward)) {
      if (segment == Segment::kMlp && layer != top_layer()) {
        EmitRecompute(microbatch, layer, RecomputePoint::kBeforeMlp);
      }
      if (segment == Segment::kAttn) {
        if (layer == context_.first_layer) PostNextReceive();
        EmitRecompute(microbatch, layer, RecomputePoint::kBeforeAttn);
      }
      Run(kBackward, microbatch, layer, segment);
      const bool window = collectives() && EndsInCollective(LayerType::kTransformer, segment, Pass::kBackward);
      if (window) Run(kBackwardAllReduceStart, microbatch, layer, segment);
      if (!OpsOf(LayerType::kTransformer, segment, Pass::kWeight).empty()) Run(kWeight, microbatch, layer, segment);
      if (!window) continue;
      if (segment == Segment::kMlp) EmitRecompute(microbatch, layer, RecomputePoint::kOwnMlp);
      if (layer > context_.first_layer) {
        EmitRecompute(microbatch, layer - 1,
                      segment == Segment::kMlp ? RecomputePoint::kAboveMlp : RecomputePoint::kAboveAttn);
      }
      Run(kBackwardAllReduceWait, microbatch, layer, segment);
    }
    ReduceGradients(microbatch, layer);
  }

  // After the last microbatch has added to a layer's gradients, they are summed over the replicas.
  void ReduceGradients(int32_t microbatch, int32_t layer) {
    if (context_.layout.dp == 1 || microbatch + 1 != context_.microbatches) return;
    Emit({.kind = kDataReduceStart, .layer = layer});
    reduced_layers_.push_back(layer);
  }

  const StageContext& context_;
  const std::vector<MicrobatchPass> schedule_;
  std::array<std::vector<RecomputeOps>, 2> recompute_;  // [paired_][layer - first_layer]
  size_t slot_ = 0;
  bool paired_ = false;                     // the backward at hand has, or had, a paired forward
  std::optional<int32_t> sent_activation_;  // started, not waited for
  std::optional<int32_t> sent_gradient_;
  std::vector<int32_t> reduced_layers_;
  Program program_;
};

}  // namespace

std::vector<MicrobatchPass> OneForwardOneBackward(int32_t stage, int32_t stages, int32_t microbatches) {
  LYNX_CHECK(stage >= 0 && stage < stages && microbatches >= 0);
  const int32_t warm_up = std::min(stages - stage - 1, microbatches);
  std::vector<MicrobatchPass> schedule;
  for (int32_t k = 0; k < warm_up; ++k) schedule.push_back({Pass::kForward, k});
  for (int32_t k = 0; k < microbatches; ++k) {
    if (k + warm_up < microbatches) schedule.push_back({Pass::kForward, k + warm_up});
    schedule.push_back({Pass::kBackward, k});
  }
  return schedule;
}

int32_t InFlight(int32_t stage, int32_t stages, int32_t microbatches) {
  return std::min(stages - stage, microbatches);
}

Program LowerStage(const StageContext& context, const StagePolicy& policy) {
  return StageLowering(context, policy).Lower();
}

}  // namespace lynx
