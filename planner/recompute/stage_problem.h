// Makes the RecomputeProblem of a pipeline stage from the layer graph and the cost model. Pure; thread-safe.
#ifndef LYNX_PLANNER_RECOMPUTE_STAGE_PROBLEM_H_
#define LYNX_PLANNER_RECOMPUTE_STAGE_PROBLEM_H_

#include "planner/cost/cost_model.h"
#include "planner/recompute/recompute_problem.h"

namespace lynx {

struct StageTraits {
  int32_t layers = 1;
  int32_t in_flight = 1;    // microbatches in flight
  bool below_head = false;  // true if the head is above the stage's top layer
  Nanos stall;              // how long the stage waits for the gradient of each microbatch in the steady state; 0: no wait
  Bytes host_memory;        // the part of the rank's share of its node's memory that offloading may use; 0: no offloading
};

// The items are LayerGraph::recomputable(), and the segments are the backward segments of a transformer layer in their order.
// The capacity of a window is CostModel::OverlapCapacity of its length, minus the time of the weight gradients that run there
// first. `early` is the capacity of the window of the head's backward pass; the lowering puts the recomputation there that the
// top layer needs first. If only one microbatch is in flight, no other microbatch has a forward pass or a stall that could hide
// work. Sizes and times above the limits of a problem are set to the limits: nothing of that size fits in memory or can be
// hidden.
//
// Weaving. If passes run side by side (CostModel::woven), other passes fill a layer's windows. If the layer's transfers take
// longer than its computation, the difference is divided among the backward windows. The forward windows have no capacity, and
// `early` is 0.
//
// Offloading (lower_offload.h). A tensor is copied to the host while the next layer's forward runs, and copied back while the
// backward of the layer above runs. So the copies of a microbatch to the host can be hidden for as long as the forwards of its
// layers take, and the copies back for as long as the backwards take. The directions count separately. The offloaded
// tensors of about four layers are on the device at any time. So `resident` is one microbatch in a stage with at least four
// layers, and two microbatches in a smaller stage. Nothing is offloaded without host_memory, on a device that cannot offload,
// or if in_flight is at most `resident`, because then all microbatches are on the device anyway.
RecomputeProblem MakeStageProblem(const CostModel& costs, const LayerShape& shape, const StageTraits& traits);

// Returns the same problem without offloading, as if StageTraits::host_memory were 0.
RecomputeProblem WithoutOffloading(RecomputeProblem problem);

// Returns the same problem without windows and stall, so that all time for recomputation is exposed.
RecomputeProblem WithoutWindows(RecomputeProblem problem);

}  // namespace lynx

#endif  // LYNX_PLANNER_RECOMPUTE_STAGE_PROBLEM_H_
