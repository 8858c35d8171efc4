#include "planner/lower/weave_graph.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "planner/problem/layout_schedule.h"
#include "planner/program/access_table.h"
#include "planner/program/state_sharing.h"

namespace lynx {
namespace {

using enum ActionKind;

constexpr int32_t kNone = -1;

bool IsBoundary(const ActionInfo& info) { return info.group == Group::kNextStage || info.group == Group::kPreviousStage; }

// True if the action shows which slot the program is in.
bool ShowsSlot(const ActionInfo& info, bool splits_weight) {
  if (info.part == StepPart::kWeight) return splits_weight;
  if (info.part != StepPart::kForward && info.part != StepPart::kBackward) return false;
  if (!IsBoundary(info)) return true;
  return info.flow == Flow::kIn && info.phase == Phase::kWait;  // the wait for a send is in a later slot
}

WeaveRole RoleOf(const ActionInfo& info, bool splits_weight) {
  if (info.kind == kRecompute) return WeaveRole::kFiller;
  if (info.kind == kWeight && !splits_weight) return WeaveRole::kFiller;
  if (info.part == StepPart::kRecompute) return info.phase == Phase::kStart ? WeaveRole::kMark : WeaveRole::kArrival;
  const bool posts = IsBoundary(info) && info.flow == Flow::kIn && info.phase == Phase::kStart;
  return posts || info.kind == kDataReduceStart || info.kind == kExpertReduceStart ? WeaveRole::kMark : WeaveRole::kStep;
}

// True if both actions belong to the same pass of the same group of microbatches. The slots of a group wait only for slots of
// earlier groups, on every rank (GroupedSlots).
bool InOneGroup(const Action& a, const Action& b, int32_t group) {
  return group > 1 && a.stage == b.stage && InfoOf(a.kind).part == InfoOf(b.kind).part &&
         a.microbatch / group == b.microbatch / group;
}

bool EndsStep(const Action& action) {
  return action.kind == kDataReduceWait || action.kind == kExpertReduceWait || action.kind == kNormStart;
}

}  // namespace

WeaveGraph::WeaveGraph(const Program& program, const StageContext& context) {
  size_ = static_cast<int32_t>(std::find_if(program.begin(), program.end(), EndsStep) - program.begin());
  start_of_.assign(static_cast<size_t>(size_), kNone);
  FindSlots(program, SplitsWeight(context.layout));
  AddStepOrder(program);
  AddPassOrder(program, context);
  AddExpertOrder(program, context);
  AddAccessOrder(program, context);
  AddTransferOrder(program, GroupOf(context.layout.weave));
  SortEdges();
}

void WeaveGraph::FindSlots(const Program& program, bool splits_weight) {
  using Pass = std::tuple<int32_t, int32_t, StepPart>;  // stage, microbatch, part
  // For each action, the pass of the first action at or after it that shows a slot (ShowsSlot).
  std::vector<std::optional<Pass>> next(static_cast<size_t>(size_) + 1);
  for (int32_t i = size_ - 1; i >= 0; --i) {
    const ActionInfo& info = InfoOf(program[i].kind);
    next[i] = ShowsSlot(info, splits_weight) ? Pass(program[i].stage, program[i].microbatch, info.part) : next[i + 1];
  }
  std::optional<Pass> now;
  for (int32_t i = 0; i < size_; ++i) {
    const Action& action = program[i];
    const ActionInfo& info = InfoOf(action.kind);
    // Recomputation outside forward windows begins the slot of its own microbatch.
    const bool own = info.part == StepPart::kRecompute && next[i] && std::get<1>(*next[i]) == action.microbatch &&
                     std::get<2>(*next[i]) != StepPart::kForward;
    if ((own || ShowsSlot(info, splits_weight)) && next[i] != now) {
      now = next[i];
      steps_.emplace_back();
    }
    if (steps_.empty()) steps_.emplace_back(), now = next[i];
    slot_of_.push_back(slots() - 1);
    roles_.push_back(lynx::RoleOf(info, splits_weight));
    if (roles_.back() != WeaveRole::kStep) continue;
    steps_.back().push_back(i);
    parts_.resize(steps_.size());
    const bool pass = info.part == StepPart::kForward || info.part == StepPart::kBackward || info.part == StepPart::kWeight;
    if (pass && !parts_.back()) parts_.back() = info.part;
  }
  parts_.resize(steps_.size());
}

// Orders the actions of each slot. A step comes after the step before it. A filler or a mark comes after the last step before
// it that does not start a transfer: a start may have to wait for the link, and must not delay fillers and marks.
void WeaveGraph::AddStepOrder(const Program& program) {
  begins_slot_.assign(static_cast<size_t>(size_), false);
  int32_t slot = kNone, step = kNone, blocking = kNone;
  for (int32_t i = 0; i < size_; ++i) {
    if (SlotOf(i) != slot) slot = SlotOf(i), step = blocking = kNone;
    const bool is_step = RoleOf(i) == WeaveRole::kStep;
    const int32_t before = is_step ? step : blocking;
    begins_slot_[i] = before == kNone && RoleOf(i) != WeaveRole::kArrival;
    if (before != kNone && RoleOf(i) != WeaveRole::kArrival) AddEdge(before, i);
    if (!is_step) continue;
    step = i;
    if (InfoOf(program[i].kind).phase != Phase::kStart) blocking = i;
  }
}

void WeaveGraph::AddPassOrder(const Program& program, const StageContext& context) {
  const bool tied = HoldsTiedEmbedding(context);
  // the latest action of each key
  absl::flat_hash_map<std::tuple<ActionKind, int32_t, int32_t, Segment>, int32_t> of_segment;
  absl::flat_hash_map<std::tuple<int32_t, int32_t, Segment>, int32_t> backward;  // layer, microbatch, segment
  // the last F of a microbatch
  absl::flat_hash_map<std::tuple<int32_t, int32_t>, int32_t> forward_of_layer, forward_of_stage;
  // since the last B; key: layer, microbatch
  absl::flat_hash_map<std::tuple<int32_t, int32_t>, std::vector<int32_t>> recomputation;
  int32_t adds_to_tied = kNone;
  const auto after = [&](const auto& map, const auto& key, int32_t action) {
    if (const auto found = map.find(key); found != map.end()) AddEdge(found->second, action);
  };
  for (int32_t i = 0; i < size_; ++i) {
    const Action& action = program[i];
    const ActionInfo& info = InfoOf(action.kind);
    const bool has_pass = info.part == StepPart::kForward || info.part == StepPart::kBackward || info.part == StepPart::kWeight;
    if (has_pass && info.has_segment) {
      const auto [last, first] = of_segment.try_emplace({action.kind, action.stage, action.layer, action.segment}, i);
      if (!first) AddEdge(std::exchange(last->second, i), i);
    }
    const std::tuple layer{action.layer, action.microbatch}, stage{action.stage, action.microbatch};
    switch (action.kind) {
      case kForward: forward_of_layer[layer] = forward_of_stage[stage] = i; break;
      case kBackward:
        after(forward_of_stage, stage, i);
        // All recomputation of the layer that comes before this action must stay before it, even if only weight gradients read
        // the results.
        for (const int32_t recomputed : std::exchange(recomputation[layer], {})) AddEdge(recomputed, i);
        backward[{action.layer, action.microbatch, action.segment}] = i;
        break;
      case kWeight: after(backward, std::tuple(action.layer, action.microbatch, action.segment), i); break;
      case kDataReduceStart:
      case kExpertReduceStart:
        // The order of these edges does not matter, because SortEdges sorts them.
        for (const auto& [key, last] : of_segment) {
          if (std::get<1>(key) == action.stage && std::get<2>(key) == action.layer) AddEdge(last, i);
        }
        if (tied && action.layer == kEmbeddingLayer && adds_to_tied != kNone) AddEdge(adds_to_tied, i);
        break;
      default:
        if (info.part != StepPart::kRecompute) break;
        after(forward_of_layer, layer, i);
        if (action.kind == kRecompute) recomputation[layer].push_back(i);
    }
    const bool adds =
        (action.kind == kWeight && action.layer == kHeadLayer) || (action.kind == kBackward && action.layer == kEmbeddingLayer);
    if (!tied || !adds) continue;
    if (adds_to_tied != kNone) AddEdge(adds_to_tied, i);
    adds_to_tied = i;
  }
}

// If rows go through rounds, the backward segment that has the rounds and the weight segment of the experts both add to the
// gradients of the layer's experts.
void WeaveGraph::AddExpertOrder(const Program& program, const StageContext& context) {
  if (context.shape().round_room() == 0) return;
  const LayerGraph& graph = context.graph();
  const Segment rounds = graph.InfoOf(Op::kPermute).backward_segment, weights = graph.InfoOf(Op::kFc1).backward_segment;
  std::map<int32_t, int32_t> latest;  // the key is the layer
  for (int32_t i = 0; i < size_; ++i) {
    const Action& action = program[i];
    const bool adds =
        (action.kind == kBackward && action.segment == rounds) || (action.kind == kWeight && action.segment == weights);
    if (!adds || LayerTypeOf(action.layer) != LayerType::kTransformer || context.IsDenseLayer(action.layer)) continue;
    const auto [last, first] = latest.try_emplace(action.layer, i);
    if (!first) AddEdge(std::exchange(last->second, i), i);
  }
}

void WeaveGraph::AddAccessOrder(const Program& program, const StageContext& context) {
  struct Last {
    int32_t change = kNone;
    int32_t read = kNone;  // index in `reads` of the last read after `change`
  };
  struct Read {
    int32_t action = kNone;
    int32_t before = kNone;  // index in `reads` of the read before this one
  };
  absl::flat_hash_map<BufferKey, Last> buffers;
  std::vector<Read> reads;
  AccessTable table(context);
  reads.reserve(static_cast<size_t>(size_) * 4);
  edges_.reserve(edges_.size() + static_cast<size_t>(size_) * 8);
  for (int32_t i = 0; i < size_; ++i) {
    for (const Access& access : table.Of(program[i])) {
      if (access.key.tensor == Tensor::kWorkspace) continue;  // no action reads what another action left in it
      Last& last = buffers[access.key];
      if (access.mode == AccessMode::kRead) {
        if (last.change != kNone) AddEdge(last.change, i);
        reads.push_back({i, std::exchange(last.read, static_cast<int32_t>(reads.size()))});
        continue;
      }
      if (last.read == kNone && last.change != kNone) AddEdge(last.change, i);
      for (int32_t read = last.read; read != kNone; read = reads[static_cast<size_t>(read)].before) {
        AddEdge(reads[static_cast<size_t>(read)].action, i);
      }
      last = {.change = i};
    }
  }
}

void WeaveGraph::AddTransferOrder(const Program& program, int32_t group) {
  // The key of a channel: the kind of its starts and, for transfers between stages, the virtual stage (otherwise 0).
  std::map<std::pair<ActionKind, int32_t>, std::vector<int32_t>> starts, waits;
  std::map<std::pair<ActionKind, int32_t>, std::vector<int32_t>> open;  // starts that nothing has waited for
  for (int32_t i = 0; i < size_; ++i) {
    const Action& action = program[i];
    const ActionInfo& info = InfoOf(action.kind);
    if (info.phase == Phase::kWhole) continue;
    const bool start = info.phase == Phase::kStart;
    const std::pair channel(start ? action.kind : info.counterpart, IsBoundary(info) ? action.stage : 0);
    if (start) {
      open[channel].push_back(i);
    } else {
      std::vector<int32_t>& of_channel = open[channel];
      const auto own = std::find_if(of_channel.begin(), of_channel.end(), [&](int32_t s) {
        const Action& a = program[s];
        return std::tie(a.stage, a.microbatch, a.layer, a.segment, a.tensors) ==
               std::tie(action.stage, action.microbatch, action.layer, action.segment, action.tensors);
      });
      if (own != of_channel.end()) {
        start_of_[i] = *own;
        AddEdge(*own, i);
        of_channel.erase(own);
      }
    }
    if (info.of_segment()) continue;
    std::vector<int32_t>& of_channel = (start ? starts : waits)[channel];
    if (!of_channel.empty()) AddEdge(of_channel.back(), i);
    of_channel.push_back(i);
    if (start || !IsBoundary(info)) continue;
    for (const auto& [other, of_other] : starts) {
      if (!IsBoundary(InfoOf(other.first))) continue;
      const auto before =
          std::find_if(of_other.rbegin(), of_other.rend(), [&](int32_t s) { return !InOneGroup(program[s], action, group); });
      if (before != of_other.rend()) AddEdge(*before, i);
    }
  }
}

// Sorts the edges by their first action, then by their second. An action has few edges, so a bucket for each action is faster
// than a sort of all edges.
void WeaveGraph::SortEdges() {
  const auto count = static_cast<size_t>(size_) + 1;
  std::vector<int32_t> first(count, 0);
  for (const auto& [before, after] : edges_) ++first[static_cast<size_t>(before) + 1];
  std::partial_sum(first.begin(), first.end(), first.begin());
  std::vector<int32_t> seconds(edges_.size()), at = first;
  for (const auto& [before, after] : edges_) seconds[static_cast<size_t>(at[static_cast<size_t>(before)]++)] = after;
  edges_ = {};
  after_.reserve(seconds.size());
  after_first_.assign(count, 0);
  before_first_.assign(count, 0);
  for (size_t action = 0; action + 1 < count; ++action) {
    const auto begin = seconds.begin() + first[action], end = seconds.begin() + first[action + 1];
    std::sort(begin, end);
    after_.insert(after_.end(), begin, std::unique(begin, end));
    after_first_[action + 1] = static_cast<int32_t>(after_.size());
  }
  for (const int32_t after : after_) ++before_first_[static_cast<size_t>(after) + 1];
  std::partial_sum(before_first_.begin(), before_first_.end(), before_first_.begin());
  before_.resize(after_.size());
  at = before_first_;
  for (int32_t before = 0; before < size_; ++before) {
    for (const int32_t after : After(before)) before_[static_cast<size_t>(at[static_cast<size_t>(after)]++)] = before;
  }
}

}  // namespace lynx
