#include "planner/heu.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "common/check.h"
#include "planner/memory_model.h"

namespace lynx {
namespace {

constexpr bool Has(RecomputableSet set, int i) { return (set >> i & 1) != 0; }
constexpr RecomputableSet BitOf(int i) { return static_cast<RecomputableSet>(1 << i); }

// When a tensor is there again during the backward of its microbatch. Critical tensors have two moments, around b3.
enum class Moment : uint8_t {
  kForwardAttn = 1, kForwardMlp, kStall, kAboveMlp, kAboveAttn, kBeforeMlp, kOwnMlp, kBeforeAttn,
};
constexpr Moment kLastMoment = Moment::kBeforeAttn;

Moment MomentOfWindow(Placement placement) {
  switch (placement) {
    case Placement::kForward1: return Moment::kForwardAttn;
    case Placement::kForward2: return Moment::kForwardMlp;
    case Placement::kStall: return Moment::kStall;
    case Placement::kAbove1: return Moment::kAboveMlp;
    case Placement::kAbove2: return Moment::kAboveAttn;
    case Placement::kOwn1: return Moment::kOwnMlp;
    default: break;
  }
  LYNX_CHECK(false);
}

// A partial assignment: tensors [next, count) have their placements. Tensors are decided from the last to the first, so
// that all that would read a tensor is decided before it: when it is due, whether anything reads it at all.
struct Partial {
  LayerPolicy policy{};
  std::array<Moment, kMaxRecomputable> due{};  // latest moment that its recomputed readers allow
  RecomputableSet read = 0;                      // read by a backward pass or a recomputed tensor
  std::array<Nanos, kPlacementCount> used{};
  Bytes stored, stage_held;          // kStore; forward windows and stall
  Bytes from_above;                  // b1, b2
  Bytes live_in_mlp, live_in_attn;   // made again, and alive during that backward segment
  Nanos critical;
  Nanos before_mlp;  // part of it: what comes before the mlp segment, up to the first repeated collective
};

class LayerSearch {
 public:
  explicit LayerSearch(const LayerProblem& problem) : problem_(problem) {
    root_.due.fill(kLastMoment);
    root_.read = problem.read_by_mlp | problem.read_by_attn;
  }

  const Partial& root() const { return root_; }

  // Gives tensor i (the next to decide) a placement. False when the rules forbid it.
  bool Place(int i, Placement placement, Partial& partial) const;
  LayerChoice Value(const Partial& partial) const;

 private:
  bool WindowAllowed(int i, Placement placement) const;

