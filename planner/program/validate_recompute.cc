// See validate_recompute.h.
#include "planner/program/validate_recompute.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace lynx {

bool RecomputeRules::MakesInput(const Action& action) const {
  const StageSlice* slice = context_.FindSlice(action.stage);
  return LayerTypeOf(action.layer) == LayerType::kTransformer && slice != nullptr && action.layer < slice->top_layer();
}

RecomputeRules::Broken RecomputeRules::CheckOps(const Action& action) const {
  const LayerGraph& graph = kinds_.GraphOf(action.layer);
  OpSet allowed = MakesInput(action) ? Bit(Op::kFc2) | Bit(Op::kSharedFc2) | Bit(Op::kUnpermute) | Bit(Op::kAdd2) : 0;
  for (const Tensor tensor : graph.recomputable()) {
    for (const Op op : graph.ProducersOf(tensor)) allowed |= Bit(op);
  }
  OpSet of_segment = 0;
  for (const Op op : graph.OpsOf(LayerType::kTransformer, action.segment, Pass::kForward)) of_segment |= Bit(op);
  const bool transformer = LayerTypeOf(action.layer) == LayerType::kTransformer;
  if (transformer && action.ops != 0 && (action.ops & ~(allowed & of_segment)) == 0) return std::nullopt;
  return "only the producers of recomputable tensors in this segment can be recomputed";
}

bool RecomputeRules::MayRepeat(const Action& action) const {
  const LayerType type = LayerTypeOf(action.layer);
  const CollectiveInfo& collective = kinds_.GraphOf(action.layer).CollectiveOf(type, action.segment, Pass::kForward);
  const bool gathers_shares = collective.kind == Collective::kAllGather && collective.from != collective.to;
  if (gathers_shares) return true;
  const bool dispatch = action.segment == Segment::kNorm2 && collective.kind == Collective::kAllToAll;
  return type == LayerType::kTransformer &&
         (dispatch || action.segment == Segment::kAttn || (action.segment == Segment::kMlp && MakesInput(action)));
}

BufferKey RecomputeRules::KeyOf(const Action& action, Tensor tensor) const {
  return {tensor, tensor == Tensor::kX ? action.layer + 1 : action.layer, action.microbatch};
}

RecomputeRules::Sum RecomputeRules::StateOf(const BufferKey& key) const {
  const auto it = sums_.find(key);
  return it == sums_.end() ? Sum::kWhole : it->second;
}

RecomputeRules::Broken RecomputeRules::Recompute(const Action& action) {
  OpSet& done = recomputed_[{action.microbatch, action.layer}];
  if ((done & action.ops) != 0) return "an op is recomputed once for each microbatch";
  done |= action.ops;
  const LayerGraph& graph = kinds_.GraphOf(action.layer);
  for (const Op op : graph.OpsOf(LayerType::kTransformer, action.segment, Pass::kForward)) {
    if (!Contains(action.ops, op)) continue;
    Broken broken;
    switch (op) {
      case Op::kProj: sums_[KeyOf(action, Tensor::kX1)] = Sum::kPartial; break;
      case Op::kFc2:
        if (!graph.Has(Op::kUnpermute)) sums_[KeyOf(action, Tensor::kX)] = Sum::kPartial;
        break;
      case Op::kUnpermute: sums_[KeyOf(action, Tensor::kX)] = Sum::kPartial; break;
      case Op::kAdd1: broken = Grow(action, Tensor::kX1, Op::kProj, true); break;
      case Op::kAdd2: broken = Grow(action, Tensor::kX, graph.Has(Op::kUnpermute) ? Op::kUnpermute : Op::kFc2, true); break;
      default: break;
    }
    if (!broken) broken = CheckWhole(action, graph.InfoOf(op).reads);
    if (broken) return broken;
  }
  return std::nullopt;
}

// Checks and records the next step of a sum. If `last`, the step is the addition that completes the tensor; otherwise it is the
// start or the wait of the collective.
RecomputeRules::Broken RecomputeRules::Grow(const Action& action, Tensor tensor, Op first, bool last) {
  Sum& state = sums_[KeyOf(action, tensor)];
  if (last) {
    const bool reduced = context_.layout.tp > 1 && first != Op::kUnpermute;  // unpermute has the whole rows of each token
    if (state != (reduced ? Sum::kComplete : Sum::kPartial)) {
      return absl::StrCat(tensor == Tensor::kX1 ? "add1" : "add2", " again changes ", EnumName(tensor), ", unless ",
                          EnumName(first), reduced || first != Op::kUnpermute ? " and its all-reduce have" : " has",
                          " just been recomputed");
    }
    state = Sum::kWhole;
    return std::nullopt;
  }
  const bool start = InfoOf(action.kind).phase == Phase::kStart;
  if (state != (start ? Sum::kPartial : Sum::kReducing)) {
    return absl::StrCat("a repeated all-reduce follows the recomputation of ", EnumName(first), ", once");
  }
  state = start ? Sum::kReducing : Sum::kComplete;
  return std::nullopt;
}

RecomputeRules::Broken RecomputeRules::RepeatCollective(const Action& action) {
  const Collective kind = InfoOf(action.kind).collective;
  // If a tensor is missing, the fold of the memory model finds it.
  if (kind == Collective::kAllGather || kind == Collective::kAllToAll) return std::nullopt;
  return action.segment == Segment::kMlp ? Grow(action, Tensor::kX, Op::kFc2, false)
                                         : Grow(action, Tensor::kX1, Op::kProj, false);
}

RecomputeRules::Broken RecomputeRules::Backward(const Action& action) const {
  const LayerGraph& graph = kinds_.GraphOf(action.layer);
  for (const Op op : graph.OpsOf(LayerTypeOf(action.layer), action.segment, Pass::kBackward)) {
    if (Broken broken = CheckWhole(action, graph.InfoOf(op).backward_reads)) return broken;
  }
  return std::nullopt;
}

RecomputeRules::Broken RecomputeRules::CheckWhole(const Action& action, const std::vector<Tensor>& reads) const {
  for (const Tensor tensor : reads) {
    if (tensor != Tensor::kX && tensor != Tensor::kX1) continue;
    if (StateOf({tensor, action.layer, action.microbatch}) == Sum::kWhole) continue;
    return absl::StrCat("reads ", EnumName(tensor), ", whose recomputation is not complete");
  }
  return std::nullopt;
}

}  // namespace lynx
