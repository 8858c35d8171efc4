#include "planner/recompute/stage_heu.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

#include "common/check.h"
#include "planner/recompute/layer_choices.h"
#include "planner/recompute/layer_pareto.h"
#include "planner/recompute/mix_search.h"

namespace lynx {
namespace {

// The exact value is computed for this number of mixes: those with the best estimates.
constexpr size_t kMixes = 6;
// For each set of late items, Placing tries this number of BackwardParts.
constexpr size_t kPlacings = 32;
// LatePartsOf builds these BackwardParts item by item, and keeps this number of incomplete ones after each item (its `beam`).
constexpr size_t kBeam = 64;
constexpr Nanos kNever{std::numeric_limits<int64_t>::max() / 4};

Nanos Excess(Nanos work, Nanos capacity) { return std::max(Nanos(0), work - capacity); }

std::vector<const ParetoPoint*> InOrderOfHeld(const std::vector<ParetoPoint>& front) {
  std::vector<const ParetoPoint*> sorted;
  for (const ParetoPoint& point : front) sorted.push_back(&point);
  std::stable_sort(sorted.begin(), sorted.end(), [](const ParetoPoint* a, const ParetoPoint* b) {
    return std::tie(a->held, a->exposed) < std::tie(b->held, b->exposed);
  });
  return sorted;
}

// Points in the order of held memory, without those whose exposed time is not less than that of a point before them. Grows by
// one point after another.
class Staircase {
 public:
  // `points` are in the order of held memory.
  explicit Staircase(const std::vector<const ParetoPoint*>& points) : points_(points) {}

  // Adds the point with this index.
  void Add(int32_t index) {
    const Nanos exposed = ExposedOf(index);
    const auto at = std::lower_bound(kept_.begin(), kept_.end(), index);
    if (at != kept_.begin() && ExposedOf(*std::prev(at)) <= exposed) return;
    const auto end = std::find_if(at, kept_.end(), [&](int32_t after) { return ExposedOf(after) < exposed; });
    kept_.insert(kept_.erase(at, end), index);
  }
  std::vector<const ParetoPoint*> Points() const {
    std::vector<const ParetoPoint*> points;
    points.reserve(kept_.size());
    for (const int32_t index : kept_) points.push_back(points_[static_cast<size_t>(index)]);
    return points;
  }

 private:
  Nanos ExposedOf(int32_t index) const { return points_[static_cast<size_t>(index)]->exposed; }

  const std::vector<const ParetoPoint*>& points_;
  std::vector<int32_t> kept_;  // indices
};

// Adds points to a staircase, those with the least transient memory first.
class GrowingStaircase {
 public:
  explicit GrowingStaircase(const std::vector<ParetoPoint>& front)
      : points_(InOrderOfHeld(front)), order_(points_.size()), staircase_(points_) {
    std::iota(order_.begin(), order_.end(), 0);
    std::stable_sort(order_.begin(), order_.end(), [&](int32_t a, int32_t b) { return TransientOf(a) < TransientOf(b); });
  }
  GrowingStaircase(const GrowingStaircase&) = delete;
  GrowingStaircase& operator=(const GrowingStaircase&) = delete;

  // Returns the staircase of the points whose transient memory is at most `transient`, which never decreases.
  std::vector<const ParetoPoint*> UpTo(Bytes transient) {
    while (next_ < order_.size() && TransientOf(order_[next_]) <= transient) staircase_.Add(order_[next_++]);
    return staircase_.Points();
  }

 private:
  Bytes TransientOf(int32_t index) const { return points_[static_cast<size_t>(index)]->transient; }

