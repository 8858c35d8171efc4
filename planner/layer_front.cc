#include "planner/layer_front.h"

#include <algorithm>
#include <array>
#include <bit>
#include <tuple>

#include "absl/container/flat_hash_map.h"
#include "common/check.h"

namespace lynx {
namespace {

constexpr bool Has(unsigned set, int i) { return (set >> i & 1) != 0; }
constexpr ItemSet ItemBit(int i) { return static_cast<ItemSet>(1 << i); }
template <class T>
constexpr T Positive(T t) {
  return std::max(T(0), t);
}

// Moments of the backward pass as small numbers in the order of time: b1 .. b4, then c0 o1 c1 o2 ...
constexpr int kFirstCritical = kMaxWindows;
constexpr int CriticalMoment(int phase) { return kFirstCritical + 2 * phase; }
constexpr int OwnMoment(int window) { return kFirstCritical + 2 * window + 1; }
constexpr int PhaseOf(int moment) { return moment <= kFirstCritical ? 0 : (moment - kFirstCritical + 1) / 2; }
// The last one on the critical path that is not after that moment; the first if none is.
constexpr int CriticalBefore(int moment) { return std::max(kFirstCritical, moment - (moment - kFirstCritical) % 2); }
// Moments before it: forward windows, then the stall. kAnyTime: no item made there reads it.
constexpr int kStallMoment = kMaxWindows;
constexpr int kAnyTime = 15;

// One small number for each item, packed.
class ItemNumbers {
 public:
  int Get(int i) const { return static_cast<int>(bits_ >> (4 * i) & 15); }
  void Set(int i, int value) { bits_ = (bits_ & ~(uint64_t{15} << (4 * i))) | uint64_t(value) << (4 * i); }
  uint64_t bits() const { return bits_; }

 private:
  static_assert(kMaxItems <= 16 && kFirstCritical + 2 * kMaxWindows < kAnyTime);
  uint64_t bits_ = 0;
};

// Windows by number: those of the backward pass, of this layer and of the one above together; the forward ones; the stall.
constexpr int kForwardWork = kMaxWindows, kStallWork = 2 * kMaxWindows, kWorks = kStallWork + 1;
using Works = std::array<Nanos, kWorks>;

// A policy in the making. Once normalised (Search::Normalise), windows and phases that no longer matter are equal in all.
struct State {
  Bytes held;    // with the problem's microbatches in flight
  Bytes stored;  // of one microbatch
  Nanos exposed;
  Nanos early;                           // as in LayerUse
  std::array<Bytes, kMaxPhases> live{};  // of this layer and of the one below
  Works work{};
  Nanos copy_out, copy_in;
  Bytes host;
  LayerPolicy policy{};
  // Of undecided items:
  ItemSet needed = 0;  // something reads it
  ItemNumbers due;     // the last moment of the backward pass that serves what reads them
  ItemNumbers last;    // the last phase in which something reads them, plus one
  ItemNumbers before;  // the last moment before the backward pass that serves what reads them there
  // By rank of copy time per byte: of the first item that could be offloaded and is not, and past the last that is.
  uint8_t first_stored = kMaxItems, past_offloaded = 0;

  auto open() const { return std::tuple(needed, due.bits(), last.bits(), before.bits()); }
};

// What is known of the items before a policy is made.
struct ItemTables {
  ItemTables(const RecomputeProblem& problem, bool top) : count(static_cast<int>(problem.items.size())) {
    std::array<ItemSet, kMaxItems> of_item{};
    for (int i = 0; i < count; ++i) {
      possible[i] = PossiblePlacements(problem, i, top);
      of_item[i] = ItemBit(i);
      for (int j = 0; j < i; ++j) of_item[i] |= Has(problem.items[i].inputs, j) ? of_item[j] : 0;
      Classify(i, static_cast<int>(problem.backward.size()));
    }
    const ItemSet hidden_by_above = hidden_by[0];
    for (int k = 1; k < kMaxPhases; ++k) hidden_by[k] |= hidden_by[k - 1];
    late = critical | hidden_by[kMaxPhases - 1];
    with_inputs.resize(size_t{1} << count);
    most_live.resize(size_t{1} << count);
    for (unsigned set = 1; set < most_live.size(); ++set) {
      const int i = std::countr_zero(set);
      with_inputs[set] = with_inputs[set & (set - 1)] | of_item[i];
      // Made in a window of the layer above it may be there twice, for this layer and for the one below.
      const int times = Has(hidden_by_above, i) ? 2 : Has(late, i) ? 1 : 0;
      most_live[set] = most_live[set & (set - 1)] + problem.items[i].bytes * times;
    }
  }

