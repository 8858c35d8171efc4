// Bounds of a candidate's step, from sums over layers alone: no policy, no program, no schedule is made. The search
// (plan_search.h) drops with them the layouts that cannot win, nearly all, at microseconds each.
//
// Let x_r be what one microbatch takes on pipeline rank r, with the recomputation that nothing hides, and b_r the part of
// it that is forward and input gradient. Rank r works M x_r, and cannot begin before the forwards of the ranks before it
// have run once, on the first of their v chunks, nor end the step before their backwards have (which a rank that splits
// off weight gradients can: there b_r is the forward alone):
//
//     step >= M x_r + (b_0 + ... + b_{r-1}) / v                                                            (1)
//
// (not where the schedule places its stages as a V or in two directions: there step >= M x_r). Behind the last backward
// stands what the states of a rank's layers take (StateLowerBound), and the transfers of its replicas' links run one after
// another: each is a further term, or a further bound. A layer that stores s
// bytes of a microbatch makes the rest again. With c_i and y_i an item's cost and bytes, that takes at least the
// fractional knapsack of the items' costs, cheapest per byte first, of which its windows hide at most their sum. Memory:
// n layers hold at least as many microbatches as the schedule has in flight. Where the planner may send tensors to the
// host, a layer holds less of a microbatch by what it sends, and a step of length T sends no more than the device's link
// carries both ways in T. So x_r is bounded below by a function of
// rank and layers (and T), and whether any partition has a step of at most T is answered from the last rank on, each taking as
// many layers as (1) lets it: the more the later ranks take, the less the earlier ones need. Exact for (1).
//
// Where nodes differ, every rank counts as the best of each. Pure; not thread-safe.
#ifndef LYNX_PLANNER_CANDIDATES_CANDIDATE_BOUND_H_
#define LYNX_PLANNER_CANDIDATES_CANDIDATE_BOUND_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "common/units.h"
#include "planner/candidates/search.h"
#include "planner/cost/cost_model.h"
#include "planner/problem/layout.h"

namespace lynx {

// What the layers of a shape take at least.
class LayerLowerBound {
 public:
  LayerLowerBound(const CostModel& costs, const LayerShape& shape);

  // Of each quantity the one that bounds both.
  void Lower(const LayerLowerBound& other);

  // One microbatch, forward and backward, nothing recomputed.
  Nanos layer() const { return layer_; }
  Nanos embedding() const { return embedding_; }
  Nanos head() const { return head_; }
  Nanos forward() const { return forward_; }  // of layer()
  // Of a layer's time, at least, what delays the step for each rank before one that works all the time: forward and
  // input gradient; where weight gradients are split off, and so can be what ends the step, the forward.
  int64_t delay_permille(bool splits_weight) const { return splits_weight ? forward_permille_ : pass_permille_; }
  Bytes input() const { return input_; }    // x
  Bytes stored() const { return stored_; }  // what may be recomputed, all of it
  // What a device can send to the host and fetch back in that time, at most.
  Bytes CopiedIn(Nanos time) const;
  // Exposed recomputation of a layer that stores at most so many bytes of a microbatch beside x; never rising in them.
  Nanos Exposed(Bytes stored) const;

 private:
  void SortByPrice();

  struct Item {
    Bytes bytes;
    Nanos cost;
  };
  Nanos layer_, embedding_, head_, forward_;
  int64_t pass_permille_ = 1000, forward_permille_ = 1000;
  Bytes input_, stored_;
  Nanos windows_;
  int64_t copied_per_second_ = 0;  // bytes out and back
  std::vector<Item> items_;        // in the order of the graph
  std::vector<Item> by_price_;     // cheapest per byte first
};

class PlanCaches;
class StateLowerBound;

class CandidateBound {
 public:
  // kIfOffered: true of plans that send tensors to the host, where the planner may. kNone: of all others.
  enum class Offloading : uint8_t { kIfOffered, kNone };

  // The arguments outlive it.
  CandidateBound(const PlanRequest& request, const Candidate& candidate, PlanCaches& caches,
                 Offloading offloading = Offloading::kIfOffered);

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
    Nanos ends;                   // of the embedding and the head
    std::optional<Bytes> memory;  // for states and activations
    Bytes states, states_per_layer;
    int64_t chunks_in_flight = 1;
  };
  Rank RankAt(int32_t rank) const;
  const std::vector<Rank>& Ranks() const;
  const StateLowerBound& States() const;
  // For activations; nullopt: no limit.
  std::optional<Bytes> Budget(const Rank& rank, int32_t layers) const;
  // What each of so many layers may send to the host of a microbatch in a step of that length.
  Bytes Offloaded(Nanos step, int32_t layers) const;
  // x_r, the layers sending to the host what they can in `step`; nullopt: does not fit.
  std::optional<Nanos> Least(const Rank& rank, int32_t layers, Nanos step) const;
  Nanos Busy(const Rank& rank, int32_t layers) const { return floor_.layer() * layers + rank.ends; }
  // Least step with so many layers on a rank, which waits `ahead` for others and sends to the host what it can in `step`;
  // nullopt: does not fit.
  std::optional<Nanos> LeastStep(int32_t rank, int32_t layers, Nanos ahead, Nanos step) const;

  const PlanRequest& request_;
  const Candidate& candidate_;
  PlanCaches& caches_;
  const LayerLowerBound& floor_;
  const PipelineShape pipeline_;
  const bool offloads_;
  double before_share_ = 0;                          // of the time of the ranks before
  mutable std::vector<Rank> ranks_;                  // filled on first use of memory
  mutable const StateLowerBound* states_ = nullptr;  // found on first use
  Nanos total_;                                      // of the model, one microbatch
};

}  // namespace lynx

#endif  // LYNX_PLANNER_CANDIDATES_CANDIDATE_BOUND_H_
