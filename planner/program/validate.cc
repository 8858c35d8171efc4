// See validate.h. The validator uses the tables of ops, tensors and action kinds, but it does not use the lowering: it derives
// what it expects of a program only from the rank's context.
//
// Each microbatch has two sequences on each virtual stage that no program may change (planner/program/validate_slice.h). A
// program interleaves these sequences. W, R and the actions at the end of the step are in neither sequence; separate rules say
// where they may stand.
//
// While x1 or x is recomputed, it is incomplete (planner/program/validate_recompute.h). The last check is the fold of the
// memory model, which checks that each tensor is written before it is read.
#include "planner/program/validate.h"

#include <algorithm>
#include <array>
#include <deque>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status.h"
#include "planner/program/memory_model.h"
#include "planner/program/state_sharing.h"
#include "planner/program/validate_context.h"
#include "planner/program/validate_copies.h"
#include "planner/program/validate_recompute.h"
#include "planner/program/validate_slice.h"

namespace lynx {
namespace {

using enum ActionKind;

// How far the end of the step has come.
enum class EndState : uint8_t { kBefore, kNormStarted, kNormDone, kOptimized };

class StageValidator {
 public:
  StageValidator(const Program& program, const StageContext& context)
      : program_(program), context_(context), pipeline_(context.pipeline()), kinds_(context), remade_(context),
        copies_(context) {
    for (const StageSlice& slice : context.slices) slices_.emplace_back(context, slice);
  }

  absl::Status Run() {
    for (; at_ < program_.size(); ++at_) {
      const Action& action = program_[at_];
      LYNX_RETURN_IF_ERROR(CheckFields(action));
      LYNX_RETURN_IF_ERROR(CheckEndOfStep(action));
      LYNX_RETURN_IF_ERROR(CheckOrder(action));
      LYNX_RETURN_IF_ERROR(CheckTransfer(action));
      LYNX_RETURN_IF_ERROR(FailIf(copies_.Follow(action)));
      LYNX_RETURN_IF_ERROR(CheckUnderWay(action));
    }
    if (end_ == EndState::kOptimized) LYNX_RETURN_IF_ERROR(CheckAllGathered());
    if (end_ == EndState::kOptimized) return FoldLiveness(program_, context_).status();
    const absl::Status complete = CheckComplete();
    const ActionKind missing = end_ == EndState::kBefore ? kNormStart : kOptimizer;
    return absl::FailedPreconditionError(
        absl::StrCat("stage ", context_.pipeline_rank, ": the program ends after ", program_.size(), " actions: ",
                     complete.ok() ? absl::StrCat("the step still lacks ", ActionText(OfRank({.kind = missing})))
                                   : std::string(complete.message())));
  }

 private:
  // Returns the action with the rank's first virtual stage as its stage. Actions that concern the whole rank (NORM, OPT) name
  // this stage.
  Action OfRank(Action action) const {
    action.stage = context_.slices.front().stage;
    return action;
  }

  absl::Status Fail(const std::string& rule) const {
    return absl::FailedPreconditionError(absl::StrCat("action ", at_, " (", ActionText(program_[at_]), "): ", rule));
  }
  absl::Status FailIf(const std::optional<std::string>& rule) const { return rule ? Fail(*rule) : absl::OkStatus(); }

  SliceProgress* FindSlice(int32_t stage) {
    const auto found =
        std::find_if(slices_.begin(), slices_.end(), [&](const SliceProgress& slice) { return slice.slice().stage == stage; });
    return found == slices_.end() ? nullptr : &*found;
  }
  // The slice of the action's stage, which must be on the rank.
  SliceProgress& SliceOf(const Action& action) { return *FindSlice(action.stage); }

