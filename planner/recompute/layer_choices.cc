#include "planner/recompute/layer_choices.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "planner/recompute/item_numbers.h"
#include "planner/recompute/packed_numbers.h"

namespace lynx {
namespace {

constexpr bool Has(unsigned set, int i) { return (set >> i & 1) != 0; }
constexpr ItemSet ItemBit(int i) { return static_cast<ItemSet>(1 << i); }
constexpr Nanos Positive(Nanos t) { return std::max(Nanos(0), t); }

// The moments of the backward pass as small numbers in the order of time: b1 .. b4, then c0 o1 c1 o2 ... (recompute_problem.h)
constexpr int kFirstCritical = kMaxWindows;
constexpr int PhaseOf(int moment) { return moment <= kFirstCritical ? 0 : (moment - kFirstCritical + 1) / 2; }

static_assert(kFirstCritical + 2 * kMaxWindows < 16, "ItemNumbers holds moments");

// Tables of a layer's items, for the search of BackwardParts and of KeptParts. The index of `bytes` and `inputs` is a set of
// items: `bytes` are the bytes of the set, and `inputs` are the items that the recomputation of the set reads.
struct ItemTables {
  ItemTables(const RecomputeProblem& problem, LayerPlace place) {
    const int count = static_cast<int>(problem.items.size());
    bytes.resize(size_t{1} << count);
    inputs.resize(size_t{1} << count);
    for (unsigned set = 1; set < bytes.size(); ++set) {
      const int i = std::countr_zero(set);
      bytes[set] = bytes[set & (set - 1)] + problem.items[i].bytes;
      inputs[set] = inputs[set & (set - 1)] | problem.items[i].inputs;
    }
    for (int i = 0; i < count; ++i) {
      possible.push_back(PossiblePlacements(problem, i, place));
      if (problem.items[i].read_by != 0) read |= ItemBit(i);
    }
    all = static_cast<ItemSet>(bytes.size() - 1);
  }

  std::vector<Bytes> bytes;
  std::vector<ItemSet> inputs;
  std::vector<PlacementSet> possible;  // the index is the item
  ItemSet read = 0;                    // items that segments read
  ItemSet all = 0;
};

// A state of the search for BackwardParts: some items are decided. Items are decided from the last to the first, so all readers
// of an item are decided before the item.
struct LateState {
  BackwardPart part;
  ItemSet set = 0;     // late items
  ItemSet inputs = 0;  // items that the recomputation of the late items reads
  ItemNumbers due;     // for undecided items: the last moment that is early enough for all their readers
  ItemNumbers last;    // for undecided items: the last phase in which something reads them, plus one

  void Forget(int i) {
    due.Set(i, 0);
    last.Set(i, 0);
  }
};

class LateMaking {
 public:
  LateMaking(const RecomputeProblem& problem, LayerPlace place)
      : problem_(problem), place_(place), windows_(static_cast<int>(problem.backward.size())) {
    for (int i = 0; i < static_cast<int>(problem.items.size()); ++i) {
      possible_[i] = PossiblePlacements(problem, i, place);
      if (problem.items[i].read_by != 0) read_ |= ItemBit(i);
    }
  }

  int windows() const { return windows_; }

  LateState Root() const {
    LateState root;
    for (int i = 0; i < static_cast<int>(problem_.items.size()); ++i) {
      const SegmentSet readers = problem_.items[i].read_by;
      root.due.Set(i, kFirstCritical + 2 * (readers == 0 ? windows_ : std::countr_zero(readers)));
      root.last.Set(i, static_cast<int>(std::bit_width(readers)));
    }
    return root;
  }

