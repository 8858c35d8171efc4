// Makes the RecomputeProblem of a pipeline stage from the layer graph and the cost model. Pure; thread-safe.
#ifndef LYNX_PLANNER_RECOMPUTE_STAGE_PROBLEM_H_
#define LYNX_PLANNER_RECOMPUTE_STAGE_PROBLEM_H_

#include "planner/cost/cost_model.h"
#include "planner/recompute/recompute_problem.h"

namespace lynx {

struct StageTraits {
  int32_t layers = 1;
  int32_t in_flight = 1;    // microbatches
  bool below_head = false;  // the head is above the stage's top layer
  Nanos stall;              // how long the stage waits for the gradient of each microbatch in the steady state; 0: no wait
  Bytes host_memory;        // part of the rank's share of its node's memory for offloading; 0: no offloading
};

// Items are LayerGraph::recomputable(); segments are the transformer layer's backward segments in their order. The capacity of
// a window is CostModel::OverlapCapacity of its length, minus the time of the weight gradients that run there first. `early` is
// the capacity of the window of the head's backward. The lowering puts the recomputation there that the top layer needs first.
// With one microbatch in flight there is no other microbatch whose forward or stall could hide work. Sizes and times beyond a
// problem's limits are cut to the limits: nothing of that size fits in memory or can be hidden.
//
// Weaving. If passes run side by side (CostModel::woven), other passes fill a layer's windows. Only the time by which the
// layer's transfers are longer than its computation is left, as windows of the backward.
//
// Offloading (lower_offload.h). A tensor is copied to the host while the next layer's forward runs, and copied back while the
// backward of the layer above runs. So the copies of a microbatch to the host can be hidden for as long as the forwards of its
// layers take, and the copies back for as long as the backwards take. The directions count separately. About four layers'
// tensors are on the device at any time: one microbatch of the stage, or two in a stage with fewer layers. Nothing is offloaded
// without host_memory, on a device that cannot offload, or if in_flight is at most `resident`, because then all microbatches
// are on the device anyway.
RecomputeProblem MakeStageProblem(const CostModel& costs, const LayerShape& shape, const StageTraits& traits);

// Returns the problem without offloading, as if StageTraits::host_memory were 0.
RecomputeProblem WithoutOffloading(RecomputeProblem problem);

// Returns the problem without windows and stall: all time for recomputation is exposed.
RecomputeProblem WithoutWindows(RecomputeProblem problem);

}  // namespace lynx

#endif  // LYNX_PLANNER_RECOMPUTE_STAGE_PROBLEM_H_
