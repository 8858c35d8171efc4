// See validate.h. The validator knows the tables of ops, tensors and action kinds, and nothing of the lowering: what
// it expects of a program it derives from the stage's context alone.
//
// Each microbatch has two sequences that no program may change: its forward actions and its backward actions,
// transfers included. A program interleaves them; W, R and what ends the step stand between them under rules of their
// own.
//
// That no action touches what a transfer under way writes, or writes what one reads, follows from these rules: the
// sequences keep a microbatch's own actions from its transfers, no other microbatch shares a buffer with it, and x1
// counts as incomplete while its repeated collective is under way. That nothing is read before it is written is what
// the memory model's fold finds, which runs last.
#include "planner/validate.h"

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "planner/memory_model.h"

namespace lynx {
namespace {

using enum ActionKind;

// State of x1 of one layer and microbatch while it is made again: proj writes a partial sum, the collective completes
// the sum, add1 completes x1.
enum class X1State : uint8_t { kWhole, kPartialSum, kReducing, kSum };

// Where the step is in its end.
enum class EndState : uint8_t { kBefore, kNormStarted, kNormDone, kOptimized };

absl::Status CheckContext(const StageContext& c) {
  const auto fail = [&](const std::string& what) {
    return absl::FailedPreconditionError(absl::StrCat("stage ", c.pipeline_rank, ": ", what));
  };
  if (c.layout.tp < 1 || c.layout.pp < 1 || c.layout.dp < 1) {
    return fail(absl::StrCat("the layout ", LayoutText(c.layout), " has a degree below 1"));
  }
  if (c.pipeline_rank < 0 || c.pipeline_rank >= c.layout.pp) return fail(absl::StrCat("there are ", c.layout.pp, " stages"));
  if (c.microbatches < 1 || c.micro_batch < 1) {
    return fail(
        absl::StrCat(c.microbatches, " microbatches of ", c.micro_batch, " samples: both must be at least 1"));
  }
  const ModelSpec& m = c.model;
  if (m.hidden < 1 || m.heads < 1 || m.ffn < 1 || m.seq < 1 || m.vocab < 1 || m.heads % c.layout.tp != 0 ||
      m.hidden % m.heads != 0 || m.ffn % c.layout.tp != 0) {
    return fail(absl::StrCat("tp ", c.layout.tp, " does not divide a model of hidden ", m.hidden, ", heads ", m.heads,
                             ", ffn ", m.ffn, ", seq ", m.seq, ", vocab ", m.vocab));
  }
  if (c.slices.size() != 1) return fail("one slice is needed");
  const StageSlice& s = c.slices[0];
  const bool bottom_fits = (s.first_layer == 0) == (s.stage == 0);
  const bool top_fits = (s.end_layer == m.layers) == (s.stage == c.layout.pp - 1);
  if (s.first_layer < 0 || s.first_layer >= s.end_layer || s.end_layer > m.layers || !bottom_fits || !top_fits ||
      s != SliceOf(c.layout, c.pipeline_rank, s.first_layer, s.end_layer)) {
    return fail(absl::StrCat("layers [", s.first_layer, ", ", s.end_layer, ") of ", m.layers, " are not what stage ",
                             c.pipeline_rank, " of ", c.layout.pp, " can have"));
  }
  return absl::OkStatus();
}

class StageValidator {
 public:
  StageValidator(const Program& program, const StageContext& context)
      : program_(program),
        context_(context),
        slice_(context.only_slice()),
        graph_(context.graph()),
        forward_(ForwardSequence()),
        backward_(BackwardSequence()),
        forward_done_(static_cast<size_t>(context.microbatches)),
        backward_done_(static_cast<size_t>(context.microbatches)) {}

  absl::Status Run() {
    for (; at_ < program_.size(); ++at_) {
      const Action& action = program_[at_];
      LYNX_RETURN_IF_ERROR(CheckFields(action));
      LYNX_RETURN_IF_ERROR(CheckEndOfStep(action));
      LYNX_RETURN_IF_ERROR(CheckOrder(action));
      LYNX_RETURN_IF_ERROR(CheckTransfer(action));
    }
    if (end_ == EndState::kOptimized) return FoldLiveness(program_, context_).status();
    const absl::Status complete = CheckComplete();
    const ActionKind missing = end_ == EndState::kBefore ? kNormStart : kOptimizer;
    return absl::FailedPreconditionError(
        absl::StrCat("stage ", slice_.stage, ": the program ends after ", program_.size(), " actions: ",
                     complete.ok() ? absl::StrCat("the step still lacks ", ActionText(OfStage({.kind = missing})))
                                   : std::string(complete.message())));
  }

