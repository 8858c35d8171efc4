#include "planner/recompute/layer_pareto.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <span>
#include <tuple>
#include <utility>

#include "common/check.h"
#include "planner/recompute/packed_numbers.h"

namespace lynx {
namespace {

constexpr bool Has(unsigned set, int i) { return (set >> i & 1) != 0; }
constexpr ItemSet ItemBit(int i) { return static_cast<ItemSet>(1 << i); }
constexpr Nanos kNever{std::numeric_limits<int64_t>::max() / 2};
constexpr Nanos Excess(Nanos work, Nanos capacity) { return std::max(Nanos(0), work - capacity); }

// Finds, for each set of items, the least exposed time if exactly these items are recomputed in the forward windows and in the
// layer's share of the stall. The windows are considered one after another, and each takes a part of the set; the reader of an
// item never comes earlier than the item. The last window takes the longest time to compute, and most sets do not need it. So
// its result for a set is computed only when the result is asked for.
class EarlyTimes {
 public:
  EarlyTimes(const RecomputeProblem& problem, const std::vector<ItemSet>& inputs)
      : inputs_(inputs), exposed_(inputs.size(), kNever), cost_(inputs.size()) {
    exposed_[0] = Nanos(0);
    for (unsigned set = 1; set < inputs.size(); ++set) {
      cost_[set] = cost_[set & (set - 1)] + problem.items[std::countr_zero(set)].cost;
    }
    for (size_t w = 0; w < problem.forward.size(); ++w) {
      AddWindow(problem, ForwardWindow(static_cast<int>(w)), problem.forward[w]);
    }
    AddWindow(problem, Placement::kStall, problem.stall / problem.layers);
    without_ = exposed_;
    known_.assign(inputs.size(), windows_.empty());
    known_[0] = true;
  }

  Nanos Exposed(ItemSet early) {
    if (!known_[early]) FindLast(early);
    return exposed_[early];
  }
  // Items that can be early.
  ItemSet possible() const { return possible_; }
  // Writes the placement of each item of the set.
  void Write(ItemSet early, LayerPolicy& policy) {
    LYNX_CHECK(Exposed(early) < kNever);
    for (size_t w = windows_.size(); w-- > 0;) {
      const ItemSet here = windows_[w].taken[early];
      for (unsigned rest = here; rest != 0; rest &= rest - 1) policy[std::countr_zero(rest)] = windows_[w].placement;
      early &= static_cast<ItemSet>(~here);
    }
    LYNX_CHECK(early == 0);
  }

 private:
  struct Window {
    Placement placement;
    Nanos capacity;
    ItemSet allowed;
    std::vector<ItemSet> taken;  // for each set, the part of the set that is recomputed in this window
  };

  void AddWindow(const RecomputeProblem& problem, Placement placement, Nanos capacity) {
    ItemSet allowed = 0;
    for (int i = 0; i < static_cast<int>(problem.items.size()); ++i) {
      if (Contains(PossiblePlacements(problem, i, LayerPlace::kTop), placement)) allowed |= ItemBit(i);
    }
    if (allowed == 0) return;
    if (!windows_.empty()) FindAll();
    possible_ |= allowed;
    room_ += capacity;
    windows_.push_back({placement, capacity, allowed, std::vector<ItemSet>(exposed_.size())});
  }

  // Computes the exposed time of all sets, with the windows that have been added so far.
  void FindAll() {
    without_ = exposed_;
    known_.assign(exposed_.size(), false);
    known_[0] = true;
    // Subsets of a set have smaller numbers, so they come first.
    for (unsigned set = possible_ & -possible_; set != 0; set = (set - possible_) & possible_) {
      FindLast(static_cast<ItemSet>(set));
    }
  }