  const std::vector<const ParetoPoint*> points_;  // in the order of held memory
  std::vector<int32_t> order_;                    // indices, in the order of transient memory
  size_t next_ = 0;
  Staircase staircase_;
};

// `points` are in the order of held memory. Returns the points on the lower convex hull of exposed time over held memory.
std::vector<const ParetoPoint*> Hull(const std::vector<const ParetoPoint*>& points) {
  std::vector<const ParetoPoint*> hull;
  for (const ParetoPoint* c : points) {
    // The middle one of three points is on the hull only if the slope before it is steeper than the slope after it.
    const auto above = [&](const ParetoPoint* a, const ParetoPoint* b) {
      return static_cast<__int128>((a->exposed - b->exposed).value) * (c->held - b->held).value <=
             static_cast<__int128>((b->exposed - c->exposed).value) * (b->held - a->held).value;
    };
    while (hull.size() >= 2 && above(hull[hull.size() - 2], hull.back())) hull.pop_back();
    hull.push_back(c);
  }
  return hull;
}

}  // namespace

namespace {

// The non-dominated points in the problem's stage. If several points have the same value, one of them is returned.
std::vector<ParetoPoint> FrontOf(const RecomputeProblem& problem, const std::vector<LayerPoint>& points) {
  // A layer's equal share of the stage's stall and copy times.
  const Nanos stall = problem.stall / problem.layers;
  const Nanos copy_out = problem.copy_out / problem.layers, copy_in = problem.copy_in / problem.layers;
  struct Priced {
    Nanos exposed;
    Bytes held, transient;
    const LayerPoint* point;
  };
  std::vector<Priced> priced;
  priced.reserve(points.size());
  for (const LayerPoint& point : points) {
    const Nanos copies = std::max(Excess(point.use.copy_out, copy_out), Excess(point.use.copy_in, copy_in));
    const Bytes held = HeldInFlight(point, problem);
    priced.push_back({point.exposed + Excess(point.use.stall, stall) + copies, held, point.transient, &point});
  }
  std::sort(priced.begin(), priced.end(), [](const Priced& a, const Priced& b) {
    return std::tie(a.exposed, a.held, a.transient, a.point) < std::tie(b.exposed, b.held, b.transient, b.point);
  });
  // In this order, a point can be dominated only by an earlier point.
  // Held memory -> the least transient memory of all points so far that have at most this held memory; decreasing.
  std::map<Bytes, Bytes> least;
  std::vector<ParetoPoint> front;
  for (const auto& [exposed, held, transient, point] : priced) {
    auto after = least.upper_bound(held);
    if (after != least.begin() && std::prev(after)->second <= transient) continue;
    while (after != least.end() && after->second >= transient) after = least.erase(after);
    least[held] = transient;
    ParetoPoint& added = front.emplace_back(ParetoPoint{.policy = point->policy,
                                                        .late_items = point->late_items,
                                                        .use = point->use,
                                                        .kept_exposed = point->kept_exposed,
                                                        .held = held,
                                                        .transient = transient,
                                                        .exposed = exposed});
    added.use.held = held;
    added.use.host = point->offloaded * problem.in_flight;
  }
  return front;
}

}  // namespace

std::vector<ParetoPoint> LayerPareto(const RecomputeProblem& problem, LayerPlace place) {
  return FrontOf(problem, LayerPoints(problem, place, InFlightUse::kGiven));
}

// Chooses for each layer where in the backward pass its late items are recomputed (a BackwardPart; layer_choices.h defines late
// items), with the least exposed time within a limit of transient memory. Dynamic programming from the top layer down.
class StageHeu::Placing {
 public:
  struct Choices {
    std::vector<BackwardPart> parts;
    std::vector<Nanos> exposed;  // exposed time of each part, without the work that does not fit in backward windows
  };
  struct PairCost {
    Nanos exposed;
    Bytes transient;
  };
  struct Pairing {
    std::vector<PairCost> pairs;  // the index is lower part * number of upper parts + upper part; kUnknown: not computed yet
  };
  static constexpr PairCost kUnknown{Nanos(-1), Bytes(0)};
  // Results that do not depend on the budget, on the number of layers and on the number of microbatches in flight.
  struct Cache {
    std::map<std::pair<LayerPlace, ItemSet>, Choices> choices;
    std::map<std::pair<const Choices*, const Choices*>, Pairing> pairings;
  };