  // Calls visit(state) for every moment at which item i can be recomputed after `state`.
  template <class Visit>
  void ForEachMoment(int i, const LateState& state, const Visit& visit) const {
    if (!Has(read_ | state.inputs, i)) return;
    const int due = state.due.Get(i);
    const PlacementSet possible = possible_[i];
    for (int w = 0; w < windows_ && w <= due; ++w) {
      if (Contains(possible, AboveWindow(w))) visit(Make(i, AboveWindow(w), w, state));
    }
    for (int w = 0; w < windows_; ++w) {
      const int moment = kFirstCritical + 2 * w + 1;
      if (moment <= due && Contains(possible, OwnWindow(w))) visit(Make(i, OwnWindow(w), moment, state));
    }
    if (due >= kFirstCritical && Contains(possible, Placement::kCritical)) {
      visit(Make(i, Placement::kCritical, due - (due - kFirstCritical) % 2, state));
    }
  }

 private:
  LateState Make(int i, Placement placement, int moment, const LateState& state) const {
    LateState next = state;
    BackwardPart& part = next.part;
    const RecomputeItem& item = problem_.items[i];
    const int phase = PhaseOf(moment);
    next.set |= ItemBit(i);
    next.inputs |= item.inputs;
    next.Forget(i);
    part.policy[i] = placement;
    for (int k = phase; k <= std::max(phase, state.last.Get(i) - 1); ++k) part.live[k] += item.bytes;
    if (placement == Placement::kCritical) {
      part.exposed += item.cost;
      if (place_ == LayerPlace::kTop && moment == kFirstCritical)
        part.early = item.collective ? Nanos(0) : part.early + item.cost;
    } else if (IsOwnWindow(placement)) {
      part.own_work[IndexOf(placement, Placement::kOwn1)] += item.cost;
    } else {
      part.above_work[moment] += item.cost;
      for (int k = moment + 1; k <= windows_; ++k) part.above[k] += item.bytes;
    }
    for (unsigned inputs = item.inputs; inputs != 0; inputs &= inputs - 1) {
      const int input = std::countr_zero(inputs);
      next.due.Set(input, std::min(next.due.Get(input), moment));
      next.last.Set(input, std::max(next.last.Get(input), phase + 1));
    }
    return next;
  }

  const RecomputeProblem& problem_;
  const LayerPlace place_;
  const int windows_;
  std::array<PlacementSet, kMaxItems> possible_{};
  ItemSet read_ = 0;  // items that segments read
};

// Finds the BackwardParts of every set of late items. All states of one item are computed before the next item is decided.
// Among states with equal `due`, `last` and `set`, only those that no other state dominates are kept.
class BackwardParetoSearch {
 public:
  BackwardParetoSearch(const RecomputeProblem& problem, const LateMaking& making, LayerPlace place)
      : problem_(problem), items_(static_cast<int>(problem.items.size())), making_(making), place_(place),
        packing_(MostNumbers(problem)) {}

  // Returns the parts of every set of late items; the index is the set.
  std::vector<std::vector<BackwardPart>> OfAllSets() {
    std::vector<std::vector<BackwardPart>> parts(size_t{1} << items_);
    for (const Node& node : Grow(std::nullopt, std::numeric_limits<size_t>::max())) {
      if (!node.dominated) parts[node.state.set].push_back(node.state.part);
    }
    return parts;
  }
  // Returns parts for the set `late`. After each item the search keeps at most `beam` states.
  std::vector<BackwardPart> Of(ItemSet late, size_t beam) {
    std::vector<BackwardPart> parts;
    for (const Node& node : Grow(late, beam)) {
      if (!node.dominated) parts.push_back(node.state.part);
    }
    return parts;
  }

 private:
  struct Node {
    LateState state;
    bool dominated = false;
  };
  // An element of links_. links_ has one element for each element of grown_.
  struct Link {
    uint64_t packed;  // see NumbersOf
    int32_t next;     // index in grown_ of the next state with the same `due`, `last` and `set`; -1: there is no next state
  };

