// Lower bounds for the time that the model states of a pipeline rank cost. The bounds of candidate_bound.h add this time to the
// time of the microbatches. After the step's last backward pass, these follow one after another: the reduction of the last
// layer's gradients, the norm of all gradients, the optimizer and, with ZeRO-1 and ZeRO-2, the gather of the weights. Before
// that, a rank's reductions (and, with ZeRO-3, gathers) run one after another on the links between its replicas, at the same
// time as the passes. Pure; not thread-safe, because results are kept.
#ifndef LYNX_PLANNER_CANDIDATES_STATE_LOWER_BOUND_H_
#define LYNX_PLANNER_CANDIDATES_STATE_LOWER_BOUND_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "common/units.h"
#include "planner/cost/cluster_topology.h"
#include "planner/cost/stage_costs.h"
#include "planner/problem/layout.h"

namespace lynx {

class StateLowerBound {
 public:
  // StateLowerBound uses only the degrees and the ZeRO level of the layout.
  StateLowerBound(const ClusterTopology& cluster, const ModelSpec& model, const ParallelLayout& layout);

  // Time from the end of the last backward pass to the end of the step, for a rank with `layers` layers. With more layers, this
  // time never decreases. If only some layers of the model have experts, all layers count as those of the cheaper kind.
  Nanos End(int32_t rank, int32_t layers) const;
  // Used if reductions run once per step. Time from the start of the rank's first reduction to the end of the step; it contains
  // all reductions.
  Nanos EndWithReductions(int32_t rank, int32_t layers) const;
  // If transfers run for every microbatch: the time of one microbatch's transfers on the links of a rank whose `chunks` virtual
  // stages together have `layers` layers. Otherwise 0.
  Nanos TransfersOfMicrobatch(int32_t rank, int32_t layers, int32_t chunks) const;
  // Time of one transfer of `bytes` from the rank to the next rank.
  Nanos BoundaryTransfer(int32_t rank, Bytes bytes) const { return costs_.Of(rank).BoundaryTime(rank, bytes); }

 private:
  // Times of a pipeline rank.
  struct Times {
    Nanos reduction;  // reduction of one layer's gradients
    Nanos last_reduction;
    Nanos gather;     // gather of one layer's weights
    size_t kind = 0;  // ranks of the same kind have the same times
  };
  Nanos FindEnd(int32_t rank, int32_t layers) const;

  StageCosts costs_;
  ZeroStage zero_;
  struct Parameters {
    int64_t all, experts;
  };
  std::vector<Parameters> kinds_;  // the parameters of a layer of each kind (one or two)
  std::vector<Times> times_;
  // For each kind of ranks, and for each number of layers: the result of FindEnd, once it is known.
  mutable std::vector<std::vector<std::optional<Nanos>>> ends_;
};

}  // namespace lynx

#endif  // LYNX_PLANNER_CANDIDATES_STATE_LOWER_BOUND_H_
