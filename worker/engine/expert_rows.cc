#include "worker/engine/expert_rows.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "common/check.h"
#include "planner/problem/layer_kinds.h"
#include "planner/program/memory_model.h"

namespace lynx::worker {
namespace {

// For each forward action that runs the first product of experts, the number of its dispatch, in the order of the program. The
// forward action that runs unpermute for the same rows has the same number, because their rounds follow it. -1 for all other
// actions.
std::vector<int32_t> DispatchesOf(const StageContext& context, const Program& program) {
  std::vector<int32_t> numbers(program.size(), -1);
  const LayerKinds kinds(context);
  int32_t next = 0;
  std::map<std::pair<int32_t, int32_t>, int32_t> of_layer;  // the key is layer and microbatch
  for (size_t i = 0; i < program.size(); ++i) {
    if (program[i].kind != ActionKind::kForward) continue;
    const std::vector<Access> accesses = AccessesOf(program[i], context);
    const std::vector<Op> ops = OpsOf(kinds.GraphOf(program[i].layer), program[i]);
    const bool has_rows =
        std::ranges::any_of(accesses, [](const Access& access) { return access.key.tensor == Tensor::kExpertWeights; });
    const std::pair layer{program[i].layer, program[i].microbatch};
    if (has_rows && std::ranges::find(ops, Op::kFc1) != ops.end()) {
      numbers[i] = of_layer[layer] = next++;
    } else if (std::ranges::find(ops, Op::kUnpermute) != ops.end()) {
      numbers[i] = of_layer.at(layer);
    }
  }
  return numbers;
}

int64_t CountOf(const std::vector<int32_t>& dispatches) {
  return dispatches.empty() ? 0 : 1 + *std::ranges::max_element(dispatches);
}

double Share(int64_t rows, double even) { return static_cast<double>(rows) / even; }

}  // namespace

int64_t ExpertRows::CountersOf(const StageContext& context, const Program& program) {
  const int64_t dispatches = CountOf(DispatchesOf(context, program));
  return dispatches == 0 ? 0 : 1 + dispatches + context.shape().own_experts();
}

ExpertRows::ExpertRows(const StageContext& context, const Program& program, int64_t* counters, Backend& backend)
    : sent_{.n = context.shape().shard_tokens(),
            .experts = context.shape().experts,
            .top_k = context.shape().top_k,
            .room = context.shape().moe() ? context.shape().expert_room() : 0},
      held_{.blocks = sent_.experts, .room = sent_.room, .experts = context.shape().own_experts()},
      exchanged_(context.shape().ep > 1), rounds_(context.shape().round_room() > 0), dispatch_(DispatchesOf(context, program)),
      dispatches_(CountOf(dispatch_)), counters_(counters), backend_(backend), sorted_(static_cast<size_t>(held_.experts)) {}

void ExpertRows::Count(int32_t action, Op op, const TensorTable& tensors) {
  const auto weights = [&](Tensor tensor) { return static_cast<const float*>(tensors.at[static_cast<size_t>(tensor)]); };
  if (op == Op::kPermute && (exchanged_ || rounds_)) {
    backend_.CountRows({.blocks = sent_.experts, .room = sent_.room, .experts = sent_.experts},
                       weights(exchanged_ ? Tensor::kRowWeights : Tensor::kExpertWeights), nullptr, counters_);
  } else if (const int32_t dispatch = dispatch_[static_cast<size_t>(action)]; op == Op::kFc1 && dispatch >= 0) {
    int64_t* const of_dispatches = counters_ + 1;
    backend_.CountRows(held_, weights(Tensor::kExpertWeights), of_dispatches + dispatches_, of_dispatches + dispatch);
  }
}

RoundCounters ExpertRows::CountersOfRounds(int32_t action) const {
  const int32_t dispatch = dispatch_[static_cast<size_t>(action)];
  if (dispatch < 0) return {};
  return {.by_expert = counters_ + 1 + dispatches_, .received = counters_ + 1 + dispatch};
}

ExpertLoad ExpertRows::LoadOf(std::span<const int64_t> counters) {
  if (dispatches_ == 0) return {};
  LYNX_CHECK(std::ssize(counters) == 1 + dispatches_ + held_.experts);
  const std::span<const int64_t> received = counters.subspan(1, static_cast<size_t>(dispatches_));
  const std::span<const int64_t> by_expert = counters.subspan(static_cast<size_t>(1 + dispatches_));
  const int64_t routed = sent_.n * sent_.top_k;  // in one dispatch; also the even share of a rank
  ExpertLoad load;
  load.rows_routed = routed * dispatches_;
  load.rows = std::accumulate(received.begin(), received.end(), int64_t{0});
  const int64_t without_room = load.rows_routed - (exchanged_ || rounds_ ? counters[0] : load.rows);
  (rounds_ ? load.rows_in_rounds : load.rows_dropped) = without_room;
  load.skew = Share(load.rows, static_cast<double>(load.rows_routed));
  load.fullest_dispatch = Share(*std::ranges::max_element(received), static_cast<double>(routed));
  std::ranges::copy(by_expert, sorted_.begin());
  std::ranges::sort(sorted_);
  const double even = static_cast<double>(load.rows_routed) / static_cast<double>(held_.experts);
  load.fullest_expert = Share(sorted_.back(), even);
  load.median_expert = Share(sorted_[sorted_.size() / 2], even);
  load.emptiest_expert = Share(sorted_.front(), even);
  return load;
}

}  // namespace lynx::worker
