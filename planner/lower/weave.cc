#include "planner/lower/weave.h"

#include <algorithm>
#include <array>
#include <deque>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "common/check.h"
#include "planner/lower/weave_graph.h"
#include "planner/program/memory_model.h"

namespace lynx {
namespace {

constexpr int32_t kNone = -1;
constexpr int64_t kHardlySlower = 200;  // a step that is longer by less than 1 / kHardlySlower
constexpr size_t kMaxInLine = 4;        // collectives of the tensor-parallel group, one under way and the others in line

// What the list scheduler prefers where the rules leave a choice.
struct Tuning {
  // Which strand computes if several can: the one that began first, one that did not compute last, or the one that needs the
  // least time until it can start a collective.
  enum class Turn : uint8_t { kFirst, kOther, kLink } turn = Turn::kFirst;
  // True: what a window's own strand has to do in it (weight gradients, recomputation) comes before the other strand's steps.
  bool own_window_first = false;
  // True: a forward begins beside the backward before it, as soon as a strand is free. This holds more activations.
  bool forward_beside_backward = false;
  // While no strand can go on, a filler runs if it takes at most this percentage of the time until one can.
  int64_t filler_percent = 100;
};

constexpr auto kTunings = [] {
  std::array<Tuning, 24> tunings{};
  for (size_t i = 0; i < tunings.size(); ++i) {
    tunings[i] = {.turn = static_cast<Tuning::Turn>(i / 8),
                  .own_window_first = (i & 1) != 0,
                  .forward_beside_backward = (i & 2) != 0,
                  .filler_percent = (i & 4) != 0 ? 200 : 100};
  }
  return tunings;
}();

// How long each action takes on the compute stream or as a transfer, and for a compute action the time of the compute from its
// begin until its slot starts the next collective.
struct Durations {
  std::vector<Nanos> compute, transfer, until_start;
};

struct Woven {
  std::vector<int32_t> order;  // of the actions before the end of the step
  Nanos end;                   // estimate
};

class ListScheduler {
 public:
  ListScheduler(const Program& program, const WeaveGraph& graph, const Durations& durations, const CostModel& costs,
                const Tuning& tuning, size_t strands)
      : program_(program), graph_(graph), durations_(durations), costs_(costs), tuning_(tuning), most_strands_(strands),
        missing_(static_cast<size_t>(graph.size())), emitted_(static_cast<size_t>(graph.size())),
        ends_(static_cast<size_t>(graph.size())), next_step_(static_cast<size_t>(graph.slots())) {
    for (int32_t i = 0; i < graph.size(); ++i) {
      // What begins a slot also needs the slot to be a strand.
      missing_[i] = static_cast<int32_t>(graph.Before(i).size()) + (graph.BeginsSlot(i) ? 1 : 0);
    }
    members_.resize(static_cast<size_t>(graph.slots()));
    arrival_of_.assign(static_cast<size_t>(graph.size()), kNone);
    for (int32_t i = 0; i < graph.size(); ++i) {
      if (graph.RoleOf(i) == WeaveRole::kArrival) arrival_of_[static_cast<size_t>(graph.StartOf(i))] = i;
      if (graph.BeginsSlot(i)) members_[static_cast<size_t>(graph.SlotOf(i))].push_back(i);
    }
    woven_.order.reserve(static_cast<size_t>(graph.size()));
  }

  Woven Run() && {
    while (woven_.order.size() < static_cast<size_t>(graph_.size())) {
      RunInstant();
      if (woven_.order.size() == static_cast<size_t>(graph_.size())) break;
      const int32_t action = ChooseCompute();
      if (action != kNone) {
        Compute(action);
      } else {
        WaitForCollective();
      }
    }
    woven_.end = std::max(now_, data_free_);
    return std::move(woven_);
  }

 private:
  const ActionInfo& InfoOfAction(int32_t action) const { return InfoOf(program_[static_cast<size_t>(action)].kind); }
  bool IsPass(int32_t slot, StepPart part) const {
    for (const int32_t step : graph_.StepsOf(slot)) {
      const StepPart of_step = InfoOfAction(step).part;
      if (of_step == StepPart::kForward || of_step == StepPart::kBackward || of_step == StepPart::kWeight)
        return of_step == part;
    }
    return false;
  }
  int32_t Head(int32_t slot) const {
    const std::vector<int32_t>& steps = graph_.StepsOf(slot);
    const auto at = static_cast<size_t>(next_step_[static_cast<size_t>(slot)]);
    return at < steps.size() ? steps[at] : kNone;
  }

