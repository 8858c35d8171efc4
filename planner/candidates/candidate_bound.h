// Lower bounds for a candidate's step. They are computed only from sums over layers, without policy, program or schedule. The
// search (planner/search/plan_search.h) uses them to drop layouts that cannot win. Nearly all layouts are dropped, in
// microseconds each.
//
// Let M be the number of microbatches. Let x_r be the time of one microbatch on pipeline rank r, with the recomputation that is
// not hidden. Let b_r be the part of x_r that is forward and input gradient. Rank r works for the time M x_r. It can begin only
// after each rank before it has run one forward, on the first of its v chunks. The step can end only after each of these ranks
// has run the last backward. (If weight gradients are split off, rank r may end after these backwards, so b_r is the forward
// alone.)
//
//     step >= M x_r + (b_0 + ... + b_{r-1}) / v                                                            (1)
//
// (1) does not hold if the stages are placed as `v` or bidirectional; there step >= M x_r. Let t_r be the time of a transfer
// from rank r to the next rank. These transfers run one after another. Before the first one, a microbatch has run forward up to
// rank r; after the last one, a microbatch still runs forward on the ranks after r, and backward on all ranks. So with one
// chunk,
//
//     step >= M t_r + b_0 + ... + b_{p-1}                                                                  (2)
//
// With v chunks on each rank, or with passes side by side, the code only uses step >= M v t_r.
//
// After the last backward comes the time for the states of a rank's layers (StateLowerBound). The transfers on the links
// between a rank's replicas run one after another. The time for states and the time of these transfers add terms to (1) or give
// bounds of their own.
//
// Recomputation. A layer that stores s bytes of a microbatch recomputes the rest. The least time for this is the value of a
// fractional knapsack problem over the layer's items, in which the items with the lowest cost per byte are recomputed first.
// The windows (the times of transfers) hide recomputation, at most for the sum of their lengths. Memory: each layer holds its
// bytes for at least as many microbatches as the schedule has in flight. If the planner may offload, a layer holds fewer bytes,
// because it offloads some. In a step of length T, these are at most the bytes that the device's link can copy in both
// directions in T. So x_r has a lower bound that is a function of the rank, its number of layers, and T.
//
// To decide whether any partition has a step of at most T, the code goes from the last rank to the first. It gives each rank as
// many layers as (1) allows: the more layers the later ranks have, the fewer layers remain for the earlier ranks. This decision
// is exact for (1).
//
// Layers without experts. If only some layers of a model have experts, the first layers have none. Each piece of the model has
// at least one layer, which limits how many of these first layers a later piece can have, and so a rank. This number of layers
// counts with the shorter time of the two kinds of layers, with the states of the smaller kind, and with neither stored bytes
// nor recomputation.
//
// If nodes differ, the best value of each quantity is used for every rank. Pure; not thread-safe.
#ifndef LYNX_PLANNER_CANDIDATES_CANDIDATE_BOUND_H_
#define LYNX_PLANNER_CANDIDATES_CANDIDATE_BOUND_H_

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "common/units.h"
#include "planner/candidates/search.h"
#include "planner/cost/cost_model.h"
#include "planner/problem/layout.h"
#include "planner/schedule/schedule_memory.h"

namespace lynx {

// Lower bounds for the time and memory of the layers of a shape.
class LayerLowerBound {
 public:
  LayerLowerBound(const CostModel& costs, const LayerShape& shape);

  // Replaces each quantity by a value that is a bound for this object and for `other`.
  void Lower(const LayerLowerBound& other);

  // Time of the forward and backward pass of one microbatch, without recomputation.
  Nanos layer() const { return layer_; }
  // At most layer(); a lower bound also for the layers without experts of a model whose other layers have experts.
  Nanos any_layer() const { return any_layer_; }
  // Time of the forward and backward pass of one microbatch. Unlike layer(), it is not a lower bound for passes that run side
  // by side: their transfers slow the computation down, and no pass hides what another kind of pass leaves exposed.
  Nanos rough_layer() const { return rough_layer_; }
  Nanos embedding() const { return embedding_; }
  Nanos head() const { return head_; }
  Nanos forward() const { return forward_; }  // the forward part of layer(); if passes run side by side, its computation
  // Lower bound, in thousandths, for the share b_r / x_r: the part of a layer's time that delays the ranks after it or the end
  // of the step. This part is the forward pass and the input gradient. If weight gradients are split off, the step may end with
  // them, so this part is only the forward pass.
  int64_t delay_permille(bool splits_weight) const { return splits_weight ? forward_permille_ : pass_permille_; }
  Bytes input() const { return input_; }    // bytes of x
  Bytes stored() const { return stored_; }  // all tensors that can be recomputed
  // Maximum number of bytes that a device can copy to the host and back in `time`.
  Bytes CopiedIn(Nanos time) const;
  // Time of exposed recomputation of a layer that stores at most `stored` bytes of a microbatch in addition to x. If `stored`
  // grows, this time never increases.
  Nanos Exposed(Bytes stored) const;
  // Returns the same, but it is not a lower bound: see rough_layer.
  Nanos RoughlyExposed(Bytes stored) const;

 private:
  // The least time to recompute all but `stored` bytes.
  Nanos Recomputed(Bytes stored) const;
  void SortByPrice();

