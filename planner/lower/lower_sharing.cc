// See lower_sharing.h.
#include "planner/lower/lower_sharing.h"

#include <algorithm>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "common/check.h"
#include "planner/program/state_sharing.h"

namespace lynx {
namespace {

using enum ActionKind;

struct Visit {
  size_t begin = 0;  // index of the visit's first action
  int32_t layer = kNoLayer;
  bool gathers = false;
};

class Sharing {
 public:
  Sharing(const Program& program, const StageContext& context)
      : program_(program), context_(context), graph_(context.graph()), shape_(context.shape()) {}

  Program Share() && {
    if (SharesWeights(context_)) FindVisits();
    if (ReducesEachMicrobatch(context_)) FindLastAdditions();
    size_t visit = 0;
    if (!visits_.empty()) StartGather(0);
    for (size_t i = 0; i < program_.size(); ++i) {
      if (program_[i].kind == kNormStart) WaitForAll();
      for (; visit < visits_.size() && visits_[visit].begin == i; ++visit) {
        if (visits_[visit].gathers) {
          WaitFor({.kind = kWeightGatherWait, .stage = program_[i].stage, .layer = visits_[visit].layer});
        }
        StartGather(visit + 1);
      }
      // Waits for the layer's previous reduction, if it is still pending. This happens if a rank has only one layer. Otherwise
      // the next layer's reduction has already waited for it.
      if (ReducesEachMicrobatch(context_) && AddsWeightGradients(program_[i], graph_, shape_)) {
        WaitFor({.kind = kDataReduceWait, .stage = program_[i].stage, .layer = program_[i].layer});
      }
      result_.push_back(program_[i]);
      if (const auto last = last_additions_.find(i); last != last_additions_.end()) Reduce(program_[i]);
    }
    GatherUpdatedWeights();
    return std::move(result_);
  }

 private:
  void FindVisits() {
    std::deque<int32_t> there;  // layers of the last two visits, whose weights are still in memory
    for (size_t i = 0; i < program_.size(); ++i) {
      const Action& action = program_[i];
      if (!ReadsWeights(action, graph_, shape_)) continue;
      if (!visits_.empty() && visits_.back().layer == action.layer) continue;
      const bool gathers = std::find(there.begin(), there.end(), action.layer) == there.end();
      visits_.push_back({i, action.layer, gathers});
      std::erase(there, action.layer);
      there.push_back(action.layer);
      if (there.size() > 2) there.pop_front();
    }
  }

  void FindLastAdditions() {
    std::map<std::pair<int32_t, int32_t>, size_t> last;  // the key is layer and microbatch
    for (size_t i = 0; i < program_.size(); ++i) {
      LYNX_CHECK(program_[i].kind != kDataReduceStart);
      if (AddsWeightGradients(program_[i], graph_, shape_)) last[{program_[i].layer, program_[i].microbatch}] = i;
    }
    for (const auto& [key, action] : last) last_additions_[action] = key.first;
  }

  void Start(Action start) {
    result_.push_back(start);
    start.kind = InfoOf(start.kind).counterpart;
    pending_.push_back(start);
  }

  void StartGather(size_t visit) {
    if (visit >= visits_.size() || !visits_[visit].gathers) return;
    Start({.kind = kWeightGatherStart, .stage = program_[visits_[visit].begin].stage, .layer = visits_[visit].layer});
  }

  // Emits `wait` and all pending waits of earlier transfers. Does nothing if an earlier call has already emitted `wait`.
  void WaitFor(const Action& wait) {
    const auto end = std::find(pending_.begin(), pending_.end(), wait);
    if (end == pending_.end()) return;
    result_.insert(result_.end(), pending_.begin(), end + 1);
    pending_.erase(pending_.begin(), end + 1);
  }

  void WaitForAll() {
    if (!pending_.empty()) WaitFor(Action(pending_.back()));
  }

  void Reduce(const Action& last) {
    const auto reduction =
        std::find_if(pending_.rbegin(), pending_.rend(), [](const Action& wait) { return wait.kind == kDataReduceWait; });
    if (reduction != pending_.rend()) WaitFor(Action(*reduction));
    Start({.kind = kDataReduceStart, .stage = last.stage, .layer = last.layer});
  }

  void GatherUpdatedWeights() {
    for (const StageSlice& slice : context_.slices) {
      const auto gather = [&](int32_t layer) {
        if (GathersUpdatedWeights(context_)) Start({.kind = kWeightGatherStart, .stage = slice.stage, .layer = layer});
        if (context_.model.HasExpertsIn(layer) && ExpertShares(context_) > 1) {
          Start({.kind = kExpertGatherStart, .stage = slice.stage, .layer = layer});
        }
      };
      if (slice.has_embedding) gather(kEmbeddingLayer);
      for (int32_t layer = slice.first_layer; layer < slice.end_layer; ++layer) gather(layer);
      if (slice.has_head) gather(kHeadLayer);
    }
    WaitForAll();
  }

  const Program& program_;
  const StageContext& context_;
  const LayerGraph& graph_;
  const LayerShape shape_;
  std::vector<Visit> visits_;
  std::map<size_t, int32_t> last_additions_;  // the key is the action's index, the value is the layer
  std::deque<Action> pending_;                // waits of the transfers that are in flight, in order
  Program result_;
};

}  // namespace

Program ShareStates(Program program, const StageContext& context) {
  const bool experts = ExpertShares(context) > 1;
  if (!GathersUpdatedWeights(context) && !ReducesEachMicrobatch(context) && !experts) return program;
  return Sharing(program, context).Share();
}

}  // namespace lynx
