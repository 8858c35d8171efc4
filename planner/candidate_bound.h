// Bounds of a candidate's step, from sums over layers alone: no policy, no program, no schedule is made. The search
// (plan_search.h) drops with them the layouts that cannot win, nearly all, at microseconds each.
//
// Let x_r be what one microbatch takes on pipeline rank r, with the recomputation that nothing hides, and b_r the part of
// it that is forward and input gradient. Rank r works M x_r, and cannot begin before the forwards of the ranks before it
// have run once, on the first of their v chunks, nor end the step before their backwards have:
//
//     step >= M x_r + (b_0 + ... + b_{r-1}) / v                                                            (1)
//
// (not where the schedule places its stages as a V or in two directions: there step >= M x_r). A layer that stores s
// bytes of a microbatch makes the rest again. With c_i and y_i an item's cost and bytes, that takes at least the
// fractional knapsack of the items' costs, cheapest per byte first, of which its windows hide at most their sum. Memory:
// n layers hold at least as many microbatches as the schedule has in flight. So x_r is bounded below by a function of
// rank and layers, and whether any partition has a step of at most T is answered from the last rank on, each taking as
// many layers as (1) lets it: the more the later ranks take, the less the earlier ones need. Exact for (1).
//
// Where nodes differ, every rank counts as the best of each. Pure; not thread-safe.
#ifndef LYNX_PLANNER_CANDIDATE_BOUND_H_
#define LYNX_PLANNER_CANDIDATE_BOUND_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "common/units.h"
#include "planner/cost_model.h"
#include "planner/search.h"

namespace lynx {

// What the layers of a shape take at least.
class LayerFloor {
 public:
  LayerFloor(const CostModel& costs, const LayerShape& shape);

  // Of each quantity the one that bounds both.
  void Lower(const LayerFloor& other);

  // One microbatch, forward and backward, nothing recomputed.
  Nanos layer() const { return layer_; }
  Nanos embedding() const { return embedding_; }
  Nanos head() const { return head_; }
  // Of a layer's time, its forward and input gradient, at least.
  int64_t pass_permille() const { return pass_permille_; }
  Bytes input() const { return input_; }    // x
  Bytes stored() const { return stored_; }  // what may be recomputed, all of it
  // Exposed recomputation of a layer that stores at most so many bytes of a microbatch beside x; never rising in them.
  Nanos Exposed(Bytes stored) const;

 private:
  void SortByPrice();

  struct Item {
    Bytes bytes;
    Nanos cost;
  };
  Nanos layer_, embedding_, head_;
  int64_t pass_permille_ = 1000;
  Bytes input_, stored_;
  Nanos windows_;
  std::vector<Item> items_;     // in the order of the graph
  std::vector<Item> by_price_;  // cheapest per byte first
};

class CandidateBound {
 public:
  // `floor`, of the candidate's shape, and the request outlive it.
  CandidateBound(const PlanRequest& request, const Candidate& candidate, const LayerFloor& floor);

  // No step is shorter, whatever the memory.
  Nanos Quick() const;
  // False only if no step that fits into memory is as short.
  bool MayTake(Nanos step) const;
  // The least step that MayTake allows, up to a thousandth; nullopt if nothing fits.
  std::optional<Nanos> Bound() const;
  // Bytes that the rank which lacks most is short of, or, negative, has left, with even shares of the layers and
  // everything but their inputs recomputed: at most what it really lacks there. Very negative where no limit is known.
  Bytes Lacking() const;

 private:
  struct Rank {
    Nanos ends;           // of the embedding and the head
    std::optional<Bytes> memory;  // for states and activations
    Bytes states, states_per_layer;
    int64_t chunks_in_flight = 1;
  };
  Rank RankAt(int32_t rank) const;
  const std::vector<Rank>& Ranks() const;
  // For activations; nullopt: no limit.
  std::optional<Bytes> Budget(const Rank& rank, int32_t layers) const;
  // x_r; nullopt: does not fit.
  std::optional<Nanos> Least(const Rank& rank, int32_t layers) const;
  Nanos Busy(const Rank& rank, int32_t layers) const { return floor_.layer() * layers + rank.ends; }

  const PlanRequest& request_;
  const Candidate& candidate_;
  const LayerFloor& floor_;
  int32_t chunks_ = 1;
  double before_share_ = 0;  // of the time of the ranks before
  mutable std::vector<Rank> ranks_;  // filled on first use of memory
  Nanos total_;              // of the model, one microbatch
};

}  // namespace lynx

#endif  // LYNX_PLANNER_CANDIDATE_BOUND_H_