  struct Item {
    Bytes bytes;
    Nanos cost;
  };
  Nanos layer_, any_layer_, rough_layer_, embedding_, head_, forward_;
  int64_t pass_permille_ = 1000, forward_permille_ = 1000;
  Bytes input_, stored_;
  Nanos windows_;                  // upper bound for the time in which a layer's recomputation is hidden
  Nanos rough_windows_;            // this time in HEU's model
  int64_t copied_per_second_ = 0;  // bytes per second, to the host and back
  std::vector<Item> items_;        // in the order of the graph
  std::vector<Item> by_price_;     // items with the lowest cost per byte come first
};

class PlanCaches;
class StateLowerBound;

class CandidateBound {
 public:
  // kIfOffered: if the planner may offload, the bounds also hold for plans that offload. kNone: the bounds hold only for plans
  // that do not offload.
  enum class Offloading : uint8_t { kIfOffered, kNone };

  // The arguments must outlive this object.
  CandidateBound(const PlanRequest& request, const Candidate& candidate, PlanCaches& caches,
                 Offloading offloading = Offloading::kIfOffered);

  // The time that one microbatch takes in the whole model if it recomputes nothing (see LayerLowerBound::rough_layer).
  Nanos RoughModelTime() const;
  // Lower bound for the step that does not consider memory.
  Nanos Quick() const;
  // Returns the time that the passes of a step would take if all virtual stages took the same time, recomputed nothing, and
  // sent without delay. This is not a lower bound, but it is rarely longer than a guess (LayoutPlanner::Guess). The search
  // needs it because a bound counts only a part of the time in which the ranks of the pipeline wait for each other. Passes that
  // run side by side move through the pipeline as a group, and a rank begins with a group when the rank before it has ended the
  // whole group. So a group counts as one microbatch with the sum of the group's times. Returns 0 for schedules without a
  // formula. If p does not divide n, interleaved steps are a little longer than the formula says.
  //
  // With n groups, p ranks, v virtual stages on each, and a virtual stage that takes f forward, b for the gradient of its input
  // and w for the gradients of its weights, s = f + b + w in all:
  //
  //     1F1B, GPipe     (n + p - 1) s
  //     interleaved     (n v + p - 1) s; if n < p, the groups wait for each other in all virtual stages but the last one:
  //                     (p (v - 1) + n + p - 1) s
  //     zero-bubble     n s + (p - 1) max(0, f + b - w)        (ZB-H1 of arXiv 2401.10241, table 2)
  Nanos Rough() const;
  // The exposed recomputation of one microbatch on a rank with `layers` layers that holds `in_flight`, as RoughStep needs it.
  // It offloads nothing. nullopt: the layers do not fit.
  std::optional<Nanos> RoughlyExposed(int32_t rank, int32_t layers, const InFlightCount& in_flight) const;
  // If this returns false, no plan that fits into memory has a step of at most `step`.
  bool MayTake(Nanos step) const;
  // The shortest step that MayTake allows, up to an error of a thousandth; nullopt if nothing fits.
  std::optional<Nanos> Bound() const;
  // Assume that each rank has an equal share of the layers and recomputes everything except the layers' inputs. Returns the
  // bytes that are missing on the rank that lacks most; negative if memory is left. It is a lower bound for the bytes that are
  // really missing. If no limit is known, returns a very negative number.
  Bytes Lacking() const;

 private:
  struct Rank {
    bool embedding = false, head = false;
    Nanos ends;                   // time of the embedding and the head
    std::optional<Bytes> memory;  // memory for states and activations
    Bytes states, states_per_layer;
    Bytes states_per_any_layer;  // states of a layer with or without experts, whichever are smaller
    int64_t chunks_in_flight = 1;
    int32_t most_dense = 0;  // number of layers without experts that the rank can have, if other layers have experts
  };
  Rank RankAt(int32_t rank) const;
  const std::vector<Rank>& Ranks() const;
  const StateLowerBound& States() const;
  // Lower bound for the step by the transfers between ranks, see (2).
  Nanos BoundOfBoundaries() const;
  // Bytes that activations may take; nullopt: no limit.
  std::optional<Bytes> Budget(const Rank& rank, int32_t layers) const;
  // Bytes of one microbatch that each of `layers` layers can offload in a step of length `step`.
  Bytes Offloaded(Nanos step, int32_t layers) const;
  // Every chunk of a rank with `layers` layers has at least this number of layers.
  int32_t LeastOfChunk(int32_t layers) const;
  // Lower bound for x_r if the layers offload as much as possible in a step of length `step`. nullopt: the layers do not fit.
  std::optional<Nanos> Least(const Rank& rank, int32_t layers, Nanos step) const;
  Nanos Busy(const Rank& rank, int32_t layers) const {
    const int32_t dense = std::min(layers, rank.most_dense);
    return floor_.layer() * (layers - dense) + floor_.any_layer() * dense + rank.ends;
  }
  // Lower bound for the time of all layers of the model for one microbatch.
  Nanos AllLayers() const;
  // Lower bound for the step if a rank has `layers` layers, is delayed by `ahead`, and offloads as much as possible in a step
  // of length `step`. nullopt: the layers do not fit.
  std::optional<Nanos> LeastStep(int32_t rank, int32_t layers, Nanos ahead, Nanos step) const;

  const PlanRequest& request_;
  const Candidate& candidate_;
  PlanCaches& caches_;
  const LayerLowerBound& floor_;
  const PipelineShape pipeline_;
  const bool offloads_;
  double before_share_ = 0;                          // share of a rank's time that delays the ranks after it
  mutable std::vector<Rank> ranks_;                  // filled when memory is first needed
  mutable const StateLowerBound* states_ = nullptr;  // set when it is first needed
  mutable std::optional<Nanos> of_boundaries_;       // BoundOfBoundaries(), once it is known
  Nanos total_;                                      // time of one microbatch in the whole model
};

}  // namespace lynx

#endif  // LYNX_PLANNER_CANDIDATES_CANDIDATE_BOUND_H_