  Placing(const RecomputeProblem& problem, Cache& cache) : problem_(problem), cache_(cache) {}

  // Replaces the BackwardPart of each layer's point by a better one. `points`: bottom layer first. nullopt: nothing fits.
  std::optional<StageSolution> Solve(const std::vector<const ParetoPoint*>& points) {
    const size_t layers = points.size();
    Bytes held;
    for (const ParetoPoint* point : points) held += point->use.held;
    const Bytes cap = problem_.budget - held;
    std::vector<const Choices*> choices(layers);
    for (size_t l = 0; l < layers; ++l) choices[l] = &ChoicesOf(*points[l], PlaceOf(l, layers));
    // least[a]: exposed time of this layer and all layers above it if this layer has its part a. above[l][a]: the part that
    // layer l + 1 then has.
    std::vector<Nanos> least = choices[layers - 1]->exposed, next;
    std::vector<std::vector<int32_t>> above(layers);
    std::vector<int32_t> order;  // the upper layer's parts, in the order of `least`
    // The time that layer l + 1 added to every entry of `least`, if it had the same choices as the layer above it.
    std::optional<Nanos> steady;
    for (size_t l = layers - 1; l-- > 0;) {
      if (steady && choices[l] == choices[l + 1]) {
        above[l] = above[l + 1];
        for (Nanos& exposed : least) exposed = exposed < kNever ? exposed + *steady : kNever;
        continue;
      }
      const std::vector<BackwardPart>&upper_parts = choices[l + 1]->parts, &lower_parts = choices[l]->parts;
      std::vector<PairCost>& pairs = PairingOf(*choices[l + 1], *choices[l]).pairs;
      order.resize(upper_parts.size());
      std::iota(order.begin(), order.end(), 0);
      std::sort(order.begin(), order.end(),
                [&](int32_t a, int32_t b) { return std::tie(least[a], a) < std::tie(least[b], b); });
      next.assign(lower_parts.size(), kNever);
      above[l].assign(next.size(), -1);
      for (size_t lower = 0; lower < next.size(); ++lower) {
        for (const int32_t upper : order) {
          if (least[upper] > next[lower] || least[upper] >= kNever) break;
          PairCost& pair = pairs[lower * upper_parts.size() + upper];
          if (pair.exposed == kUnknown.exposed) pair = PairValue(upper_parts[upper], lower_parts[lower]);
          const Nanos exposed = least[upper] + pair.exposed;
          if (pair.transient > cap || std::tie(exposed, upper) >= std::tie(next[lower], above[l][lower])) continue;
          next[lower] = exposed;
          above[l][lower] = upper;
        }
        next[lower] = std::min(kNever, next[lower] + choices[l]->exposed[lower]);
      }
      steady = choices[l] == choices[l + 1] ? Difference(next, least) : std::nullopt;
      least.swap(next);
    }
    int32_t part = -1;
    Nanos best = kNever;
    for (size_t a = 0; a < least.size(); ++a) {
      const auto [exposed, transient] = PairValue(choices[0]->parts[a], kNoPart);
      if (transient > cap || least[a] + exposed >= best) continue;
      best = least[a] + exposed;
      part = static_cast<int32_t>(a);
    }
    if (part < 0) return std::nullopt;
    StageSolution solution;
    std::vector<LayerUse> uses;
    for (size_t l = 0; l < layers; ++l) {
      Take(*points[l], choices[l]->parts[static_cast<size_t>(part)], solution, uses);
      if (l + 1 < layers) part = above[l][static_cast<size_t>(part)];
    }
    solution.value = Combine(problem_, uses);
    if (!Fits(problem_, solution.value)) return std::nullopt;
    return solution;
  }

