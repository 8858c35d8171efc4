#include "planner/recompute/mix_search.h"

#include <algorithm>
#include <utility>

namespace lynx {
namespace {

// LeastExposed rounds. Its results for two amounts of memory may be in the wrong order, by at most this time.
constexpr Nanos kRounding{2};

}  // namespace

// Returns a lower bound for the exposed time of `layers` inner layers that together have `held` bytes, as if a layer could use
// a mix of two points. `held` must suffice for the point with the least memory in every layer.
Nanos StageHeu::LeastExposed(const Level& level, int32_t layers, Bytes held) {
  if (layers == 0) return Nanos(0);
  const auto after = std::upper_bound(level.hull.begin() + 1, level.hull.end(), held / layers,
                                      [](Bytes each, const ParetoPoint* point) { return each < point->held; });
  const ParetoPoint& low = **std::prev(after);
  if (after == level.hull.end()) return low.exposed * layers;
  const double gain = level.gains[static_cast<size_t>(after - level.hull.begin()) - 1];
  const auto saved = static_cast<int64_t>(gain * static_cast<double>((held - low.held * layers).value));
  return low.exposed * layers - Nanos(saved + 1);
}

StageHeu::MixSearch::MixSearch(const StageHeu& heu, int32_t layers, Bytes budget, size_t count, Pairs pairs)
    : inner_layers_(layers - 1), count_(count), pairs_(pairs) {
  // Levels with the best bounds come first, so that most of the other levels need no search.
  std::vector<std::pair<Nanos, const Level*>> order;
  order.reserve(heu.levels_.size());
  for (const Level& level : heu.levels_) {
    if (inner_layers_ > 0 && level.inner.empty()) continue;
    const Bytes left = budget - level.transient - level.top.front()->held;
    if (left < LeastHeld(level)) continue;
    order.emplace_back(level.top.back()->exposed + LeastExposed(level, inner_layers_, left), &level);
  }
  const auto later = [](const auto& a, const auto& b) {
    return std::tuple(a.first, a.second->transient) > std::tuple(b.first, b.second->transient);
  };
  std::make_heap(order.begin(), order.end(), later);
  for (; !order.empty(); order.pop_back()) {
    std::pop_heap(order.begin(), order.end(), later);
    const auto& [bound, level] = order.back();
    if (full() && bound >= WorthLooking()) break;
    Search(*level, budget - level->transient, 0, level->top.size());
  }
}

// The points of level.top are in the order of held memory, and their exposed time decreases. So the exposed time of the last
// point and the memory that the first point leaves give a bound for all points between. A part of the points that cannot be
// better is left out as a whole; otherwise both halves are searched.
void StageHeu::MixSearch::Search(const Level& level, Bytes room, size_t begin, size_t end) {
  const Bytes left = room - level.top[begin]->held;
  if (left < LeastHeld(level)) return;  // the next points need even more memory
  if (full()) {
    const Nanos least = level.top[end - 1]->exposed + LeastExposed(level, inner_layers_, left);
    if (least - (end - begin > 1 ? kRounding : Nanos(0)) >= WorthLooking()) return;
  }
  if (end - begin > 1) {
    const size_t middle = begin + (end - begin) / 2;
    Search(level, room, begin, middle);
    Search(level, room, middle, end);
    return;
  }
  const ParetoPoint& top = *level.top[begin];
  if (inner_layers_ == 0) {
    Add({.top = &top, .exposed = top.exposed, .bytes = top.held + level.transient});
  } else {
    pairs_ == Pairs::kAll ? TryPairs(level, top, left) : TryHull(level, top, left);
  }
}

// Tries pairs of a slower point, with less memory, and a faster point. The slower point is on the hull, because other points
// take more time for the same memory; the faster point can be any point.
void StageHeu::MixSearch::TryPairs(const Level& level, const ParetoPoint& top, Bytes left) {
  const Nanos least = level.inner.back()->exposed;
  for (const ParetoPoint* slow : level.hull) {
    const Bytes slack = left - slow->held * inner_layers_;
    if (slack < Bytes(0)) break;
    // If all layers but one can be fast, all slower points give the same mixes. Then only the first slower point is tried.
    const auto at_least = [&](const ParetoPoint* point, Bytes held) { return point->held < held; };
    const auto all_fast = [&](Bytes bytes, const ParetoPoint* point) { return bytes < point->held * (inner_layers_ - 1); };
    const auto begin = slow == level.hull.front()
                           ? level.inner.begin()
                           : std::max(std::lower_bound(level.inner.begin(), level.inner.end(), slow->held, at_least),
                                      std::upper_bound(level.inner.begin(), level.inner.end(), left - slow->held, all_fast));
    for (auto f = begin; f != level.inner.end(); ++f) {
      const Bytes step = (*f)->held - slow->held;
      const int64_t fit = FastLayers(step, slack);
      if (step.value > 0 && fit == 0 && slack < step) break;  // the next points need even more memory
      const Nanos floor = top.exposed + slow->exposed * (inner_layers_ - 1 - fit) + (*f)->exposed * fit + least;
      if (!full() || floor <= best_.back().exposed) TryPair(level, top, *slow, **f, slack);
    }
  }
}

void StageHeu::MixSearch::TryHull(const Level& level, const ParetoPoint& top, Bytes left) {
  // Looks at the points of the hull that still fit if all inner layers use them. Takes the one with the most memory, and the
  // next larger point.
  const auto after = std::upper_bound(level.hull.begin() + 1, level.hull.end(), left,
                                      [&](Bytes bytes, const ParetoPoint* p) { return bytes < p->held * inner_layers_; });
  const ParetoPoint& slow = **std::prev(after);
  TryPair(level, top, slow, after == level.hull.end() ? slow : **after, left - slow.held * inner_layers_);
}

int64_t StageHeu::MixSearch::FastLayers(Bytes step, Bytes slack) const {
  return step.value == 0 ? 0 : std::min<int64_t>(inner_layers_ - 1, slack.value / step.value);
}

// Adds a mix of two points. As many layers as fit get the faster point. One more layer gets the best point that still fits.
void StageHeu::MixSearch::TryPair(const Level& level, const ParetoPoint& top, const ParetoPoint& slow, const ParetoPoint& fast,
                                  Bytes slack) {
  const Bytes step = fast.held - slow.held;
  const int64_t fit = FastLayers(step, slack);
  const Bytes filled = slow.held + slack - step * fit;
  const auto after = std::upper_bound(level.inner.begin(), level.inner.end(), filled,
                                      [](Bytes bytes, const ParetoPoint* point) { return bytes < point->held; });
  const ParetoPoint& filler = **std::prev(after);
  const int64_t slow_count = inner_layers_ - 1 - fit;
  Add({.slow = &slow,
       .fast = &fast,
       .filler = &filler,
       .top = &top,
       .fast_count = fit,
       .exposed = top.exposed + slow.exposed * slow_count + fast.exposed * fit + filler.exposed,
       .bytes = top.held + slow.held * slow_count + fast.held * fit + filler.held + level.transient});
}

void StageHeu::MixSearch::Add(const Mix& mix) {
  if (full() && mix.key() >= best_.back().key()) return;
  const auto after =
      std::upper_bound(best_.begin(), best_.end(), mix, [](const Mix& a, const Mix& b) { return a.key() < b.key(); });
  // Drops the mix: if two mixes have the same value, they are nearly always the same mix, found with different pairs.
  if (after != best_.begin() && std::prev(after)->key() == mix.key()) return;
  best_.insert(after, mix);
  if (best_.size() > count_) best_.pop_back();
}

}  // namespace lynx
