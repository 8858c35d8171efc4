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
      : context_(context), slice_(context.only_slice()), graph_(context.graph()),
        schedule_(OneForwardOneBackward(context.pipeline_rank, context.layout.pp, context.microbatches)) {
    LYNX_CHECK(slice_.layers() > 0 && static_cast<int32_t>(policy.layers.size()) == slice_.layers());
    for (const bool paired : {false, true}) {
      for (int32_t layer = slice_.first_layer; layer < slice_.end_layer; ++layer) {
        recompute_[paired].push_back(
            ResolveRecomputation(graph_, policy.layers[static_cast<size_t>(layer - slice_.first_layer)],
                                 {.collectives = collectives(),
                                  .paired_forward = paired,
                                  .stall = !slice_.has_head,
                                  .layer_above = layer < slice_.top_layer()}));
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
  int32_t top_layer() const { return slice_.top_layer(); }

  void Emit(Action action) {
    action.stage = slice_.stage;
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
    return recompute_[paired_][static_cast<size_t>(layer - slice_.first_layer)][static_cast<size_t>(point)];
  }

  bool AnyReads(OpSet ops, Tensor tensor) const {
    return std::any_of(graph_.ops().begin(), graph_.ops().end(), [&](const OpInfo& info) {
      return Contains(ops, info.op) && std::find(info.reads.begin(), info.reads.end(), tensor) != info.reads.end();
    });
  }

  // Gathered tensors that `ops` read.
  std::vector<Tensor> GatheredReads(OpSet ops) const {
    std::vector<Tensor> gathered;
    for (Tensor tensor : {Tensor::kLn1Full, Tensor::kLn2Full, Tensor::kLnfFull}) {
      if (AnyReads(ops, tensor)) gathered.push_back(tensor);
    }
    return gathered;
  }

  // Start and wait of the repetition of the forward collective that ends the segment.
  void AppendRepeated(Program& actions, int32_t microbatch, int32_t layer, Segment segment) const {
    const Collective kind = graph_.CollectiveOf(LayerTypeOf(layer), segment, Pass::kForward).kind;
    Action action{.kind = CollectiveStart(kind, Pass::kForward, true),
                  .segment = segment,
                  .stage = slice_.stage,
                  .microbatch = microbatch,
                  .layer = layer};
    actions.push_back(action);
    action.kind = InfoOf(action.kind).counterpart;
    actions.push_back(action);
  }

  // Recomputation of `ops` of one layer, in forward order, with the collectives that it needs.
  Program Recompute(int32_t microbatch, int32_t layer, OpSet ops) const {
    Program actions;
    for (const Segment segment : graph_.SegmentsOf(LayerType::kTransformer, Pass::kForward)) {
      OpSet here = 0;
      for (const Op op : graph_.OpsOf(LayerType::kTransformer, segment, Pass::kForward)) here |= ops & Bit(op);
      if (here == 0) continue;
      for (Tensor gathered : GatheredReads(here)) {
        AppendRepeated(actions, microbatch, layer, graph_.GatherSegmentOf(gathered));
      }
      actions.push_back({.kind = kRecompute,
                         .segment = segment,
                         .stage = slice_.stage,
                         .microbatch = microbatch,
                         .layer = layer,
                         .ops = here});
      if (collectives() && Contains(here, Op::kProj)) AppendRepeated(actions, microbatch, layer, segment);
    }
    return actions;
  }

  void EmitRecompute(int32_t microbatch, int32_t layer, RecomputePoint point) {
    EmitAll(Recompute(microbatch, layer, OpsAt(layer, point)));
  }

  // Posts the receive that a slot needs, if it needs one.
  void PostReceive(const MicrobatchPass& slot) {
    if (slot.pass == Pass::kForward) {
      if (!slice_.has_embedding) Boundary(kRecvForwardStart, slot.microbatch);
    } else {
      if (!slice_.has_head) Boundary(kRecvBackwardStart, slot.microbatch);
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
    if (!slice_.has_embedding) Boundary(kRecvForwardWait, microbatch);
    PostNextReceive();
    const std::optional<int32_t> backward = PairedBackward(microbatch);
    paired_ = backward.has_value();
    if (slice_.has_embedding) ForwardLayer(microbatch, kEmbeddingLayer, std::nullopt);
    for (int32_t layer = slice_.first_layer; layer < slice_.end_layer; ++layer) {
      ForwardLayer(microbatch, layer, backward);
    }
    if (!slice_.has_head) {
      WaitForSentActivation();
      Boundary(kSendForwardStart, microbatch);
      sent_activation_ = microbatch;
    }
    WaitForSentGradient();
    if (slice_.has_head) ForwardLayer(microbatch, kHeadLayer, std::nullopt);
  }

  void ForwardLayer(int32_t microbatch, int32_t layer, std::optional<int32_t> backward) {
    const LayerType type = LayerTypeOf(layer);
    int window = 0;
    for (const Segment segment : graph_.SegmentsOf(type, Pass::kForward)) {
      Run(kForward, microbatch, layer, segment);
      if (!collectives() || !graph_.EndsInCollective(type, segment, Pass::kForward)) continue;
      const ActionKind start = CollectiveStart(graph_.CollectiveOf(type, segment, Pass::kForward).kind, Pass::kForward);
      Run(start, microbatch, layer, segment);
      if (backward) EmitRecompute(*backward, layer, ForwardWindowPoint(window));
      Run(InfoOf(start).counterpart, microbatch, layer, segment);
      ++window;
    }
  }

  void BackwardSlot(int32_t microbatch) {
    // What the top layer's first segment needs is made before the wait for the gradient: its memory is in use by then
    // in any case, and the wait may hide it.
    const OpSet first_needed = OpsAt(top_layer(), BeforeSegmentPoint(0));
    if (slice_.has_head) {
      BackwardHead(microbatch, Recompute(microbatch, top_layer(), first_needed));
    } else {
      for (int32_t layer = top_layer(); layer >= slice_.first_layer; --layer) {
        const OpSet ops = OpsAt(layer, kStallPoint) | (layer == top_layer() ? first_needed : 0);
        EmitAll(Recompute(microbatch, layer, ops));
      }
      Boundary(kRecvBackwardWait, microbatch);
      WaitForSentActivation();
    }
    for (int32_t layer = top_layer(); layer >= slice_.first_layer; --layer) BackwardLayer(microbatch, layer);
    if (slice_.has_embedding) {
      BackwardEmbedding(microbatch);
    }
    WaitForSentGradient();
    if (!slice_.has_embedding) {
      Boundary(kSendBackwardStart, microbatch);
      sent_gradient_ = microbatch;
    }
    paired_ = false;
  }

  void BackwardEmbedding(int32_t microbatch) {
    for (const Segment segment : graph_.SegmentsOf(LayerType::kEmbedding, Pass::kBackward)) {
      Run(kBackward, microbatch, kEmbeddingLayer, segment);
      if (!collectives() || !graph_.EndsInCollective(LayerType::kEmbedding, segment, Pass::kBackward)) continue;
      const ActionKind start = BackwardStart(LayerType::kEmbedding, segment);
      Run(start, microbatch, kEmbeddingLayer, segment);
      Run(InfoOf(start).counterpart, microbatch, kEmbeddingLayer, segment);
    }
    ReduceGradients(microbatch, kEmbeddingLayer);
  }

  ActionKind BackwardStart(LayerType type, Segment segment) const {
    return CollectiveStart(graph_.CollectiveOf(type, segment, Pass::kBackward).kind, Pass::kBackward);
  }

  // The input gradient of a segment. Behind it, gathers what its weight gradients read of shares, unless recomputation
  // has done that already.
  void RunBackward(int32_t microbatch, int32_t layer, Segment segment, OpSet recomputed) {
    const LayerType type = LayerTypeOf(layer);
    OpSet weight_ops = 0;
    for (const Op op : graph_.OpsOf(type, segment, Pass::kWeight)) weight_ops |= Bit(op);
    Program gathers;
    for (Tensor gathered : GatheredReads(weight_ops)) {
      if (!AnyReads(recomputed, gathered)) {
        AppendRepeated(gathers, microbatch, layer, graph_.GatherSegmentOf(gathered));
      }
    }
    if (!gathers.empty()) Emit(gathers.front());
    Run(kBackward, microbatch, layer, segment);
    if (!gathers.empty()) Emit(gathers.back());
  }

  // The head's collective hides the beginning of `top`, up to the first collective that `top` repeats.
  void BackwardHead(int32_t microbatch, const Program& top) {
    RunBackward(microbatch, kHeadLayer, Segment::kHead, 0);
    auto rest = top.begin();
    const ActionKind start = BackwardStart(LayerType::kHead, Segment::kHead);
    if (collectives()) Run(start, microbatch, kHeadLayer, Segment::kHead);
    Run(kWeight, microbatch, kHeadLayer, Segment::kHead);
    if (collectives()) {
      rest = std::find_if(top.begin(), top.end(), [](const Action& a) { return a.kind != kRecompute; });
      EmitAll(Program(top.begin(), rest));
      Run(InfoOf(start).counterpart, microbatch, kHeadLayer, Segment::kHead);
    }
    Run(kBackward, microbatch, kHeadLayer, Segment::kEnd);
    ReduceGradients(microbatch, kHeadLayer);
    EmitAll(Program(rest, top.end()));
  }

  // All that is made again of a layer before or during its backward pass.
  OpSet RecomputedOps(int32_t layer) const {
    OpSet ops = 0;
    for (RecomputePoint point = 0; point < kRecomputePointCount; ++point) ops |= OpsAt(layer, point);
    return ops;
  }

  void BackwardLayer(int32_t microbatch, int32_t layer) {
    const OpSet recomputed = RecomputedOps(layer);
    int index = 0, window_index = 0;
    for (const Segment segment : graph_.SegmentsOf(LayerType::kTransformer, Pass::kBackward)) {
      if (segment == Segment::kAttn && layer == slice_.first_layer) PostNextReceive();
      if (index > 0 || layer != top_layer()) EmitRecompute(microbatch, layer, BeforeSegmentPoint(index));
      RunBackward(microbatch, layer, segment, recomputed);
      const bool window = collectives() && graph_.EndsInCollective(LayerType::kTransformer, segment, Pass::kBackward);
      const ActionKind start = window ? BackwardStart(LayerType::kTransformer, segment) : kBackward;
      if (window) Run(start, microbatch, layer, segment);
      if (!graph_.OpsOf(LayerType::kTransformer, segment, Pass::kWeight).empty()) {
        Run(kWeight, microbatch, layer, segment);
      }
      if (window) {
        EmitRecompute(microbatch, layer, OwnWindowPoint(index));
        if (layer > slice_.first_layer) EmitRecompute(microbatch, layer - 1, AboveWindowPoint(window_index));
        Run(InfoOf(start).counterpart, microbatch, layer, segment);
        ++window_index;
      }
      ++index;
    }
    ReduceGradients(microbatch, layer);
  }

  // After the last microbatch has added to a layer's gradients, they are summed over the replicas.
  void ReduceGradients(int32_t microbatch, int32_t layer) {
    if (context_.gradient_ranks() == 1 || microbatch + 1 != context_.microbatches) return;
    Emit({.kind = kDataReduceStart, .layer = layer});
    reduced_layers_.push_back(layer);
  }

  const StageContext& context_;
  const StageSlice& slice_;
  const LayerGraph& graph_;
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
