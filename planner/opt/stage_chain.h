// StageChain computes a lower bound for the exposed time of a stage, and finds out which ways to treat a layer can be part of a
// good solution.
//
// In this folder, a *chain* is one choice for all layers of a stage: a BackwardPart ("late part") and a KeptPart for each layer
// (layer_choices.h). Neighbours share windows and transient memory. The whole stage shares its memory, its stall, its copy
// engines and the host's memory. The relaxation treats exactly what neighbours share. For what the whole stage shares, it uses
// prices. With prices p >= 0,
//
//   bound(p) = min over chains of (exposed time + sum of p x what the chain takes) - sum of p x what is available
//
// is a lower bound for any p (Lagrangian duality; Held and Karp 1970). Dynamic programming from the top layer down finds this
// minimum. For the stall and the copy engines, work beyond the capacity is allowed, but this work is exposed. So their price is
// at most 1. Transient memory is limited to an interval. A pair of neighbours that needs more than the upper end of the
// interval is excluded, and the lower end is subtracted from the budget for held memory. Several intervals together cover all
// solutions.
//
// Dynamic programming in both directions gives, for each part of each layer, a lower bound for all solutions that contain the
// part. A part whose bound is above a known objective is dropped. The MILP chooses among the parts that remain.
//
// Doubles hold sums of integers below 2^53, and prices. Their rounding may make a bound too high, so bounds are reduced by a
// relative 1e-9. Pure; thread-compatible.
#ifndef LYNX_PLANNER_OPT_STAGE_CHAIN_H_
#define LYNX_PLANNER_OPT_STAGE_CHAIN_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "planner/recompute/layer_choices.h"
#include "planner/recompute/recompute_problem.h"

namespace lynx {

// Prices in Nanos: for a byte of device or host memory, and for a nanosecond of the stall and of the copy engines.
struct StagePrices {
  double memory = 0;
  double stall = 0;
  double copy_out = 0;
  double copy_in = 0;
  double host = 0;
};

// A BackwardPart of one layer.
struct ChainNode {
  const PartsOfSet* set = nullptr;
  const BackwardPart* late = nullptr;
  Nanos exposed;  // exposed time of the part; in the top layer, minus what RecomputeProblem::early hides
  // Nodes with the same `face_below` have the same effect on pairs with the layer below. Nodes with the same `face_above` have
  // the same effect on pairs with the layer above.
  int32_t face_below = 0, face_above = 0;
};

// A part of the problem: a budget, an interval of transient memory, and for each layer the nodes that the layer may have. The
// list of layers begins with the bottom layer. A layer's nodes are indices in ascending order.
struct ChainScope {
  Bytes budget;
  Bytes least_transient, most_transient;
  std::vector<std::shared_ptr<const std::vector<int32_t>>> nodes;
};

// How much a chain uses of the resources that the whole stage shares.
struct ChainUse {
  Nanos exposed;  // exposed time, without work that does not fit into the stall and the copy times
  Bytes held;
  Nanos stall, copy_out, copy_in;
  Bytes host;
};

struct ChainBound {
  bool feasible = false;  // true if there is a chain in which all pairs of neighbours fit the interval of transient memory
  double bound = 0;
  std::vector<int32_t> chain;         // the node of each layer of a best chain
  std::vector<const KeptPart*> kept;  // the KeptPart of each layer of this chain
  ChainUse use;
};

// Priced values of the nodes of one layer. The index is the position in the scope. Infinite: no chain contains the node.
struct LayerValues {
  std::vector<double> own;            // value of the node together with the best KeptPart of its set
  std::vector<const KeptPart*> kept;  // the best KeptPart of the node's set
  // smallest sum over all layers above; contains the exposed time of the pairs of neighbours
  std::vector<double> above;
  std::vector<int32_t> link;  // the position in the layer above that gives this value
  std::vector<double> below;  // smallest sum over all layers below

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

  // The scope without restrictions: the budget of the problem, and transient memory up to this budget.
  ChainScope Everything() const;
  // The amounts of transient memory that chains of the scope can have, within the scope's interval. In ascending order.
  std::vector<Bytes> Transients(const ChainScope& scope) const;
  // Drops the nodes that alone need more transient memory than the scope allows. Returns false if a layer has no nodes left.
  bool DropTooLarge(ChainScope& scope) const;

  ChainBound Bound(const ChainScope& scope, const StagePrices& prices) const;

  // Drops the nodes that are in no solution with at most `limit` Nanos of exposed time. Returns false if a layer has no nodes
  // left.
  bool DropBeyond(ChainScope& scope, const StagePrices& prices, double limit) const;

  // For each layer, the values of its nodes in the scope. If `both_ways`, also computes `below`.
  std::vector<LayerValues> Values(const ChainScope& scope, const StagePrices& prices, bool both_ways) const;

  // The priced value of a KeptPart.
  static double PricedValue(const KeptPart& kept, const StagePrices& prices);
  // The sum, at these prices, of everything that is available and has a price.
  double PricedBudget(const ChainScope& scope, const StagePrices& prices) const;

  // Returns `sum` minus `budget`, reduced by the possible rounding error. So the result is a lower bound.
  static double LowerEnd(double sum, double budget);

  // For two neighbouring layers: the work that does not fit into the windows that they share, and their transient memory. lower
  // == nullptr: there is no layer below.
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