 private:
  using Sequence = std::vector<Action>;  // without microbatch
  using LayerSegment = std::pair<int32_t, Segment>;

  bool collectives() const { return context_.layout.tp > 1; }

  Action OfStage(Action action) const {
    action.stage = slice_.stage;
    return action;
  }

  absl::Status Fail(const std::string& rule) const {
    return absl::FailedPreconditionError(absl::StrCat("action ", at_, " (", ActionText(program_[at_]), "): ", rule));
  }

  void AddLayer(Sequence& sequence, int32_t layer, Pass pass) const {
    const LayerType type = LayerTypeOf(layer);
    const bool forward = pass == Pass::kForward;
    for (const Segment segment : graph_.SegmentsOf(type, pass)) {
      const auto add = [&](ActionKind kind) {
        sequence.push_back(OfStage({.kind = kind, .segment = segment, .layer = layer}));
      };
      add(forward ? kForward : kBackward);
      if (!collectives() || !graph_.EndsInCollective(type, segment, pass)) continue;
      const ActionKind start = CollectiveStart(graph_.CollectiveOf(type, segment, pass).kind, pass);
      add(start);
      add(InfoOf(start).counterpart);
    }
  }

  void AddBoundary(Sequence& sequence, ActionKind start) const {
    sequence.push_back(OfStage({.kind = start}));
    sequence.push_back(OfStage({.kind = InfoOf(start).counterpart}));
  }

  Sequence ForwardSequence() const {
    Sequence sequence;
    if (slice_.has_embedding) {
      AddLayer(sequence, kEmbeddingLayer, Pass::kForward);
    } else {
      AddBoundary(sequence, kRecvForwardStart);
    }
    for (int32_t l = slice_.first_layer; l < slice_.end_layer; ++l) AddLayer(sequence, l, Pass::kForward);
    if (slice_.has_head) {
      AddLayer(sequence, kHeadLayer, Pass::kForward);
    } else {
      AddBoundary(sequence, kSendForwardStart);
    }
    return sequence;
  }

  Sequence BackwardSequence() const {
    Sequence sequence;
    if (slice_.has_head) {
      AddLayer(sequence, kHeadLayer, Pass::kBackward);
    } else {
      AddBoundary(sequence, kRecvBackwardStart);
    }
    for (int32_t l = slice_.end_layer - 1; l >= slice_.first_layer; --l) AddLayer(sequence, l, Pass::kBackward);
    if (slice_.has_embedding) {
      AddLayer(sequence, kEmbeddingLayer, Pass::kBackward);
    } else {
      AddBoundary(sequence, kSendBackwardStart);
    }
    return sequence;
  }

  // The stage's layers, embedding and head included.
  std::vector<int32_t> Layers() const {
    std::vector<int32_t> layers;
    if (slice_.has_embedding) layers.push_back(kEmbeddingLayer);
    for (int32_t l = slice_.first_layer; l < slice_.end_layer; ++l) layers.push_back(l);
    if (slice_.has_head) layers.push_back(kHeadLayer);
    return layers;
  }

  bool OnStage(int32_t layer) const {
    if (layer == kEmbeddingLayer) return slice_.has_embedding;
    if (layer == kHeadLayer) return slice_.has_head;
    return layer >= slice_.first_layer && layer < slice_.end_layer;
  }

  // Whether the fields are in range and name something that exists on this stage.
  absl::Status CheckFields(const Action& action) const {
    const ActionInfo& info = InfoOf(action.kind);
    if (action.stage != slice_.stage) return Fail(absl::StrCat("the program is of stage ", slice_.stage));
    const bool microbatch = info.has_microbatch ? action.microbatch >= 0 && action.microbatch < context_.microbatches
                                                : action.microbatch == kNoMicrobatch;
    if (!microbatch) return Fail(absl::StrCat("microbatches are 0 to ", context_.microbatches - 1));
    if (info.has_layer ? !OnStage(action.layer) : action.layer != kNoLayer) {
      return Fail(absl::StrCat("the layer is not on this stage, which has layers ", slice_.first_layer, " to ",
                               slice_.end_layer - 1));
    }
    if (!info.has_segment && action.segment != Segment::kNone) return Fail("the kind has no segment");
    if (info.operands != Operands::kOps && action.ops != 0) return Fail("the kind has no ops");
    if ((info.operands == Operands::kTensors) != (action.tensors != 0)) return Fail("copies, and only they, name tensors");
    if (info.has_segment) LYNX_RETURN_IF_ERROR(CheckSegment(action));
    return CheckGroup(action);
  }

