#include "planner/opt/stage_chain.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "common/check.h"

namespace lynx {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

Nanos Excess(Nanos work, Nanos capacity) { return std::max(Nanos(0), work - capacity); }

std::vector<ChainNode> NodesOf(const RecomputeProblem& problem, const std::vector<PartsOfSet>& parts, LayerPlace place) {
  std::vector<ChainNode> nodes;
  for (const PartsOfSet& set : parts) {
    for (const BackwardPart& late : set.late) {
      nodes.push_back(
          {&set, &late, late.exposed - (place == LayerPlace::kTop ? std::min(late.early, problem.early) : Nanos(0))});
    }
  }
  return nodes;
}

std::shared_ptr<const std::vector<int32_t>> FirstIndices(size_t count) {
  std::vector<int32_t> all(count);
  std::iota(all.begin(), all.end(), 0);
  return std::make_shared<const std::vector<int32_t>>(std::move(all));
}

// The indices of `values`, in ascending order of their values.
std::vector<int32_t> OrderOf(const std::vector<double>& values) {
  std::vector<int32_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return values[static_cast<size_t>(a)] < values[static_cast<size_t>(b)]; });
  return order;
}

}  // namespace

StageChain::StageChain(const RecomputeProblem& problem)
    : problem_(problem), parts_(PartsOfStage(problem)), inner_(NodesOf(problem, parts_.inner, LayerPlace::kInner)),
      top_(NodesOf(problem, parts_.top, LayerPlace::kTop)) {
  NumberFaces();
}

void StageChain::NumberFaces() {
  std::map<std::pair<std::array<Nanos, kMaxWindows>, std::array<Bytes, kMaxPhases>>, int32_t> below, above;
  for (std::vector<ChainNode>* nodes : {&inner_, &top_}) {
    for (ChainNode& node : *nodes) {
      const BackwardPart& late = *node.late;
      node.face_below = below.try_emplace({late.own_work, late.live}, static_cast<int32_t>(below.size())).first->second;
      node.face_above = above.try_emplace({late.above_work, late.above}, static_cast<int32_t>(above.size())).first->second;
    }
  }
  faces_below_ = static_cast<int32_t>(below.size());
  faces_above_ = static_cast<int32_t>(above.size());
}

ChainScope StageChain::Everything() const {
  ChainScope scope{.budget = problem_.budget, .most_transient = problem_.budget};
  const auto inner = FirstIndices(inner_.size());
  for (int32_t l = 0; l + 1 < problem_.layers; ++l) scope.nodes.push_back(inner);
  scope.nodes.push_back(FirstIndices(top_.size()));
  return scope;
}

bool StageChain::DropTooLarge(ChainScope& scope) const {
  for (int32_t l = 0; l < problem_.layers; ++l) {
    std::vector<int32_t> kept;
    for (int32_t index : *scope.nodes[l]) {
      if (PairTransient(*node(l, index).late, nullptr) <= scope.most_transient) kept.push_back(index);
    }
    if (kept.empty()) return false;
    Keep(std::move(kept), l, scope);
  }
  return true;
}

// Makes `kept` the list of nodes of the layer. Inner layers with equal nodes share one list, to save memory.
void StageChain::Keep(std::vector<int32_t> kept, int32_t layer, ChainScope& scope) const {
  if (kept.size() == scope.nodes[layer]->size()) return;
  const bool same = layer > 0 && layer + 1 < problem_.layers && *scope.nodes[layer - 1] == kept;
  scope.nodes[layer] = same ? scope.nodes[layer - 1] : std::make_shared<const std::vector<int32_t>>(std::move(kept));
}

std::vector<Bytes> StageChain::Transients(const ChainScope& scope) const {
  std::set<Bytes> found;
  for (int k = 0; k < problem_.segments(); ++k) {
    std::set<Bytes> live, above{Bytes(0)};
    for (int32_t l = 0; l < problem_.layers; ++l) {
      if (l > 0 && l + 1 < problem_.layers && scope.nodes[l] == scope.nodes[l - 1]) continue;
      for (int32_t index : *scope.nodes[l]) {
        live.insert(node(l, index).late->live[k]);
        above.insert(node(l, index).late->above[k]);
      }
    }
    for (Bytes a : live) {
      for (Bytes b : above) {
        if (a + b >= scope.least_transient && a + b <= scope.most_transient) found.insert(a + b);
      }
    }
  }
  return {found.begin(), found.end()};
}