  // The sum of `live`, the sum of `above`, the exposed time, and 0. If a part dominates another part, none of its numbers is
  // larger than the same number of the other part.
  static PackedNumbers::Numbers NumbersOf(const BackwardPart& part) {
    PackedNumbers::Numbers numbers{};
    for (const Bytes bytes : part.live) numbers[0] += bytes.value;
    for (const Bytes bytes : part.above) numbers[1] += bytes.value;
    numbers[2] = part.exposed.value;
    return numbers;
  }
  static PackedNumbers::Numbers MostNumbers(const RecomputeProblem& problem) {
    PackedNumbers::Numbers most{};
    for (const RecomputeItem& item : problem.items) {
      most[0] += item.bytes.value * problem.segments();
      most[1] += item.bytes.value * problem.segments();
      most[2] += item.cost.value;
    }
    return most;
  }

  // Returns the states after all items are decided, for all sets of late items, or only for the set `only`.
  std::vector<Node> Grow(std::optional<ItemSet> only, size_t beam) {
    std::vector<Node> nodes{{making_.Root()}};
    for (int i = items_ - 1; i >= 0; --i) {
      grown_.clear();
      links_.clear();
      heads_.clear();
      for (const Node& node : nodes) {
        if (node.dominated) continue;
        if (!only || !Has(*only, i)) {
          LateState not_late = node.state;
          not_late.Forget(i);
          Add(not_late);
        }
        if (only && !Has(*only, i)) continue;
        making_.ForEachMoment(i, node.state, [&](const LateState& state) { Add(state); });
      }
      nodes.swap(grown_);
      if (nodes.size() > beam) Narrow(nodes, beam);
    }
    return nodes;
  }

  // Keeps `beam` states: those with the least exposed time (AlikeExposed), and among equal states those with the least
  // transient memory.
  void Narrow(std::vector<Node>& nodes, size_t beam) const {
    std::erase_if(nodes, [](const Node& node) { return node.dominated; });
    std::vector<std::tuple<Nanos, Bytes, size_t>> order;
    for (size_t n = 0; n < nodes.size(); ++n) {
      const BackwardPart& part = nodes[n].state.part;
      order.emplace_back(AlikeExposed(problem_, place_, part), AlikeTransient(problem_, part), n);
    }
    if (order.size() <= beam) return;
    std::partial_sort(order.begin(), order.begin() + static_cast<ptrdiff_t>(beam), order.end());
    std::vector<Node> kept;
    for (size_t n = 0; n < beam; ++n) kept.push_back(nodes[std::get<2>(order[n])]);
    nodes = std::move(kept);
  }

  void Add(const LateState& state) {
    const auto [head, inserted] = heads_.try_emplace(std::tuple(state.set, state.due.bits(), state.last.bits()), -1);
    const uint64_t packed = packing_.Pack(NumbersOf(state.part));
    for (int32_t n = head->second; n >= 0; n = links_[n].next) {
      if (!PackedNumbers::MayAllBeAtMost(links_[n].packed, packed)) continue;
      if (!grown_[n].dominated && Dominates(grown_[n].state.part, state.part)) return;
    }
    for (int32_t n = head->second; n >= 0; n = links_[n].next) {
      if (!PackedNumbers::MayAllBeAtMost(packed, links_[n].packed)) continue;
      if (Dominates(state.part, grown_[n].state.part)) grown_[n].dominated = true;
    }
    grown_.push_back({state, false});
    links_.push_back({packed, head->second});
    head->second = static_cast<int32_t>(grown_.size()) - 1;
  }

  // Returns true if `a` can replace `b` in every stage: `a` has no more exposed time and no more memory than `b`, and does at
  // least as much work in every window. If `a`'s additional work does not fit into a window, it becomes exposed time; even then
  // `a` has no more exposed time than `b`, because both parts recompute the same items.
  bool Dominates(const BackwardPart& a, const BackwardPart& b) const {
    if (a.exposed > b.exposed || a.early < b.early) return false;
    for (int w = 0; w < making_.windows(); ++w) {
      if (a.above_work[w] < b.above_work[w] || a.own_work[w] < b.own_work[w]) return false;
    }
    for (int k = 0; k <= making_.windows(); ++k) {
      if (a.live[k] > b.live[k] || a.above[k] > b.above[k]) return false;
    }
    return true;
  }

