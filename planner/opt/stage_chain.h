// StageChain: a lower bound of what a stage can expose, and which ways to treat a layer can be part of a good solution.
//
// A stage is a chain of layers, each with a late and a kept part (layer_choices.h). Neighbours share windows and transient
// memory; the stage shares its memory, its stall, its copy engines and the host's memory. The relaxation keeps the
// chain as it is and prices what the stage shares: with prices p >= 0,
//
//   bound(p) = min over chains of (exposed time + sum of p x what the chain takes) - sum of p x what there is
//
// is a lower bound for any p (Lagrangian duality; Held and Karp 1970), found by dynamic programming from the top layer
// down. The price of what is soft (stall, copies: using too much exposes time) is at most 1. A pair of neighbours that
// needs more transient memory than the interval's upper end is left out, and the interval's lower end comes off the
// budget; so intervals together cover all solutions.
//
// The same messages up and down the chain say for each part of each layer the least bound of a solution that has it:
// parts beyond a known objective are dropped for good. What remains is what the MILP chooses from.
//
// Doubles carry sums of integers below 2^53 and prices; bounds are lowered by a relative 1e-9 for their rounding.
// Pure; thread-compatible.
#ifndef LYNX_PLANNER_OPT_STAGE_CHAIN_H_
#define LYNX_PLANNER_OPT_STAGE_CHAIN_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "planner/recompute/layer_choices.h"
#include "planner/recompute/recompute_problem.h"

namespace lynx {

// Nanos for one byte of device or host memory, and for one of the stall's and the copy engines' Nanos.
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
  const LatePart* late = nullptr;
  Nanos exposed;  // less what `early` hides
  // Nodes of one number look the same to the layer below, or to the one above.
  int32_t face_below = 0, face_above = 0;
};

// What remains of the problem: a budget, transient memory between two ends, and for each layer from the bottom on the
// nodes that it may have, as rising indices.
struct ChainScope {
  Bytes budget;
  Bytes least_transient, most_transient;
  std::vector<std::shared_ptr<const std::vector<int32_t>>> nodes;
};

// What a chain takes.
struct ChainUse {
  Nanos exposed;  // but for the stall and copies
  Bytes held;
  Nanos stall, copy_out, copy_in;
  Bytes host;
};

struct ChainBound {
  bool feasible = false;  // there is a chain whose pairs fit the interval
  double bound = 0;
  std::vector<int32_t> chain;         // the node of each layer of a best chain,
  std::vector<const KeptPart*> kept;  // and its kept part
  ChainUse use;
};

// Values of one layer's nodes, by position in the scope. Infinite: no chain has the node.
struct LayerValues {
  std::vector<double> own;            // of the node, with its set's best kept part
  std::vector<const KeptPart*> kept;  // that part
  std::vector<double> above;          // least of all layers above, with what pairs expose
  std::vector<int32_t> link;          // the position in the layer above that attains it
  std::vector<double> below;          // the same of all layers below

  // Of the best chain that has the node; Values must have been asked for both ways.
  double Through(size_t i) const { return own[i] + above[i] + below[i]; }
};

class StageChain {
 public:
  // `problem` is valid and outlives the object.
  explicit StageChain(const RecomputeProblem& problem);
  StageChain(const StageChain&) = delete;
  StageChain& operator=(const StageChain&) = delete;

  const RecomputeProblem& problem() const { return problem_; }
  const ChainNode& node(int32_t layer, int32_t index) const {
    return (layer + 1 == problem_.layers ? top_ : inner_)[static_cast<size_t>(index)];
  }
  size_t node_count() const { return inner_.size() + top_.size(); }

  // Everything, with the problem's budget and transient memory up to that.
  ChainScope Everything() const;
  // The transient memory that chains of the scope can have, within its ends; rising.
  std::vector<Bytes> Transients(const ChainScope& scope) const;
  // Drops the nodes that need more transient memory by themselves than the scope's. False if nothing is left of a layer.
  bool DropTooLarge(ChainScope& scope) const;

  ChainBound Bound(const ChainScope& scope, const StagePrices& prices) const;

  // Drops nodes that no solution with an objective up to `limit` has. False if nothing is left of a layer.
  bool DropBeyond(ChainScope& scope, const StagePrices& prices, double limit) const;

  // For each layer the values of its nodes in the scope. `both_ways`: `below` is wanted of all layers.
  std::vector<LayerValues> Values(const ChainScope& scope, const StagePrices& prices, bool both_ways) const;

  // The priced value of a kept part.
  static double PricedValue(const KeptPart& kept, const StagePrices& prices);
  // What there is of all that has a price, priced.
  double PricedBudget(const ChainScope& scope, const StagePrices& prices) const;

  // A sum over a chain less the priced budget, lowered by what rounding may have added.
  static double LowerEnd(double sum, double budget);

  // Of two neighbours: time beyond the windows that they share, and their transient memory. nullptr: no layer below.
  Nanos PairExposed(const LatePart& upper, const LatePart* lower) const;
  Bytes PairTransient(const LatePart& upper, const LatePart* lower) const;

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