  void Classify(int i, int windows) {
    if (Contains(possible[i], Placement::kCritical)) critical |= ItemBit(i);
    if (Contains(possible[i], Placement::kStall)) before |= ItemBit(i);
    for (int w = 0; w < kMaxWindows; ++w) {
      if (Contains(possible[i], ForwardWindow(w))) before |= ItemBit(i);
      if (w >= windows) continue;
      if (Contains(possible[i], AboveWindow(w))) hidden_by[0] |= ItemBit(i);
      if (Contains(possible[i], OwnWindow(w))) hidden_by[w + 1] |= ItemBit(i);
    }
  }

  int count;
  std::array<PlacementSet, kMaxItems> possible{};
  ItemSet critical = 0, before = 0, late = 0;     // that can be made on the critical path, before the backward pass, in it
  std::array<ItemSet, kMaxPhases> hidden_by{};    // that can be made in a backward window of this phase or one before it
  std::vector<ItemSet> with_inputs;               // by set: it and all that making it again may make
  std::vector<Bytes> most_live;                   // by set: transient memory in a phase
};

// What is compared of a state before anything else.
struct Summary {
  uint32_t group;
  uint32_t state;  // of grown
  Nanos exposed;
  Bytes held, stored;
  Nanos total;  // with the work in windows
  Bytes live;   // sum over phases
};

// Memory that one search after another of a thread uses: to ask the system for it takes as long as a search.
struct SearchMemory {
  std::vector<State> states, grown;
  std::vector<Summary> kept;
  absl::flat_hash_map<std::tuple<ItemSet, uint64_t, uint64_t, uint64_t>, uint32_t> groups;
};

class Search {
 public:
  Search(const RecomputeProblem& problem, bool top, InFlightUse in_flight, SearchMemory& memory)
      : states_(memory.states), grown_(memory.grown), kept_(memory.kept), groups_(memory.groups), problem_(problem),
        top_(top && problem.early.value > 0), or_more_(in_flight == InFlightUse::kOrMore), tables_(problem, top),
        windows_(static_cast<int>(problem.backward.size())) {
    std::copy(problem.backward.begin(), problem.backward.end(), capacity_.begin());
    std::copy(problem.forward.begin(), problem.forward.end(), capacity_.begin() + kForwardWork);
    capacity_[kStallWork] = problem.stall / problem.layers;
    RankOffloads();
    LYNX_CHECK(!or_more_ || offloads_ == 0);
  }

  std::vector<LayerPolicy> Run() {
    states_.assign(1, Root());
    for (int i = tables_.count - 1; i >= 0; --i) {
      SetRest(i);
      grown_.clear();
      for (const State& state : states_) Decide(i, state);
      Summarise();
      Filter(Windows::kEach);
      if (kept_.size() > kExactStates) Filter(Windows::kInAll);
      states_.clear();
      for (const Summary& summary : kept_) states_.push_back(grown_[summary.state]);
    }
    std::vector<LayerPolicy> policies;
    for (const State& state : states_) policies.push_back(state.policy);
    return policies;
  }

 private:
  enum class Windows : uint8_t { kEach, kInAll };

  void RankOffloads() {
    std::vector<int> by_copy;
    for (int i = 0; i < tables_.count; ++i) {
      if (Contains(tables_.possible[i], Placement::kOffload) && problem_.in_flight > problem_.resident) by_copy.push_back(i);
    }
    const auto copy_per_byte = [&](int i) {
      const RecomputeItem& item = problem_.items[i];
      return static_cast<double>(std::max(item.copy_out, item.copy_in).value) /
             static_cast<double>(std::max<int64_t>(1, item.bytes.value));
    };
    std::stable_sort(by_copy.begin(), by_copy.end(), [&](int a, int b) { return copy_per_byte(a) < copy_per_byte(b); });
    for (size_t rank = 0; rank < by_copy.size(); ++rank) {
      rank_[by_copy[rank]] = static_cast<uint8_t>(rank);
      offloads_ |= ItemBit(by_copy[rank]);
    }
  }

