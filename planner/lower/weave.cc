#include "planner/lower/weave.h"

#include <algorithm>
#include <array>
#include <deque>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "common/check.h"
#include "planner/lower/weave_graph.h"
#include "planner/program/live_peaks.h"

namespace lynx {
namespace {

constexpr int32_t kNone = -1;
constexpr int64_t kHardlySlower = 200;  // an order is hardly slower if it is at most 1 / kHardlySlower slower than the fastest
constexpr int64_t kPromising = 50;      // promising: a rehearsal that is at most 1 / kPromising slower than the fastest
constexpr int32_t kRehearsed = 4;       // forward passes per strand in a rehearsal after the warm-up; as many backward passes
constexpr size_t kMaxInLine = 4;        // collectives of segments: one under way, and others that wait

// What the list scheduler prefers if several actions could run next.
struct Tuning {
  // Which strand computes if several can: the one that began first, one that did not compute last, or the one that needs the
  // least time until it can start a collective.
  enum class Turn : uint8_t { kFirst, kOther, kLink } turn = Turn::kFirst;
  // True: in a collective's window, the fillers of the collective's own slot (weight gradients, recomputation) come before the
  // steps of other strands.
  bool own_window_first = false;
  // True: a forward begins as soon as a strand is free, while the backward before it still runs. This holds more
  // activations.
  bool forward_beside_backward = false;
  // While no strand can continue, a filler runs if its time is at most this percentage of the time until a strand can continue.
  int64_t filler_percent = 100;
};

constexpr auto kTunings = [] {
  std::array<Tuning, kWeaveTunings> tunings{};
  for (size_t i = 0; i < tunings.size(); ++i) {
    tunings[i] = {.turn = static_cast<Tuning::Turn>(i / 8),
                  .own_window_first = (i & 1) != 0,
                  .forward_beside_backward = (i & 2) != 0,
                  .filler_percent = (i & 4) != 0 ? 200 : 100};
  }
  return tunings;
}();

// `compute`, `transfer`: how long each action takes on the compute stream, or as a transfer. `until_start`: the compute time
// from the begin of each action to the start of the next collective in its slot, or to the end of the slot.
struct Durations {
  std::vector<Nanos> compute, transfer, until_start;
};

struct Woven {
  std::vector<int32_t> order;  // the actions of the scheduled slots, in the new order
  Nanos end;                   // estimated end of these slots
  int32_t tuning = 0;          // index in kTunings
};

// A set of few actions, in the order of the program. With so few, a sorted vector is faster than std::set.
class FewActions {
 public:
  auto begin() const { return actions_.begin(); }
  auto end() const { return actions_.end(); }
  bool empty() const { return actions_.empty(); }
  void Insert(int32_t action) {
    const auto at = std::lower_bound(actions_.begin(), actions_.end(), action);
    if (at == actions_.end() || *at != action) actions_.insert(at, action);
  }
  void Erase(int32_t action) {
    const auto at = std::lower_bound(actions_.begin(), actions_.end(), action);
    if (at != actions_.end() && *at == action) actions_.erase(at);
  }

 private:
  std::vector<int32_t> actions_;
};

class ListScheduler {
 public:
  // Schedules the first `slots` slots. These slots are the first part of the program and need nothing from the rest.
  ListScheduler(const Program& program, const WeaveGraph& graph, const Durations& durations, const CostModel& costs,
                int32_t tuning, int32_t strands, int32_t slots)
      : program_(program), graph_(graph), durations_(durations), costs_(costs), tuning_(kTunings[static_cast<size_t>(tuning)]),
        most_strands_(static_cast<size_t>(strands)), slots_(slots), size_(graph.FirstOf(slots)),
        missing_(static_cast<size_t>(size_)), emitted_(static_cast<size_t>(size_)), ends_(static_cast<size_t>(size_)),
        next_step_(static_cast<size_t>(slots)) {
    arrival_of_.assign(static_cast<size_t>(size_), kNone);
    for (int32_t i = 0; i < size_; ++i) {
      // An action that begins a slot also waits until the slot becomes a strand.
      missing_[i] = static_cast<int32_t>(graph.Before(i).size()) + (graph.BeginsSlot(i) ? 1 : 0);
      if (graph.RoleOf(i) == WeaveRole::kArrival) arrival_of_[static_cast<size_t>(graph.StartOf(i))] = i;
    }
    woven_.tuning = tuning;
    woven_.order.reserve(static_cast<size_t>(size_));
  }