  const RecomputeProblem& problem_;
  const int items_;
  const LateMaking& making_;
  const LayerPlace place_;
  const PackedNumbers packing_;
  std::vector<Node> grown_;
  std::vector<Link> links_;
  absl::flat_hash_map<std::tuple<ItemSet, uint64_t, uint64_t>, int32_t> heads_;
};

// The early items and the moments at which they are recomputed.
struct EarlyPart {
  LayerPolicy policy{};
  std::array<Nanos, kMaxWindows> work{};
  Nanos stall;
  Nanos exposed;
};

// Finds the EarlyParts of every set of early items. Items are decided in the same order as in BackwardParetoSearch.
class EarlySearch {
 public:
  EarlySearch(const RecomputeProblem& problem, const ItemTables& tables)
      : problem_(problem), tables_(tables), parts_(tables.bytes.size()) {}

  std::vector<std::vector<EarlyPart>> Run() && {
    ItemNumbers due;
    for (int i = 0; i < static_cast<int>(problem_.items.size()); ++i) due.Set(i, kMaxWindows);
    Decide(static_cast<int>(problem_.items.size()) - 1, 0, EarlyPart{}, due);
    return std::move(parts_);
  }

 private:
  // Decides item i, then calls itself for the other items. The moments are the numbers of the forward windows; kMaxWindows
  // stands for the stall.
  void Decide(int i, ItemSet set, const EarlyPart& part, ItemNumbers due) {
    if (i < 0) return Add(set, part);
    Decide(i - 1, set, part, due);
    for (int moment = 0; moment <= due.Get(i); ++moment) {
      const Placement placement = moment == kMaxWindows ? Placement::kStall : ForwardWindow(moment);
      if (!Contains(tables_.possible[i], placement)) continue;
      EarlyPart next = part;
      next.policy[i] = placement;
      (moment == kMaxWindows ? next.stall : next.work[moment]) += problem_.items[i].cost;
      ItemNumbers inputs_due = due;
      for (unsigned inputs = problem_.items[i].inputs; inputs != 0; inputs &= inputs - 1) {
        const int input = std::countr_zero(inputs);
        inputs_due.Set(input, std::min(due.Get(input), moment));
      }
      Decide(i - 1, set | ItemBit(i), next, inputs_due);
    }
  }

  void Add(ItemSet set, EarlyPart part) {
    for (size_t w = 0; w < problem_.forward.size(); ++w) part.exposed += Positive(part.work[w] - problem_.forward[w]);
    const auto dominates = [](const EarlyPart& a, const EarlyPart& b) {
      return a.exposed + Positive(a.stall - b.stall) <= b.exposed;
    };
    std::vector<EarlyPart>& list = parts_[set];
    if (std::any_of(list.begin(), list.end(), [&](const EarlyPart& other) { return dominates(other, part); })) return;
    std::erase_if(list, [&](const EarlyPart& other) { return dominates(part, other); });
    list.push_back(part);
  }

  const RecomputeProblem& problem_;
  const ItemTables& tables_;
  std::vector<std::vector<EarlyPart>> parts_;
};

// Finds the KeptParts for a set of late items.
class KeptParts {
 public:
  KeptParts(const RecomputeProblem& problem, const ItemTables& tables)
      : problem_(problem), tables_(tables), early_(EarlySearch(problem, tables).Run()) {
    for (size_t set = 0; set < early_.size(); ++set) {
      if (!early_[set].empty()) may_be_early_ |= static_cast<ItemSet>(set);
    }
    for (int i = 0; i < static_cast<int>(problem.items.size()); ++i) {
      const bool saves = problem.in_flight > problem.resident;
      if (saves && Contains(tables.possible[i], Placement::kOffload)) offloadable_ |= ItemBit(i);
    }
  }