  absl::Status CheckSegment(const Action& action) const {
    const LayerType type = LayerTypeOf(action.layer);
    const ActionInfo& info = InfoOf(action.kind);
    const std::vector<Segment> segments = graph_.SegmentsOf(type, info.segment_pass);
    if (std::find(segments.begin(), segments.end(), action.segment) == segments.end()) {
      return Fail(absl::StrCat("the ", std::string(LayerTypeName(type)), " layer has no such segment in this pass"));
    }
    if (action.kind == kWeight && graph_.OpsOf(type, action.segment, Pass::kWeight).empty()) {
      return Fail("the segment has no weight pass");
    }
    if (action.kind == kRecompute) return CheckRecomputedOps(action);
    if (info.group != Group::kTensor) return absl::OkStatus();
    const CollectiveInfo& collective = graph_.CollectiveOf(type, action.segment, info.segment_pass);
    const bool gathers_shares = info.collective == Collective::kAllGather && collective.from != collective.to;
    if (collective.kind != info.collective ||
        (info.repeated && !gathers_shares && (type != LayerType::kTransformer || action.segment != Segment::kAttn))) {
      return Fail("no such collective ends this segment");
    }
    return absl::OkStatus();
  }

  absl::Status CheckRecomputedOps(const Action& action) const {
    OpSet allowed = 0;
    for (const Tensor tensor : graph_.recomputable()) {
      for (const Op op : graph_.ProducersOf(tensor)) {
        if (LayerTypeOf(action.layer) == LayerType::kTransformer && graph_.InfoOf(op).forward_segment == action.segment) {
          allowed |= Bit(op);
        }
      }
    }
    if (action.ops == 0 || (action.ops & ~allowed) != 0) {
      return Fail("only the producers of recomputable tensors in this segment can be recomputed");
    }
    return absl::OkStatus();
  }

  absl::Status CheckGroup(const Action& action) const {
    switch (InfoOf(action.kind).group) {
      case Group::kTensor:
        return collectives() ? absl::OkStatus() : Fail("there is no tensor-parallel group with tp 1");
      case Group::kNextStage:
        return slice_.has_head ? Fail("the last stage has no next stage") : absl::OkStatus();
      case Group::kPreviousStage:
        return slice_.has_embedding ? Fail("the first stage has no previous stage") : absl::OkStatus();
      case Group::kData:
        return context_.gradient_ranks() > 1 ? absl::OkStatus() : Fail("there is no data-parallel group with dp 1");
      case Group::kNone:
      case Group::kWorld:
      case Group::kHost:
        break;
    }
    return absl::OkStatus();
  }

  // NORM+, NORM-, OPT, once each, after everything else.
  absl::Status CheckEndOfStep(const Action& action) {
    const bool ends_step = action.kind == kNormStart || action.kind == kNormWait || action.kind == kOptimizer;
    if (!ends_step) {
      return end_ == EndState::kBefore ? absl::OkStatus() : Fail("only NORM- and OPT may follow NORM+");
    }
    constexpr std::array<ActionKind, 3> kExpected = {kNormStart, kNormWait, kOptimizer};
    if (end_ == EndState::kOptimized || action.kind != kExpected[static_cast<size_t>(end_)]) {
      return Fail("a step ends in NORM+, NORM-, OPT, once each");
    }
    if (action.kind == kNormStart) {
      const absl::Status complete = CheckComplete();
      if (!complete.ok()) return Fail(std::string(complete.message()));
    }
    end_ = static_cast<EndState>(static_cast<int>(end_) + 1);
    return absl::OkStatus();
  }

