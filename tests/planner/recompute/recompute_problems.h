// Makes random recomputation problems for the tests of the evaluator and the solvers. Simulates stages independently, as the
// description in recompute_problem.h says.
#ifndef LYNX_TESTS_PLANNER_RECOMPUTE_RECOMPUTE_PROBLEMS_H_
#define LYNX_TESTS_PLANNER_RECOMPUTE_RECOMPUTE_PROBLEMS_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "planner/recompute/recompute_problem.h"

namespace lynx {

// Lists the items that are not stored, with their placements: "i0 f1, i2 critical".
inline std::string PolicyText(const RecomputeProblem& problem, const LayerPolicy& policy) {
  std::string text;
  for (size_t i = 0; i < problem.items.size(); ++i) {
    if (policy[i] == Placement::kStore) continue;
    absl::StrAppend(&text, text.empty() ? "i" : ", i", i, " ", EnumName(policy[i]));
  }
  return text.empty() ? "all stored" : text;
}

class RandomNumbers {
 public:
  explicit RandomNumbers(uint32_t seed) : engine_(seed) {}
  int64_t operator()(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(engine_() % static_cast<uint64_t>(high - low + 1));
  }
  bool OneIn(int n) { return (*this)(1, n) == 1; }

 private:
  std::mt19937 engine_;
};

struct RandomProblemSpec {
  int items = 4;
  int forward = 2, backward = 2;  // the largest numbers of windows
  int layers = 2;
  bool stall = false;
  bool offload = false;
};

// Returns a random problem. Its numbers are small, so that ties and boundary cases are frequent.
inline RecomputeProblem RandomProblem(const RandomProblemSpec& spec, RandomNumbers& number) {
  RecomputeProblem problem{.layers = spec.layers, .in_flight = static_cast<int32_t>(number(1, 5))};
  for (int64_t w = number(0, spec.forward); w > 0; --w) problem.forward.push_back(Nanos(number(0, 12)));
  for (int64_t w = number(0, spec.backward); w > 0; --w) problem.backward.push_back(Nanos(number(0, 12)));
  if (spec.stall && !number.OneIn(3)) problem.stall = Nanos(number(1, 20));
  if (number.OneIn(3)) problem.early = Nanos(number(1, 12));
  const bool offload = spec.offload && !number.OneIn(4);
  for (int i = 0; i < spec.items; ++i) {
    RecomputeItem item{.bytes = Bytes(number(1, 9)), .cost = Nanos(number(0, 9))};
    // In most cases the items form a chain. Some items have no input, and some have two.
    if (i > 0 && !number.OneIn(5)) item.inputs |= static_cast<ItemSet>(1 << (i - 1));
    if (i > 1 && number.OneIn(4)) item.inputs |= static_cast<ItemSet>(1 << number(0, i - 2));
    if (!number.OneIn(6)) item.read_by = static_cast<SegmentSet>(1 << number(0, problem.segments() - 1));
    if (number.OneIn(5)) item.read_by |= static_cast<SegmentSet>(1 << number(0, problem.segments() - 1));
    item.collective = number.OneIn(5);
    if (number.OneIn(6)) item.allowed = static_cast<PlacementSet>(number(0, 0xffff));
    if (offload) {
      item.copy_out = Nanos(number(0, 9));
      item.copy_in = Nanos(number(0, 9));
    }
    problem.items.push_back(item);
  }
  if (offload) {
    problem.resident = static_cast<int32_t>(number(1, 3));
    problem.copy_out = Nanos(number(0, 15));
    problem.copy_in = Nanos(number(0, 15));
    problem.host_budget = Bytes(number(1, 120));
  }
  return problem;
}

// Returns the device memory that the stage takes if everything is stored.
inline Bytes StoreAllBytes(const RecomputeProblem& problem) {
  absl::StatusOr<StageValue> value =
      EvaluateStage(problem, {std::vector<LayerPolicy>(static_cast<size_t>(problem.layers), LayerPolicy{})});
  return value->bytes();
}

// Simulates one layer, moment by moment. Each item is made from items that exist at that moment. The class counts memory and
// time itself and does not use the code under test.
class PlayedLayer {
 public:
  PlayedLayer(const RecomputeProblem& problem, const LayerPolicy& policy, LayerPlace place)
      : problem_(problem), policy_(policy), count_(static_cast<int>(problem.items.size())), place_(place) {}