  std::vector<KeptPart> Run(ItemSet late) {
    found_.clear();
    const ItemSet others = tables_.all & ~late & may_be_early_;
    for (ItemSet early = others;; early = (early - 1) & others) {
      if (!early_[early].empty() && (tables_.inputs[early] & late) == 0) AddEarly(late, early);
      if (early == 0) break;
    }
    // In this order, a part comes after all parts that dominate it.
    const auto order = [](const Found& f) { return std::tuple(f.held, f.exposed, f.stall, f.host, f.copy_out); };
    std::stable_sort(found_.begin(), found_.end(), [&](const Found& a, const Found& b) { return order(a) < order(b); });
    std::vector<KeptPart> parts;
    std::vector<Found> kept;
    for (const Found& candidate : found_) {
      const auto dominates = [&](const Found& known) { return Dominates(known, candidate); };
      if (std::any_of(kept.rbegin(), kept.rend(), dominates)) continue;
      kept.push_back(candidate);
      parts.push_back(PartOf(candidate));
    }
    return parts;
  }

 private:
  struct Found {
    Bytes held;
    Nanos exposed, stall;
    Nanos copy_out, copy_in;
    Bytes host;
    ItemSet early, offloaded;
    uint32_t part;  // index in early_[early]
  };

  void AddEarly(ItemSet late, ItemSet early) {
    const ItemSet needed = tables_.read | tables_.inputs[early | late];
    if ((early & ~needed) != 0) return;  // recomputing early what nothing reads has no use
    const ItemSet stored = needed & ~(early | late);
    const Bytes held = tables_.bytes[stored] * problem_.in_flight + tables_.bytes[early];
    for (uint32_t p = 0; p < early_[early].size(); ++p) {
      Found found{.held = held};
      found.exposed = early_[early][p].exposed;
      found.stall = early_[early][p].stall;
      found.early = early;
      found.part = p;
      const ItemSet offloadable = stored & offloadable_;
      for (ItemSet set = offloadable;; set = (set - 1) & offloadable) {
        found_.push_back(Offload(found, set));
        if (set == 0) break;
      }
    }
  }

  Found Offload(Found found, ItemSet set) const {
    found.offloaded = set;
    found.held -= tables_.bytes[set] * std::max(0, problem_.in_flight - problem_.resident);
    found.host = tables_.bytes[set] * problem_.in_flight;
    for (unsigned rest = set; rest != 0; rest &= rest - 1) {
      found.copy_out += problem_.items[std::countr_zero(rest)].copy_out;
      found.copy_in += problem_.items[std::countr_zero(rest)].copy_in;
    }
    return found;
  }

  static bool Dominates(const Found& a, const Found& b) {
    // `host` is the offloaded bytes times the microbatches in flight, so `a` also offloads no more bytes than `b`.
    if (a.held > b.held || a.host > b.host) return false;
    const Nanos copies = std::max(Positive(a.copy_out - b.copy_out), Positive(a.copy_in - b.copy_in));
    return a.exposed + Positive(a.stall - b.stall) + copies <= b.exposed;
  }

  KeptPart PartOf(const Found& found) const {
    KeptPart part{.policy = early_[found.early][found.part].policy,
                  .held = found.held,
                  .exposed = found.exposed,
                  .stall = found.stall,
                  .copy_out = found.copy_out,
                  .copy_in = found.copy_in,
                  .host = found.host};
    for (unsigned rest = found.offloaded; rest != 0; rest &= rest - 1) {
      part.policy[std::countr_zero(rest)] = Placement::kOffload;
    }
    return part;
  }

