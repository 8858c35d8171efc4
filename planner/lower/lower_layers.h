// Makes the actions with which one virtual stage passes through its layers: segments with their collectives, recomputation,
// weight gradients, and the reduction of gradients. planner/lower/lower.cc adds the transfers at the begin and end of a slot.
//
// Weight gradients. If the schedule does not split weight gradients off, they run in backward slots. There they are the first
// work in the window of the collective that ends their segment. If the schedule splits them off, a backward slot contains only
// input gradients, and what the weight gradients read is held until the weight slot (docs/memory-model.md). With sequence
// parallelism, weight gradients read tensors that are gathered from the ranks' shares. In a backward slot, this gather runs
// during the input gradient; in a weight slot, it runs during the weight gradients of the previous segment.
#ifndef LYNX_PLANNER_LOWER_LOWER_LAYERS_H_
#define LYNX_PLANNER_LOWER_LOWER_LAYERS_H_

#include <array>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "planner/lower/lower_recompute.h"
#include "planner/problem/layer_kinds.h"
#include "planner/problem/stage_context.h"
#include "planner/program/action.h"
#include "planner/recompute/recompute_policy.h"

namespace lynx {

// Appends actions to a program that all slices of a rank share. The object keeps references to its arguments, which must
// outlive it.
class SliceLowering {
 public:
  // `stall`: true if the slice's gradient comes from another rank. Then recomputation can be placed before the wait for the
  // gradient.
  SliceLowering(const StageContext& context, const StageSlice& slice, const StagePolicy& policy, bool stall, Program& program);

  // The backward that follows a forward slot on its rank and recomputes in the windows of this forward. Layer i of the
  // backward's slice uses the windows of layer i of the forward's slice, if the forward's slice has this layer. slice ==
  // nullptr: there is no such backward.
  struct Guest {
    const SliceLowering* slice = nullptr;
    int32_t microbatch = kNoMicrobatch;
  };
  // Forward emits the embedding and the transformer layers; ForwardHead emits the head.
  void Forward(int32_t microbatch, const Guest& guest);
  void ForwardHead(int32_t microbatch);

  // Describes a backward slot. `hosts`: number of layers of the previous forward in whose windows this backward has recomputed
  // (0: there was no such forward). `last`: the microbatch is the last one of the slice, so its pass completes the gradients.
  struct BackwardSlot {
    int32_t microbatch = kNoMicrobatch;
    int32_t hosts = 0;
    bool last = false;
  };
  // Emits everything that comes before the backward of the top transformer layer. On the slice with the head this is the
  // head's backward and the recomputation that the top layer needs first. On other slices it is the recomputation before the
  // gradient comes; the caller adds the wait for the gradient.
  void BackwardTop(const BackwardSlot& slot);
  // Emits the backward of the transformer layers, then of the embedding. Calls `before_bottom` at the point where most of the
  // slot's memory is free again.
  void Backward(const BackwardSlot& slot, const std::function<void()>& before_bottom);
  // Emits a weight slot. Only schedules that split weight gradients off have such slots.
  void Weight(int32_t microbatch, bool last);

  // Called after the last slot of the rank. If the head on this rank also adds to the gradients of the slice's tied embedding,
  // this function reduces these gradients.
  void ReduceTiedEmbedding();

  const StageSlice& slice() const { return slice_; }

 private:
  int32_t Position(int32_t layer) const { return layer - slice_.first_layer; }
  void Emit(Action action) const;
  void EmitAll(const Program& actions) const;
  void Run(ActionKind kind, int32_t microbatch, int32_t layer, Segment segment) const;
  ActionKind StartOf(int32_t layer, Segment segment, Pass pass) const;
  bool HasTransfer(int32_t layer, Segment segment, Pass pass) const;

  OpSet OpsAt(int32_t layer, RecomputePoint point, int32_t hosts) const;
  OpSet RecomputedOps(int32_t layer, int32_t hosts) const;
  std::vector<Tensor> GatheredReads(int32_t layer, OpSet ops) const;
  OpSet WeightOps(int32_t layer, Segment segment) const;
  void AppendRepeated(Program& actions, int32_t microbatch, int32_t layer, Segment segment) const;
  Program Recompute(int32_t microbatch, int32_t layer, OpSet ops) const;
  void EmitRecompute(const BackwardSlot& slot, int32_t layer, RecomputePoint point) const;
  // Emits the recomputation in the window with number `window` of the layer at `position` of the forward.
  void EmitInForwardWindow(int32_t microbatch, int32_t position, int window, int32_t hosts) const;

  void ForwardLayer(int32_t microbatch, int32_t layer, const Guest& guest) const;
  void RunBackward(int32_t microbatch, int32_t layer, Segment segment, OpSet recomputed) const;
  void BackwardHead(const BackwardSlot& slot, const Program& top);
  void BackwardLayer(const BackwardSlot& slot, int32_t layer, const std::function<void()>& before_bottom);
  void BackwardEmbedding(const BackwardSlot& slot);
  void Reduce(int32_t layer);

  const StageContext& context_;
  const StageSlice& slice_;
  const LayerKinds kinds_;
  const bool splits_weight_;
  Program& program_;
  // Facts about a kind of layers that the lowering needs.
  struct KindOps {
    explicit KindOps(const LayerGraph& graph);
    std::vector<std::pair<Tensor, OpSet>> gathered;      // each gathered tensor with the ops that read it
    std::vector<std::pair<Segment, OpSet>> forward_ops;  // for each segment, the ops of a transformer layer
  };
  const KindOps& OpsOfKind(int32_t layer) const { return ops_[kinds_.IsDense(layer)]; }
  // The situation that decides at which points a layer recomputes, without RecomputeSituation::paired_forward.
  RecomputeSituation SituationOf(int32_t layer, bool stall) const;

  const std::array<KindOps, 2> ops_;                    // the index is LayerKinds::IsDense
  std::array<std::vector<RecomputeOps>, 2> recompute_;  // the indices are whether there is a paired forward, and layer -
                                                        // first_layer
};

}  // namespace lynx

#endif  // LYNX_PLANNER_LOWER_LOWER_LAYERS_H_
