// See lower_offload.h.
#include "planner/lower/lower_offload.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "common/check.h"
#include "planner/problem/layer_kinds.h"
#include "planner/program/memory_model.h"

namespace lynx {
namespace {

using enum ActionKind;

// For each layer, the tensors that are offloaded to the host.
std::map<int32_t, TensorSet> OffloadedTensors(const StageContext& context, const std::vector<StagePolicy>& policies) {
  const LayerKinds kinds(context);
  std::map<int32_t, TensorSet> offloaded;
  LYNX_CHECK(policies.size() == context.slices.size());
  for (size_t s = 0; s < policies.size(); ++s) {
    for (size_t l = 0; l < policies[s].layers.size(); ++l) {
      TensorSet tensors = 0;
      const int32_t layer = context.slices[s].first_layer + static_cast<int32_t>(l);
      const LayerGraph& graph = kinds.GraphOf(layer);
      const LayerPolicy policy = PolicyIn(graph, kinds.graph(), policies[s].layers[l]);
      for (size_t i = 0; i < graph.recomputable().size(); ++i) {
        if (policy[i] != Placement::kOffload) continue;
        for (const Tensor tensor : graph.MadeWith(graph.recomputable()[i])) tensors |= Bit(tensor);
      }
      if (tensors != 0) offloaded[layer] = tensors;
    }
  }
  return offloaded;
}

// Indices of two actions that use offloaded tensors of one layer and microbatch: the last forward action, and the first action
// of any other kind (recomputation or backward).
struct Uses {
  std::optional<size_t> last_forward, first_again;
};

class Offloading {
 public:
  Offloading(const Program& program, const StageContext& context, std::map<int32_t, TensorSet> offloaded)
      : program_(program), context_(context), offloaded_(std::move(offloaded)) {}

  Program Offload() && {
    FindRuns();
    FindUses();
    for (const auto& [key, uses] : uses_) {
      if (uses.last_forward && uses.first_again) Place(key.first, key.second, *uses.last_forward, *uses.first_again);
    }
    return Insert();
  }

 private:
  // The order of actions that are inserted before the same action.
  enum class Order : uint8_t { kOffloadStart, kOffloadWait, kReloadStart, kReloadWait };
  struct Insertion {
    size_t before;  // index of the action
    Order order;
    size_t since;  // decides the order of insertions with equal `before` and `order`
    Action action;
  };

  void FindRuns() {
    const Action* of_run = nullptr;
    for (size_t i = 0; i < program_.size(); ++i) {
      const Action& action = program_[i];
      const bool computes = action.kind == kForward || action.kind == kBackward;
      if (computes && (of_run == nullptr || action.kind != of_run->kind || action.layer != of_run->layer ||
                       action.microbatch != of_run->microbatch)) {
        runs_.push_back(i);
        of_run = &action;
      }
      run_of_.push_back(runs_.empty() ? 0 : runs_.size() - 1);
    }
  }

  void FindUses() {
    for (size_t i = 0; i < program_.size(); ++i) {
      const Action& action = program_[i];
      const auto offloaded = offloaded_.find(action.layer);
      if (offloaded == offloaded_.end() || action.microbatch == kNoMicrobatch) continue;
      const std::vector<Access> accesses = AccessesOf(action, context_);
      const bool any = std::any_of(accesses.begin(), accesses.end(), [&](const Access& access) {
        return access.key.layer == action.layer && Contains(offloaded->second, access.key.tensor);
      });
      if (!any) continue;
      Uses& uses = uses_[{action.layer, action.microbatch}];
      if (InfoOf(action.kind).part == StepPart::kForward) {
        uses.last_forward = i;
      } else if (!uses.first_again) {
        uses.first_again = i;
      }
    }
  }

  void Place(int32_t layer, int32_t microbatch, size_t last_forward, size_t first_again) {
    const size_t left = run_of_[last_forward] + 2, back = run_of_[first_again];
    if (left + 1 >= back) return;  // then the copy back would start as soon as the copy to the host has ended
    const auto add = [&](size_t before, Order order, ActionKind kind, size_t since) {
      insertions_.push_back({before,
                             order,
                             since,
                             {.kind = kind,
                              .stage = program_[last_forward].stage,
                              .microbatch = microbatch,
                              .layer = layer,
                              .tensors = offloaded_.at(layer)}});
    };
    add(last_forward + 1, Order::kOffloadStart, kOffloadStart, last_forward);
    add(runs_[left], Order::kOffloadWait, kOffloadWait, last_forward);
    add(runs_[back - 1], Order::kReloadStart, kReloadStart, first_again);
    add(first_again, Order::kReloadWait, kReloadWait, first_again);
  }

  Program Insert() {
    std::sort(insertions_.begin(), insertions_.end(), [](const Insertion& a, const Insertion& b) {
      return std::tie(a.before, a.order, a.since) < std::tie(b.before, b.order, b.since);
    });
    Program result;
    auto next = insertions_.begin();
    for (size_t i = 0; i < program_.size(); ++i) {
      for (; next != insertions_.end() && next->before == i; ++next) result.push_back(next->action);
      result.push_back(program_[i]);
    }
    return result;
  }

  const Program& program_;
  const StageContext& context_;
  const std::map<int32_t, TensorSet> offloaded_;
  std::vector<size_t> runs_;                          // first action of each run
  std::vector<size_t> run_of_;                        // for each action, its run; actions before the first run belong to the
                                                      // first run
  std::map<std::pair<int32_t, int32_t>, Uses> uses_;  // the key is layer and microbatch
  std::vector<Insertion> insertions_;
};

}  // namespace

Program OffloadTensors(Program program, const StageContext& context, const std::vector<StagePolicy>& policies) {
  std::map<int32_t, TensorSet> offloaded = OffloadedTensors(context, policies);
  if (offloaded.empty()) return program;
  return Offloading(program, context, std::move(offloaded)).Offload();
}

}  // namespace lynx