  // Whether all microbatches, weight passes, reductions and transfers are done.
  absl::Status CheckComplete() const {
    const auto lacks = [](const Action& action) {
      return absl::FailedPreconditionError(absl::StrCat("the step still lacks ", ActionText(action)));
    };
    for (int32_t k = 0; k < context_.microbatches; ++k) {
      for (const auto& [sequence, done] :
           {std::pair(&forward_, &forward_done_), std::pair(&backward_, &backward_done_)}) {
        const size_t next = (*done)[static_cast<size_t>(k)];
        if (next < sequence->size()) return lacks(WithMicrobatch((*sequence)[next], k));
      }
    }
    for (const int32_t layer : Layers()) {
      for (const Segment segment : graph_.SegmentsOf(LayerTypeOf(layer), Pass::kBackward)) {
        if (graph_.OpsOf(LayerTypeOf(layer), segment, Pass::kWeight).empty()) continue;
        const int32_t next = WeightPasses(layer, segment);
        if (next == context_.microbatches) continue;
        return lacks(OfStage({.kind = kWeight, .segment = segment, .microbatch = next, .layer = layer}));
      }
      if (context_.gradient_ranks() > 1 && !reduced_.contains(layer)) {
        return lacks(OfStage({.kind = kDataReduceStart, .layer = layer}));
      }
    }
    for (const auto& [group, starts] : pending_) {
      if (starts.empty()) continue;
      Action wait = starts.front();
      wait.kind = InfoOf(wait.kind).counterpart;
      return lacks(wait);
    }
    return absl::OkStatus();
  }

  static Action WithMicrobatch(Action action, int32_t microbatch) {
    action.microbatch = microbatch;
    return action;
  }

  int32_t WeightPasses(int32_t layer, Segment segment) const {
    const auto it = weight_passes_.find({layer, segment});
    return it == weight_passes_.end() ? 0 : it->second;
  }

  // Whether microbatch k's sequence is past the pass over a layer's segment.
  bool Past(Pass pass, int32_t microbatch, int32_t layer, Segment segment) const {
    const bool forward = pass == Pass::kForward;
    const Sequence& sequence = forward ? forward_ : backward_;
    const auto compute =
        std::find(sequence.begin(), sequence.end(),
                  OfStage({.kind = forward ? kForward : kBackward, .segment = segment, .layer = layer}));
    const size_t done = (forward ? forward_done_ : backward_done_)[static_cast<size_t>(microbatch)];
    return static_cast<ptrdiff_t>(done) > compute - sequence.begin();
  }

  absl::Status CheckOrder(const Action& action) {
    const ActionInfo& info = InfoOf(action.kind);
    if (info.group == Group::kTensor && info.repeated) return CheckRepeatedCollective(action);
    if (info.group == Group::kTensor || info.group == Group::kNextStage || info.group == Group::kPreviousStage) {
      return info.segment_pass == Pass::kForward ? Advance(action, forward_, forward_done_, "forward")
                                                 : Advance(action, backward_, backward_done_, "backward");
    }
    switch (action.kind) {
      case kForward:
        return Advance(action, forward_, forward_done_, "forward");
      case kBackward:
        if (!ForwardComputed(action.microbatch)) {
          return Fail("the microbatch's backward pass begins before its forward pass has ended");
        }
        LYNX_RETURN_IF_ERROR(CheckBackwardReadsX1(action));
        return Advance(action, backward_, backward_done_, "backward");
      case kWeight:
        return CheckWeight(action);
      case kRecompute:
        return CheckRecompute(action);
      case kDataReduceStart:
        return CheckReduction(action);
      default:
        return absl::OkStatus();
    }
  }

  // The next action of a microbatch's sequence, which no later microbatch may overtake.
  absl::Status Advance(const Action& action, const Sequence& sequence, std::vector<size_t>& done, const char* pass) {
    const auto k = static_cast<size_t>(action.microbatch);
    if (done[k] == sequence.size()) {
      return Fail(absl::StrCat("microbatch ", action.microbatch, "'s ", pass, " pass is already complete"));
    }
    const Action expected = WithMicrobatch(sequence[done[k]], action.microbatch);
    if (action != expected) {
      return Fail(
          absl::StrCat("microbatch ", action.microbatch, "'s ", pass, " pass has ", ActionText(expected), " next"));
    }
    if (k > 0 && done[k - 1] <= done[k]) {
      return Fail(absl::StrCat("overtakes microbatch ", k - 1, ", which has not done this yet"));
    }
    ++done[k];
    return absl::OkStatus();
  }

