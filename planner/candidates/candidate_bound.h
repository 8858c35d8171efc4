// Lower bounds for a candidate's step, computed only from sums over layers, without policy, program or schedule. The
// search (plan_search.h) uses them to drop layouts that cannot win, which are nearly all, in microseconds each.
//
// Let x_r be the time of one microbatch on pipeline rank r, including recomputation that is not hidden. Let b_r be the part of
// x_r that is forward and input gradient. Rank r works M x_r. It cannot begin before each rank before it has run one forward,
// on the first of its v chunks. The step cannot end before each of these ranks has run the last backward. (If weight gradients
// are split off, rank r may end after these backwards, so b_r is the forward alone.)
//
//     step >= M x_r + (b_0 + ... + b_{r-1}) / v                                                            (1)
//
// This does not hold if the schedule places its stages as a V or in two directions; there step >= M x_r. After the last
// backward comes the time for the states of a rank's layers (StateLowerBound). The transfers on the links between a rank's
// replicas run one after another. Both give further terms or further bounds.
//
// Recomputation. A layer that stores s bytes of a microbatch recomputes the rest. This takes at least the value of a fractional
// knapsack problem over the layer's items, in which the items with the lowest cost per byte are recomputed first. The windows
// hide at most the sum of their lengths. Memory: each layer holds its bytes for at least as many microbatches as the schedule
// has in flight. If the planner may offload, a layer holds less by the bytes that it offloads, and a step of length T offloads
// at most as much as the device's link can copy in both directions in T. So x_r has a lower bound that is a function of the
// rank, its number of layers, and T.
//
// To decide whether any partition has a step of at most T, the code goes from the last rank to the first and gives each rank as
// many layers as (1) allows: the more layers the later ranks have, the fewer layers remain for the earlier ranks. This is exact
// for (1).
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

// Lower bounds for the time and memory of the layers of a shape.
class LayerLowerBound {
 public:
  LayerLowerBound(const CostModel& costs, const LayerShape& shape);

  // Replaces each quantity by one that is a bound for both this object and `other`.
  void Lower(const LayerLowerBound& other);

  // Time of the forward and backward of one microbatch, without recomputation.
  Nanos layer() const { return layer_; }
  Nanos embedding() const { return embedding_; }
  Nanos head() const { return head_; }
  Nanos forward() const { return forward_; }  // part of layer()
  // Lower bound, in thousandths, for the share b_r / x_r: the part of a layer's time that delays the ranks after it or the end
  // of the step. It is the forward and the input gradient. If weight gradients are split off, the step may end with them, so it
  // is the forward alone.
  int64_t delay_permille(bool splits_weight) const { return splits_weight ? forward_permille_ : pass_permille_; }
  Bytes input() const { return input_; }    // x
  Bytes stored() const { return stored_; }  // all tensors that can be recomputed
  // Maximum number of bytes that a device can copy to the host and back in `time`.
  Bytes CopiedIn(Nanos time) const;
  // Exposed recomputation time of a layer that stores at most `stored` bytes of a microbatch besides x. It never increases with
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
  // kIfOffered: the bounds hold for plans that offload, if the planner may offload. kNone: the bounds hold only for plans that
  // do not offload.
  enum class Offloading : uint8_t { kIfOffered, kNone };

  // The arguments must outlive this object.
  CandidateBound(const PlanRequest& request, const Candidate& candidate, PlanCaches& caches,
                 Offloading offloading = Offloading::kIfOffered);

  // Lower bound for the step, without regard to memory.
  Nanos Quick() const;
  // Returns false only if no plan that fits into memory has a step of at most `step`.
  bool MayTake(Nanos step) const;
  // The shortest step that MayTake allows, within a thousandth; nullopt if nothing fits.
  std::optional<Nanos> Bound() const;
  // Bytes of memory missing on the rank that lacks most, if each rank has an equal share of the layers and recomputes
  // everything except the layers' inputs. Negative if memory is left. It is a lower bound for what is really missing there. If
  // no limit is known, a very negative number.
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
  // Bytes of a microbatch that each of `layers` layers can offload in a step of length `step`.
  Bytes Offloaded(Nanos step, int32_t layers) const;
  // Lower bound for x_r if the layers offload as much as possible in a step of length `step`. nullopt: the layers do not fit.
  std::optional<Nanos> Least(const Rank& rank, int32_t layers, Nanos step) const;
  Nanos Busy(const Rank& rank, int32_t layers) const { return floor_.layer() * layers + rank.ends; }
  // Lower bound for the step with `layers` layers on a rank that is delayed by `ahead` and offloads as much as possible in a
  // step of length `step`. nullopt: the layers do not fit.
  std::optional<Nanos> LeastStep(int32_t rank, int32_t layers, Nanos ahead, Nanos step) const;

  const PlanRequest& request_;
  const Candidate& candidate_;
  PlanCaches& caches_;
  const LayerLowerBound& floor_;
  const PipelineShape pipeline_;
  const bool offloads_;
  double before_share_ = 0;                          // share of a rank's time that delays the ranks after it
  mutable std::vector<Rank> ranks_;                  // filled on first use of memory
  mutable const StateLowerBound* states_ = nullptr;  // found on first use
  Nanos total_;                                      // time of one microbatch in the whole model
};

}  // namespace lynx

#endif  // LYNX_PLANNER_CANDIDATES_CANDIDATE_BOUND_H_