  // Checks that the action's fields are in range, and that its stage, layer, segment, ops and group exist on this rank.
  absl::Status CheckFields(const Action& action) {
    const ActionInfo& info = InfoOf(action.kind);
    const SliceProgress* slice = FindSlice(action.stage);
    const bool whole_rank = !info.has_microbatch && !info.has_layer;
    if (slice == nullptr || (whole_rank && action.stage != context_.slices.front().stage)) {
      std::vector<int32_t> stages;
      for (const StageSlice& s : context_.slices) stages.push_back(s.stage);
      return Fail(absl::StrCat("the program is of stage", whole_rank || stages.size() == 1 ? " " : "s ",
                               whole_rank ? absl::StrCat(stages.front()) : absl::StrJoin(stages, ", ")));
    }
    const bool microbatch = info.has_microbatch ? action.microbatch >= 0 && action.microbatch < context_.microbatches
                                                : action.microbatch == kNoMicrobatch;
    if (!microbatch) return Fail(absl::StrCat("microbatches are 0 to ", context_.microbatches - 1));
    if (info.has_layer ? !slice->Has(action.layer) : action.layer != kNoLayer) {
      return Fail(absl::StrCat("the layer is not on this stage, which has layers ", slice->slice().first_layer, " to ",
                               slice->slice().top_layer()));
    }
    if (!info.has_segment && action.segment != Segment::kNone) return Fail("the kind has no segment");
    if (info.operands != Operands::kOps && action.ops != 0) return Fail("the kind has no ops");
    if ((info.operands == Operands::kTensors) != (action.tensors != 0)) return Fail("copies, and only they, name tensors");
    if (info.has_segment) LYNX_RETURN_IF_ERROR(CheckSegment(action));
    return CheckGroup(action, *slice);
  }

  absl::Status CheckSegment(const Action& action) const {
    const LayerType type = LayerTypeOf(action.layer);
    const ActionInfo& info = InfoOf(action.kind);
    const LayerGraph& graph = kinds_.GraphOf(action.layer);
    const std::vector<Segment> segments = graph.SegmentsOf(type, info.segment_pass());
    if (std::find(segments.begin(), segments.end(), action.segment) == segments.end()) {
      return Fail(absl::StrCat("the ", EnumName(type), " layer has no such segment in this pass"));
    }
    if (action.kind == kWeight && graph.OpsOf(type, action.segment, Pass::kWeight).empty()) {
      return Fail("the segment has no weight pass");
    }
    if (action.kind == kRecompute) return FailIf(remade_.CheckOps(action));
    if (info.group != Group::kTensor && info.group != Group::kExpert) return absl::OkStatus();
    const CollectiveInfo& collective = graph.CollectiveOf(type, action.segment, info.segment_pass());
    if (collective.kind != info.collective || (info.part == StepPart::kRecompute && !remade_.MayRepeat(action))) {
      return Fail("no such collective ends this segment");
    }
    return absl::OkStatus();
  }

  absl::Status CheckGroup(const Action& action, const SliceProgress& slice) const {
    switch (InfoOf(action.kind).group) {
      case Group::kTensor:
        return context_.layout.tp > 1 ? absl::OkStatus() : Fail("there is no tensor-parallel group with tp 1");
      case Group::kExpert: return kinds_.shape().ep > 1 ? absl::OkStatus() : Fail("there is no expert group with ep 1");
      case Group::kExpertData:
        if (!context_.model.HasExpertsIn(action.layer)) return Fail("the layer has no experts");
        return HasExpertReplicas(context_) ? absl::OkStatus() : Fail("no other rank holds the same experts");
      case Group::kNextStage:
        if (slice.slice().has_head) return Fail("the last stage has no next stage");
        return slice.sends() ? absl::OkStatus() : Fail("the next stage is on this rank: nothing is sent");
      case Group::kPreviousStage:
        if (slice.slice().has_embedding) return Fail("the first stage has no previous stage");
        return slice.receives() ? absl::OkStatus() : Fail("the previous stage is on this rank: nothing is sent");
      case Group::kData:
        return context_.gradient_ranks() > 1 ? absl::OkStatus() : Fail("there is no data-parallel group with dp 1");
      case Group::kNone:
      case Group::kWorld:
      case Group::kHost: break;
    }
    return absl::OkStatus();
  }

