// SliceProgress knows what a program must do on one virtual stage, and how much of this is done. Only the validator
// (planner/program/validate.cc) uses it.
//
// Each microbatch has two sequences that no program may change: its forward actions and its backward actions, both with
// the transfers over the rank's border. A neighbouring virtual stage on the same rank needs no transfer. Pure.
#ifndef LYNX_PLANNER_PROGRAM_VALIDATE_SLICE_H_
#define LYNX_PLANNER_PROGRAM_VALIDATE_SLICE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "planner/problem/layer_kinds.h"
#include "planner/problem/stage_context.h"
#include "planner/program/action.h"

namespace lynx {

// The object keeps references to its arguments, which must outlive it.
class SliceProgress {
 public:
  SliceProgress(const StageContext& context, const StageSlice& slice);

  const StageSlice& slice() const { return slice_; }
  // The layers of the slice, with the embedding and the head.
  std::vector<int32_t> Layers() const;
  bool Has(int32_t layer) const;
  // receives(): x comes from another rank. sends(): x goes to another rank.
  bool receives() const { return receives_; }
  bool sends() const { return sends_; }

  // Records the action as the next action of its microbatch's forward or backward sequence. Returns an error if it is not the
  // next action, if a microbatch overtakes a microbatch that began before it, or, in a pipeline with one copy of the model, if
  // microbatches do not begin in order without a gap.
  std::optional<std::string> Advance(Pass pass, const Action& action);
  // Records the action as the next weight pass of its layer and segment.
  std::optional<std::string> AdvanceWeight(const Action& action);

  // Microbatches that have begun on this virtual stage, in the order in which they began.
  const std::vector<int32_t>& begun() const { return begun_; }
  bool HasBegun(int32_t microbatch) const { return place_[static_cast<size_t>(microbatch)] >= 0; }
  // True if the microbatch has run the pass over this segment of the layer.
  bool Past(Pass pass, int32_t microbatch, int32_t layer, Segment segment) const;
  // ForwardComputed: true if the last forward segment of the microbatch on this virtual stage has run. BackwardComputed: the
  // same for the last backward segment. A send of the result may still be in flight.
  bool ForwardComputed(int32_t microbatch) const;
  bool BackwardComputed(int32_t microbatch) const;
  // True if all weight passes of the layer have run for all microbatches that have begun.
  bool WeightsComputed(int32_t layer) const;
  // True if the layer's weight passes have run for the microbatch.
  bool WeightsComputed(int32_t layer, int32_t microbatch) const;

  // Lacking: the next action that the microbatch must still run on this virtual stage. LackingWeight: a weight pass that still
  // must run for a microbatch that has begun.
  std::optional<Action> Lacking(int32_t microbatch) const;
  std::optional<Action> LackingWeight() const;

 private:
  using LayerSegment = std::pair<int32_t, Segment>;
  struct Sequence {
    std::vector<Action> actions;            // the actions' microbatch is not set
    std::map<LayerSegment, size_t> passes;  // for each layer segment, the index of its pass in `actions`
    std::vector<size_t> done;               // for each microbatch, the number of `actions` that have run
  };

  Action OfStage(Action action) const;
  Sequence& Of(Pass pass) { return sequences_[pass == Pass::kForward ? 0 : 1]; }
  const Sequence& Of(Pass pass) const { return sequences_[pass == Pass::kForward ? 0 : 1]; }
  void AddLayer(int32_t layer, Pass pass);
  void AddBoundary(ActionKind start, Pass pass);
  int32_t WeightPasses(int32_t layer, Segment segment) const;
  std::vector<Segment> WeightSegments(int32_t layer) const;

  const StageContext& context_;
  const StageSlice& slice_;
  const LayerKinds kinds_;
  const bool one_pipe_;
  bool receives_ = false, sends_ = false;
  Sequence sequences_[2];  // the index is 0 for forward, 1 for backward
  std::vector<int32_t> begun_;
  std::vector<int32_t> place_;                     // for each microbatch, its index in begun_; -1: the microbatch has not begun
  std::map<LayerSegment, int32_t> weight_passes_;  // number of microbatches that have run the weight pass
};

}  // namespace lynx

#endif  // LYNX_PLANNER_PROGRAM_VALIDATE_SLICE_H_
