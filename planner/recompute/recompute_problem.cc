#include "planner/recompute/recompute_problem.h"

#include <algorithm>
#include <bit>
#include <optional>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "common/check.h"

namespace lynx {
namespace {

constexpr bool Has(unsigned set, int i) { return (set >> i & 1) != 0; }

int Segments(const RecomputeProblem& problem) { return problem.segments(); }

int LastReader(SegmentSet set) { return static_cast<int>(std::bit_width(set)) - 1; }
int FirstReader(SegmentSet set, int none) { return set == 0 ? none : std::countr_zero(set); }

// The moments that recompute_problem.h lists, as numbers in the order of time.
constexpr int kStallMoment = kMaxWindows;
constexpr int kBackwardMoment = kStallMoment + 1 + kMaxWindows;  // c0
constexpr int CriticalMoment(int phase) { return kBackwardMoment + 2 * phase; }
constexpr int OwnMoment(int window) { return kBackwardMoment + 2 * window + 1; }
constexpr int PhaseOf(int moment) { return moment <= kBackwardMoment ? 0 : (moment - kBackwardMoment + 1) / 2; }

// The moment at which an item with this placement is recomputed. `deadline` is the last moment that is early enough for all
// readers of the item. nullopt: the item is critical, but it is needed before the critical path begins.
std::optional<int> MomentOf(Placement placement, int deadline) {
  if (IsForwardWindow(placement)) return IndexOf(placement, Placement::kForward1);
  if (placement == Placement::kStall) return kStallMoment;
  if (IsAboveWindow(placement)) return kStallMoment + 1 + IndexOf(placement, Placement::kAbove1);
  if (IsOwnWindow(placement)) return OwnMoment(IndexOf(placement, Placement::kOwn1));
  if (deadline < kBackwardMoment) return std::nullopt;
  return CriticalMoment((deadline - kBackwardMoment) / 2);
}

// The moments at which each item of a layer is recomputed, and the phases in which it is read.
struct Remaking {
  std::array<int, kMaxItems> moments{};
  std::array<int, kMaxItems> last_phases{};  // the last phase in which something reads the item; -1: nothing reads it in the
                                             // backward pass
  std::array<bool, kMaxItems> read{};
};

absl::Status Refuse(int item, Placement placement, const char* why) {
  return absl::InvalidArgumentError(absl::StrCat("item ", item, " in ", EnumName(placement), ": ", why));
}

absl::StatusOr<Remaking> RemakingOf(const RecomputeProblem& problem, const LayerPolicy& policy, LayerPlace place) {
  Remaking schedule;
  const int count = static_cast<int>(problem.items.size());
  ItemSet recomputed = 0;
  // Readers come after the items that they read. The loop runs from the last item to the first, so it handles readers first.
  for (int i = count - 1; i >= 0; --i) {
    const RecomputeItem& item = problem.items[i];
    const Placement placement = policy[i];
    schedule.read[i] = item.read_by != 0;
    schedule.last_phases[i] = LastReader(item.read_by);
    int deadline = CriticalMoment(FirstReader(item.read_by, Segments(problem) - 1));
    for (unsigned rest = recomputed; rest != 0; rest &= rest - 1) {
      const int reader = std::countr_zero(rest);
      if (!Has(problem.items[reader].inputs, i)) continue;
      schedule.read[i] = true;
      deadline = std::min(deadline, schedule.moments[reader]);
      if (schedule.moments[reader] > kStallMoment) {
        schedule.last_phases[i] = std::max(schedule.last_phases[i], PhaseOf(schedule.moments[reader]));
      }
    }
    if (placement == Placement::kStore) continue;
    if (!Contains(PossiblePlacements(problem, i, place), placement)) return Refuse(i, placement, "not possible here");
    if (!schedule.read[i]) return Refuse(i, placement, "nothing reads it, so it is not made");
    if (placement == Placement::kOffload) continue;
    const std::optional<int> moment = MomentOf(placement, deadline);
    if (!moment || *moment > deadline) return Refuse(i, placement, "what reads it comes earlier");
    schedule.moments[i] = *moment;
    recomputed |= static_cast<ItemSet>(1 << i);
  }
  return schedule;
}

// Adds the memory of item i, which is recomputed at `moment`.
void AddResult(const RecomputeProblem& problem, const Remaking& schedule, int i, LayerUse& use) {
  const Bytes bytes = problem.items[i].bytes;
  const int moment = schedule.moments[i];
  if (moment <= kStallMoment) {
    use.held += bytes;
    return;
  }
  const int phase = PhaseOf(moment);
  for (int k = phase; k <= std::max(phase, schedule.last_phases[i]); ++k) use.live[k] += bytes;
  if (moment < kBackwardMoment) {
    for (int k = moment - kStallMoment; k < Segments(problem); ++k) use.above[k] += bytes;
  }
}

Nanos Excess(Nanos work, Nanos capacity) { return std::max(Nanos(0), work - capacity); }

absl::Status CheckRange(int64_t value, int64_t low, int64_t high, const std::string& name) {
  if (value >= low && value <= high) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(name, " is ", value, "; it must be from ", low, " to ", high));
}

absl::Status CheckItem(const RecomputeProblem& problem, int i) {
  const RecomputeItem& item = problem.items[i];
  const std::string name = absl::StrCat("item ", i);
  absl::Status status = CheckRange(item.bytes.value, 0, kMaxItem.value, name + " bytes");
  status.Update(CheckRange(item.cost.value, 0, kMaxWork.value, name + " cost"));
  status.Update(CheckRange(item.copy_out.value, 0, kMaxWork.value, name + " copy_out"));
  status.Update(CheckRange(item.copy_in.value, 0, kMaxWork.value, name + " copy_in"));
  if (!status.ok()) return status;
  if ((item.inputs >> i) != 0) {
    return absl::InvalidArgumentError(absl::StrCat(name, " reads itself or an item after it; sort the items"));
  }
  if ((item.read_by >> problem.segments()) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " is read by a segment beyond the ", problem.segments(), " that there are"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ValidateProblem(const RecomputeProblem& problem) {
  const auto count = [](const auto& list) { return static_cast<int64_t>(list.size()); };
  absl::Status status = CheckRange(count(problem.items), 0, kMaxItems, "the number of items");
  status.Update(CheckRange(count(problem.forward), 0, kMaxWindows, "the number of forward windows"));
  status.Update(CheckRange(count(problem.backward), 0, kMaxWindows, "the number of backward windows"));
  status.Update(CheckRange(problem.layers, 1, kMaxProblemLayers, "layers"));
  status.Update(CheckRange(problem.in_flight, 1, kMaxInFlight, "in_flight"));
  status.Update(CheckRange(problem.resident, 1, kMaxInFlight, "resident"));
  for (Nanos window : problem.forward) status.Update(CheckRange(window.value, 0, kMaxWork.value, "a forward window"));
  for (Nanos window : problem.backward) {
    status.Update(CheckRange(window.value, 0, kMaxWork.value, "a backward window"));
  }
  status.Update(CheckRange(problem.stall.value, 0, kMaxWork.value, "stall"));
  status.Update(CheckRange(problem.early.value, 0, kMaxWork.value, "early"));
  status.Update(CheckRange(problem.copy_out.value, 0, kMaxWork.value, "copy_out"));
  status.Update(CheckRange(problem.copy_in.value, 0, kMaxWork.value, "copy_in"));
  status.Update(CheckRange(problem.budget.value, 0, kMaxBudget.value, "budget"));
  status.Update(CheckRange(problem.host_budget.value, 0, kMaxBudget.value, "host_budget"));
  for (int i = 0; status.ok() && i < static_cast<int>(problem.items.size()); ++i) status = CheckItem(problem, i);
  return status;
}

PlacementSet PossiblePlacements(const RecomputeProblem& problem, int i, LayerPlace place) {
  const RecomputeItem& item = problem.items[i];
  PlacementSet possible = BitOf(Placement::kStore) | BitOf(Placement::kCritical);
  if (!item.collective) {
    for (size_t w = 0; w < problem.forward.size(); ++w) {
      if (problem.forward[w].value > 0) possible |= BitOf(ForwardWindow(static_cast<int>(w)));
    }
    const int first_reader = FirstReader(item.read_by, Segments(problem) - 1);
    for (int w = 0; w < static_cast<int>(problem.backward.size()); ++w) {
      if (problem.backward[w].value <= 0) continue;
      if (place == LayerPlace::kInner) possible |= BitOf(AboveWindow(w));
      if (w < first_reader) possible |= BitOf(OwnWindow(w));
    }
  }
  if (problem.stall.value > 0) possible |= BitOf(Placement::kStall);
  if (problem.host_budget.value > 0) possible |= BitOf(Placement::kOffload);
  return possible & (item.allowed | BitOf(Placement::kStore));
}

absl::StatusOr<LayerUse> UseOf(const RecomputeProblem& problem, const LayerPolicy& policy, LayerPlace place) {
  absl::StatusOr<Remaking> schedule = RemakingOf(problem, policy, place);
  if (!schedule.ok()) return schedule.status();
  LayerUse use;
  std::array<Nanos, kMaxWindows> forward{};
  bool collective = false;  // true once an item at c0 repeats a collective
  for (int i = 0; i < static_cast<int>(problem.items.size()); ++i) {
    const RecomputeItem& item = problem.items[i];
    const Placement placement = policy[i];
    if (placement == Placement::kStore) {
      if (schedule->read[i]) use.held += item.bytes * problem.in_flight;
      continue;
    }
    if (placement == Placement::kOffload) {
      use.held += item.bytes * std::min(problem.in_flight, problem.resident);
      use.host += item.bytes * problem.in_flight;
      use.copy_out += item.copy_out;
      use.copy_in += item.copy_in;
      continue;
    }
    AddResult(problem, *schedule, i, use);
    if (IsForwardWindow(placement)) {
      forward[IndexOf(placement, Placement::kForward1)] += item.cost;
    } else if (placement == Placement::kStall) {
      use.stall += item.cost;
    } else if (IsAboveWindow(placement)) {
      use.above_work[IndexOf(placement, Placement::kAbove1)] += item.cost;
    } else if (IsOwnWindow(placement)) {
      use.own_work[IndexOf(placement, Placement::kOwn1)] += item.cost;
    } else {
      use.exposed += item.cost;
      if (place == LayerPlace::kTop && schedule->moments[i] == kBackwardMoment) {
        collective = collective || item.collective;
        if (!collective) use.early += item.cost;
      }
    }
  }
  for (size_t w = 0; w < problem.forward.size(); ++w) use.exposed += Excess(forward[w], problem.forward[w]);
  return use;
}

StageValue Combine(const RecomputeProblem& problem, const std::vector<LayerUse>& layers) {
  LYNX_CHECK(!layers.empty());
  StageValue value;
  Nanos stall, copy_out, copy_in;
  for (size_t l = 0; l < layers.size(); ++l) {
    const LayerUse& use = layers[l];
    static const LayerUse kNothing;
    const LayerUse& below = l == 0 ? kNothing : layers[l - 1];
    value.held += use.held;
    value.host += use.host;
    value.exposed += use.exposed;
    stall += use.stall;
    copy_out += use.copy_out;
    copy_in += use.copy_in;
    for (size_t w = 0; w < problem.backward.size(); ++w) {
      value.exposed += Excess(use.own_work[w] + below.above_work[w], problem.backward[w]);
    }
    for (int k = 0; k < Segments(problem); ++k) {
      value.transient = std::max(value.transient, use.live[k] + below.above[k]);
    }
  }
  value.exposed -= std::min(layers.back().early, problem.early);
  value.exposed += Excess(stall, problem.stall);
  value.exposed += std::max(Excess(copy_out, problem.copy_out), Excess(copy_in, problem.copy_in));
  return value;
}

absl::StatusOr<StageValue> EvaluateStage(const RecomputeProblem& problem, const StagePolicy& policy) {
  if (static_cast<int64_t>(policy.layers.size()) != problem.layers) {
    return absl::InvalidArgumentError(
        absl::StrCat("a policy of ", policy.layers.size(), " layers for a stage of ", problem.layers));
  }
  std::vector<LayerUse> uses;
  for (size_t l = 0; l < policy.layers.size(); ++l) {
    absl::StatusOr<LayerUse> use = UseOf(problem, policy.layers[l], PlaceOf(l, policy.layers.size()));
    if (!use.ok()) return absl::InvalidArgumentError(absl::StrCat("layer ", l, ": ", use.status().message()));
    uses.push_back(*use);
  }
  return Combine(problem, uses);
}

bool Fits(const RecomputeProblem& problem, const StageValue& value) {
  return value.bytes() <= problem.budget && value.host <= problem.host_budget;
}

bool Better(const StageValue& a, const StageValue& b) {
  const auto key = [](const StageValue& v) { return std::tuple(v.exposed, v.bytes(), v.host); };
  return key(a) < key(b);
}

}  // namespace lynx