  // With ZeRO-1 and ZeRO-2, all ranks gather updated weights after the optimizer. With ZeRO-3, weights are gathered before the
  // passes that read them, so no gather may follow NORM+.
  absl::Status CheckWeightGather(const Action& action) {
    if (SharesWeights(context_)) {
      return end_ == EndState::kBefore ? absl::OkStatus() : Fail("only NORM- and OPT may follow NORM+");
    }
    if (!GathersUpdatedWeights(context_)) return Fail("no rank lacks weights without ZeRO");
    if (end_ != EndState::kOptimized) return Fail("updated weights are gathered after OPT");
    if (action.kind == kWeightGatherStart && !gathered_.insert(action.layer).second) {
      return Fail("the layer's updated weights are gathered once");
    }
    return absl::OkStatus();
  }

  absl::Status CheckExpertGather(const Action& action) {
    if (ExpertShares(context_) == 1) return Fail("no rank lacks weights of experts without ZeRO");
    if (end_ != EndState::kOptimized) return Fail("updated weights are gathered after OPT");
    if (action.kind == kExpertGatherStart && !gathered_experts_.insert(action.layer).second) {
      return Fail("the updated weights of the layer's experts are gathered once");
    }
    return absl::OkStatus();
  }

  absl::Status CheckAllGathered() const {
    for (const SliceProgress& slice : slices_) {
      for (const int32_t layer : slice.Layers()) {
        const int32_t stage = slice.slice().stage;
        if (GathersUpdatedWeights(context_) && !gathered_.contains(layer)) {
          return Lacks({.kind = kWeightGatherStart, .stage = stage, .layer = layer});
        }
        if (context_.model.HasExpertsIn(layer) && ExpertShares(context_) > 1 && !gathered_experts_.contains(layer)) {
          return Lacks({.kind = kExpertGatherStart, .stage = stage, .layer = layer});
        }
      }
    }
    return CheckNothingPending();
  }

  static absl::Status Lacks(const Action& action) {
    return absl::FailedPreconditionError(absl::StrCat("the step still lacks ", ActionText(action)));
  }