 private:
  static const BackwardPart kNoPart;

  const Choices& ChoicesOf(const ParetoPoint& point, LayerPlace place) {
    auto [it, inserted] = cache_.choices.try_emplace({place, point.late_items});
    Choices& choices = it->second;
    if (!inserted) return choices;
    std::vector<std::tuple<Nanos, Bytes, size_t>> order;
    std::vector<BackwardPart> parts = LatePartsOf(problem_, place, point.late_items, kBeam);
    for (size_t i = 0; i < parts.size(); ++i) {
      order.emplace_back(AlikeExposed(problem_, place, parts[i]), AlikeTransient(problem_, parts[i]), i);
    }
    std::sort(order.begin(), order.end());
    if (order.size() > kPlacings) order.resize(kPlacings);
    for (const auto& [exposed, transient, i] : order) {
      choices.parts.push_back(parts[i]);
      choices.exposed.push_back(parts[i].exposed -
                                (place == LayerPlace::kTop ? std::min(parts[i].early, problem_.early) : Nanos(0)));
    }
    return choices;
  }

  // Computes what the parts of two neighbouring layers cost together: the work that does not fit in their shared backward
  // windows, and the largest transient memory over all phases of the upper layer.
  PairCost PairValue(const BackwardPart& upper, const BackwardPart& lower) const {
    PairCost cost;
    for (size_t w = 0; w < problem_.backward.size(); ++w) {
      cost.exposed += Excess(upper.own_work[w] + lower.above_work[w], problem_.backward[w]);
    }
    for (int k = 0; k < problem_.segments(); ++k) {
      cost.transient = std::max(cost.transient, upper.live[k] + lower.above[k]);
    }
    return cost;
  }

  // If `to` minus `from` is the same in all possible entries (below kNever), returns this difference; otherwise nullopt.
  static std::optional<Nanos> Difference(const std::vector<Nanos>& to, const std::vector<Nanos>& from) {
    std::optional<Nanos> difference;
    for (size_t i = 0; i < to.size(); ++i) {
      if ((to[i] < kNever) != (from[i] < kNever)) return std::nullopt;
      if (to[i] >= kNever) continue;
      if (difference && to[i] - from[i] != *difference) return std::nullopt;
      difference = to[i] - from[i];
    }
    return difference;
  }

  Pairing& PairingOf(const Choices& upper, const Choices& lower) {
    auto [it, inserted] = cache_.pairings.try_emplace({&upper, &lower});
    if (inserted) it->second.pairs.assign(upper.parts.size() * lower.parts.size(), kUnknown);
    return it->second;
  }

  static void Take(const ParetoPoint& point, const BackwardPart& part, StageSolution& solution, std::vector<LayerUse>& uses) {
    LayerPolicy policy = point.policy;
    for (int i = 0; i < kMaxItems; ++i) {
      if (part.policy[i] != Placement::kStore) policy[i] = part.policy[i];
    }
    solution.policy.layers.push_back(policy);
    LayerUse use = point.use;
    use.live = part.live;
    use.above = part.above;
    use.above_work = part.above_work;
    use.own_work = part.own_work;
    use.exposed = point.kept_exposed + part.exposed;
    use.early = part.early;
    uses.push_back(use);
  }