  // Whether the microbatch's last forward segment on this stage has run (a send may still be under way).
  bool ForwardComputed(int32_t microbatch) const {
    return Past(Pass::kForward, microbatch, slice_.has_head ? kHeadLayer : slice_.end_layer - 1, Segment::kEnd);
  }

  absl::Status CheckWeight(const Action& action) {
    if (!Past(Pass::kBackward, action.microbatch, action.layer, action.segment)) {
      return Fail("a weight pass follows the backward pass of its segment");
    }
    int32_t& next = weight_passes_[{action.layer, action.segment}];
    if (action.microbatch != next) {
      return Fail(
          absl::StrCat("the segment's weight passes run once for each microbatch in order; the next is of "
                       "microbatch ",
                       next));
    }
    ++next;
    return absl::OkStatus();
  }

  X1State& x1_state(const Action& action) { return x1_states_[{action.microbatch, action.layer}]; }

  absl::Status CheckRecomputeTime(const Action& action) const {
    if (!Past(Pass::kForward, action.microbatch, action.layer, Segment::kEnd)) {
      return Fail("recomputation follows the layer's forward pass");
    }
    if (Past(Pass::kBackward, action.microbatch, action.layer, Segment::kEnd)) {
      return Fail("recomputation after the layer's backward pass is of no use");
    }
    return absl::OkStatus();
  }

  absl::Status CheckRecompute(const Action& action) {
    LYNX_RETURN_IF_ERROR(CheckRecomputeTime(action));
    OpSet& done = recomputed_[{action.microbatch, action.layer}];
    if ((done & action.ops) != 0) return Fail("an op is recomputed once for each microbatch");
    done |= action.ops;
    for (const Op op : graph_.OpsOf(LayerType::kTransformer, action.segment, Pass::kForward)) {
      if (!Contains(action.ops, op)) continue;
      X1State& state = x1_state(action);
      if (op == Op::kProj) {
        state = X1State::kPartialSum;
      } else if (op == Op::kAdd1) {
        if (state != (collectives() ? X1State::kSum : X1State::kPartialSum)) {
          return Fail("add1 again changes x1, unless proj and its all-reduce have just been recomputed");
        }
        state = X1State::kWhole;
      } else {
        LYNX_RETURN_IF_ERROR(CheckX1IsWhole(action, graph_.InfoOf(op).reads));
      }
    }
    return absl::OkStatus();
  }

  absl::Status CheckX1IsWhole(const Action& action, const std::vector<Tensor>& reads) {
    if (std::find(reads.begin(), reads.end(), Tensor::kX1) == reads.end()) return absl::OkStatus();
    if (x1_state(action) == X1State::kWhole) return absl::OkStatus();
    return Fail("reads x1, whose recomputation is not complete");
  }

  absl::Status CheckBackwardReadsX1(const Action& action) {
    for (const Op op : graph_.OpsOf(LayerTypeOf(action.layer), action.segment, Pass::kBackward)) {
      LYNX_RETURN_IF_ERROR(CheckX1IsWhole(action, graph_.InfoOf(op).backward_reads));
    }
    return absl::OkStatus();
  }

  absl::Status CheckRepeatedCollective(const Action& action) {
    LYNX_RETURN_IF_ERROR(CheckRecomputeTime(action));
    const ActionInfo& info = InfoOf(action.kind);
    if (info.collective == Collective::kAllGather) return absl::OkStatus();  // reads what the fold shows to be there
    const bool start = info.phase == Phase::kStart;
    X1State& state = x1_state(action);
    if (state != (start ? X1State::kPartialSum : X1State::kReducing)) {
      return Fail("a repeated all-reduce follows the recomputation of proj, once");
    }
    state = start ? X1State::kReducing : X1State::kSum;
    return absl::OkStatus();
  }