double StageChain::PricedValue(const KeptPart& kept, const StagePrices& prices) {
  return static_cast<double>(kept.exposed.value) + prices.memory * static_cast<double>(kept.held.value) +
         prices.stall * static_cast<double>(kept.stall.value) + prices.copy_out * static_cast<double>(kept.copy_out.value) +
         prices.copy_in * static_cast<double>(kept.copy_in.value) + prices.host * static_cast<double>(kept.host.value);
}

double StageChain::PricedBudget(const ChainScope& scope, const StagePrices& prices) const {
  return prices.memory * static_cast<double>((scope.budget - scope.least_transient).value) +
         prices.stall * static_cast<double>(problem_.stall.value) +
         prices.copy_out * static_cast<double>(problem_.copy_out.value) +
         prices.copy_in * static_cast<double>(problem_.copy_in.value) +
         prices.host * static_cast<double>(problem_.host_budget.value);
}

Nanos StageChain::PairExposed(const BackwardPart& upper, const BackwardPart* lower) const {
  Nanos exposed;
  for (size_t w = 0; w < problem_.backward.size(); ++w) {
    const Nanos work = upper.own_work[w] + (lower == nullptr ? Nanos(0) : lower->above_work[w]);
    exposed += Excess(work, problem_.backward[w]);
  }
  return exposed;
}

Bytes StageChain::PairTransient(const BackwardPart& upper, const BackwardPart* lower) const {
  Bytes transient;
  for (int k = 0; k < problem_.segments(); ++k) {
    transient = std::max(transient, upper.live[k] + (lower == nullptr ? Bytes(0) : lower->above[k]));
  }
  return transient;
}

LayerValues StageChain::ValuesOf(const ChainScope& scope, int32_t layer, const StagePrices& prices) const {
  LayerValues values;
  const PartsOfSet* set = nullptr;
  const KeptPart* best = nullptr;
  double least = 0;
  for (int32_t index : *scope.nodes[layer]) {
    const ChainNode& node = this->node(layer, index);
    if (node.set != set) {  // nodes of the same set are neighbours in the list
      set = node.set;
      least = kInfinite;
      for (const KeptPart& kept : set->kept) {
        const double value = PricedValue(kept, prices);
        if (value < least) best = &kept, least = value;
      }
    }
    values.own.push_back(static_cast<double>(node.exposed.value) + least);
    values.kept.push_back(best);
  }
  return values;
}

// Finds the best neighbour of a node in the layer `other`. This is the neighbour with the smallest sum of its value in `values`
// and the exposed time of the pair. `order` lists the nodes by value. The exposed time of a pair is never negative, so the loop
// ends at the first value that is not better than the best sum.
StageChain::Link StageChain::BestLink(const ChainScope& scope, int32_t layer, int32_t index, int32_t other,
                                      const std::vector<double>& values, const std::vector<int32_t>& order) const {
  Link best{kInfinite, -1};
  const BackwardPart& late = *node(layer, index).late;
  for (int32_t position : order) {
    const double value = values[static_cast<size_t>(position)];
    if (value >= best.value) break;
    const BackwardPart& there = *node(other, (*scope.nodes[other])[static_cast<size_t>(position)]).late;
    const BackwardPart& upper = other > layer ? there : late;
    const BackwardPart& lower = other > layer ? late : there;
    const double with_pair = value + static_cast<double>(PairExposed(upper, &lower).value);
    if (with_pair < best.value && PairTransient(upper, &lower) <= scope.most_transient) best = {with_pair, position};
  }
  return best;
}

// Finds the best link from each node of `layer` to the layer `other`. Nodes with the same face towards the other layer have the
// same link (see ChainNode). If nodes of the other layer have the same face towards `layer`, only the best of them is tried.
std::vector<StageChain::Link> StageChain::BestLinks(const ChainScope& scope, int32_t layer, int32_t other,
                                                    const std::vector<double>& values) const {
  const bool up = other > layer;
  std::vector<int32_t> order;
  std::vector<bool> seen(static_cast<size_t>(up ? faces_below_ : faces_above_));
  for (int32_t position : OrderOf(values)) {
    const ChainNode& there = node(other, (*scope.nodes[other])[static_cast<size_t>(position)]);
    const auto face = static_cast<size_t>(up ? there.face_below : there.face_above);
    if (seen[face]) continue;
    seen[face] = true;
    order.push_back(position);
  }
  std::vector<std::optional<Link>> known(static_cast<size_t>(up ? faces_above_ : faces_below_));
  std::vector<Link> links;
  for (int32_t index : *scope.nodes[layer]) {
    const ChainNode& here = node(layer, index);
    std::optional<Link>& link = known[static_cast<size_t>(up ? here.face_above : here.face_below)];
    if (!link) link = BestLink(scope, layer, index, other, values, order);
    links.push_back(*link);
  }
  return links;
}