  State Root() const {
    State root;
    for (int i = 0; i < tables_.count; ++i) {
      const SegmentSet readers = problem_.items[i].read_by;
      if (readers != 0) root.needed |= ItemBit(i);
      root.due.Set(i, CriticalMoment(readers == 0 ? windows_ : std::countr_zero(readers)));
      root.last.Set(i, static_cast<int>(std::bit_width(readers)));
      root.before.Set(i, kAnyTime);
    }
    return root;
  }

  // Most that the items before i may add to each window and to the copies.
  void SetRest(int i) {
    rest_ = {};
    rest_out_ = rest_in_ = Nanos(0);
    rest_host_ = Bytes(0);
    for (int j = 0; j < i; ++j) {
      const RecomputeItem& item = problem_.items[j];
      const PlacementSet possible = tables_.possible[j];
      for (int w = 0; w < kMaxWindows; ++w) {
        if (Contains(possible, AboveWindow(w)) || Contains(possible, OwnWindow(w))) rest_[w] += item.cost;
        if (Contains(possible, ForwardWindow(w))) rest_[kForwardWork + w] += item.cost;
      }
      if (Contains(possible, Placement::kStall)) rest_[kStallWork] += item.cost;
      if (!Has(offloads_, j)) continue;
      rest_out_ += item.copy_out;
      rest_in_ += item.copy_in;
      rest_host_ += item.bytes * problem_.in_flight;
    }
  }

  // Adds what may become of the state with item i.
  void Decide(int i, const State& state) {
    if (!Has(state.needed, i)) return Normalise(i, Grow(i, state));
    Keep(i, state);
    for (int moment = 0; moment <= std::min(state.before.Get(i), kStallMoment); ++moment) {
      const Placement placement = moment == kStallMoment ? Placement::kStall : ForwardWindow(moment);
      if (Contains(tables_.possible[i], placement)) MakeEarly(i, state, placement, moment);
    }
    if (state.before.Get(i) != kAnyTime) return;
    const int due = state.due.Get(i);
    for (int w = 0; w < windows_ && w <= due; ++w) {
      if (Contains(tables_.possible[i], AboveWindow(w))) MakeLate(i, state, AboveWindow(w), w);
    }
    for (int w = 0; w < windows_ && OwnMoment(w) <= due; ++w) {
      if (Contains(tables_.possible[i], OwnWindow(w))) MakeLate(i, state, OwnWindow(w), OwnMoment(w));
    }
    if (due >= kFirstCritical && Has(tables_.critical, i)) {
      MakeLate(i, state, Placement::kCritical, CriticalBefore(due));
    }
  }

  // Adds a copy of the state in which item i is decided.
  State& Grow(int i, const State& state) {
    State& next = grown_.emplace_back(state);
    next.needed &= static_cast<ItemSet>(~ItemBit(i));
    next.due.Set(i, 0);
    next.last.Set(i, 0);
    next.before.Set(i, 0);
    return next;
  }

  void Keep(int i, const State& state) {
    const RecomputeItem& item = problem_.items[i];
    const bool offloadable = Has(offloads_, i);
    if (!offloadable || rank_[i] >= state.past_offloaded) {
      State& next = Grow(i, state);
      next.held += item.bytes * problem_.in_flight;
      next.stored += item.bytes;
      if (offloadable) next.first_stored = std::min(next.first_stored, rank_[i]);
      Normalise(i, next);
    }
    const Bytes host = state.host + item.bytes * problem_.in_flight;
    if (!offloadable || rank_[i] >= state.first_stored || host > problem_.host_budget / problem_.layers) return;
    State& next = Grow(i, state);
    next.policy[i] = Placement::kOffload;
    next.held += item.bytes * std::min(problem_.in_flight, problem_.resident);
    next.host = host;
    next.copy_out += item.copy_out;
    next.copy_in += item.copy_in;
    next.past_offloaded = std::max<uint8_t>(next.past_offloaded, rank_[i] + 1);
    Normalise(i, next);
  }

  void MakeEarly(int i, const State& state, Placement placement, int moment) {
    const RecomputeItem& item = problem_.items[i];
    State& next = Grow(i, state);
    next.policy[i] = placement;
    next.held += item.bytes;
    next.work[kForwardWork + moment] += item.cost;
    next.needed |= item.inputs;
    for (unsigned inputs = item.inputs; inputs != 0; inputs &= inputs - 1) {
      const int input = std::countr_zero(inputs);
      next.before.Set(input, std::min(next.before.Get(input), moment));
    }
    Normalise(i, next);
  }