  // Computes the exposed time of a set. The last window takes that part of the set with which the exposed time is least.
  void FindLast(ItemSet set) {
    Window& window = windows_.back();
    Nanos& best = exposed_[set];
    // A lower bound for `best`: the exposed time of a subset is never more than the exposed time of the set.
    Nanos least = Excess(cost_[set], room_);
    for (unsigned rest = set; rest != 0; rest &= rest - 1) {
      const unsigned fewer = set & ~(rest & -rest);
      if (known_[fewer]) least = std::max(least, exposed_[fewer]);
    }
    for (unsigned here = set & window.allowed; here != 0 && best > least; here = (here - 1) & set & window.allowed) {
      const unsigned before = set & ~here;
      const Nanos exposed = without_[before] + Excess(cost_[here], window.capacity);
      if (exposed >= best || (inputs_[before] & here) != 0) continue;
      best = exposed;
      window.taken[set] = static_cast<ItemSet>(here);
    }
    known_[set] = true;
  }

  const std::vector<ItemSet>& inputs_;           // the index is the set
  std::vector<Nanos> exposed_, without_, cost_;  // the index is the set; `without_`: exposed time without the last window
  std::vector<char> known_;                      // for each set, whether exposed_ includes the last window
  std::vector<Window> windows_;
  Nanos room_;
  ItemSet possible_ = 0;
};

// Tables whose index is a set of items.
struct SetTables {
  explicit SetTables(const RecomputeProblem& problem)
      : bytes(size_t{1} << problem.items.size()), inputs(bytes.size()), readers(bytes.size()) {
    for (unsigned set = 1; set < bytes.size(); ++set) {
      const RecomputeItem& item = problem.items[std::countr_zero(set)];
      bytes[set] = bytes[set & (set - 1)] + item.bytes;
      inputs[set] = inputs[set & (set - 1)] | item.inputs;
    }
    for (int i = 0; i < static_cast<int>(problem.items.size()); ++i) {
      if (problem.items[i].read_by != 0) read |= ItemBit(i);
      for (unsigned inputs = problem.items[i].inputs; inputs != 0; inputs &= inputs - 1) {
        readers[inputs & -inputs] |= ItemBit(i);
      }
    }
    for (unsigned set = 1; set < bytes.size(); ++set) readers[set] |= readers[set & (set - 1)] | readers[set & -set];
  }

  std::vector<Bytes> bytes;
  // `inputs`: items that the recomputation of the set reads. `readers`: items whose recomputation reads an item of the set.
  std::vector<ItemSet> inputs, readers;
  ItemSet read = 0;  // items that segments read
};

// A way to treat the items that are not late. It says which items are early, which are offloaded, and what this costs. All
// other items are stored if something reads them.
struct Kept {
  Nanos exposed;  // time of work that does not fit into the forward windows and into the layer's shares of stall and copy times
  Bytes held;     // bytes for all microbatches in flight of the problem
  Bytes stored;   // stored bytes of one microbatch
  ItemSet early = 0, offloaded = 0;
};

// Finds the best ways to treat the items that are not in a set of late items. Items are decided from the last to the first, so
// all readers of an item are decided before the item.
class KeptPareto {
 public:
  KeptPareto(const RecomputeProblem& problem, const SetTables& tables, InFlightUse in_flight)
      : problem_(problem), tables_(tables), or_more_(in_flight == InFlightUse::kOrMore), early_(problem, tables.inputs),
        least_held_(tables.bytes.size()), least_stored_(tables.bytes.size()) {
    RankOffloads();
    LYNX_CHECK(!or_more_ || by_copy_.empty());
    for (unsigned set = 1; set < least_held_.size(); ++set) {
      const int i = std::countr_zero(set);
      const Bytes stored = LeastStored(i);
      least_stored_[set] = least_stored_[set & (set - 1)] + stored;
      least_held_[set] =
          least_held_[set & (set - 1)] + (Has(early_.possible(), i) ? std::min(stored, problem.items[i].bytes) : stored);
    }
  }

