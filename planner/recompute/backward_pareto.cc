#include "planner/recompute/backward_pareto.h"

#include <algorithm>
#include <bit>

namespace lynx {
namespace {

constexpr bool Has(unsigned set, int i) { return (set >> i & 1) != 0; }
constexpr ItemSet ItemBit(int i) { return static_cast<ItemSet>(1 << i); }

// The moments of the backward pass as small numbers in the order of time: b1 .. b4, then c0 o1 c1 o2 ... (recompute_problem.h)
constexpr int kFirstCritical = kMaxWindows;
constexpr int CriticalMoment(int phase) { return kFirstCritical + 2 * phase; }
constexpr int OwnMoment(int window) { return kFirstCritical + 2 * window + 1; }
constexpr int PhaseOf(int moment) { return moment <= kFirstCritical ? 0 : (moment - kFirstCritical + 1) / 2; }
// The last moment on the critical path (c0, c1, ...) that is not after `moment`. `moment` must not be before c0.
constexpr int CriticalBefore(int moment) { return moment - (moment - kFirstCritical) % 2; }
static_assert(OwnMoment(kMaxWindows) < 16, "ItemNumbers holds moments");

}  // namespace

BackwardPareto::BackwardPareto(const RecomputeProblem& problem, LayerPlace place)
    : problem_(problem), place_(place), windows_(static_cast<int>(problem.backward.size())) {
  const int count = static_cast<int>(problem.items.size());
  std::copy(problem.backward.begin(), problem.backward.end(), root_.room.begin());
  for (int i = 0; i < count; ++i) FindBounds(i, PossiblePlacements(problem, i, place));
  const size_t sets = size_t{1} << count;
  cost_.resize(sets);
  inputs_.resize(sets);
  must_live_.resize(sets);
  ranges_.resize(sets);
  for (unsigned set = 1; set < sets; ++set) {
    const int i = std::countr_zero(set);
    const RecomputeItem& item = problem.items[i];
    const unsigned others = set & (set - 1);
    cost_[set] = cost_[others] + item.cost;
    inputs_[set] = inputs_[others] | item.inputs;
    must_live_[set] = must_live_[others];
    if (item.read_by == 0) continue;
    for (int k = std::countr_zero(item.read_by); k < std::bit_width(item.read_by); ++k) must_live_[set][k] += item.bytes;
  }
}

void BackwardPareto::FindBounds(int i, PlacementSet placements) {
  const SegmentSet readers = problem_.items[i].read_by;
  root_.due.Set(i, CriticalMoment(readers == 0 ? windows_ : std::countr_zero(readers)));
  root_.last.Set(i, static_cast<int>(std::bit_width(readers)));
  if (readers != 0) read_ |= ItemBit(i);
  placements_[i] = placements;
  if (Contains(placements, Placement::kCritical)) possible_ |= ItemBit(i);
  for (int w = 0; w < windows_; ++w) {
    if (Contains(placements, AboveWindow(w)) || Contains(placements, OwnWindow(w))) hideable_ |= ItemBit(i);
  }
  possible_ |= hideable_;
}

std::span<const BackwardPoint> BackwardPareto::Of(ItemSet late) {
  Range& range = ranges_[late];
  if (range.begin < 0) {
    first_ = points_.size();
    if ((late & ~(possible_ & (read_ | inputs_[late]))) == 0) Extend(root_, late);
    std::sort(points_.begin() + static_cast<ptrdiff_t>(first_), points_.end(),
              [](const BackwardPoint& a, const BackwardPoint& b) { return a.transient < b.transient; });
    range = {static_cast<int32_t>(first_), static_cast<int32_t>(points_.size())};
  }
  return {points_.begin() + range.begin, points_.begin() + range.end};
}

BackwardPareto::Floor BackwardPareto::FloorOf(ItemSet late) const { return FloorOf(root_, late); }

// The bound on transient memory counts only items that segments read. The bound on exposed time assumes that all windows
// together hide work as one large window.
BackwardPareto::Floor BackwardPareto::FloorOf(const State& state, ItemSet rest) const {
  Floor floor{.exposed = state.exposed};
  Nanos room;
  for (int w = 0; w < windows_; ++w) room += state.room[w];
  floor.exposed += cost_[rest & ~hideable_] + std::max(Nanos(0), cost_[rest & hideable_] - room);
  if (place_ == LayerPlace::kTop) floor.exposed -= std::min(problem_.early, state.early + cost_[rest]);
  for (int k = 0; k <= windows_; ++k) {
    floor.transient = std::max(floor.transient, state.live[k] + must_live_[rest][k]);
  }
  return floor;
}

bool BackwardPareto::Bettered(const Floor& floor) const {
  return std::any_of(points_.begin() + static_cast<ptrdiff_t>(first_), points_.end(), [&](const BackwardPoint& point) {
    return point.transient <= floor.transient && point.exposed <= floor.exposed;
  });
}

void BackwardPareto::Finish(const State& state) {
  const Floor floor = FloorOf(state, 0);
  if (Bettered(floor)) return;
  const auto bettered = [&](const BackwardPoint& point) {
    return point.transient >= floor.transient && point.exposed >= floor.exposed;
  };
  points_.erase(std::remove_if(points_.begin() + static_cast<ptrdiff_t>(first_), points_.end(), bettered), points_.end());
  points_.push_back({state.policy, floor.transient, floor.exposed});
}

// Chooses the placement of the last item of `rest`, then calls itself for the other items.
void BackwardPareto::Extend(const State& state, ItemSet rest) {
  if (rest == 0) return Finish(state);
  if (Bettered(FloorOf(state, rest))) return;
  const int i = std::bit_width(rest) - 1;
  rest &= static_cast<ItemSet>(~ItemBit(i));
  const int due = state.due.Get(i);
  const PlacementSet placements = placements_[i];
  const bool critical = due >= kFirstCritical && Contains(placements, Placement::kCritical);
  // `alone`: the item reads no item that may still become late. Then a later moment is never worse, and the critical path is
  // never worse than a window without room.
  const bool alone = (problem_.items[i].inputs & rest) == 0;
  for (int w = windows_ - 1; w >= 0; --w) {
    if (OwnMoment(w) > due || !Contains(placements, OwnWindow(w))) continue;
    if (alone && critical && state.room[w].value == 0 && CriticalBefore(due) > OwnMoment(w)) continue;
    Make(i, state, rest, OwnWindow(w), OwnMoment(w));
  }
  if (critical) Make(i, state, rest, Placement::kCritical, CriticalBefore(due));
  for (int w = std::min(due, windows_ - 1); w >= 0; --w) {
    if (!Contains(placements, AboveWindow(w))) continue;
    // Skips this window, because the layer's own window w hides as much time and comes later.
    if (alone && OwnMoment(w) <= due && Contains(placements, OwnWindow(w))) continue;
    if (alone && critical && state.room[w].value == 0) continue;
    Make(i, state, rest, AboveWindow(w), w);
  }
}

void BackwardPareto::Make(int i, const State& state, ItemSet rest, Placement placement, int moment) {
  const RecomputeItem& item = problem_.items[i];
  const int phase = PhaseOf(moment);
  State next = state;
  next.policy[i] = placement;
  for (int k = phase; k <= std::max(phase, state.last.Get(i) - 1); ++k) next.live[k] += item.bytes;
  if (placement == Placement::kCritical) {
    next.exposed += item.cost;
    if (place_ == LayerPlace::kTop && moment == kFirstCritical)
      next.early = item.collective ? Nanos(0) : next.early + item.cost;
  } else {
    const int w = IsOwnWindow(placement) ? IndexOf(placement, Placement::kOwn1) : moment;
    const Nanos hidden = std::min(item.cost, next.room[w]);
    next.room[w] -= hidden;
    next.exposed += item.cost - hidden;
    if (IsAboveWindow(placement)) {
      for (int k = moment + 1; k <= windows_; ++k) next.live[k] += item.bytes;
    }
  }
  for (unsigned inputs = item.inputs & rest; inputs != 0; inputs &= inputs - 1) {
    const int input = std::countr_zero(inputs);
    next.due.Set(input, std::min(next.due.Get(input), moment));
    next.last.Set(input, std::max(next.last.Get(input), phase + 1));
  }
  Extend(next, rest);
}

}  // namespace lynx