  void MakeLate(int i, const State& state, Placement placement, int moment) {
    const RecomputeItem& item = problem_.items[i];
    const int phase = PhaseOf(moment);
    State& next = Grow(i, state);
    next.policy[i] = placement;
    for (int k = phase; k <= std::max(phase, state.last.Get(i) - 1); ++k) next.live[k] += item.bytes;
    if (placement == Placement::kCritical) {
      next.exposed += item.cost;
      if (top_ && moment == kFirstCritical) next.early = item.collective ? Nanos(0) : next.early + item.cost;
    } else if (IsOwnWindow(placement)) {
      next.work[IndexOf(placement, Placement::kOwn1)] += item.cost;
    } else {
      next.work[moment] += item.cost;
      for (int k = moment + 1; k <= windows_; ++k) next.live[k] += item.bytes;
    }
    next.needed |= item.inputs;
    for (unsigned inputs = item.inputs; inputs != 0; inputs &= inputs - 1) {
      const int input = std::countr_zero(inputs);
      next.due.Set(input, std::min(next.due.Get(input), moment));
      next.last.Set(input, std::max(next.last.Get(input), phase + 1));
    }
    Normalise(i, next);
  }

  // Makes states equal in all that can make no difference any more: the items before `undecided` are. What a window cannot
  // hold is exposed.
  void Normalise(int undecided, State& state) const {
    for (int w = 0; w < kWorks; ++w) {
      state.exposed += Positive(state.work[w] - capacity_[w]);
      state.work[w] = std::clamp(state.work[w], std::min(capacity_[w], Positive(capacity_[w] - rest_[w])), capacity_[w]);
    }
    if (top_) {
      state.early = std::min(state.early, problem_.early);
      if (undecided == 0) {
        state.exposed -= state.early;
        state.early = Nanos(0);
      }
    }
    state.copy_out = std::max(state.copy_out, problem_.copy_out / problem_.layers - rest_out_);
    state.copy_in = std::max(state.copy_in, problem_.copy_in / problem_.layers - rest_in_);
    state.host = std::max(state.host, problem_.host_budget / problem_.layers - rest_host_);
    NormaliseOpen(undecided, state);
  }

  void NormaliseOpen(int undecided, State& state) const {
    std::array<ItemSet, kMaxPhases> due{};  // items that are made in that phase or before it if they are made late
    for (int i = 0; i < undecided; ++i) {
      if (state.before.Get(i) == kAnyTime && Has(tables_.late, i)) {
        due[PhaseOf(CriticalBefore(state.due.Get(i)))] |= ItemBit(i);
        continue;
      }
      // It is not made late.
      state.due.Set(i, 0);
      state.last.Set(i, 0);
      if (!Has(tables_.before, i)) state.before.Set(i, 0);
    }
    const Bytes most = *std::max_element(state.live.begin(), state.live.begin() + windows_ + 1);
    const auto all = static_cast<ItemSet>(ItemBit(undecided) - 1);
    ItemSet made = 0;
    for (int k = 0; k <= windows_; ++k) {
      made = tables_.with_inputs[made | due[k] | (tables_.hidden_by[k] & all)];
      state.live[k] = std::max(state.live[k], most - tables_.most_live[made]);
    }
  }

  // What has grown, group by group of states that leave the same choices open. In this order a state is bettered only by
  // one before it.
  void Summarise() {
    kept_.clear();
    groups_.clear();
    for (const State& state : grown_) {
      const auto group = groups_.try_emplace(state.open(), static_cast<uint32_t>(groups_.size())).first->second;
      Summary summary{group, static_cast<uint32_t>(kept_.size()), state.exposed, state.held, state.stored, state.exposed};
      for (Nanos w : state.work) summary.total += w;
      for (Bytes live : state.live) summary.live += live;
      kept_.push_back(summary);
    }
    std::sort(kept_.begin(), kept_.end(), [](const Summary& a, const Summary& b) {
      return std::tie(a.group, a.exposed, a.held, a.total, a.live, a.state) <
             std::tie(b.group, b.exposed, b.held, b.total, b.live, b.state);
    });
  }

