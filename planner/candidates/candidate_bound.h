// Lower bounds for a candidate's step, computed only from sums over layers, without policy, program or schedule. The
// search (plan_search.h) uses them to drop layouts that cannot win, which are nearly all, in microseconds each.
//
// Let x_r be the time of one microbatch on pipeline rank r, including recomputation that is not hidden, and b_r the part
// of it that is forward and input gradient. Rank r works M x_r. It cannot begin before the forwards of the ranks before
// it have run once, on the first of their v chunks, and the step cannot end before their backwards have. (A rank that
// splits off weight gradients can end after them: there b_r is the forward alone.)
//
//     step >= M x_r + (b_0 + ... + b_{r-1}) / v                                                            (1)
//
// This does not hold if the schedule places its stages as a V or in two directions; there step >= M x_r. After the last
// backward comes the time for the states of a rank's layers (StateLowerBound), and the transfers on its replicas' links
// run one after another: each is a further term, or a further bound. A layer that stores s bytes of a microbatch
// recomputes the rest. With c_i and y_i an item's cost and bytes, that takes at least the fractional knapsack of the
// items' costs, cheapest per byte first; windows hide at most their sum of it. Memory: n layers hold at least as many
// microbatches as the schedule has in flight. If the planner may send tensors to the host, a layer holds less of a
// microbatch by what it sends, and a step of length T sends at most what the device's link carries both ways in T. So x_r
// has a lower bound that is a function of rank and layers (and T). To decide whether any partition has a step of at most
// T, go from the last rank to the first, and give each rank as many layers as (1) allows: the more layers the later ranks
// take, the fewer the earlier ones need. This is exact for (1).
//
// If nodes differ, every rank counts with the best value of each quantity. Pure; not thread-safe.
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

// Lower bounds for the layers of a shape.
class LayerLowerBound {
 public:
  LayerLowerBound(const CostModel& costs, const LayerShape& shape);

  // Replaces each quantity by one that is a bound for both.
  void Lower(const LayerLowerBound& other);

  // Forward and backward of one microbatch, without recomputation.
  Nanos layer() const { return layer_; }
  Nanos embedding() const { return embedding_; }
  Nanos head() const { return head_; }
  Nanos forward() const { return forward_; }  // part of layer()
  // Lower bound for the share of a layer's time that delays the step for each rank before one that always works: forward
  // and input gradient. If weight gradients are split off, the step may end with them, so it is the forward alone.
  int64_t delay_permille(bool splits_weight) const { return splits_weight ? forward_permille_ : pass_permille_; }
  Bytes input() const { return input_; }    // x
  Bytes stored() const { return stored_; }  // all that may be recomputed
  // The most that a device can send to the host and fetch back in that time.
  Bytes CopiedIn(Nanos time) const;
  // Exposed recomputation of a layer that stores at most this much of a microbatch beside x; never increases with
  // `stored`.
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
  int64_t copied_per_second_ = 0;  // bytes per second, out and back
  std::vector<Item> items_;        // in the order of the graph
  std::vector<Item> by_price_;     // cheapest per byte first
};

class PlanCaches;
class StateLowerBound;

class CandidateBound {
 public:
  // kIfOffered: bound plans that may offload, if the planner may offload. kNone: bound plans that do not offload.
  enum class Offloading : uint8_t { kIfOffered, kNone };

  // The arguments must outlive it.
  CandidateBound(const PlanRequest& request, const Candidate& candidate, PlanCaches& caches,
                 Offloading offloading = Offloading::kIfOffered);

  // No step is shorter, with any memory.
  Nanos Quick() const;
  // False only if no step that fits into memory is that short.
  bool MayTake(Nanos step) const;
  // The shortest step that MayTake allows, within a thousandth; nullopt if nothing fits.
  std::optional<Nanos> Bound() const;
  // Bytes missing on the rank that lacks most, with even shares of the layers and everything except their inputs
  // recomputed; negative if memory is left. A lower bound of what is really missing there. A very negative number if no
  // limit is known.
  Bytes Lacking() const;

 private:
  struct Rank {
    Nanos ends;                   // time of the embedding and the head
    std::optional<Bytes> memory;  // for states and activations
    Bytes states, states_per_layer;
    int64_t chunks_in_flight = 1;
  };
  Rank RankAt(int32_t rank) const;
  const std::vector<Rank>& Ranks() const;
  const StateLowerBound& States() const;
  // Bytes for activations; nullopt: no limit.
  std::optional<Bytes> Budget(const Rank& rank, int32_t layers) const;
  // Bytes of a microbatch that each of `layers` layers may send to the host in a step of that length.
  Bytes Offloaded(Nanos step, int32_t layers) const;
  // x_r if the layers send as much as possible to the host in `step`; nullopt: does not fit.
  std::optional<Nanos> Least(const Rank& rank, int32_t layers, Nanos step) const;
  Nanos Busy(const Rank& rank, int32_t layers) const { return floor_.layer() * layers + rank.ends; }
  // The shortest step with `layers` layers on a rank that waits `ahead` for others and sends as much as possible to the
  // host in `step`. nullopt: does not fit.
  std::optional<Nanos> LeastStep(int32_t rank, int32_t layers, Nanos ahead, Nanos step) const;

  const PlanRequest& request_;
  const Candidate& candidate_;
  PlanCaches& caches_;
  const LayerLowerBound& floor_;
  const PipelineShape pipeline_;
  const bool offloads_;
  double before_share_ = 0;                          // share of the time of the ranks before
  mutable std::vector<Rank> ranks_;                  // filled on first use of memory
  mutable const StateLowerBound* states_ = nullptr;  // found on first use
  Nanos total_;                                      // of the whole model, one microbatch
};

}  // namespace lynx

#endif  // LYNX_PLANNER_CANDIDATES_CANDIDATE_BOUND_H_