  EarlyTimes& early() { return early_; }
  // Returns a lower bound for a set of late items: no way to treat the other items has less exposed time, held bytes or stored
  // bytes.
  Kept FloorOf(ItemSet late) const {
    const ItemSet needed = (tables_.read | tables_.inputs[late]) & static_cast<ItemSet>(~late);
    const ItemSet early = needed & early_.possible() & static_cast<ItemSet>(~tables_.readers[late]);
    const ItemSet kept = needed & static_cast<ItemSet>(~early);
    return {Nanos(0), tables_.bytes[early] + least_stored_[kept], offloadable_ == 0 ? tables_.bytes[kept] : Bytes(0)};
  }
  // Returns the best ways to treat the other items if the items of `late` are late. The list has no order, and is valid until
  // the next call.
  const std::vector<Kept>& Of(ItemSet late) {
    late_ = late;
    kept_.clear();
    if (AddAllEarly()) return kept_;
    const auto others = static_cast<ItemSet>(~late & (least_held_.size() - 1));
    Decide(others, {});
    return kept_;
  }

 private:
  void RankOffloads() {
    for (int i = 0; i < static_cast<int>(problem_.items.size()); ++i) {
      const bool saves = problem_.in_flight > problem_.resident;
      if (!saves || !Contains(PossiblePlacements(problem_, i, LayerPlace::kTop), Placement::kOffload)) continue;
      by_copy_.push_back(i);
      offloadable_ |= ItemBit(i);
    }
    const auto copy_per_byte = [&](int i) {
      const RecomputeItem& item = problem_.items[i];
      return static_cast<double>(std::max(item.copy_out, item.copy_in).value) /
             static_cast<double>(std::max<int64_t>(1, item.bytes.value));
    };
    std::stable_sort(by_copy_.begin(), by_copy_.end(), [&](int a, int b) { return copy_per_byte(a) < copy_per_byte(b); });
  }

  // The least device memory that an item takes if it is stored or offloaded.
  Bytes LeastStored(int i) const {
    return problem_.items[i].bytes *
           (Has(offloadable_, i) ? std::min(problem_.in_flight, problem_.resident) : problem_.in_flight);
  }

  // A state in which some items are decided. `held` is the memory of the decided items if every item that can be offloaded is
  // offloaded.
  struct State {
    Bytes held, stored;
    ItemSet early = 0, kept = 0;
  };

  // Tries to make all items early that can be early. If they all fit into the windows and need no further items, no other way
  // is better: then adds this way and returns true.
  bool AddAllEarly() {
    if (offloadable_ != 0) return false;
    const ItemSet needed = (tables_.read | tables_.inputs[late_]) & static_cast<ItemSet>(~late_);
    const ItemSet early = needed & early_.possible() & static_cast<ItemSet>(~tables_.readers[late_]);
    if (early_.Exposed(early).value != 0 || (tables_.inputs[early] & ~(needed | late_)) != 0) return false;
    const Bytes stored = tables_.bytes[needed & static_cast<ItemSet>(~early)];
    kept_.push_back({Nanos(0), stored * problem_.in_flight + tables_.bytes[early], stored, early});
    return true;
  }

  // Decides the last item of `rest`, then calls itself for the other items.
  void Decide(ItemSet rest, const State& state) {
    const ItemSet needed = tables_.read | tables_.inputs[state.early] | tables_.inputs[late_];
    const Nanos exposed = early_.Exposed(state.early);
    if (exposed >= kNever) return;
    const Kept floor{exposed, state.held + least_held_[rest & needed], offloadable_ == 0 ? state.stored : Bytes(0)};
    if (Bettered(floor)) return;
    // If nothing reads an item, the item is neither stored nor recomputed, so the loop skips it. Whether an item is read is
    // known only for the last item of `rest`, because all its readers are decided.
    while (rest != 0) {
      const int i = std::bit_width(rest) - 1;
      rest &= static_cast<ItemSet>(~ItemBit(i));
      if (!Has(needed, i)) continue;
      const RecomputeItem& item = problem_.items[i];
      if (Has(early_.possible(), i) && (item.inputs & late_) == 0) {
        State early = state;
        early.held += item.bytes;
        early.early |= ItemBit(i);
        Decide(rest, early);
      }
      State kept = state;
      kept.held += LeastStored(i);
      kept.stored += item.bytes;
      kept.kept |= ItemBit(i);
      return Decide(rest, kept);
    }
    Finish(state);
  }