  void Emit(int32_t action) {
    LYNX_CHECK(missing_[action] == 0 && !emitted_[action]);
    emitted_[action] = true;
    woven_.order.push_back(action);
    if (graph_.RoleOf(action) == WeaveRole::kStep) ++next_step_[static_cast<size_t>(graph_.SlotOf(action))];
    for (const int32_t after : graph_.After(action)) Release(after);
  }

  void Release(int32_t action) {
    if (--missing_[action] > 0) return;
    if (graph_.RoleOf(action) == WeaveRole::kFiller) fillers_.insert(action);
    if (graph_.RoleOf(action) == WeaveRole::kMark) marks_.insert(action);
  }

  // Emits everything that takes no time and blocks nothing, and begins strands.
  void RunInstant() {
    for (bool changed = true; changed;) {
      changed = BeginStrands();
      while (!marks_.empty()) {
        const int32_t mark = *marks_.begin();
        marks_.erase(marks_.begin());
        Mark(mark);
        changed = true;
      }
      changed = TakeArrivals() || changed;
      for (const int32_t slot : strands_) {
        for (int32_t head = Head(slot); head != kNone && RunsNow(head); head = Head(slot)) {
          Step(head);
          changed = true;
        }
      }
      changed = std::erase_if(strands_, [&](int32_t slot) { return Head(slot) == kNone; }) > 0 || changed;
    }
  }

  void Mark(int32_t mark) {
    const Group group = InfoOfAction(mark).group;
    if (group == Group::kData) data_free_ = std::max(data_free_, now_) + durations_.transfer[mark];
    if (group == Group::kTensor) StartCollective(mark);
    Emit(mark);
  }

  void StartCollective(int32_t start) {
    under_way_.push_back(start);
    ends_[start] = link_free_ = std::max(link_free_, now_) + durations_.transfer[start];
  }

  // Waits for every collective that a mark started and that is done.
  bool TakeArrivals() {
    std::vector<int32_t> arrived;
    for (const int32_t start : under_way_) {
      if (Arrives(start)) arrived.push_back(start);
    }
    for (const int32_t start : arrived) {
      std::erase(under_way_, start);
      Emit(arrival_of_[static_cast<size_t>(start)]);
    }
    return !arrived.empty();
  }

  // True if a mark started the collective, and it is done.
  bool Arrives(int32_t start) const {
    const int32_t arrival = arrival_of_[static_cast<size_t>(start)];
    return arrival != kNone && missing_[arrival] == 0 && ends_[static_cast<size_t>(start)] <= now_;
  }

  bool MayBeginStrand() const { return strands_.size() < most_strands_ && next_slot_ < graph_.slots(); }

  // A filler that could run now, of a slot whose steps have all run. Such fillers run before another strand begins. So what
  // they read is held no longer than the slots that are strands at the same time, however many microbatches follow.
  int32_t Overdue() const {
    const auto overdue = std::find_if(fillers_.begin(), fillers_.end(), [&](int32_t filler) {
      return std::find(strands_.begin(), strands_.end(), graph_.SlotOf(filler)) == strands_.end();
    });
    return overdue == fillers_.end() ? kNone : *overdue;
  }

  bool BeginStrands() {
    bool began = false;
    while (MayBeginStrand() && Overdue() == kNone) {
      const bool waits =
          !tuning_.forward_beside_backward && IsPass(next_slot_, StepPart::kForward) &&
          std::any_of(strands_.begin(), strands_.end(), [&](int32_t slot) { return !IsPass(slot, StepPart::kForward); });
      if (waits) break;
      strands_.push_back(next_slot_);
      for (const int32_t action : members_[static_cast<size_t>(next_slot_)]) Release(action);
      ++next_slot_;
      began = true;
    }
    return began;
  }

  // True if the strand's next step takes no time now: a start, or a wait for something that is done. (Nothing is known here of
  // when other pipeline ranks send, so waits for them count as done.)
  bool RunsNow(int32_t head) const {
    if (missing_[head] > 0) return false;
    const ActionInfo& info = InfoOfAction(head);
    if (info.phase == Phase::kWhole) return false;
    if (info.group == Group::kHost && info.phase == Phase::kWait) return EndOf(head) <= now_;
    if (info.group != Group::kTensor) return true;
    if (info.phase == Phase::kWait) return EndOf(head) <= now_;
    // The first strand never waits for a place in the line: all others may wait for what it does next.
    return under_way_.size() < kMaxInLine || graph_.SlotOf(head) == strands_.front();
  }