  // Returns what the policy uses; nullopt if the policy breaks a rule.
  std::optional<LayerUse> Play() {
    for (int i = 0; i < count_; ++i) {
      if (!Allowed(i)) return std::nullopt;
      if (policy_[i] == Placement::kStore || policy_[i] == Placement::kOffload) there_[i] = true;
    }
    for (int w = 0; w < Forward(); ++w) {
      if (!MakeAll(ForwardWindow(w))) return std::nullopt;
    }
    if (!MakeAll(Placement::kStall)) return std::nullopt;
    phase_ = 0;
    for (int w = 0; w < Backward(); ++w) {
      if (!MakeAll(AboveWindow(w))) return std::nullopt;
      for (int i = 0; i < count_; ++i) {
        if (policy_[i] == AboveWindow(w)) AddAbove(i, w);
      }
    }
    for (phase_ = 0; phase_ <= Backward(); ++phase_) {
      if (phase_ > 0 && !MakeAll(OwnWindow(phase_ - 1))) return std::nullopt;
      for (int i = 0; i < count_; ++i) {
        if (Wanted(i) && !MakeCritical(i)) return std::nullopt;
      }
      for (int i = 0; i < count_; ++i) {
        if (!ReadIn(i, phase_)) continue;
        if (!there_[i]) return std::nullopt;
        last_use_[i] = phase_;
      }
    }
    Settle();
    return use_;
  }

 private:
  int Forward() const { return static_cast<int>(problem_.forward.size()); }
  int Backward() const { return static_cast<int>(problem_.backward.size()); }
  bool ReadIn(int i, int phase) const { return (problem_.items[i].read_by >> phase & 1) != 0; }
  bool Reads(int reader, int i) const { return (problem_.items[reader].inputs >> i & 1) != 0; }
  bool Recomputed(int i) const { return policy_[i] != Placement::kStore && policy_[i] != Placement::kOffload; }

  bool Exists(int i) const {
    bool read = problem_.items[i].read_by != 0;
    for (int reader = i + 1; reader < count_; ++reader) read = read || (Recomputed(reader) && Reads(reader, i));
    return read;
  }

  bool Allowed(int i) const {
    const Placement p = policy_[i];
    if (p == Placement::kStore) return true;
    const RecomputeItem& item = problem_.items[i];
    if ((item.allowed >> static_cast<int>(p) & 1) == 0 || !Exists(i)) return false;
    if (p == Placement::kCritical) return true;
    if (p == Placement::kOffload) return problem_.host_budget.value > 0;
    if (p == Placement::kStall) return problem_.stall.value > 0;
    if (item.collective) return false;
    for (int w = 0; w < Forward(); ++w) {
      if (p == ForwardWindow(w)) return problem_.forward[w].value > 0;
    }
    for (int w = 0; w < Backward(); ++w) {
      if (p == AboveWindow(w)) return place_ == LayerPlace::kInner && problem_.backward[w].value > 0;
      if (p == OwnWindow(w)) return problem_.backward[w].value > 0;
    }
    return false;
  }

  // Returns true if the item must exist before the segment of this phase. Either the segment reads the item, or something that
  // the next window makes is made from it.
  bool Wanted(int i) const {
    if (ReadIn(i, phase_)) return true;
    if (policy_[i] != Placement::kCritical) return false;
    for (int reader = i + 1; reader < count_; ++reader) {
      if (phase_ < Backward() && policy_[reader] == OwnWindow(phase_) && Reads(reader, i)) return true;
    }
    // An item that is read only to make other items must be made before the last segment, at the latest.
    return phase_ == Backward();
  }

  bool Make(int i) {
    for (int input = 0; input < i; ++input) {
      if (!Reads(i, input)) continue;
      if (!there_[input]) return false;
      if (phase_ >= 0) last_use_[input] = std::max(last_use_[input], phase_);
    }
    there_[i] = true;
    made_[i] = phase_;
    return true;
  }
  bool MakeAll(Placement window) {
    for (int i = 0; i < count_; ++i) {
      if (policy_[i] == window && !Make(i)) return false;
    }
    return true;
  }
  bool MakeCritical(int i) {
    if (there_[i]) return true;
    if (policy_[i] != Placement::kCritical) return false;
    for (int input = 0; input < i; ++input) {
      if (Reads(i, input) && !MakeCritical(input)) return false;
    }
    return Make(i);
  }
  void AddAbove(int i, int window) {
    for (int k = window + 1; k <= Backward(); ++k) use_.above[k] += problem_.items[i].bytes;
  }