  // Adds the way without offloading. Then offloads one item after another, as long as the items fit into the layer's share of
  // the host's memory, and adds each of these ways. Items with the least copy time per byte come first.
  void Finish(const State& state) {
    Kept kept{early_.Exposed(state.early), tables_.bytes[state.kept] * problem_.in_flight + tables_.bytes[state.early],
              state.stored, state.early};
    Add(kept);
    Nanos copy_out, copy_in;
    Bytes host;
    for (const int i : by_copy_) {
      if (!Has(state.kept, i)) continue;
      const RecomputeItem& item = problem_.items[i];
      if (host + item.bytes * problem_.in_flight > problem_.host_budget / problem_.layers) continue;
      host += item.bytes * problem_.in_flight;
      copy_out += item.copy_out;
      copy_in += item.copy_in;
      kept.exposed = early_.Exposed(state.early) + std::max(Excess(copy_out, problem_.copy_out / problem_.layers),
                                                            Excess(copy_in, problem_.copy_in / problem_.layers));
      kept.held -= item.bytes * (problem_.in_flight - problem_.resident);
      kept.stored -= item.bytes;
      kept.offloaded |= ItemBit(i);
      Add(kept);
    }
  }

  bool Betters(const Kept& a, const Kept& b) const {
    return a.exposed <= b.exposed && a.held <= b.held && (!or_more_ || a.stored <= b.stored);
  }
  bool Bettered(const Kept& by) const {
    return std::any_of(kept_.begin(), kept_.end(), [&](const Kept& known) { return Betters(known, by); });
  }

  void Add(const Kept& kept) {
    if (Bettered(kept)) return;
    std::erase_if(kept_, [&](const Kept& known) { return Betters(kept, known); });
    kept_.push_back(kept);
  }

  const RecomputeProblem& problem_;
  const SetTables& tables_;
  const bool or_more_;
  EarlyTimes early_;
  std::vector<int> by_copy_;  // items that may be offloaded; items with the least copy time per byte come first
  ItemSet offloadable_ = 0;
  std::vector<Bytes> least_held_, least_stored_;  // the index is the set; least_stored_ assumes that no item of the set is
                                                  // early
  ItemSet late_ = 0;
  std::vector<Kept> kept_;
};

// The value of a layer's policy.
struct Value {
  Nanos exposed;
  Bytes held, stored, transient;

  auto operator<=>(const Value&) const = default;
};

// A list of the values of policies. It finds a value that dominates a given value.
class Values {
 public:
  static constexpr size_t kNone = std::numeric_limits<size_t>::max();

  // `most` is the largest value that is expected; with a larger value, FindBetter only gets slower. If `or_more` is false,
  // stored bytes do not matter.
  Values(const Value& most, bool or_more) : or_more_(or_more), packing_(Numbers(most)) {}

  void Add(const Value& value) {
    values_.push_back(value);
    packed_.push_back(packing_.Pack(Numbers(value)));
  }
  void Swap(size_t a, size_t b) {
    std::swap(values_[a], values_[b]);
    std::swap(packed_[a], packed_[b]);
  }
  bool Betters(size_t a, const Value& b) const { return Betters(values_[a], b); }
  // Returns the index of the first value that dominates `value` or equals it.
  size_t FindBetter(const Value& value) const {
    const uint64_t packed = packing_.Pack(Numbers(value));
    for (size_t i = 0; i < packed_.size(); ++i) {
      if (PackedNumbers::MayAllBeAtMost(packed_[i], packed) && Betters(values_[i], value)) return i;
    }
    return kNone;
  }

 private:
  PackedNumbers::Numbers Numbers(const Value& value) const {
    return {value.exposed.value, value.held.value, or_more_ ? value.stored.value : 0, value.transient.value};
  }
  bool Betters(const Value& a, const Value& b) const {
    return a.held <= b.held && a.transient <= b.transient && a.exposed <= b.exposed && (!or_more_ || a.stored <= b.stored);
  }