std::vector<LayerValues> StageChain::Values(const ChainScope& scope, const StagePrices& prices, bool both_ways) const {
  std::vector<LayerValues> layers;
  for (int32_t l = 0; l < problem_.layers; ++l) {
    const bool same = l > 0 && scope.nodes[l] == scope.nodes[l - 1] && l + 1 < problem_.layers;
    layers.push_back(same ? layers.back() : ValuesOf(scope, l, prices));
  }
  std::vector<double> sums(layers.back().own);
  layers.back().above.assign(sums.size(), 0);
  layers.back().link.assign(sums.size(), -1);
  for (int32_t l = problem_.layers - 2; l >= 0; --l) {
    LayerValues& here = layers[l];
    std::vector<double> next;
    for (const Link& link : BestLinks(scope, l, l + 1, sums)) {
      next.push_back(here.own[next.size()] + link.value);
      here.above.push_back(link.value);
      here.link.push_back(link.position);
    }
    sums = std::move(next);
  }
  for (int32_t index : *scope.nodes[0]) {
    const BackwardPart& late = *node(0, index).late;
    const bool fits = PairTransient(late, nullptr) <= scope.most_transient;
    layers[0].below.push_back(fits ? static_cast<double>(PairExposed(late, nullptr).value) : kInfinite);
  }
  for (int32_t l = 1; both_ways && l < problem_.layers; ++l) {
    sums.clear();
    for (size_t i = 0; i < layers[l - 1].own.size(); ++i) sums.push_back(layers[l - 1].own[i] + layers[l - 1].below[i]);
    for (const Link& link : BestLinks(scope, l, l - 1, sums)) layers[l].below.push_back(link.value);
  }
  return layers;
}

ChainBound StageChain::Bound(const ChainScope& scope, const StagePrices& prices) const {
  const std::vector<LayerValues> layers = Values(scope, prices, false);
  double least = kInfinite;
  int32_t position = -1;
  for (size_t i = 0; i < layers[0].own.size(); ++i) {
    const double sum = layers[0].own[i] + layers[0].above[i] + layers[0].below[i];
    if (sum < least) least = sum, position = static_cast<int32_t>(i);
  }
  ChainBound bound;
  if (position < 0) return bound;
  bound.feasible = true;
  bound.bound = LowerEnd(least, PricedBudget(scope, prices));
  const BackwardPart* lower = nullptr;
  for (int32_t l = 0; l < problem_.layers; ++l) {
    const ChainNode& node = this->node(l, (*scope.nodes[l])[static_cast<size_t>(position)]);
    const KeptPart& kept = *layers[l].kept[static_cast<size_t>(position)];
    bound.chain.push_back((*scope.nodes[l])[static_cast<size_t>(position)]);
    bound.kept.push_back(&kept);
    bound.use.exposed += node.exposed + kept.exposed + PairExposed(*node.late, lower);
    bound.use.held += kept.held;
    bound.use.stall += kept.stall;
    bound.use.copy_out += kept.copy_out;
    bound.use.copy_in += kept.copy_in;
    bound.use.host += kept.host;
    lower = node.late;
    position = layers[l].link[static_cast<size_t>(position)];
  }
  return bound;
}

double StageChain::LowerEnd(double sum, double budget) { return sum - budget - 1e-9 * (std::abs(sum) + budget); }

bool StageChain::DropBeyond(ChainScope& scope, const StagePrices& prices, double limit) const {
  const std::vector<LayerValues> layers = Values(scope, prices, true);
  const double budget = PricedBudget(scope, prices);
  for (int32_t l = 0; l < problem_.layers; ++l) {
    std::vector<int32_t> kept;
    for (size_t i = 0; i < layers[l].own.size(); ++i) {
      if (LowerEnd(layers[l].Through(i), budget) <= limit) kept.push_back((*scope.nodes[l])[i]);
    }
    if (kept.empty()) return false;
    Keep(std::move(kept), l, scope);
  }
  return true;
}

}  // namespace lynx
