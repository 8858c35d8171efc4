// See validate_slice.h.
#include "planner/program/validate_slice.h"

#include "absl/strings/str_cat.h"
#include "common/check.h"

namespace lynx {
namespace {

using enum ActionKind;

Action WithMicrobatch(Action action, int32_t microbatch) {
  action.microbatch = microbatch;
  return action;
}

}  // namespace

SliceProgress::SliceProgress(const StageContext& context, const StageSlice& slice)
    : context_(context), slice_(slice), kinds_(context), one_pipe_(context.pipeline().pipes() == 1),
      place_(static_cast<size_t>(context.microbatches), -1) {
  const PipelineShape pipeline = context.pipeline();
  const auto elsewhere = [&](int32_t stage) { return stage != kNoStage && pipeline.RankOf(stage) != context.pipeline_rank; };
  receives_ = elsewhere(pipeline.Previous(slice.stage));
  sends_ = elsewhere(pipeline.Next(slice.stage));
  if (receives_) AddBoundary(kRecvForwardStart, Pass::kForward);
  for (const int32_t layer : Layers()) AddLayer(layer, Pass::kForward);
  if (sends_) AddBoundary(kSendForwardStart, Pass::kForward);
  if (sends_) AddBoundary(kRecvBackwardStart, Pass::kBackward);
  const std::vector<int32_t> layers = Layers();
  for (auto layer = layers.rbegin(); layer != layers.rend(); ++layer) AddLayer(*layer, Pass::kBackward);
  if (receives_) AddBoundary(kSendBackwardStart, Pass::kBackward);
  for (Sequence& sequence : sequences_) sequence.done.assign(static_cast<size_t>(context.microbatches), 0);
}

Action SliceProgress::OfStage(Action action) const {
  action.stage = slice_.stage;
  return action;
}

void SliceProgress::AddLayer(int32_t layer, Pass pass) {
  const LayerType type = LayerTypeOf(layer);
  const bool forward = pass == Pass::kForward;
  Sequence& sequence = Of(pass);
  const LayerGraph& graph = kinds_.GraphOf(layer);
  for (const Segment segment : graph.SegmentsOf(type, pass)) {
    const auto add = [&](ActionKind kind) {
      sequence.actions.push_back(OfStage({.kind = kind, .segment = segment, .layer = layer}));
    };
    sequence.passes[{layer, segment}] = sequence.actions.size();
    add(forward ? kForward : kBackward);
    if (!Transfers(kinds_.ShapeOf(layer), type, segment, pass)) continue;
    const ActionKind start = CollectiveStart(graph.CollectiveOf(type, segment, pass).kind, pass);
    add(start);
    add(InfoOf(start).counterpart);
  }
}

void SliceProgress::AddBoundary(ActionKind start, Pass pass) {
  for (const ActionKind kind : {start, InfoOf(start).counterpart}) Of(pass).actions.push_back(OfStage({.kind = kind}));
}

std::vector<int32_t> SliceProgress::Layers() const {
  std::vector<int32_t> layers;
  if (slice_.has_embedding) layers.push_back(kEmbeddingLayer);
  for (int32_t l = slice_.first_layer; l < slice_.end_layer; ++l) layers.push_back(l);
  if (slice_.has_head) layers.push_back(kHeadLayer);
  return layers;
}

bool SliceProgress::Has(int32_t layer) const {
  if (layer == kEmbeddingLayer) return slice_.has_embedding;
  if (layer == kHeadLayer) return slice_.has_head;
  return layer >= slice_.first_layer && layer < slice_.end_layer;
}

std::optional<std::string> SliceProgress::Advance(Pass pass, const Action& action) {
  const char* name = pass == Pass::kForward ? "forward" : "backward";
  const int32_t k = action.microbatch;
  Sequence& sequence = Of(pass);
  size_t& done = sequence.done[static_cast<size_t>(k)];
  if (done == sequence.actions.size()) {
    return absl::StrCat("microbatch ", k, "'s ", name, " pass is already complete");
  }
  const Action expected = WithMicrobatch(sequence.actions[done], k);
  if (action != expected) return absl::StrCat("microbatch ", k, "'s ", name, " pass has ", ActionText(expected), " next");
  int32_t& place = place_[static_cast<size_t>(k)];
  if (place < 0) {
    // With two pipes, it is not known in advance through which pipe a microbatch passes. So the order is checked only against
    // the microbatch that began last on this stage.
    const int32_t before = one_pipe_ ? k - 1 : begun_.empty() ? -1 : begun_.back();
    if (before >= 0 && before > k) return absl::StrCat("microbatch ", before, " has begun before it");
    if (one_pipe_ && static_cast<int64_t>(begun_.size()) != k) {
      return absl::StrCat("overtakes microbatch ", before, ", which has not done this yet");
    }
    place = static_cast<int32_t>(begun_.size());
    begun_.push_back(k);
  }
  if (place > 0) {
    const int32_t before = begun_[static_cast<size_t>(place) - 1];
    if (sequence.done[static_cast<size_t>(before)] <= done) {
      return absl::StrCat("overtakes microbatch ", before, ", which has not done this yet");
    }
  }
  ++done;
  return std::nullopt;
}

std::optional<std::string> SliceProgress::AdvanceWeight(const Action& action) {
  if (!Past(Pass::kBackward, action.microbatch, action.layer, action.segment)) {
    return "a weight pass follows the backward pass of its segment";
  }
  int32_t& passes = weight_passes_[{action.layer, action.segment}];
  const bool all = static_cast<size_t>(passes) == begun_.size();
  const int32_t next = all ? context_.microbatches : begun_[static_cast<size_t>(passes)];
  if (action.microbatch != next) {
    return absl::StrCat("the segment's weight passes run once for each microbatch in order; the next is of microbatch ",
                        all && one_pipe_ ? static_cast<int32_t>(begun_.size()) : next);
  }
  ++passes;
  return std::nullopt;
}

bool SliceProgress::Past(Pass pass, int32_t microbatch, int32_t layer, Segment segment) const {
  const Sequence& sequence = Of(pass);
  const auto found = sequence.passes.find({layer, segment});
  // A pass that does not exist counts as done. For example, Llama's embedding has no forward segment `end`.
  return found == sequence.passes.end() || sequence.done[static_cast<size_t>(microbatch)] > found->second;
}

bool SliceProgress::ForwardComputed(int32_t microbatch) const {
  return Past(Pass::kForward, microbatch, slice_.has_head ? kHeadLayer : slice_.top_layer(), Segment::kEnd);
}

bool SliceProgress::BackwardComputed(int32_t microbatch) const {
  const int32_t layer = slice_.has_embedding ? kEmbeddingLayer : slice_.first_layer;
  return Past(Pass::kBackward, microbatch, layer, kinds_.GraphOf(layer).SegmentsOf(LayerTypeOf(layer), Pass::kBackward).back());
}

int32_t SliceProgress::WeightPasses(int32_t layer, Segment segment) const {
  const auto it = weight_passes_.find({layer, segment});
  return it == weight_passes_.end() ? 0 : it->second;
}

std::vector<Segment> SliceProgress::WeightSegments(int32_t layer) const {
  std::vector<Segment> segments;
  const LayerGraph& graph = kinds_.GraphOf(layer);
  for (const Segment segment : graph.SegmentsOf(LayerTypeOf(layer), Pass::kBackward)) {
    if (!graph.OpsOf(LayerTypeOf(layer), segment, Pass::kWeight).empty()) segments.push_back(segment);
  }
  return segments;
}

bool SliceProgress::WeightsComputed(int32_t layer) const {
  for (const Segment segment : WeightSegments(layer)) {
    if (static_cast<size_t>(WeightPasses(layer, segment)) != begun_.size()) return false;
  }
  return true;
}

bool SliceProgress::WeightsComputed(int32_t layer, int32_t microbatch) const {
  for (const Segment segment : WeightSegments(layer)) {
    if (WeightPasses(layer, segment) <= place_[static_cast<size_t>(microbatch)]) return false;
  }
  return true;
}

std::optional<Action> SliceProgress::Lacking(int32_t microbatch) const {
  for (const Sequence& sequence : sequences_) {
    const size_t next = sequence.done[static_cast<size_t>(microbatch)];
    if (next < sequence.actions.size()) return WithMicrobatch(sequence.actions[next], microbatch);
  }
  return std::nullopt;
}

std::optional<Action> SliceProgress::LackingWeight() const {
  for (const int32_t layer : Layers()) {
    for (const Segment segment : WeightSegments(layer)) {
      const auto passes = static_cast<size_t>(WeightPasses(layer, segment));
      if (passes == begun_.size()) continue;
      return OfStage({.kind = kWeight, .segment = segment, .microbatch = begun_[passes], .layer = layer});
    }
  }
  return std::nullopt;
}

}  // namespace lynx