  const bool or_more_;
  const PackedNumbers packing_;
  std::vector<Value> values_;
  std::vector<uint64_t> packed_;
};

// Joins the two halves of a policy. The first half is the Pareto front of the late items (of inner and of top layers). The
// second half is the ways to treat the other items.
class Search {
 public:
  Search(const RecomputeProblem& problem, InFlightUse in_flight)
      : problem_(problem), or_more_(in_flight == InFlightUse::kOrMore), tables_(problem), kept_(problem, tables_, in_flight) {}

  // Returns one list of points for each of `fronts`.
  std::vector<std::vector<LayerPoint>> Run(std::span<BackwardPareto* const> fronts) {
    std::vector<Joined> joined;
    for (BackwardPareto* const front : fronts) joined.push_back({.late = front, .values = NoValues()});
    for (const auto& [exposed, transient, late] : InOrder(*fronts.front())) {
      const Kept least = kept_.FloorOf(late);
      bool hopeless = true;
      for (Joined& of : joined) {
        of.floor = &of == &joined.front() ? BackwardPareto::Floor{transient, exposed} : of.late->FloorOf(late);
        of.hopeless = Hopeless({&least, 1}, of);
        hopeless = hopeless && of.hopeless;
      }
      if (hopeless) continue;
      const std::vector<Kept>& kept = kept_.Of(late);
      for (Joined& of : joined) {
        if (!of.hopeless && !Hopeless(kept, of)) Join(late, kept, of);
      }
    }
    std::vector<std::vector<LayerPoint>> points;
    for (Joined& of : joined) points.push_back(PointsOf(of.found, *of.late));
    return points;
  }

 private:
  // One choice for a whole layer: which items are late, early or offloaded, and the value of this choice.
  struct Found {
    Value value;
    ItemSet late = 0, early = 0, offloaded = 0;
    uint16_t late_point = 0;  // index of its point in the Pareto front of the late items

    auto key() const { return std::tie(value, late, early, offloaded); }
  };

  // Results for inner layers, or for the top layer.
  struct Joined {
    BackwardPareto* late;
    Values values;                     // values of `found`
    BackwardPareto::Floor floor = {};  // lower bound for the current set of late items
    bool hopeless = false;             // no policy with the current set can give a new point
    std::vector<Found> found = {};
    size_t last = 0;  // index of the last point that dominated a candidate; it probably dominates the next candidate, too
    // A value that no point dominated at the time when `found` had open_at entries. It is stored because Bettered is often
    // called again for the same value.
    Value open = {};
    size_t open_at = std::numeric_limits<size_t>::max();
  };

  Values NoValues() const {
    Value most;
    for (const RecomputeItem& item : problem_.items) {
      most.exposed += item.cost;
      most.transient += item.bytes * 2;
      most.stored += item.bytes;
    }
    most.held = most.stored * problem_.in_flight;
    return {most, or_more_};
  }

  // The sets of late items with their lower bounds. The sets with the smallest bound on exposed time come first.
  std::vector<std::tuple<Nanos, Bytes, ItemSet>> InOrder(const BackwardPareto& front) const {
    std::vector<std::tuple<Nanos, Bytes, ItemSet>> order;
    order.reserve(tables_.bytes.size());
    for (unsigned late = 0; late < tables_.bytes.size(); ++late) {
      if ((late & ~(front.possible() & (tables_.read | tables_.inputs[late]))) != 0) continue;
      const BackwardPareto::Floor floor = front.FloorOf(static_cast<ItemSet>(late));
      order.emplace_back(floor.exposed, floor.transient, static_cast<ItemSet>(late));
    }
    std::sort(order.begin(), order.end());
    return order;
  }

  static Value Join(const Kept& kept, Nanos exposed, Bytes transient) {
    return {kept.exposed + exposed, kept.held, kept.stored, transient};
  }