  void Settle() {
    std::array<Nanos, kMaxWindows> forward{};
    bool repeated = false;
    for (int i = 0; i < count_; ++i) {
      const RecomputeItem& item = problem_.items[i];
      const Placement p = policy_[i];
      if (p == Placement::kStore && Exists(i)) use_.held += item.bytes * problem_.in_flight;
      if (p == Placement::kOffload) {
        use_.held += item.bytes * std::min(problem_.in_flight, problem_.resident);
        use_.host += item.bytes * problem_.in_flight;
        use_.copy_out += item.copy_out;
        use_.copy_in += item.copy_in;
      }
      if (!Recomputed(i)) continue;
      if (made_[i] < 0) use_.held += item.bytes;
      for (int k = 0; k <= Backward() && made_[i] >= 0; ++k) {
        if (k >= made_[i] && (k == made_[i] || k <= last_use_[i])) use_.live[k] += item.bytes;
      }
      for (int w = 0; w < kMaxWindows; ++w) {
        if (p == ForwardWindow(w)) forward[w] += item.cost;
        if (p == AboveWindow(w)) use_.above_work[w] += item.cost;
        if (p == OwnWindow(w)) use_.own_work[w] += item.cost;
      }
      if (p == Placement::kStall) use_.stall += item.cost;
      if (p != Placement::kCritical) continue;
      use_.exposed += item.cost;
      repeated = repeated || (made_[i] == 0 && item.collective);
      if (place_ == LayerPlace::kTop && made_[i] == 0 && !repeated) use_.early += item.cost;
    }
    for (int w = 0; w < Forward(); ++w) use_.exposed += std::max(Nanos(0), forward[w] - problem_.forward[w]);
  }

  const RecomputeProblem& problem_;
  const LayerPolicy& policy_;
  const int count_;
  const LayerPlace place_;
  int phase_ = -1;  // -1: before the backward pass of the layer above; k: this layer's backward segment k comes next
  std::array<bool, kMaxItems> there_{};  // true for each item that exists now
  std::array<int, kMaxItems> made_{};    // the phase in which each item was made
  // The last phase in which each item was read; -1: none.
  std::array<int, kMaxItems> last_use_ = [] {
    std::array<int, kMaxItems> none;
    none.fill(-1);
    return none;
  }();
  LayerUse use_;
};

// Calls visit(policy, use) for every policy of a layer that obeys the rules. PlayedLayer decides which policies do.
inline void ForEachPolicy(const RecomputeProblem& problem, LayerPlace place,
                          const std::function<void(const LayerPolicy&, const LayerUse&)>& visit) {
  LayerPolicy policy{};
  const std::function<void(size_t)> decide = [&](size_t i) {
    if (i == problem.items.size()) {
      if (const std::optional<LayerUse> use = PlayedLayer(problem, policy, place).Play()) visit(policy, *use);
      return;
    }
    for (int p = 0; p < kPlacementCount; ++p) {
      policy[i] = static_cast<Placement>(p);
      if (Contains(PossiblePlacements(problem, static_cast<int>(i), place), policy[i])) decide(i + 1);
    }
    policy[i] = Placement::kStore;
  };
  decide(0);
}

struct BruteForceSolution {
  StagePolicy policy;
  StageValue value;
};

// Tries all policies of the stage and returns the best one that fits. nullopt: no policy fits.
inline std::optional<BruteForceSolution> BruteForce(const RecomputeProblem& problem) {
  std::array<std::vector<std::pair<LayerPolicy, LayerUse>>, 2> all;  // all policies of an inner layer, and all of the top layer
  for (const LayerPlace place : {LayerPlace::kInner, LayerPlace::kTop}) {
    ForEachPolicy(problem, place, [&](const LayerPolicy& policy, const LayerUse& use) {
      // If several policies use the same resources, one of them is enough.
      const bool known = std::any_of(all[static_cast<size_t>(place)].begin(), all[static_cast<size_t>(place)].end(),
                                     [&](const auto& p) { return p.second == use; });
      if (!known) all[static_cast<size_t>(place)].emplace_back(policy, use);
    });
  }
  std::optional<BruteForceSolution> best;
  std::vector<LayerUse> uses;
  StagePolicy policy;
  const std::function<void(int32_t)> decide = [&](int32_t layer) {
    if (layer == problem.layers) {
      const StageValue value = Combine(problem, uses);
      if (Fits(problem, value) && (!best || Better(value, best->value))) best = {policy, value};
      return;
    }
    for (const auto& [layer_policy, use] : all[layer + 1 == problem.layers]) {
      uses.push_back(use);
      policy.layers.push_back(layer_policy);
      decide(layer + 1);
      uses.pop_back();
      policy.layers.pop_back();
    }
  };
  decide(0);
  return best;
}

}  // namespace lynx

#endif  // LYNX_TESTS_PLANNER_RECOMPUTE_RECOMPUTE_PROBLEMS_H_