  // The start of the transfer that the wait is for.
  int32_t StartOf(int32_t wait) const { return graph_.StartOf(wait); }
  Nanos EndOf(int32_t wait) const { return ends_[static_cast<size_t>(StartOf(wait))]; }

  void Step(int32_t action) {
    const ActionInfo& info = InfoOfAction(action);
    if (info.group == Group::kTensor) {
      if (info.phase == Phase::kStart) {
        StartCollective(action);
      } else {
        std::erase(under_way_, StartOf(action));
      }
    } else if (info.group == Group::kHost && info.phase == Phase::kStart) {
      Nanos& free = copies_free_[info.flow == Flow::kOut ? 0 : 1];
      ends_[action] = free = std::max(free, now_) + durations_.transfer[action];
    }
    Emit(action);
  }

  void Compute(int32_t action) {
    fillers_.erase(action);
    const Nanos window = std::max(Nanos(0), link_free_ - now_);
    now_ += costs_.OverlappedTime(durations_.compute[action], window);
    last_slot_ = graph_.SlotOf(action);
    Emit(action);
  }

  // The compute action by which the strand can go on: its next step, or the first filler that this step still needs.
  int32_t NextOf(int32_t slot) const {
    int32_t action = Head(slot);
    while (action != kNone && missing_[action] > 0) {
      int32_t needed = kNone;
      for (const int32_t before : graph_.Before(action)) {
        if (emitted_[before] || (graph_.RoleOf(before) != WeaveRole::kFiller && graph_.RoleOf(before) != WeaveRole::kArrival)) {
          continue;
        }
        needed = needed == kNone ? before : std::min(needed, before);
      }
      action = needed;
    }
    return action != kNone && InfoOfAction(action).phase == Phase::kWhole ? action : kNone;
  }

  int32_t Preferred(const std::vector<int32_t>& choices) const {
    if (tuning_.turn == Tuning::Turn::kOther) {
      const auto other =
          std::find_if(choices.begin(), choices.end(), [&](int32_t action) { return graph_.SlotOf(action) != last_slot_; });
      return other == choices.end() ? choices.front() : *other;
    }
    if (tuning_.turn == Tuning::Turn::kFirst) return choices.front();
    return *std::min_element(choices.begin(), choices.end(),
                             [&](int32_t a, int32_t b) { return durations_.until_start[a] < durations_.until_start[b]; });
  }

  int32_t ChooseCompute() const {
    if (MayBeginStrand()) {
      if (const int32_t overdue = Overdue(); overdue != kNone) return overdue;
    }
    if (tuning_.own_window_first && !under_way_.empty()) {
      const int32_t slot = graph_.SlotOf(under_way_.back());
      for (const int32_t filler : fillers_) {
        if (graph_.SlotOf(filler) == slot) return filler;
      }
    }
    std::vector<int32_t> choices;
    for (const int32_t slot : strands_) {
      if (const int32_t action = NextOf(slot); action != kNone) choices.push_back(action);
    }
    if (!choices.empty()) return Preferred(choices);
    const std::optional<Nanos> until = NextEnd();
    if (!until) {
      LYNX_CHECK(!fillers_.empty());  // otherwise the order has a cycle
      return *fillers_.begin();
    }
    const Nanos gap = *until - now_;
    for (const int32_t filler : fillers_) {
      if (durations_.compute[filler] * 100 <= gap * tuning_.filler_percent) return filler;
    }
    return kNone;
  }

  // The earliest end of a transfer for which a strand waits.
  std::optional<Nanos> NextEnd() const {
    std::optional<Nanos> end;
    for (const int32_t start : under_way_) {
      const int32_t arrival = arrival_of_[static_cast<size_t>(start)];
      if (arrival == kNone || missing_[arrival] > 0) continue;
      end = std::min(end.value_or(ends_[static_cast<size_t>(start)]), ends_[static_cast<size_t>(start)]);
    }
    for (const int32_t slot : strands_) {
      const int32_t head = Head(slot);
      if (head == kNone || missing_[head] > 0 || InfoOfAction(head).phase != Phase::kWait) continue;
      end = std::min(end.value_or(EndOf(head)), EndOf(head));
    }
    return end;
  }

