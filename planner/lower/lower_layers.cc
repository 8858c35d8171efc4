// See lower_layers.h.
#include "planner/lower/lower_layers.h"

#include <algorithm>

#include "common/check.h"
#include "planner/problem/layout_schedule.h"
#include "planner/program/state_sharing.h"

namespace lynx {

using enum ActionKind;

SliceLowering::KindOps::KindOps(const LayerGraph& graph) {
  for (const Tensor tensor : {Tensor::kLn1Full, Tensor::kLn2Full, Tensor::kLnfFull}) {
    OpSet readers = 0;
    for (const OpInfo& info : graph.ops()) {
      if (std::find(info.reads.begin(), info.reads.end(), tensor) != info.reads.end()) readers |= Bit(info.op);
    }
    if (readers != 0) gathered.emplace_back(tensor, readers);
  }
  for (const Segment segment : graph.SegmentsOf(LayerType::kTransformer, Pass::kForward)) {
    OpSet ops = 0;
    for (const Op op : graph.OpsOf(LayerType::kTransformer, segment, Pass::kForward)) ops |= Bit(op);
    forward_ops.emplace_back(segment, ops);
  }
}

SliceLowering::SliceLowering(const StageContext& context, const StageSlice& slice, const StagePolicy& policy, bool stall,
                             Program& program)
    : context_(context), slice_(slice), kinds_(context), splits_weight_(SplitsWeight(context.layout)),
      program_(program), ops_{KindOps(kinds_.graph()), KindOps(LayerGraph::Of(DenseShape(kinds_.shape())))} {
  LYNX_CHECK(slice_.layers() > 0 && static_cast<int64_t>(policy.layers.size()) == slice_.layers());
  for (const bool paired : {false, true}) {
    std::vector<RecomputeOps>& resolved = recompute_[paired];
    RecomputeSituation before;
    for (int32_t layer = slice_.first_layer; layer < slice_.end_layer; ++layer) {
      const auto position = static_cast<size_t>(Position(layer));
      RecomputeSituation situation = SituationOf(layer, stall);
      situation.paired_forward = paired;
      // A layer with the policy, kind and situation of the layer below it has the same result.
      if (position > 0 && situation == before && policy.layers[position] == policy.layers[position - 1] &&
          kinds_.IsDense(layer) == kinds_.IsDense(layer - 1)) {
        resolved.push_back(RecomputeOps(resolved.back()));
        continue;
      }
      before = situation;
      const LayerGraph& graph = kinds_.GraphOf(layer);
      resolved.push_back(ResolveRecomputation(graph, PolicyIn(graph, kinds_.graph(), policy.layers[position]), situation));
    }
  }
}

RecomputeSituation SliceLowering::SituationOf(int32_t layer, bool stall) const {
  const bool top = layer == slice_.top_layer();
  // The forward before the layer's backward may be that of any slice of the rank, so only windows count that the layers at this
  // position have in all slices.
  WindowSet forward = kAllWindows;
  for (const StageSlice& slice : context_.slices) {
    const int32_t host = slice.first_layer + Position(layer);
    if (host < slice.end_layer) forward &= WindowsWithTransfer(kinds_.ShapeOf(host), Pass::kForward);
  }
  return {.forward_windows = forward,
          .above_windows = top ? WindowSet{0} : WindowsWithTransfer(kinds_.ShapeOf(layer + 1), Pass::kBackward),
          .own_windows = WindowsWithTransfer(kinds_.ShapeOf(layer), Pass::kBackward),
          .stall = stall && !SharesWeights(context_),
          .layer_above = !top && !SharesWeights(context_)};
}

void SliceLowering::Emit(Action action) const {
  action.stage = slice_.stage;
  program_.push_back(action);
}

void SliceLowering::EmitAll(const Program& actions) const { program_.insert(program_.end(), actions.begin(), actions.end()); }

void SliceLowering::Run(ActionKind kind, int32_t microbatch, int32_t layer, Segment segment) const {
  Emit({.kind = kind, .segment = segment, .microbatch = microbatch, .layer = layer});
}

ActionKind SliceLowering::StartOf(int32_t layer, Segment segment, Pass pass) const {
  return CollectiveStart(kinds_.GraphOf(layer).CollectiveOf(LayerTypeOf(layer), segment, pass).kind, pass);
}

bool SliceLowering::HasTransfer(int32_t layer, Segment segment, Pass pass) const {
  return Transfers(kinds_.ShapeOf(layer), LayerTypeOf(layer), segment, pass);
}

OpSet SliceLowering::OpsAt(int32_t layer, RecomputePoint point, int32_t hosts) const {
  const auto position = static_cast<size_t>(Position(layer));
  return recompute_[Position(layer) < hosts][position][static_cast<size_t>(point)];
}

// All ops of a layer that are recomputed before or during its backward pass.
OpSet SliceLowering::RecomputedOps(int32_t layer, int32_t hosts) const {
  OpSet ops = 0;
  for (RecomputePoint point = 0; point < kRecomputePointCount; ++point) ops |= OpsAt(layer, point, hosts);
  return ops;
}

// Gathered tensors that one of the layer's ops `ops` reads.
std::vector<Tensor> SliceLowering::GatheredReads(int32_t layer, OpSet ops) const {
  std::vector<Tensor> gathered;
  for (const auto& [tensor, readers] : OpsOfKind(layer).gathered) {
    if ((ops & readers) != 0) gathered.push_back(tensor);
  }
  return gathered;
}

OpSet SliceLowering::WeightOps(int32_t layer, Segment segment) const {
  OpSet ops = 0;
  for (const Op op : kinds_.GraphOf(layer).OpsOf(LayerTypeOf(layer), segment, Pass::kWeight)) ops |= Bit(op);
  return ops;
}

// Appends the start and the wait of a collective that repeats the forward collective at the end of the segment.
void SliceLowering::AppendRepeated(Program& actions, int32_t microbatch, int32_t layer, Segment segment) const {
  const Collective kind = kinds_.GraphOf(layer).CollectiveOf(LayerTypeOf(layer), segment, Pass::kForward).kind;
  Action action{.kind = RepeatedCollectiveStart(kind),
                .segment = segment,
                .stage = slice_.stage,
                .microbatch = microbatch,
                .layer = layer};
  actions.push_back(action);
  action.kind = InfoOf(action.kind).counterpart;
  actions.push_back(action);
}

// Returns the actions that recompute `ops` of one layer, in forward order. They contain the collectives that the ops need.
Program SliceLowering::Recompute(int32_t microbatch, int32_t layer, OpSet ops) const {
  Program actions;
  if (ops == 0) return actions;
  for (const auto& [segment, all] : OpsOfKind(layer).forward_ops) {
    const OpSet here = ops & all;
    if (here == 0) continue;
    for (Tensor gathered : GatheredReads(layer, here)) {
      AppendRepeated(actions, microbatch, layer, kinds_.GraphOf(layer).GatherSegmentOf(gathered));
    }
    actions.push_back(
        {.kind = kRecompute, .segment = segment, .stage = slice_.stage, .microbatch = microbatch, .layer = layer, .ops = here});
    const bool to_experts = context_.layout.ep > 1 && Contains(here, Op::kPermute);
    if (to_experts || (context_.layout.tp > 1 && Contains(here, Op::kProj)))
      AppendRepeated(actions, microbatch, layer, segment);
  }
  return actions;
}

void SliceLowering::EmitRecompute(const BackwardSlot& slot, int32_t layer, RecomputePoint point) const {
  EmitAll(Recompute(slot.microbatch, layer, OpsAt(layer, point, slot.hosts)));
}

void SliceLowering::EmitInForwardWindow(int32_t microbatch, int32_t position, int window, int32_t hosts) const {
  if (position >= slice_.layers()) return;
  const int32_t layer = slice_.first_layer + position;
  EmitAll(Recompute(microbatch, layer, OpsAt(layer, ForwardWindowPoint(window), hosts)));
}

void SliceLowering::Forward(int32_t microbatch, const Guest& guest) {
  if (slice_.has_embedding) ForwardLayer(microbatch, kEmbeddingLayer, {});
  for (int32_t layer = slice_.first_layer; layer < slice_.end_layer; ++layer) ForwardLayer(microbatch, layer, guest);
}

void SliceLowering::ForwardHead(int32_t microbatch) { ForwardLayer(microbatch, kHeadLayer, {}); }

void SliceLowering::ForwardLayer(int32_t microbatch, int32_t layer, const Guest& guest) const {
  int window = -1;
  for (const Segment segment : kinds_.GraphOf(layer).SegmentsOf(LayerTypeOf(layer), Pass::kForward)) {
    Run(kForward, microbatch, layer, segment);
    ++window;
    if (!HasTransfer(layer, segment, Pass::kForward)) continue;
    const ActionKind start = StartOf(layer, segment, Pass::kForward);
    Run(start, microbatch, layer, segment);
    if (guest.slice != nullptr) {
      guest.slice->EmitInForwardWindow(guest.microbatch, Position(layer), window, slice_.layers());
    }
    Run(InfoOf(start).counterpart, microbatch, layer, segment);
  }
}

// The recomputation for the top layer's first segment comes before the wait for the gradient. This adds nothing to the memory
// peak, and the wait may hide the recomputation.
void SliceLowering::BackwardTop(const BackwardSlot& slot) {
  const OpSet first_needed = OpsAt(slice_.top_layer(), BeforeSegmentPoint(0), slot.hosts);
  if (slice_.has_head) {
    BackwardHead(slot, Recompute(slot.microbatch, slice_.top_layer(), first_needed));
    return;
  }
  for (int32_t layer = slice_.top_layer(); layer >= slice_.first_layer; --layer) {
    const OpSet ops = OpsAt(layer, kStallPoint, slot.hosts) | (layer == slice_.top_layer() ? first_needed : 0);
    EmitAll(Recompute(slot.microbatch, layer, ops));
  }
}

void SliceLowering::Backward(const BackwardSlot& slot, const std::function<void()>& before_bottom) {
  for (int32_t layer = slice_.top_layer(); layer >= slice_.first_layer; --layer) {
    BackwardLayer(slot, layer, before_bottom);
  }
  if (slice_.has_embedding) BackwardEmbedding(slot);
}

// Emits the input gradient of a segment. If the segment's weight gradients follow immediately, they may read tensors of which
// the rank holds only a share. The function then gathers these tensors during the input gradient, unless recomputation has
// already gathered them.
void SliceLowering::RunBackward(int32_t microbatch, int32_t layer, Segment segment, OpSet recomputed) const {
  Program gathers;
  if (!splits_weight_ && !OpsOfKind(layer).gathered.empty()) {
    const std::vector<Tensor> known = GatheredReads(layer, recomputed);
    for (Tensor gathered : GatheredReads(layer, WeightOps(layer, segment))) {
      if (std::find(known.begin(), known.end(), gathered) != known.end()) continue;
      AppendRepeated(gathers, microbatch, layer, kinds_.GraphOf(layer).GatherSegmentOf(gathered));
    }
  }
  if (!gathers.empty()) Emit(gathers.front());
  Run(kBackward, microbatch, layer, segment);
  if (!gathers.empty()) Emit(gathers.back());
}

// `top`: the recomputation for the top layer. The window of the head's collective hides its beginning, up to the first
// collective that `top` repeats.
void SliceLowering::BackwardHead(const BackwardSlot& slot, const Program& top) {
  RunBackward(slot.microbatch, kHeadLayer, Segment::kHead, 0);
  auto rest = top.begin();
  const ActionKind start = StartOf(kHeadLayer, Segment::kHead, Pass::kBackward);
  const bool window = HasTransfer(kHeadLayer, Segment::kHead, Pass::kBackward);
  if (window) Run(start, slot.microbatch, kHeadLayer, Segment::kHead);
  if (!splits_weight_) Run(kWeight, slot.microbatch, kHeadLayer, Segment::kHead);
  if (window) {
    rest = std::find_if(top.begin(), top.end(), [](const Action& a) { return a.kind != kRecompute; });
    EmitAll(Program(top.begin(), rest));
    Run(InfoOf(start).counterpart, slot.microbatch, kHeadLayer, Segment::kHead);
  }
  Run(kBackward, slot.microbatch, kHeadLayer, Segment::kEnd);
  if (slot.last && !splits_weight_) Reduce(kHeadLayer);
  EmitAll(Program(rest, top.end()));
}

void SliceLowering::BackwardLayer(const BackwardSlot& slot, int32_t layer, const std::function<void()>& before_bottom) {
  const OpSet recomputed = RecomputedOps(layer, slot.hosts);
  int index = 0;  // the index of the segment and of the window after it
  for (const Segment segment : kinds_.GraphOf(layer).SegmentsOf(LayerType::kTransformer, Pass::kBackward)) {
    if (segment == Segment::kAttn && layer == slice_.first_layer) before_bottom();
    if (index > 0 || layer != slice_.top_layer()) EmitRecompute(slot, layer, BeforeSegmentPoint(index));
    RunBackward(slot.microbatch, layer, segment, recomputed);
    const bool window = HasTransfer(layer, segment, Pass::kBackward);
    const ActionKind start = window ? StartOf(layer, segment, Pass::kBackward) : kBackward;
    if (window) Run(start, slot.microbatch, layer, segment);
    if (!splits_weight_ && WeightOps(layer, segment) != 0) Run(kWeight, slot.microbatch, layer, segment);
    if (window) {
      EmitRecompute(slot, layer, OwnWindowPoint(index));
      if (layer > slice_.first_layer) EmitRecompute(slot, layer - 1, AboveWindowPoint(index));
      Run(InfoOf(start).counterpart, slot.microbatch, layer, segment);
    }
    ++index;
  }
  if (slot.last && !splits_weight_) Reduce(layer);
}

void SliceLowering::BackwardEmbedding(const BackwardSlot& slot) {
  for (const Segment segment : kinds_.graph().SegmentsOf(LayerType::kEmbedding, Pass::kBackward)) {
    Run(kBackward, slot.microbatch, kEmbeddingLayer, segment);
    if (!HasTransfer(kEmbeddingLayer, segment, Pass::kBackward)) continue;
    const ActionKind start = StartOf(kEmbeddingLayer, segment, Pass::kBackward);
    Run(start, slot.microbatch, kEmbeddingLayer, segment);
    Run(InfoOf(start).counterpart, slot.microbatch, kEmbeddingLayer, segment);
  }
  if (slot.last && !HoldsTiedEmbedding(context_)) Reduce(kEmbeddingLayer);
}

void SliceLowering::Weight(int32_t microbatch, bool last) {
  struct Step {
    int32_t layer;
    Segment segment;
    Program gathers;  // the start and the wait of each gather, or nothing
    bool ends_layer;
  };
  std::vector<Step> steps;
  const auto add = [&](int32_t layer) {
    const LayerGraph& graph = kinds_.GraphOf(layer);
    for (const Segment segment : graph.SegmentsOf(LayerTypeOf(layer), Pass::kBackward)) {
      const OpSet ops = WeightOps(layer, segment);
      if (ops == 0) continue;
      steps.push_back({layer, segment, {}, false});
      for (Tensor gathered : GatheredReads(layer, ops)) {
        AppendRepeated(steps.back().gathers, microbatch, layer, graph.GatherSegmentOf(gathered));
      }
    }
    steps.back().ends_layer = true;
  };
  if (slice_.has_head) add(kHeadLayer);
  for (int32_t layer = slice_.top_layer(); layer >= slice_.first_layer; --layer) add(layer);
  for (size_t i = 0; i < steps.size(); ++i) {
    if (i == 0) EmitAll(steps[i].gathers);
    const bool next = i + 1 < steps.size() && !steps[i + 1].gathers.empty();
    if (next) Emit(steps[i + 1].gathers.front());
    Run(kWeight, microbatch, steps[i].layer, steps[i].segment);
    if (next) Emit(steps[i + 1].gathers.back());
    if (last && steps[i].ends_layer) Reduce(steps[i].layer);
  }
}

void SliceLowering::ReduceTiedEmbedding() {
  if (slice_.has_embedding && HoldsTiedEmbedding(context_)) Reduce(kEmbeddingLayer);
}

// Starts the sum of a layer's gradients over the ranks that hold the same weights. At this point, the last microbatch has
// already added its part.
void SliceLowering::Reduce(int32_t layer) {
  if (context_.model.HasExpertsIn(layer) && HasExpertReplicas(context_)) Emit({.kind = kExpertReduceStart, .layer = layer});
  if (context_.gradient_ranks() == 1 || ReducesEachMicrobatch(context_)) return;  // see ShareStates
  Emit({.kind = kDataReduceStart, .layer = layer});
}

}  // namespace lynx
