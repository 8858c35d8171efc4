// StageChain computes a lower bound for what a stage exposes, and finds which ways to treat a layer can be part of a good
// solution.
//
// A stage is a chain of layers, each with a late and a kept part (layer_choices.h). Neighbours share windows and
// transient memory. The whole stage shares its memory, its stall, its copy engines and the host's memory. The relaxation
// keeps the chain exact and puts prices on what the whole stage shares. With prices p >= 0,
//
//   bound(p) = min over chains of (exposed time + sum of p x what the chain takes) - sum of p x what is available
//
// is a lower bound for any p (Lagrangian duality; Held and Karp 1970). Dynamic programming from the top layer down finds
// it. The price of a soft resource (stall, copies: using too much only exposes time) is at most 1. Transient memory is
// limited to an interval: a pair of neighbours that needs more than the upper end is excluded, and the lower end is
// subtracted from the budget. So intervals together cover all solutions.
//
// The same messages up and down the chain give, for each part of each layer, the smallest bound of a solution that
// contains it. Parts beyond a known objective are dropped for good. The MILP chooses from what remains.
//
// Doubles hold sums of integers below 2^53 and prices; bounds are reduced by a relative 1e-9 because of their rounding.
// Pure; thread-compatible.
#ifndef LYNX_PLANNER_OPT_STAGE_CHAIN_H_
#define LYNX_PLANNER_OPT_STAGE_CHAIN_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "planner/recompute/layer_choices.h"
#include "planner/recompute/recompute_problem.h"

namespace lynx {

// Prices in Nanos: per byte of device or host memory, and per Nanos of the stall and of the copy engines.
struct StagePrices {
  double memory = 0;
  double stall = 0;
  double copy_out = 0;
  double copy_in = 0;
  double host = 0;
};

// A late part of one layer.
struct ChainNode {
  const PartsOfSet* set = nullptr;
  const BackwardPart* late = nullptr;
  Nanos exposed;  // minus what `early` hides
  // Nodes with the same number look the same to the layer below, or to the layer above.
  int32_t face_below = 0, face_above = 0;
};

// What remains of the problem: a budget, an interval of transient memory, and for each layer from the bottom on the
// indices of the nodes that it may have, ascending.
struct ChainScope {
  Bytes budget;
  Bytes least_transient, most_transient;
  std::vector<std::shared_ptr<const std::vector<int32_t>>> nodes;
};

// What a chain takes of everything shared.
struct ChainUse {
  Nanos exposed;  // without the stall and copies
  Bytes held;
  Nanos stall, copy_out, copy_in;
  Bytes host;
};

struct ChainBound {
  bool feasible = false;  // there is a chain whose pairs fit the interval
  double bound = 0;
  std::vector<int32_t> chain;         // the node of each layer of a best chain
  std::vector<const KeptPart*> kept;  // and the kept part of each layer
  ChainUse use;
};

// Values of one layer's nodes, by position in the scope. Infinite: no chain has the node.
struct LayerValues {
  std::vector<double> own;            // value of the node with its set's best kept part
  std::vector<const KeptPart*> kept;  // that part
  std::vector<double> above;          // smallest value of all layers above, with what pairs expose
  std::vector<int32_t> link;          // the position in the layer above that gives this value
  std::vector<double> below;          // the same for all layers below

  // Value of the best chain that contains the node. Values must have been called with `both_ways`.
  double Through(size_t i) const { return own[i] + above[i] + below[i]; }
};

class StageChain {
 public:
  // `problem` must be valid and outlive the object.
  explicit StageChain(const RecomputeProblem& problem);
  StageChain(const StageChain&) = delete;
  StageChain& operator=(const StageChain&) = delete;

  const RecomputeProblem& problem() const { return problem_; }
  const ChainNode& node(int32_t layer, int32_t index) const {
    return (layer + 1 == problem_.layers ? top_ : inner_)[static_cast<size_t>(index)];
  }
  size_t node_count() const { return inner_.size() + top_.size(); }

  // The scope without restrictions: the problem's budget, and transient memory up to that budget.
  ChainScope Everything() const;
  // The amounts of transient memory that chains of the scope can have, within its interval; ascending.
  std::vector<Bytes> Transients(const ChainScope& scope) const;
  // Drops the nodes that alone need more transient memory than the scope allows. False if a layer has no nodes left.
  bool DropTooLarge(ChainScope& scope) const;

  ChainBound Bound(const ChainScope& scope, const StagePrices& prices) const;

  // Drops nodes that are in no solution with an objective up to `limit`. False if a layer has no nodes left.
  bool DropBeyond(ChainScope& scope, const StagePrices& prices, double limit) const;

  // For each layer, the values of its nodes in the scope. `both_ways`: compute `below` too.
  std::vector<LayerValues> Values(const ChainScope& scope, const StagePrices& prices, bool both_ways) const;

  // The priced value of a kept part.
  static double PricedValue(const KeptPart& kept, const StagePrices& prices);
  // The priced sum of everything that is available and has a price.
  double PricedBudget(const ChainScope& scope, const StagePrices& prices) const;

  // A sum over a chain minus the priced budget, reduced by the possible rounding error.
  static double LowerEnd(double sum, double budget);

  // For two neighbours: time beyond the windows that they share, and their transient memory. lower == nullptr: there is
  // no layer below.
  Nanos PairExposed(const BackwardPart& upper, const BackwardPart* lower) const;
  Bytes PairTransient(const BackwardPart& upper, const BackwardPart* lower) const;

 private:
  struct Link {
    double value;
    int32_t position;
  };
  void NumberFaces();
  void Keep(std::vector<int32_t> kept, int32_t layer, ChainScope& scope) const;
  LayerValues ValuesOf(const ChainScope& scope, int32_t layer, const StagePrices& prices) const;
  Link BestLink(const ChainScope& scope, int32_t layer, int32_t index, int32_t other, const std::vector<double>& values,
                const std::vector<int32_t>& order) const;
  std::vector<Link> BestLinks(const ChainScope& scope, int32_t layer, int32_t other, const std::vector<double>& values) const;

  const RecomputeProblem& problem_;
  const StageParts parts_;
  std::vector<ChainNode> inner_, top_;
  int32_t faces_below_ = 0, faces_above_ = 0;
};

}  // namespace lynx

#endif  // LYNX_PLANNER_OPT_STAGE_CHAIN_H_
