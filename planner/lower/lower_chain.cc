// See lower_chain.h.
#include "planner/lower/lower_chain.h"

#include <map>
#include <set>
#include <utility>

#include "common/check.h"
#include "planner/problem/layer_kinds.h"
#include "planner/problem/layout_schedule.h"

namespace lynx {
namespace {

using enum ActionKind;

// The layers [first, top], of which only the first layer's input is stored.
struct Chain {
  int32_t stage = 0;  // number of the virtual stage
  int32_t first = 0, top = 0;
};

bool MakesAgain(const Action& action) { return InfoOf(action.kind).part == StepPart::kRecompute; }

std::vector<Chain> ChainsOf(const StageSlice& slice, const StagePolicy& policy) {
  std::vector<Chain> chains;
  LYNX_CHECK(!policy.InputRecomputed(0));
  for (size_t i = 1; i < policy.layers.size(); ++i) {
    if (!policy.InputRecomputed(i)) continue;
    const int32_t layer = slice.first_layer + static_cast<int32_t>(i);
    if (chains.empty() || chains.back().top + 1 != layer) chains.push_back({slice.stage, layer - 1, layer - 1});
    chains.back().top = layer;
  }
  return chains;
}

class ChainLowering {
 public:
  ChainLowering(const Program& program, const StageContext& context, const std::vector<StagePolicy>& policies)
      : program_(program), context_(context), kinds_(context) {
    for (size_t s = 0; s < policies.size(); ++s) {
      for (const Chain& chain : ChainsOf(context.slices[s], policies[s])) {
        for (int32_t layer = chain.first; layer <= chain.top; ++layer) chain_of_[layer] = chains_.size();
        chains_.push_back(chain);
      }
    }
  }

  Program Lower() && {
    if (chains_.empty()) return program_;
    for (size_t i = 0; i < program_.size(); ++i) Look(i);
    for (size_t i = 0; i < program_.size(); ++i) {
      if (targets_.contains(i)) EmitChain(i);
      if (!taken_.contains(i)) EmitWithGather(program_[i]);
    }
    return std::move(result_);
  }

 private:
  // How far one chain has come for one microbatch.
  struct Remade {
    std::map<int32_t, Program> made;  // for each layer, the recomputation actions that move into the chain
    bool top_seen = false;            // true once the top layer's recomputation or backward has been seen
    // true if the top layer's recomputation begins in a collective's window; then it also moves into the chain
    bool top_moves = false;
    bool top_started = false;  // true once the top layer's backward has started
  };

  const Chain* ChainOf(const Action& action) const {
    const auto it = chain_of_.find(action.layer);
    return it == chain_of_.end() || action.microbatch == kNoMicrobatch ? nullptr : &chains_[it->second];
  }

  Remade& RemadeOf(const Action& action) { return passes_[{chain_of_.at(action.layer), action.microbatch}]; }

  void Look(size_t at) {
    const Action& action = program_[at];
    const ActionInfo& info = InfoOf(action.kind);
    if (const Chain* chain = ChainOf(action)) {
      Remade& pass = RemadeOf(action);
      const bool again = MakesAgain(action) && !IsForWeights(at) && !ended_.contains({action.layer, action.microbatch});
      if (action.layer == chain->top) {
        LookAtTop(at, again, pass);
      } else if (again) {
        Take(at, pass);
      }
    }
    if (action.kind == kBackward && action.segment == Segment::kEnd) ended_.insert({action.layer, action.microbatch});
    if (info.of_segment()) open_ = info.phase == Phase::kStart;
  }

  void LookAtTop(size_t at, bool again, Remade& pass) {
    const bool starts = program_[at].kind == kBackward && !pass.top_started;
    if (!pass.top_seen && (again || starts)) {
      pass.top_seen = true;
      pass.top_moves = again && open_;
      if (!pass.top_moves) targets_.insert(at);
    }
    if (starts && pass.top_moves) targets_.insert(at);
    pass.top_started = pass.top_started || starts;
    if (again && pass.top_moves && !pass.top_started) Take(at, pass);
  }

  void Take(size_t at, Remade& pass) {
    pass.made[program_[at].layer].push_back(program_[at]);
    taken_.insert(at);
  }