  Woven Run() && {
    while (woven_.order.size() < static_cast<size_t>(size_)) {
      RunInstant();
      if (woven_.order.size() == static_cast<size_t>(size_)) break;
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
  bool IsPass(int32_t slot, StepPart part) const { return graph_.PartOf(slot) == part; }
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
    for (const int32_t after : graph_.After(action)) {
      if (after < size_) Release(after);
    }
  }

  void Release(int32_t action) {
    if (--missing_[action] > 0) return;
    if (graph_.RoleOf(action) == WeaveRole::kFiller) fillers_.Insert(action);
    if (graph_.RoleOf(action) == WeaveRole::kMark) marks_.Insert(action);
  }

  // Begins new strands, and emits all actions that take no time now: marks, arrivals, and the steps for which RunsNow is true.
  void RunInstant() {
    for (bool changed = true; changed;) {
      changed = BeginStrands();
      while (!marks_.empty()) {
        const int32_t mark = *marks_.begin();
        marks_.Erase(mark);
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
    const ActionInfo& info = InfoOfAction(mark);
    if (info.group == Group::kData || info.group == Group::kExpertData)
      data_free_ = std::max(data_free_, now_) + durations_.transfer[mark];
    if (info.of_segment()) {
      StartCollective(mark);
      if (arrival_of_[static_cast<size_t>(mark)] == kNone) under_way_.pop_back();  // its wait is in a slot beyond slots_
    }
    Emit(mark);
  }

  void StartCollective(int32_t start) {
    under_way_.push_back(start);
    ends_[start] = link_free_ = std::max(link_free_, now_) + durations_.transfer[start];
  }

  // Emits the wait for every collective that a mark started and that is done.
  bool TakeArrivals() {
    arrived_.clear();
    for (const int32_t start : under_way_) {
      if (Arrives(start)) arrived_.push_back(start);
    }
    for (const int32_t start : arrived_) {
      std::erase(under_way_, start);
      Emit(arrival_of_[static_cast<size_t>(start)]);
    }
    return !arrived_.empty();
  }

  // True if a mark started the collective, the collective is done, and its wait can be emitted.
  bool Arrives(int32_t start) const {
    const int32_t arrival = arrival_of_[static_cast<size_t>(start)];
    return arrival != kNone && missing_[arrival] == 0 && ends_[static_cast<size_t>(start)] <= now_;
  }

  bool MayBeginStrand() const { return strands_.size() < most_strands_ && next_slot_ < slots_; }

  // Returns a filler that could run now and belongs to a slot whose steps have all run; kNone if there is no such filler. These
  // fillers run before another strand begins. So the tensors that they read are not held for longer and longer as more
  // microbatches follow.
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
      const int32_t end = graph_.FirstOf(next_slot_ + 1);
      for (int32_t action = graph_.FirstOf(next_slot_); action < end; ++action) {
        if (graph_.BeginsSlot(action)) Release(action);
      }
      ++next_slot_;
      began = true;
    }
    return began;
  }

  // True if the strand's next step takes no time now: a start, or a wait for something that is done. (A wait for another
  // pipeline rank counts as done, because the scheduler does not know when that rank sends.)
  bool RunsNow(int32_t head) const {
    if (missing_[head] > 0) return false;
    const ActionInfo& info = InfoOfAction(head);
    if (info.phase == Phase::kWhole) return false;
    if (info.group == Group::kHost && info.phase == Phase::kWait) return EndOf(head) <= now_;
    if (!info.of_segment()) return true;
    if (info.phase == Phase::kWait) return EndOf(head) <= now_;
    // A strand starts a collective only while fewer than kMaxInLine collectives are under way or wait for the link. The first
    // strand may exceed this limit, because all other strands may need what it does next.
    return under_way_.size() < kMaxInLine || graph_.SlotOf(head) == strands_.front();
  }

  // The start of the transfer that the wait is for.
  int32_t StartOf(int32_t wait) const { return graph_.StartOf(wait); }
  Nanos EndOf(int32_t wait) const { return ends_[static_cast<size_t>(StartOf(wait))]; }

  void Step(int32_t action) {
    const ActionInfo& info = InfoOfAction(action);
    if (info.of_segment()) {
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
    fillers_.Erase(action);
    const Nanos window = std::max(Nanos(0), link_free_ - now_);
    now_ += costs_.OverlappedTime(durations_.compute[action], window);
    last_slot_ = graph_.SlotOf(action);
    Emit(action);
  }

  // The compute action by which the strand can continue: its next step, or the first filler that this step still needs.
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

  int32_t ChooseCompute() {
    if (MayBeginStrand()) {
      if (const int32_t overdue = Overdue(); overdue != kNone) return overdue;
    }
    if (tuning_.own_window_first && !under_way_.empty()) {
      const int32_t slot = graph_.SlotOf(under_way_.back());
      for (const int32_t filler : fillers_) {
        if (graph_.SlotOf(filler) == slot) return filler;
      }
    }
    choices_.clear();
    for (const int32_t slot : strands_) {
      if (const int32_t action = NextOf(slot); action != kNone) choices_.push_back(action);
    }
    if (!choices_.empty()) return Preferred(choices_);
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

  // The earliest end of a transfer that a strand waits for, or of a collective whose wait (an arrival) could be emitted then.
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
  const int32_t slots_, size_;    // size_: number of actions in these slots
  std::vector<int32_t> missing_;  // for each action, how many of the actions that must come before it are not emitted
  std::vector<bool> emitted_;
  std::vector<Nanos> ends_;          // per start: when its transfer ends
  std::vector<int32_t> next_step_;   // per slot: position in its steps
  std::vector<int32_t> arrival_of_;  // per start of a mark: the wait for it
  std::vector<int32_t> strands_;     // slots, in the order in which they began
  int32_t next_slot_ = 0, last_slot_ = kNone;
  FewActions fillers_, marks_;  // actions that could run now
  Nanos now_, data_free_;
  std::array<Nanos, 2> copies_free_;
  std::deque<int32_t> under_way_;           // starts of segments' collectives that nothing has waited for
  Nanos link_free_;                         // when the last of these collectives ends
  std::vector<int32_t> arrived_, choices_;  // scratch of TakeArrivals and ChooseCompute
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
    const bool starts = info.of_segment() && info.phase == Phase::kStart;
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

// Finds orders of the program, one tuning after another. A rehearsal schedules a prefix of the program with every tuning. The
// rest of a program repeats this prefix, so the tunings that did well in the rehearsal come first.
class Tunings {
 public:
  Tunings(const Program& program, const WeaveGraph& graph, const Durations& durations, const CostModel& costs, int32_t strands)
      : program_(program), graph_(graph), durations_(durations), costs_(costs), strands_(strands) {
    int32_t warm_up = 0;
    while (warm_up < graph.slots() && graph.PartOf(warm_up) == StepPart::kForward) ++warm_up;
    slots_ = std::min(graph.slots(), warm_up + 2 * kRehearsed * strands_);
    for (int32_t tuning = 0; tuning < kWeaveTunings; ++tuning) {
      Woven woven = Schedule(tuning, slots_);
      const auto same = [&](const Woven& other) { return other.order == woven.order; };
      if (std::none_of(rehearsed_.begin(), rehearsed_.end(), same)) rehearsed_.push_back(std::move(woven));
    }
    std::stable_sort(rehearsed_.begin(), rehearsed_.end(), [](const Woven& a, const Woven& b) { return a.end < b.end; });
  }

  // The first call schedules the whole program with each promising tuning, and returns these orders; the fastest order comes
  // first. Each further call returns the order of one more tuning. Returns an empty list if no tuning is left.
  std::vector<Woven> Next() {
    std::vector<Woven> orders;
    const Nanos promising = rehearsed_.front().end + rehearsed_.front().end / kPromising;
    const bool first = next_ == 0;
    while (next_ < rehearsed_.size() && (orders.empty() || (first && rehearsed_[next_].end <= promising))) {
      Woven& rehearsed = rehearsed_[next_++];
      orders.push_back(slots_ == graph_.slots() ? std::move(rehearsed) : Schedule(rehearsed.tuning, graph_.slots()));
    }
    std::stable_sort(orders.begin(), orders.end(), [](const Woven& a, const Woven& b) { return a.end < b.end; });
    return orders;
  }

 private:
  Woven Schedule(int32_t tuning, int32_t slots) const {
    return ListScheduler(program_, graph_, durations_, costs_, tuning, strands_, slots).Run();
  }

  const Program& program_;
  const WeaveGraph& graph_;
  const Durations& durations_;
  const CostModel& costs_;
  const int32_t strands_;
  int32_t slots_ = 0;             // number of slots in a rehearsal
  std::vector<Woven> rehearsed_;  // the fastest comes first
  size_t next_ = 0;               // index in rehearsed_ of the next tuning to try
};

}  // namespace

WovenProgram Weave(const Program& program, const StageContext& context, const CostModel& costs, std::optional<Bytes> limit) {
  const int32_t strands = StrandsOf(context.layout.weave);
  if (strands == 1 || !HasCollectives(context.shape())) return {program};
  const WeaveGraph graph(program, context);
  const Durations durations = DurationsOf(program, graph, context, costs);
  Tunings tunings(program, graph, durations, costs, strands);
  // Keeps the order with the smallest peak among those that are hardly slower than the fastest. If this peak exceeds the
  // limit, slower orders are tried, too.
  LivePeaks peaks(program, context);
  std::optional<std::pair<Bytes, Woven>> smallest;
  const auto fits = [&] { return smallest && (!limit || smallest->first <= *limit); };
  std::optional<Nanos> fastest;
  while (!fits()) {
    std::vector<Woven> orders = tunings.Next();
    if (orders.empty()) break;
    if (!fastest) fastest = orders.front().end;
    for (Woven& woven : orders) {
      if (woven.end > *fastest + *fastest / kHardlySlower && fits()) break;
      const Bytes peak = peaks.Of(woven.order);
      if (!smallest || peak < smallest->first) smallest = {peak, std::move(woven)};
    }
  }
  return {InOrder(program, smallest->second.order), smallest->second.tuning};
}

Program WeaveAs(const Program& program, const StageContext& context, const CostModel& costs, int32_t tuning) {
  const int32_t strands = StrandsOf(context.layout.weave);
  if (strands == 1 || !HasCollectives(context.shape())) return program;
  const WeaveGraph graph(program, context);
  const Durations durations = DurationsOf(program, graph, context, costs);
  return InOrder(program, ListScheduler(program, graph, durations, costs, tuning, strands, graph.slots()).Run().order);
}

}  // namespace lynx