  // True if a known point dominates every policy that joins one of `kept` with the current late items.
  bool Hopeless(std::span<const Kept> kept, Joined& of) const {
    return std::all_of(kept.begin(), kept.end(),
                       [&](const Kept& with) { return Bettered(Join(with, of.floor.exposed, of.floor.transient), of); });
  }

  void Join(ItemSet late, const std::vector<Kept>& kept, Joined& of) const {
    uint16_t index = 0;
    for (const BackwardPoint& point : of.late->Of(late)) {
      for (const Kept& with : kept) {
        const Value value = Join(with, point.exposed, point.transient);
        if (Bettered(value, of)) continue;
        of.found.push_back({value, late, with.early, with.offloaded, index});
        of.values.Add(value);
      }
      ++index;
    }
  }

  bool Bettered(const Value& by, Joined& of) const {
    if (of.found.empty() || (of.open_at == of.found.size() && of.open == by)) return false;
    if (of.values.Betters(of.last, by)) return true;
    const size_t known = of.values.FindBetter(by);
    if (known == Values::kNone) {
      of.open = by;
      of.open_at = of.found.size();
      return false;
    }
    // Moves the dominating point towards the front of the list: points that dominate often are then found sooner.
    of.last = known / 2;
    std::swap(of.found[known], of.found[of.last]);
    of.values.Swap(known, of.last);
    return true;
  }

  std::vector<LayerPoint> PointsOf(std::vector<Found>& found, BackwardPareto& front) {
    std::sort(found.begin(), found.end(), [](const Found& a, const Found& b) { return a.key() < b.key(); });
    Values values = NoValues();
    std::vector<LayerPoint> points;
    points.reserve(found.size());
    for (const Found& next : found) {
      if (values.FindBetter(next.value) != Values::kNone) continue;
      points.push_back(PointOf(next, front));
      values.Add(next.value);
    }
    return points;
  }

  LayerPoint PointOf(const Found& found, BackwardPareto& front) {
    const BackwardPoint& late = front.Of(found.late)[found.late_point];
    LayerPoint point{.policy = late.policy, .late_items = found.late};
    kept_.early().Write(found.early, point.policy);
    for (unsigned rest = found.offloaded; rest != 0; rest &= rest - 1) {
      point.policy[std::countr_zero(rest)] = Placement::kOffload;
    }
    const absl::StatusOr<LayerUse> use = UseOf(problem_, point.policy, front.place());
    LYNX_CHECK(use.ok());
    point.use = *use;
    point.kept_exposed = use->exposed;
    for (unsigned rest = found.late; rest != 0; rest &= rest - 1) {
      const int i = std::countr_zero(rest);
      if (point.policy[i] == Placement::kCritical) point.kept_exposed -= problem_.items[i].cost;
    }
    point.stored = found.value.stored;
    point.once = tables_.bytes[found.early];
    point.offloaded = tables_.bytes[found.offloaded];
    point.transient = found.value.transient;
    point.exposed = point.kept_exposed + late.exposed;
    return point;
  }

  const RecomputeProblem& problem_;
  const bool or_more_;
  const SetTables tables_;
  KeptPareto kept_;
};

}  // namespace

Bytes HeldInFlight(const LayerPoint& point, const RecomputeProblem& problem) {
  return point.stored * problem.in_flight + point.once + point.offloaded * std::min(problem.in_flight, problem.resident);
}

std::vector<std::vector<LayerPoint>> PointsOfLayers(const RecomputeProblem& problem, std::span<BackwardPareto* const> fronts,
                                                    InFlightUse in_flight) {
  return Search(problem, in_flight).Run(fronts);
}

std::vector<LayerPoint> LayerPoints(const RecomputeProblem& problem, LayerPlace place, InFlightUse in_flight) {
  BackwardPareto front(problem, place);
  BackwardPareto* const fronts[] = {&front};
  return std::move(PointsOfLayers(problem, fronts, in_flight).front());
}

}  // namespace lynx