  const RecomputeProblem& problem_;
  Cache& cache_;
};

const BackwardPart StageHeu::Placing::kNoPart;

struct StageHeu::Shared {
  // Fronts of the late items, for any stage. `top_late` is empty if the top layer has the same possibilities as inner layers.
  std::optional<BackwardPareto> inner_late, top_late;
  // If nothing is offloaded and there is no stall: the points of a layer in any stage with at least this number in flight.
  int32_t least_in_flight = 0;
  std::vector<LayerPoint> inner, top;
  Placing::Cache placing;
};

StageHeu::StageHeu(const RecomputeProblem& problem) : problem_(problem), shared_(std::make_shared<Shared>()) { FindFronts(); }

StageHeu StageHeu::ForStage(int32_t layers, int32_t in_flight, Nanos stall) const {
  StageHeu heu;
  heu.problem_ = problem_;
  heu.problem_.layers = layers;
  heu.problem_.in_flight = in_flight;
  heu.problem_.stall = stall;
  heu.shared_ = shared_;
  heu.FindFronts();
  return heu;
}

void StageHeu::FindFronts() {
  Shared& shared = *shared_;
  if (!shared.inner_late) {
    shared.inner_late.emplace(problem_, LayerPlace::kInner);
    // The top layer has the same possibilities as the other layers if none of its work is hidden by `early`, and if no item of
    // the other layers can be placed in a window of the layer above.
    bool alike = problem_.early.value == 0;
    for (int i = 0; alike && i < static_cast<int>(problem_.items.size()); ++i) {
      alike = PossiblePlacements(problem_, i, LayerPlace::kInner) == PossiblePlacements(problem_, i, LayerPlace::kTop);
    }
    if (!alike) shared.top_late.emplace(problem_, LayerPlace::kTop);
  }
  std::vector<BackwardPareto*> late{&*shared.inner_late};
  if (shared.top_late) late.push_back(&*shared.top_late);
  if (problem_.stall.value > 0 || problem_.host_budget.value > 0) {
    const std::vector<std::vector<LayerPoint>> points = PointsOfLayers(problem_, late, InFlightUse::kGiven);
    inner_ = FrontOf(problem_, points.front());
    top_ = FrontOf(problem_, points.back());
  } else {
    if (shared.least_in_flight == 0 || problem_.in_flight < shared.least_in_flight) {
      RecomputeProblem least = problem_;
      least.in_flight = shared.least_in_flight = std::min(problem_.in_flight, 2);
      std::vector<std::vector<LayerPoint>> points = PointsOfLayers(least, late, InFlightUse::kOrMore);
      shared.top = points.back();
      shared.inner = std::move(points.front());
    }
    inner_ = FrontOf(problem_, shared.inner);
    top_ = shared.top_late ? FrontOf(problem_, shared.top) : inner_;
  }
  MakeLevels();
}

void StageHeu::MakeLevels() {
  std::set<Bytes> transients;
  for (const ParetoPoint& point : inner_) transients.insert(point.transient);
  for (const ParetoPoint& point : top_) transients.insert(point.transient);
  GrowingStaircase inner(inner_), top(top_);
  for (Bytes transient : transients) {
    Level level{transient, inner.UpTo(transient), top.UpTo(transient), {}, {}};
    if (level.top.empty()) continue;
    level.hull = Hull(level.inner);
    for (size_t i = 0; i + 1 < level.hull.size(); ++i) {
      const ParetoPoint& low = *level.hull[i];
      const ParetoPoint& high = *level.hull[i + 1];
      level.gains.push_back(static_cast<double>((low.exposed - high.exposed).value) /
                            static_cast<double>((high.held - low.held).value));
    }
    levels_.push_back(std::move(level));
  }
}

// Returns the solution in which each layer uses its point without changes. `points` begins with the bottom layer.
StageSolution StageHeu::AsTheyAre(const RecomputeProblem& problem, const std::vector<const ParetoPoint*>& points) {
  StageSolution solution;
  std::vector<LayerUse> uses;
  for (const ParetoPoint* point : points) {
    solution.policy.layers.push_back(point->policy);
    uses.push_back(point->use);
  }
  solution.value = Combine(problem, uses);
  return solution;
}

const StageSolution& StageHeu::LeastMemory(int32_t layers) const {
  auto [it, inserted] = least_memory_.try_emplace(layers);
  if (!inserted) return it->second;
  // If more than three layers have the same point, each further layer adds only its held memory.
  const int32_t few = std::min(layers, 3);
  const auto points_of = [&](const Level& level, int32_t count) {
    std::vector<const ParetoPoint*> points(static_cast<size_t>(count - 1), count > 1 ? level.inner.front() : nullptr);
    points.push_back(level.top.front());
    return points;
  };
  const Level* best = nullptr;
  Bytes least;
  std::vector<LayerUse> uses;
  for (const Level& level : levels_) {
    if (layers > 1 && level.inner.empty()) continue;
    uses.clear();
    for (const ParetoPoint* point : points_of(level, few)) uses.push_back(point->use);
    const Bytes bytes = Combine(problem_, uses).bytes() + uses.front().held * (layers - few);
    if (best != nullptr && bytes >= least) continue;
    best = &level;
    least = bytes;
  }
  LYNX_CHECK(best != nullptr);
  it->second = AsTheyAre(problem_, points_of(*best, layers));
  return it->second;
}

Bytes StageHeu::LeastBytes(int32_t layers) const { return LeastMemory(layers).value.bytes(); }

StageValue StageHeu::Estimate(int32_t layers, Bytes budget) const {
  const MixSearch search(*this, layers, budget, 1, MixSearch::Pairs::kHull);
  if (search.best().empty()) return LeastMemory(layers).value;
  return {.held = search.best().front().bytes, .exposed = search.best().front().exposed};
}

bool StageHeu::Estimates(int32_t layers, Bytes budget) const {
  return std::any_of(levels_.begin(), levels_.end(), [&](const Level& level) {
    if (layers > 1 && level.inner.empty()) return false;
    const Bytes inner = layers > 1 ? level.inner.front()->held * (layers - 1) : Bytes(0);
    return level.transient + level.top.front()->held + inner <= budget;
  });
}

std::optional<StageSolution> StageHeu::Best(int32_t layers, Bytes budget) const {
  LYNX_CHECK(layers >= 1);
  RecomputeProblem problem = problem_;
  problem.layers = layers;
  problem.budget = budget;
  std::optional<StageSolution> best;
  const auto consider = [&](const std::optional<StageSolution>& solution) {
    if (solution && Fits(problem, solution->value) && (!best || Better(solution->value, best->value))) best = solution;
  };
  Placing placing(problem, shared_->placing);
  std::vector<const ParetoPoint*> points;
  const auto try_points = [&] {
    consider(AsTheyAre(problem, points));
    consider(placing.Solve(points));
  };
  const MixSearch search(*this, layers, budget, kMixes, MixSearch::Pairs::kAll);
  for (const Mix& mix : search.best()) {
    // Layers that recompute more come first, at the bottom of the stage. Their backward passes run last, when the memory of the
    // other layers is already free.
    points.clear();
    const int64_t slow = layers - 2 - mix.fast_count;
    for (int64_t i = 0; i < slow; ++i) points.push_back(mix.slow);
    if (layers > 1) points.push_back(mix.filler);
    for (int64_t i = 0; i < mix.fast_count; ++i) points.push_back(mix.fast);
    points.push_back(mix.top);
    try_points();
    // Also tries the inner layers in reverse order: this can be better, as no other layer uses the bottom layer's own windows.
    std::reverse(points.begin(), points.end() - 1);
    try_points();
    if (slow == 0 || mix.fast_count == 0) continue;
    // Tries to alternate fast and slow layers: different neighbours can share windows and transient memory better.
    points.clear();
    for (int64_t i = 0, fast = 0; i < slow + mix.fast_count; ++i) {
      const bool is_fast = (i + 1) * mix.fast_count / (slow + mix.fast_count) > fast;
      fast += is_fast ? 1 : 0;
      points.push_back(is_fast ? mix.fast : mix.slow);
    }
    points.insert(points.begin(), mix.filler);
    points.push_back(mix.top);
    try_points();
  }
  if (!best) consider(LeastMemory(layers));
  return best;
}

}  // namespace lynx