  const RecomputeProblem& problem_;
  const ItemTables& tables_;
  const std::vector<std::vector<EarlyPart>> early_;
  ItemSet may_be_early_ = 0;
  ItemSet offloadable_ = 0;
  std::vector<Found> found_;
};

}  // namespace

LayerPolicy JoinPolicies(const BackwardPart& late, const KeptPart& kept) {
  LayerPolicy policy = kept.policy;
  for (int i = 0; i < kMaxItems; ++i) {
    if (late.policy[i] != Placement::kStore) policy[i] = late.policy[i];
  }
  return policy;
}

LayerUse JoinUses(const BackwardPart& late, const KeptPart& kept) {
  return {.held = kept.held,
          .live = late.live,
          .above = late.above,
          .above_work = late.above_work,
          .own_work = late.own_work,
          .stall = kept.stall,
          .exposed = late.exposed + kept.exposed,
          .early = late.early,
          .copy_out = kept.copy_out,
          .copy_in = kept.copy_in,
          .host = kept.host};
}

Bytes AlikeTransient(const RecomputeProblem& problem, const BackwardPart& late) {
  Bytes transient;
  for (int k = 0; k < problem.segments(); ++k) transient = std::max(transient, late.live[k] + late.above[k]);
  return transient;
}

Nanos AlikeExposed(const RecomputeProblem& problem, LayerPlace place, const BackwardPart& late) {
  Nanos exposed = late.exposed - (place == LayerPlace::kTop ? std::min(late.early, problem.early) : Nanos(0));
  for (size_t w = 0; w < problem.backward.size(); ++w) {
    exposed += Positive(late.own_work[w] + late.above_work[w] - problem.backward[w]);
  }
  return exposed;
}

namespace {

// Returns the parts of every set of late items. `known` are the parts of another layer of the stage. Their KeptParts are copied
// and not computed again, because all layers have the same KeptParts.
std::vector<PartsOfSet> PartsWith(const RecomputeProblem& problem, const ItemTables& tables, LayerPlace place, KeptParts& kept,
                                  const std::vector<PartsOfSet>& known) {
  const LateMaking making(problem, place);
  std::vector<std::vector<BackwardPart>> late = BackwardParetoSearch(problem, making, place).OfAllSets();
  auto next_known = known.begin();
  std::vector<PartsOfSet> parts;
  for (size_t set = 0; set < tables.bytes.size(); ++set) {
    PartsOfSet of_set{.late_items = static_cast<ItemSet>(set), .late = std::move(late[set])};
    if (of_set.late.empty()) continue;
    while (next_known != known.end() && next_known->late_items < set) ++next_known;
    const bool is_known = next_known != known.end() && next_known->late_items == set;
    of_set.kept = is_known ? next_known->kept : kept.Run(of_set.late_items);
    if (!of_set.kept.empty()) parts.push_back(std::move(of_set));
  }
  return parts;
}

}  // namespace

std::vector<PartsOfSet> LayerChoices(const RecomputeProblem& problem, LayerPlace place) {
  const ItemTables tables(problem, place);
  KeptParts kept(problem, tables);
  return PartsWith(problem, tables, place, kept, {});
}

StageParts PartsOfStage(const RecomputeProblem& problem) {
  const ItemTables inner_tables(problem, LayerPlace::kInner), top_tables(problem, LayerPlace::kTop);
  KeptParts kept(problem, inner_tables);
  StageParts parts;
  parts.inner = PartsWith(problem, inner_tables, LayerPlace::kInner, kept, {});
  parts.top = PartsWith(problem, top_tables, LayerPlace::kTop, kept, parts.inner);
  return parts;
}

std::vector<BackwardPart> LatePartsOf(const RecomputeProblem& problem, LayerPlace place, ItemSet late_items, size_t beam) {
  const LateMaking making(problem, place);
  return BackwardParetoSearch(problem, making, place).Of(late_items, beam);
}

}  // namespace lynx