  absl::Status CheckReduction(const Action& action) {
    const LayerType type = LayerTypeOf(action.layer);
    const std::vector<Segment> segments = graph_.SegmentsOf(type, Pass::kBackward);
    bool done = Past(Pass::kBackward, context_.microbatches - 1, action.layer, segments.back());
    for (const Segment segment : segments) {
      if (graph_.OpsOf(type, segment, Pass::kWeight).empty()) continue;
      done = done && WeightPasses(action.layer, segment) == context_.microbatches;
    }
    if (!done) return Fail("gradients are reduced after the layer's last backward and weight pass");
    if (!reduced_.insert(action.layer).second) return Fail("the layer's gradients are reduced once");
    return absl::OkStatus();
  }

  // Whether `action` is the wait for the transfer that `start` starts.
  static bool IsWaitFor(const Action& action, Action start) {
    start.kind = InfoOf(start.kind).counterpart;
    return action == start;
  }

  // Transfers that one channel carries in order. Each direction between two stages is a channel of its own.
  static std::string ChannelOf(const ActionInfo& info) {
    const bool boundary = info.group == Group::kNextStage || info.group == Group::kPreviousStage;
    return boundary ? std::string(info.letters) : absl::StrCat("group ", static_cast<int>(info.group));
  }

  absl::Status CheckTransfer(const Action& action) {
    const ActionInfo& info = InfoOf(action.kind);
    if (info.phase == Phase::kWhole) return absl::OkStatus();
    std::deque<Action>& pending = pending_[ChannelOf(info)];
    if (info.phase == Phase::kStart) {
      if (info.group == Group::kTensor && !pending.empty()) {
        return Fail(absl::StrCat("starts while ", ActionText(pending.front()),
                                 " is under way; a tensor-parallel group "
                                 "runs one collective at a time"));
      }
      pending.push_back(action);
      return absl::OkStatus();
    }
    if (pending.empty() || !IsWaitFor(action, pending.front())) {
      return Fail(pending.empty()
                      ? "waits for a transfer that has not started"
                      : absl::StrCat("waits out of order: ", ActionText(pending.front()), " started first"));
    }
    pending.pop_front();
    return absl::OkStatus();
  }

  const Program& program_;
  const StageContext& context_;
  const StageSlice& slice_;
  const LayerGraph& graph_;
  const Sequence forward_, backward_;
  size_t at_ = 0;
  // Per microbatch, how many actions of its sequence are done.
  std::vector<size_t> forward_done_, backward_done_;
  std::map<LayerSegment, int32_t> weight_passes_;            // how many microbatches
  std::map<std::pair<int32_t, int32_t>, OpSet> recomputed_;  // by microbatch and layer
  std::map<std::pair<int32_t, int32_t>, X1State> x1_states_;
  std::set<int32_t> reduced_;                          // layers
  std::map<std::string, std::deque<Action>> pending_;  // by channel
  EndState end_ = EndState::kBefore;
};

}  // namespace

absl::Status ValidateProgram(const Program& program, const StageContext& context) {
  LYNX_RETURN_IF_ERROR(CheckContext(context));
  return StageValidator(program, context).Run();
}

absl::Status ValidatePrograms(const std::vector<Program>& programs, const std::vector<StageContext>& contexts) {
  if (programs.empty() || programs.size() != contexts.size()) {
    return absl::FailedPreconditionError(
        absl::StrCat(programs.size(), " programs for ", contexts.size(), " stages: one each is needed"));
  }
  const StageContext& first = contexts.front();
  for (size_t s = 0; s < contexts.size(); ++s) {
    const StageContext& c = contexts[s];
    if (c.pipeline_rank != static_cast<int32_t>(s) || c.slices.size() != 1 || c.model != first.model || c.layout != first.layout ||
        c.micro_batch != first.micro_batch || c.microbatches != first.microbatches ||
        c.layout.pp != static_cast<int32_t>(contexts.size()) ||
        (s > 0 && c.slices[0].first_layer != contexts[s - 1].slices[0].end_layer)) {
      return absl::FailedPreconditionError(absl::StrCat("context ", s, " (stage ", c.pipeline_rank, ", layers [",
                                                        c.slices.empty() ? 0 : c.slices[0].first_layer, ", ",
                                                        c.slices.empty() ? 0 : c.slices[0].end_layer, "), ", LayoutText(c.layout),
                                                        ") does not continue the stages before it"));
    }
    LYNX_RETURN_IF_ERROR(ValidateProgram(programs[s], c));
  }
  // Each stage sends and receives every microbatch once and in order, so neighbours match in number and order.
  return absl::OkStatus();
}

}  // namespace lynx