  void WaitForCollective() {
    const std::optional<Nanos> end = NextEnd();
    LYNX_CHECK(end.has_value());
    now_ = std::max(now_, *end);
  }

  const Program& program_;
  const WeaveGraph& graph_;
  const Durations& durations_;
  const CostModel& costs_;
  const Tuning& tuning_;
  const size_t most_strands_;
  std::vector<int32_t> missing_;  // number of actions that must come before and have not come yet
  std::vector<bool> emitted_;
  std::vector<Nanos> ends_;                    // of the transfers that have started
  std::vector<int32_t> next_step_;             // per slot: position in its steps
  std::vector<int32_t> arrival_of_;            // per start of a mark: the wait for it
  std::vector<std::vector<int32_t>> members_;  // per slot: the actions that only need the slot to be a strand
  std::vector<int32_t> strands_;               // slots, in the order in which they began
  int32_t next_slot_ = 0, last_slot_ = kNone;
  std::set<int32_t> fillers_, marks_;  // that could run now
  Nanos now_, data_free_;
  std::array<Nanos, 2> copies_free_;
  std::deque<int32_t> under_way_;  // starts of the tensor-parallel group's collectives that nothing has waited for
  Nanos link_free_;                // when the last of them ends
  Woven woven_;
};

Durations DurationsOf(const Program& program, const WeaveGraph& graph, const StageContext& context, const CostModel& costs) {
  Durations durations;
  for (int32_t i = 0; i < graph.size(); ++i) {
    durations.compute.push_back(costs.ComputeTime(program[static_cast<size_t>(i)], context));
    durations.transfer.push_back(costs.TransferTime(program[static_cast<size_t>(i)]));
  }
  durations.until_start.resize(static_cast<size_t>(graph.size()));
  Nanos until;
  for (int32_t i = graph.size() - 1; i >= 0; --i) {
    if (i + 1 == graph.size() || graph.SlotOf(i) != graph.SlotOf(i + 1)) until = Nanos(0);
    const ActionInfo& info = InfoOf(program[static_cast<size_t>(i)].kind);
    const bool starts = info.group == Group::kTensor && info.phase == Phase::kStart;
    until = starts ? Nanos(0) : until + durations.compute[static_cast<size_t>(i)];
    durations.until_start[static_cast<size_t>(i)] = until;
  }
  return durations;
}

Program InOrder(const Program& program, const std::vector<int32_t>& order) {
  Program woven;
  woven.reserve(program.size());
  for (const int32_t action : order) woven.push_back(program[static_cast<size_t>(action)]);
  woven.insert(woven.end(), program.begin() + static_cast<ptrdiff_t>(order.size()), program.end());
  return woven;
}

}  // namespace

Program Weave(const Program& program, const StageContext& context, const CostModel& costs, std::optional<Bytes> limit) {
  const auto strands = static_cast<size_t>(StrandsOf(context.layout.weave));
  if (strands == 1 || context.layout.tp == 1) return program;
  const WeaveGraph graph(program, context);
  const Durations durations = DurationsOf(program, graph, context, costs);
  std::vector<Woven> all;
  for (const Tuning& tuning : kTunings) {
    Woven woven = ListScheduler(program, graph, durations, costs, tuning, strands).Run();
    const auto same = [&](const Woven& other) { return other.order == woven.order; };
    if (std::none_of(all.begin(), all.end(), same)) all.push_back(std::move(woven));
  }
  std::stable_sort(all.begin(), all.end(), [](const Woven& a, const Woven& b) { return a.end < b.end; });
  // The loop looks at all orders that are hardly slower than the fastest, and keeps the one with the smallest peak. While that
  // peak exceeds the limit, the loop goes on to slower orders.
  const Nanos nearly = all.front().end + all.front().end / kHardlySlower;
  std::optional<std::pair<Bytes, Program>> smallest;
  for (const Woven& woven : all) {
    if (woven.end > nearly && (!limit || smallest->first <= *limit)) break;
    Program candidate = InOrder(program, woven.order);
    const absl::StatusOr<MemoryPlan> memory = FoldLiveness(candidate, context);
    LYNX_CHECK(memory.ok());
    if (!smallest || memory->live_peak < smallest->first) smallest = {memory->live_peak, std::move(candidate)};
  }
  return std::move(smallest->second);
}

}  // namespace lynx