  // Checks that each of NORM+, NORM- and OPT comes once, and that they come in this order. Only gathers of updated weights may
  // follow OPT.
  absl::Status CheckEndOfStep(const Action& action) {
    if (action.kind == kWeightGatherStart || action.kind == kWeightGatherWait) return CheckWeightGather(action);
    if (action.kind == kExpertGatherStart || action.kind == kExpertGatherWait) return CheckExpertGather(action);
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

  // Checks that all microbatches, weight passes, reductions and transfers are done.
  absl::Status CheckComplete() const {
    for (int32_t k = 0; k < context_.microbatches; ++k) {
      // If there are two copies of the model, a microbatch must pass completely through the copy in which it has begun.
      const auto begun =
          std::find_if(slices_.begin(), slices_.end(), [&](const SliceProgress& slice) { return slice.HasBegun(k); });
      const int32_t pipe = begun == slices_.end() ? 0 : pipeline_.PipeOf(begun->slice().stage);
      for (const SliceProgress& slice : slices_) {
        if (pipeline_.PipeOf(slice.slice().stage) != pipe) continue;
        if (const std::optional<Action> action = slice.Lacking(k)) return Lacks(*action);
      }
    }
    for (const SliceProgress& slice : slices_) {
      if (const std::optional<Action> action = slice.LackingWeight()) return Lacks(*action);
      for (const int32_t layer : slice.Layers()) {
        if (context_.model.HasExpertsIn(layer) && HasExpertReplicas(context_) && !reduced_experts_.contains(layer)) {
          return Lacks({.kind = kExpertReduceStart, .stage = slice.slice().stage, .layer = layer});
        }
        if (context_.gradient_ranks() == 1) continue;
        const bool reduced =
            ReducesEachMicrobatch(context_) ? Reductions(layer) == slice.begun().size() : reduced_.contains(layer);
        if (!reduced) return Lacks({.kind = kDataReduceStart, .stage = slice.slice().stage, .layer = layer});
      }
    }
    if (const auto missing = copies_.AtEnd()) return absl::FailedPreconditionError(*missing);
    return CheckNothingPending();
  }

  absl::Status CheckNothingPending() const {
    for (const auto& [channel, starts] : pending_) {
      if (starts.empty()) continue;
      Action wait = starts.front();
      wait.kind = InfoOf(wait.kind).counterpart;
      return Lacks(wait);
    }
    return absl::OkStatus();
  }

  // Number of reductions of a layer's gradients so far. Used only if the gradients are reduced after every microbatch.
  size_t Reductions(int32_t layer) const {
    const auto it = reductions_.find(layer);
    return it == reductions_.end() ? 0 : it->second;
  }

  absl::Status CheckOrder(const Action& action) {
    const ActionInfo& info = InfoOf(action.kind);
    const bool collective = info.group == Group::kTensor || info.group == Group::kExpert;
    if (collective && info.part == StepPart::kRecompute) {
      LYNX_RETURN_IF_ERROR(CheckRecomputeTime(action));
      return FailIf(remade_.RepeatCollective(action));
    }
    if (collective || info.group == Group::kNextStage || info.group == Group::kPreviousStage) {
      return Advance(action, info.segment_pass());
    }
    switch (action.kind) {
      case kForward:
        LYNX_RETURN_IF_ERROR(CheckHandedOn(action, pipeline_.Previous(action.stage), Pass::kForward));
        return Advance(action, Pass::kForward);
      case kBackward:
        if (!SliceOf(action).ForwardComputed(action.microbatch)) {
          return Fail("the microbatch's backward pass begins before its forward pass has ended");
        }
        LYNX_RETURN_IF_ERROR(CheckHandedOn(action, pipeline_.Next(action.stage), Pass::kBackward));
        LYNX_RETURN_IF_ERROR(CheckNotReduced(action));
        LYNX_RETURN_IF_ERROR(FailIf(remade_.Backward(action)));
        return Advance(action, Pass::kBackward);
      case kWeight: LYNX_RETURN_IF_ERROR(CheckNotReduced(action)); return FailIf(SliceOf(action).AdvanceWeight(action));
      case kRecompute: LYNX_RETURN_IF_ERROR(CheckRecomputeTime(action)); return FailIf(remade_.Recompute(action));
      case kDataReduceStart: return CheckReduction(action);
      case kExpertReduceStart:
        if (!AllAdded(action.layer, SliceOf(action)))
          return Fail("gradients are reduced after the layer's last backward and weight pass");
        return reduced_experts_.insert(action.layer).second ? absl::OkStatus()
                                                            : Fail("the gradients of the layer's experts are reduced once");
      default: return absl::OkStatus();
    }
  }

  // Checks the next action of a microbatch's sequence. The microbatch must not be in the other copy of the model.
  absl::Status Advance(const Action& action, Pass pass) {
    for (const SliceProgress& other : slices_) {
      if (pipeline_.PipeOf(other.slice().stage) != pipeline_.PipeOf(action.stage) && other.HasBegun(action.microbatch)) {
        return Fail(absl::StrCat("microbatch ", action.microbatch, " goes through the other copy of the model, by stage ",
                                 other.slice().stage));
      }
    }
    return FailIf(SliceOf(action).Advance(pass, action));
  }

  // If the neighbour stage is on the same rank, checks that it has finished its pass of the microbatch.
  absl::Status CheckHandedOn(const Action& action, int32_t neighbour, Pass pass) {
    const SliceProgress* from = neighbour == kNoStage ? nullptr : FindSlice(neighbour);
    if (from == nullptr) return absl::OkStatus();
    const bool forward = pass == Pass::kForward;
    if (forward ? from->ForwardComputed(action.microbatch) : from->BackwardComputed(action.microbatch)) {
      return absl::OkStatus();
    }
    return Fail(absl::StrCat("begins before stage ", neighbour, ", on the same rank, has ended its ",
                             forward ? "forward" : "backward", " pass of the microbatch"));
  }

  // Checks that the gradients to which the action adds have not been reduced yet. Other rules exclude most such actions, with
  // two exceptions: the head adds to a tied embedding, and with two copies of the model it is not known in advance how many
  // microbatches pass through each copy.
  absl::Status CheckNotReduced(const Action& action) const {
    if (reduced_.contains(action.layer) || reduced_experts_.contains(action.layer)) {
      return Fail("the layer's gradients have been reduced already");
    }
    const bool adds_to_embedding = action.layer == kHeadLayer && HoldsTiedEmbedding(context_);
    if (!adds_to_embedding || !reduced_.contains(kEmbeddingLayer)) return absl::OkStatus();
    return Fail("the gradients of the tied embedding have been reduced already");
  }

  absl::Status CheckRecomputeTime(const Action& action) {
    const SliceProgress& slice = SliceOf(action);
    if (!slice.Past(Pass::kForward, action.microbatch, action.layer, Segment::kEnd)) {
      return Fail("recomputation follows the layer's forward pass");
    }
    if (!slice.Past(Pass::kBackward, action.microbatch, action.layer, Segment::kEnd)) return absl::OkStatus();
    // Exception: a weight gradient may read tensors of which each rank holds only a share. These tensors are gathered again
    // before it.
    const bool gather = InfoOf(action.kind).collective == Collective::kAllGather;
    if (gather && !slice.WeightsComputed(action.layer, action.microbatch)) return absl::OkStatus();
    return Fail("recomputation after the layer's backward pass is of no use");
  }

  Segment LastSegment(int32_t layer) const {
    return kinds_.GraphOf(layer).SegmentsOf(LayerTypeOf(layer), Pass::kBackward).back();
  }

  // True if the backward and weight passes of all microbatches have added to the layer's gradients.
  bool AllAdded(int32_t layer, const SliceProgress& slice) const {
    bool done = slice.WeightsComputed(layer);
    if (pipeline_.pipes() == 1) done = done && static_cast<int64_t>(slice.begun().size()) == context_.microbatches;
    for (const int32_t k : slice.begun()) done = done && slice.Past(Pass::kBackward, k, layer, LastSegment(layer));
    return done;
  }

  absl::Status CheckReduction(const Action& action) {
    const SliceProgress& slice = SliceOf(action);
    if (ReducesEachMicrobatch(context_)) return CheckMicrobatchReduction(action, slice, LastSegment(action.layer));
    if (!AllAdded(action.layer, slice)) return Fail("gradients are reduced after the layer's last backward and weight pass");
    if (!reduced_.insert(action.layer).second) return Fail("the layer's gradients are reduced once");
    return absl::OkStatus();
  }

  // Checks a reduction of the gradients that were added since the previous reduction. There is one reduction for each
  // microbatch.
  absl::Status CheckMicrobatchReduction(const Action& action, const SliceProgress& slice, Segment last) {
    size_t& reductions = reductions_[action.layer];
    if (static_cast<int64_t>(reductions) == context_.microbatches) {
      return Fail("the layer's gradients are reduced once for each microbatch");
    }
    const bool begun = reductions < slice.begun().size();
    const int32_t next = begun ? slice.begun()[reductions] : static_cast<int32_t>(reductions);
    if (!begun || !slice.Past(Pass::kBackward, next, action.layer, last) || !slice.WeightsComputed(action.layer, next)) {
      return Fail(absl::StrCat("gradients are reduced after the layer's backward and weight pass of microbatch ", next));
    }
    ++reductions;
    return absl::OkStatus();
  }

  // True if `action` is the wait for the transfer that `start` starts.
  static bool IsWaitFor(const Action& action, Action start) {
    start.kind = InfoOf(start.kind).counterpart;
    return action == start;
  }

  // Returns the channel that carries a transfer. Transfers of one channel run in order. Each direction between two virtual
  // stages is a channel, and so is each direction between the device and its host.
  static std::string ChannelOf(const Action& action) {
    const ActionInfo& info = InfoOf(action.kind);
    const bool boundary = info.group == Group::kNextStage || info.group == Group::kPreviousStage;
    if (info.group == Group::kHost) return std::string(info.letters);
    return boundary ? absl::StrCat(action.stage, std::string(info.letters))
                    : absl::StrCat("group ", static_cast<int>(info.group));
  }

  absl::Status CheckTransfer(const Action& action) {
    const ActionInfo& info = InfoOf(action.kind);
    if (info.phase == Phase::kWhole) return absl::OkStatus();
    std::deque<Action>& pending = pending_[ChannelOf(action)];
    if (info.phase == Phase::kStart) {
      pending.push_back(action);
      return absl::OkStatus();
    }
    // A tensor-parallel or expert group runs its collectives in the order of their starts, but passes that run side by side may
    // wait for them in another order.
    const bool any_order = info.group == Group::kTensor || info.group == Group::kExpert;
    const auto own =
        any_order ? std::find_if(pending.begin(), pending.end(), [&](const Action& start) { return IsWaitFor(action, start); })
                  : pending.begin();
    if (own == pending.end()) return Fail("waits for a transfer that has not started");
    if (!IsWaitFor(action, *own)) return Fail(absl::StrCat("waits out of order: ", ActionText(*own), " started first"));
    pending.erase(own);
    return absl::OkStatus();
  }

  // Checks that the action does not touch what a transfer in flight writes, and does not change what such a transfer reads.
  absl::Status CheckUnderWay(const Action& action) {
    const std::vector<Access> accesses = AccessesOf(action, context_);
    if (InfoOf(action.kind).phase == Phase::kWait) {
      under_way_.remove_if([&](const UnderWay& transfer) { return IsWaitFor(action, transfer.start); });
    }
    for (const UnderWay& transfer : under_way_) {
      for (const Access& held : transfer.accesses) {
        for (const Access& access : accesses) {
          if (access.key != held.key || (access.mode == AccessMode::kRead && held.mode == AccessMode::kRead)) continue;
          return Fail(absl::StrCat("touches ", BufferKeyText(held.key), ", while ", ActionText(transfer.start),
                                   held.mode == AccessMode::kRead ? " reads it" : " writes it"));
        }
      }
    }
    if (InfoOf(action.kind).phase == Phase::kStart && !accesses.empty()) under_way_.push_back({action, accesses});
    return absl::OkStatus();
  }

  struct UnderWay {
    Action start;
    std::vector<Access> accesses;
  };

  const Program& program_;
  const StageContext& context_;
  const PipelineShape pipeline_;
  const LayerKinds kinds_;
  RecomputeRules remade_;
  CopyRules copies_;
  std::deque<SliceProgress> slices_;  // the index is the chunk
  size_t at_ = 0;
  std::set<int32_t> reduced_;                             // layers whose gradients have been reduced
  std::set<int32_t> reduced_experts_, gathered_experts_;  // layers whose experts were reduced or gathered
  // number of reductions for each layer, if gradients are reduced after each microbatch
  std::map<int32_t, size_t> reductions_;
  std::set<int32_t> gathered_;                         // layers whose weights have been gathered after the optimizer
  std::map<std::string, std::deque<Action>> pending_;  // for each channel, the transfers that have started and not been waited
                                                       // for
  std::list<UnderWay> under_way_;
  EndState end_ = EndState::kBefore;
};

}  // namespace

absl::Status ValidateProgram(const Program& program, const StageContext& context) {
  LYNX_RETURN_IF_ERROR(CheckContext(context));
  return StageValidator(program, context).Run();
}

}  // namespace lynx