  // Leaves those that no other one of the same group betters.
  void Filter(Windows windows) {
    size_t count = 0, first = 0;  // of those kept so far; in the group
    size_t last = 0;              // of those kept, what bettered another one last: likely to better the next one too
    for (const Summary summary : kept_) {
      if (first < count && kept_[first].group != summary.group) first = last = count;
      const auto betters = [&](const Summary& other) {
        return other.held <= summary.held && other.total <= summary.total && other.live <= summary.live &&
               (!or_more_ || other.stored <= summary.stored) &&
               Betters(grown_[other.state], grown_[summary.state], windows);
      };
      if (last < count && betters(kept_[last])) continue;
      const auto end = kept_.begin() + static_cast<ptrdiff_t>(count);
      const auto better = std::find_if(kept_.begin() + static_cast<ptrdiff_t>(first), end, betters);
      if (better == end) {
        kept_[count++] = summary;
      } else {
        last = static_cast<size_t>(better - kept_.begin());
      }
    }
    kept_.resize(count);
  }

  // The caller has compared what summaries say.
  bool Betters(const State& a, const State& b, Windows windows) const {
    if (a.host > b.host) return false;
    for (int k = 0; k <= windows_; ++k) {
      if (a.live[k] > b.live[k]) return false;
    }
    if (a.first_stored < b.first_stored || a.past_offloaded > b.past_offloaded) return false;
    Nanos exposed = a.exposed + Positive(b.early - a.early) +
                    Positive(std::max(a.copy_out - b.copy_out, a.copy_in - b.copy_in));
    for (int w = 0; w < windows_; ++w) exposed += Positive(a.work[w] - b.work[w]);
    Nanos more;
    for (int w = kForwardWork; w < kWorks; ++w) {
      const Nanos of_window = a.work[w] - b.work[w];
      more += windows == Windows::kEach ? Positive(of_window) : of_window;
    }
    return exposed + Positive(more) <= b.exposed;
  }

  std::vector<State>& states_;
  std::vector<State>& grown_;
  std::vector<Summary>& kept_;
  absl::flat_hash_map<std::tuple<ItemSet, uint64_t, uint64_t, uint64_t>, uint32_t>& groups_;
  const RecomputeProblem& problem_;
  const bool top_;  // and there is a window that hides what comes early
  const bool or_more_;
  const ItemTables tables_;
  const int windows_;
  Works capacity_{};
  std::array<uint8_t, kMaxItems> rank_{};
  ItemSet offloads_ = 0;  // items that may be
  Works rest_{};
  Nanos rest_out_, rest_in_;
  Bytes rest_host_;
};

LayerPoint PointOf(const RecomputeProblem& problem, bool top, const LayerPolicy& policy) {
  const absl::StatusOr<LayerUse> use = UseOf(problem, policy, top);
  LYNX_CHECK(use.ok());
  LayerPoint point{.policy = policy, .use = *use, .kept_exposed = use->exposed};
  for (int i = 0; i < static_cast<int>(problem.items.size()); ++i) {
    const Placement placement = policy[i];
    if (placement == Placement::kStore) continue;
    if (placement == Placement::kOffload) {
      point.offloaded += problem.items[i].bytes;
    } else if (IsForwardWindow(placement) || placement == Placement::kStall) {
      point.once += problem.items[i].bytes;
    } else {
      point.late_items |= ItemBit(i);
      if (placement == Placement::kCritical) point.kept_exposed -= problem.items[i].cost;
    }
  }
  const Bytes resident = point.offloaded * std::min(problem.in_flight, problem.resident);
  point.stored = (use->held - point.once - resident) / problem.in_flight;
  point.exposed = use->exposed - (top ? std::min(use->early, problem.early) : Nanos(0));
  for (size_t w = 0; w < problem.backward.size(); ++w) {
    point.exposed += Positive(use->own_work[w] + use->above_work[w] - problem.backward[w]);
  }
  for (int k = 0; k < problem.segments(); ++k) point.transient = std::max(point.transient, use->live[k] + use->above[k]);
  return point;
}

}  // namespace

Bytes HeldInFlight(const LayerPoint& point, const RecomputeProblem& problem) {
  return point.stored * problem.in_flight + point.once + point.offloaded * std::min(problem.in_flight, problem.resident);
}

std::vector<LayerPoint> LayerPoints(const RecomputeProblem& problem, bool top, InFlightUse in_flight) {
  thread_local SearchMemory memory;
  std::vector<LayerPoint> points;
  for (const LayerPolicy& policy : Search(problem, top, in_flight, memory).Run()) {
    points.push_back(PointOf(problem, top, policy));
  }
  return points;
}

}  // namespace lynx
