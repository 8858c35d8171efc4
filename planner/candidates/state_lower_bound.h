// What the model states of a pipeline rank cost in time at least: the bounds of candidate_bound.h add it to what
// microbatches take. After the step's last backward pass come, one after another, the reduction of the layer whose pass was
// last, the norm of all gradients, the optimizer and, with ZeRO-1 and -2, the weights' way back. Before that, a rank's
// reductions (and, with ZeRO-3, gathers) run one after another on the links of its replicas, beside the passes. Pure;
// thread-safe.
#ifndef LYNX_PLANNER_CANDIDATES_STATE_LOWER_BOUND_H_
#define LYNX_PLANNER_CANDIDATES_STATE_LOWER_BOUND_H_

#include <cstdint>
#include <vector>

#include "common/units.h"
#include "planner/cost/cluster_topology.h"
#include "planner/cost/stage_costs.h"
#include "planner/problem/layout.h"

namespace lynx {

class StateLowerBound {
 public:
  // Of the layout, its degrees and its ZeRO level are read.
  StateLowerBound(const ClusterTopology& cluster, const ModelSpec& model, const ParallelLayout& layout);

  // From the end of the last backward pass on, a rank with so many layers. Never falls with more of them.
  Nanos End(int32_t rank, int32_t layers) const;
  // The same, from when its reductions begin, all of which still have to run: where they run once a step.
  Nanos EndWithReductions(int32_t rank, int32_t layers) const;
  // Transfers of a microbatch on the links of a rank whose `chunks` virtual stages have so many layers in all: where they
  // run with every microbatch; else 0.
  Nanos TransfersOfMicrobatch(int32_t rank, int32_t layers, int32_t chunks) const;

 private:
  // Of a pipeline rank.
  struct Times {
    Nanos reduction;  // of a layer
    Nanos last_reduction;
    Nanos gather;  // of a layer's weights
  };

  StageCosts costs_;
  ZeroStage zero_;
  int64_t layer_parameters_;
  std::vector<Times> times_;
};

}  // namespace lynx

#endif  // LYNX_PLANNER_CANDIDATES_STATE_LOWER_BOUND_H_