  // True for a gather during an input gradient: a weight gradient needs this gather.
  bool IsForWeights(size_t at) const {
    const ActionInfo& info = InfoOf(program_[at].kind);
    if (info.collective != Collective::kAllGather) return false;
    const size_t other = info.phase == Phase::kStart ? at + 1 : at - 1;
    return other < program_.size() && program_[other].kind == kBackward;
  }

  void EmitChain(size_t at) {
    const Chain& chain = *ChainOf(program_[at]);
    const Remade& pass = RemadeOf(program_[at]);
    for (int32_t layer = chain.first; layer <= chain.top; ++layer) {
      if (const auto made = pass.made.find(layer); made != pass.made.end()) {
        result_.insert(result_.end(), made->second.begin(), made->second.end());
      }
      if (layer < chain.top) EmitOutput(chain.stage, program_[at].microbatch, layer);
    }
  }

  // Emits the recomputation of the next layer's input, which comes after all other recomputation of `layer`.
  void EmitOutput(int32_t stage, int32_t microbatch, int32_t layer) {
    const LayerGraph& graph = kinds_.GraphOf(layer);
    Action action{.kind = kRecompute,
                  .segment = Segment::kMlp,
                  .stage = stage,
                  .microbatch = microbatch,
                  .layer = layer,
                  .ops = Bit(Op::kFc2) | (graph.Has(Op::kSharedFc2) ? Bit(Op::kSharedFc2) : 0)};
    result_.push_back(action);
    if (Transfers(kinds_.ShapeOf(layer), LayerType::kTransformer, Segment::kMlp, Pass::kForward)) {
      const Collective kind = graph.CollectiveOf(LayerType::kTransformer, Segment::kMlp, Pass::kForward).kind;
      Action collective = action;
      collective.ops = 0;
      collective.kind = RepeatedCollectiveStart(kind);
      result_.push_back(collective);
      collective.kind = InfoOf(collective.kind).counterpart;
      result_.push_back(collective);
    }
    action.segment = Segment::kEnd;
    action.ops = Bit(Op::kAdd2) | (graph.Has(Op::kUnpermute) ? Bit(Op::kUnpermute) : 0);
    result_.push_back(action);
  }

  // Emits an action that does not move into a chain. In a layer below the chain's top, the recomputation has moved away,
  // together with its all-gather. But the weight gradient that follows needs the gathered tensor. So the gather runs again
  // during the layer's input gradient: its start is emitted before the action, and its wait after the action.
  void EmitWithGather(const Action& action) {
    const Chain* chain = ChainOf(action);
    const Program* made = nullptr;
    // Weight gradients in slots of their own have their own gathers.
    const bool weights_follow = action.kind == kBackward && !SplitsWeight(context_.layout);
    if (chain != nullptr && action.layer < chain->top && weights_follow) made = &RemadeOf(action).made[action.layer];
    Program gather;
    for (size_t i = 0; made != nullptr && i < made->size(); ++i) {
      const Action& again = (*made)[i];
      const bool read = action.segment == (again.segment == Segment::kNorm1 ? Segment::kAttn : Segment::kMlp);
      if (InfoOf(again.kind).collective == Collective::kAllGather && read) gather.push_back(again);
    }
    if (!gather.empty()) result_.push_back(gather.front());
    result_.push_back(action);
    if (!gather.empty()) result_.push_back(gather.back());
  }

  const Program& program_;
  const StageContext& context_;
  const LayerKinds kinds_;
  std::vector<Chain> chains_;
  std::map<int32_t, size_t> chain_of_;                   // the key is the layer
  std::map<std::pair<size_t, int32_t>, Remade> passes_;  // the key is chain and microbatch
  // taken_: indices of the actions that move. targets_: indices of the actions before which a chain is inserted
  std::set<size_t> taken_, targets_;
  std::set<std::pair<int32_t, int32_t>> ended_;  // layers and microbatches whose backward has ended
  bool open_ = false;                            // a collective of a segment is in flight at the current action
  Program result_;
};

}  // namespace

Program RecomputeInputs(Program program, const StageContext& context, const std::vector<StagePolicy>& policies) {
  LYNX_CHECK(policies.size() == context.slices.size());
  return ChainLowering(program, context, policies).Lower();
}

}  // namespace lynx