  const LayerProblem& problem_;
  Partial root_;
};

bool LayerSearch::WindowAllowed(int i, Placement placement) const {
  if (Has(problem_.not_in_windows, i) || problem_.capacity[static_cast<int>(placement)].value <= 0) return false;
  switch (placement) {
    case Placement::kForward1:
    case Placement::kForward2:
    case Placement::kStall:
      // With one microbatch in flight, what these make is held as long as if it had been stored.
      return problem_.in_flight > 1;
    case Placement::kOwn1:
      return !Has(problem_.read_by_mlp, i);
    default:
      return true;
  }
}

bool LayerSearch::Place(int i, Placement placement, Partial& partial) const {
  partial.policy[i] = placement;
  const bool read = Has(partial.read, i);
  if (placement == Placement::kStore) {
    if (read) partial.stored += problem_.bytes[i];
    return true;
  }
  if (!read) return false;  // what nothing reads need not exist
  const Moment due = partial.due[i];
  Moment moment;
  if (placement == Placement::kCritical) {
    const bool before_mlp = Has(problem_.read_by_mlp, i) || due == Moment::kBeforeMlp;
    moment = before_mlp ? Moment::kBeforeMlp : Moment::kBeforeAttn;
  } else {
    if (!WindowAllowed(i, placement)) return false;
    moment = MomentOfWindow(placement);
  }
  if (moment > due) return false;

  const Bytes bytes = problem_.bytes[i];
  if (moment <= Moment::kStall) {
    partial.stage_held += bytes;
  } else {
    if (moment <= Moment::kAboveAttn) partial.from_above += bytes;
    if (moment <= Moment::kBeforeMlp) partial.live_in_mlp += bytes;
    if (moment > Moment::kBeforeMlp || Has(problem_.read_by_attn, i)) partial.live_in_attn += bytes;
  }
  if (placement == Placement::kCritical) {
    partial.critical += problem_.cost[i];
    if (moment == Moment::kBeforeMlp) {
      // Tensors are decided from the last on: a collective cuts off all that was decided before.
      const bool cut = Has(problem_.not_in_windows, i);
      partial.before_mlp = cut ? Nanos(0) : partial.before_mlp + problem_.cost[i];
    }
  } else {
    partial.used[static_cast<int>(placement)] += problem_.cost[i];
  }
  partial.read |= problem_.inputs[i];
  for (int input = 0; input < i; ++input) {
    if (Has(problem_.inputs[i], input)) partial.due[input] = std::min(partial.due[input], moment);
  }
  return true;
}

LayerChoice LayerSearch::Value(const Partial& partial) const {
  LayerChoice choice{.policy = partial.policy};
  choice.held = partial.stored * problem_.in_flight + partial.stage_held;
  choice.transient = std::max(partial.live_in_mlp, partial.live_in_attn) + partial.from_above;
  std::array<Nanos, kPlacementCount> used = partial.used;
  std::array<Nanos, kPlacementCount> capacity = problem_.capacity;
  // One window: b3 of this layer is b1 of the one below, which by symmetry has this policy too.
  constexpr int kAbove = static_cast<int>(Placement::kAbove1);
  constexpr int kOwn = static_cast<int>(Placement::kOwn1);
  used[kAbove] += used[kOwn];
  used[kOwn] = Nanos(0);
  capacity[kAbove] = std::max(capacity[kAbove], capacity[kOwn]);
  choice.exposed = partial.critical - std::min(partial.before_mlp, problem_.early);
  for (int w = 0; w < kPlacementCount; ++w) choice.exposed += std::max(Nanos(0), used[w] - capacity[w]);
  return choice;
}

bool Betters(const LayerChoice& a, const LayerChoice& b) {
  return a.held <= b.held && a.transient <= b.transient && a.exposed <= b.exposed;
}

// Depth first. A partial assignment only grows in all three values, so one that a known policy betters leads nowhere.
void Branch(const LayerSearch& search, int undecided, const Partial& partial, std::vector<LayerChoice>& front) {
  const LayerChoice value = search.Value(partial);
  const auto betters_value = [&](const LayerChoice& known) { return Betters(known, value); };
  if (std::any_of(front.begin(), front.end(), betters_value)) return;
  if (undecided == 0) {
    std::erase_if(front, [&](const LayerChoice& known) { return Betters(value, known); });
    front.push_back(value);
    return;
  }
  for (int placement = 0; placement < kPlacementCount; ++placement) {
    Partial next = partial;
    if (search.Place(undecided - 1, static_cast<Placement>(placement), next)) {
      Branch(search, undecided - 1, next, front);
    }
  }
}

RecomputableSet SetOf(const LayerGraph& graph, TensorSet tensors) {
  RecomputableSet set = 0;
  for (size_t i = 0; i < graph.recomputable().size(); ++i) {
    if (Contains(tensors, graph.recomputable()[i])) set |= BitOf(static_cast<int>(i));
  }
  return set;
}

Nanos BackwardWindow(const CostModel& costs, const LayerGraph& graph, LayerType type, Segment segment) {
  Nanos weight;
  for (Op op : graph.OpsOf(type, segment, Pass::kWeight)) weight += costs.OpTime(op, Pass::kWeight);
  return std::max(Nanos(0), costs.OverlapCapacity(costs.WindowTime(type, segment, Pass::kBackward)) - weight);
}

}  // namespace

LayerProblem MakeLayerProblem(const CostModel& costs, const LayerShape& shape, int32_t in_flight,
                              LayerPosition position, Nanos stall) {
  constexpr LayerType kLayer = LayerType::kTransformer;
  const LayerGraph& graph = LayerGraph::Of(shape);
  LayerProblem problem;
  problem.in_flight = in_flight;
  problem.count = static_cast<int32_t>(graph.recomputable().size());
  for (int i = 0; i < problem.count; ++i) {
    const Tensor tensor = graph.recomputable()[static_cast<size_t>(i)];
    problem.bytes[i] = StoredBytes(tensor, shape);
    problem.inputs[i] = SetOf(graph, graph.InputsOf(tensor));
    const std::vector<Op>& producers = graph.ProducersOf(tensor);
    const Segment first = graph.InfoOf(producers.front()).forward_segment;
    for (Op op : producers) {
      problem.cost[i] += costs.OpTime(op, Pass::kForward);
      for (Tensor read : graph.InfoOf(op).reads) {
        problem.cost[i] += costs.WindowTime(kLayer, graph.GatherSegmentOf(read), Pass::kForward);
      }
    }
    if (!graph.RepeatsCollective(tensor)) continue;
    problem.not_in_windows |= BitOf(i);
    if (graph.InfoOf(producers.back()).forward_segment != first) {
      problem.cost[i] += costs.WindowTime(kLayer, first, Pass::kForward);
    }
  }
  bool after_mlp = false;
  for (Segment segment : graph.SegmentsOf(kLayer, Pass::kBackward)) {
    (after_mlp ? problem.read_by_attn : problem.read_by_mlp) |= SetOf(graph, graph.ReadBy(segment));
    after_mlp = after_mlp || segment == Segment::kMlp;
  }
  const auto capacity = [&](Placement placement) -> Nanos& { return problem.capacity[static_cast<int>(placement)]; };
  const std::vector<Segment>& forward = graph.WindowsOf(Pass::kForward);
  const std::vector<Segment>& backward = graph.WindowsOf(Pass::kBackward);
  capacity(Placement::kForward1) = costs.OverlapCapacity(costs.WindowTime(kLayer, forward[0], Pass::kForward));
  capacity(Placement::kForward2) = costs.OverlapCapacity(costs.WindowTime(kLayer, forward[1], Pass::kForward));
  capacity(Placement::kStall) = stall;
  capacity(Placement::kOwn1) = BackwardWindow(costs, graph, kLayer, backward[0]);
  if (position == LayerPosition::kTopBelowHead) {
    problem.early = BackwardWindow(costs, graph, LayerType::kHead, Segment::kHead);
  }
  if (position == LayerPosition::kInner) {
    capacity(Placement::kAbove1) = capacity(Placement::kOwn1);
    capacity(Placement::kAbove2) = BackwardWindow(costs, graph, kLayer, backward[1]);
  }
  return problem;
}

std::optional<LayerChoice> EvaluateLayer(const LayerProblem& problem, const LayerPolicy& policy) {
  const LayerSearch search(problem);
  Partial partial = search.root();
  for (int i = problem.count - 1; i >= 0; --i) {
    if (!search.Place(i, policy[i], partial)) return std::nullopt;
  }
  return search.Value(partial);
}

std::vector<LayerChoice> SolveLayer(const LayerProblem& problem) {
  const LayerSearch search(problem);
  std::vector<LayerChoice> front;
  Branch(search, problem.count, search.root(), front);
  std::sort(front.begin(), front.end(), [](const LayerChoice& a, const LayerChoice& b) {
    return std::tie(a.exposed, a.held, a.transient) < std::tie(b.exposed, b.held, b.transient);
  });
  return front;
}

namespace {

// Of the choices with at most that transient memory, those that are worth their held memory; in order of held.
std::vector<LayerChoice> Worthwhile(const std::vector<LayerChoice>& front, Bytes transient) {
  std::vector<LayerChoice> sorted;
  for (const LayerChoice& choice : front) {
    if (choice.transient <= transient) sorted.push_back(choice);
  }
  std::sort(sorted.begin(), sorted.end(), [](const LayerChoice& a, const LayerChoice& b) {
    return std::tie(a.held, a.exposed, a.transient) < std::tie(b.held, b.exposed, b.transient);
  });
  std::vector<LayerChoice> kept;
  for (const LayerChoice& choice : sorted) {
    if (kept.empty() || choice.exposed < kept.back().exposed) kept.push_back(choice);
  }
  return kept;
}

// Of choices in order of held, those on the lower convex hull of exposed over held.
std::vector<LayerChoice> Hull(const std::vector<LayerChoice>& choices) {
  std::vector<LayerChoice> hull;
  for (const LayerChoice& c : choices) {
    // The middle one of three leaves the hull unless the slope before it is steeper than the slope after it.
    const auto above = [&](const LayerChoice& a, const LayerChoice& b) {
      return static_cast<__int128>((a.exposed - b.exposed).value) * (c.held - b.held).value <=
             static_cast<__int128>((b.exposed - c.exposed).value) * (b.held - a.held).value;
    };
    while (hull.size() >= 2 && above(hull[hull.size() - 2], hull.back())) hull.pop_back();
    hull.push_back(c);
  }
  return hull;
}

// `fast_layers` of the inner layers have policy `fast`, the others `slow`.
struct Mix {
  const LayerChoice* slow = nullptr;
  const LayerChoice* fast = nullptr;
  const LayerChoice* top = nullptr;
  int32_t fast_layers = 0;
  Bytes held;
  Bytes bytes;
  Nanos exposed;
};

bool Better(const Mix& a, const Mix& b) {
  return b.top == nullptr || std::tie(a.exposed, a.bytes) < std::tie(b.exposed, b.bytes);
}

StageChoice ChoiceOf(const Mix& mix, int32_t layers) {
  StageChoice choice{.held = mix.held, .transient = mix.bytes - mix.held, .exposed = mix.exposed};
  // Layers that recompute more come first: their backward comes last, when the others' memory is already free.
  for (int32_t i = 0; i < layers - 1; ++i) {
    choice.policy.layers.push_back(i < layers - 1 - mix.fast_layers ? mix.slow->policy : mix.fast->policy);
  }
  choice.policy.layers.push_back(mix.top->policy);
  return choice;
}

// Tries all pairs of inner choices beside `top`, with `left` bytes for the inner layers; as many layers as fit get
// the faster of the two.
void TryPairs(const std::vector<LayerChoice>& inner, const LayerChoice& top, int32_t inner_layers, Bytes transient,
              Bytes left, Mix& best) {
  if (inner_layers == 0) {
    const Mix mix{nullptr, nullptr, &top, 0, top.held, top.held + transient, top.exposed};
    if (Better(mix, best)) best = mix;
    return;
  }
  for (size_t s = 0; s < inner.size(); ++s) {
    const LayerChoice& slow = inner[s];
    if (slow.held * inner_layers > left) break;
    for (size_t f = s; f < inner.size(); ++f) {
      const LayerChoice& fast = inner[f];
      const Bytes step = fast.held - slow.held;
      const Bytes slack = left - slow.held * inner_layers;
      const int64_t fit = step.value == 0 ? 0 : std::min<int64_t>(inner_layers, slack.value / step.value);
      if (f > s && fit == 0) break;  // choices further on need even more memory
      Mix mix{&slow, &fast, &top, static_cast<int32_t>(fit)};
      mix.held = top.held + slow.held * inner_layers + step * fit;
      mix.bytes = mix.held + transient;
      mix.exposed = top.exposed + slow.exposed * inner_layers - (slow.exposed - fast.exposed) * fit;
      if (Better(mix, best)) best = mix;
    }
  }
}

}  // namespace

StageMixer::StageMixer(const std::vector<LayerChoice>& inner, const std::vector<LayerChoice>& top) {
  LYNX_CHECK(!inner.empty() && !top.empty());
  std::set<Bytes> transients;
  for (const LayerChoice& choice : inner) transients.insert(choice.transient);
  for (const LayerChoice& choice : top) transients.insert(choice.transient);
  for (Bytes transient : transients) {
    Level level{transient, Worthwhile(inner, transient), Worthwhile(top, transient), {}};
    if (level.inner.empty() || level.top.empty()) continue;
    level.hull = Hull(level.inner);
    levels_.push_back(std::move(level));
  }
}

// A lower bound of what `layers` inner layers expose with `held` bytes among them: the value if layers could be
// divided. It exists if `held` suffices for the choice of least memory.
Nanos StageMixer::LeastExposed(const Level& level, int32_t layers, Bytes held) {
  const std::vector<LayerChoice>& hull = level.hull;
  size_t after = 1;
  while (after < hull.size() && hull[after].held * layers <= held) ++after;
  const LayerChoice& low = hull[after - 1];
  if (after == hull.size()) return low.exposed * layers;
  const LayerChoice& high = hull[after];
  const __int128 saved = static_cast<__int128>((low.exposed - high.exposed).value) * (held - low.held * layers).value;
  return low.exposed * layers - Nanos(static_cast<int64_t>(saved / (high.held - low.held).value) + 1);
}

std::optional<StageChoice> StageMixer::Best(int32_t layers, Bytes budget) const {
  LYNX_CHECK(layers >= 1);
  Mix best;
  for (const Level& level : levels_) {
    if (level.transient > budget) break;
    for (const LayerChoice& top : level.top) {
      const Bytes left = budget - level.transient - top.held;
      if (left < level.inner.front().held * (layers - 1)) break;  // choices further on need even more memory
      const bool hopeless = best.top != nullptr && top.exposed + LeastExposed(level, layers - 1, left) > best.exposed;
      if (!hopeless) TryPairs(level.inner, top, layers - 1, level.transient, left, best);
    }
  }
  if (best.top == nullptr) return std::nullopt;
  return ChoiceOf(best, layers);
}

Bytes StageMixer::LeastBytes(int32_t layers) const {
  Bytes least = levels_.front().transient + levels_.front().inner.front().held * (layers - 1) +
                levels_.front().top.front().held;
  for (const Level& level : levels_) {
    least = std::min(least, level.transient + level.inner.front().held * (layers - 1) + level.top.front().held);
  }
  return least;
}

}  // namespace lynx
