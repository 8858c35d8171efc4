#include "worker/engine/expert_rows.h"

#include <algorithm>
#include <numeric>

#include "common/check.h"
#include "planner/program/memory_model.h"

namespace lynx::worker {
namespace {

// For each action the number of its dispatch: those forward actions that run the first product of experts, in the order of the
// program. -1 for all other actions.
std::vector<int32_t> DispatchesOf(const StageContext& context, const Program& program) {
  std::vector<int32_t> numbers(program.size(), -1);
  int32_t next = 0;
  for (size_t i = 0; i < program.size(); ++i) {
    if (program[i].kind != ActionKind::kForward) continue;
    const std::vector<Access> accesses = AccessesOf(program[i], context);
    const std::vector<Op> ops = OpsOf(context.graph(), program[i]);
    const bool has_rows =
        std::ranges::any_of(accesses, [](const Access& access) { return access.key.tensor == Tensor::kExpertWeights; });
    if (has_rows && std::ranges::find(ops, Op::kFc1) != ops.end()) numbers[i] = next++;
  }
  return numbers;
}

int64_t CountOf(const std::vector<int32_t>& dispatches) {
  return std::ranges::count_if(dispatches, [](int32_t number) { return number >= 0; });
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
      exchanged_(context.shape().ep > 1), dispatch_(DispatchesOf(context, program)), dispatches_(CountOf(dispatch_)),
      counters_(counters), backend_(backend), sorted_(static_cast<size_t>(held_.experts)) {}

void ExpertRows::Count(int32_t action, Op op, const TensorTable& tensors) {
  const auto weights = [&](Tensor tensor) { return static_cast<const float*>(tensors.at[static_cast<size_t>(tensor)]); };
  if (op == Op::kPermute && exchanged_) {
    backend_.CountRows({.blocks = sent_.experts, .room = sent_.room, .experts = sent_.experts}, weights(Tensor::kRowWeights),
                       nullptr, counters_);
  } else if (const int32_t dispatch = dispatch_[static_cast<size_t>(action)]; op == Op::kFc1 && dispatch >= 0) {
    int64_t* const of_dispatches = counters_ + 1;
    backend_.CountRows(held_, weights(Tensor::kExpertWeights), of_dispatches + dispatches_, of_dispatches + dispatch);
  }
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
  load.rows_dropped = load.rows_routed - (exchanged_ ? counters[0] : load.rows);
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
