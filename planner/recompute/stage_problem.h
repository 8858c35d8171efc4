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
  Nanos stall;              // the stage's steady wait for the gradient of a microbatch; 0: no wait
  Bytes host_memory;        // part of the rank's share of its node's memory for offloading; 0: no offloading
};

// Items are LayerGraph::recomputable(); segments are the transformer layer's backward segments in their order. A window
// holds CostModel::OverlapCapacity of its length, minus the weight gradients that run there first. The top layer's
// `early` is the window of the head's backward, where the lowering puts what the top layer needs first. With one
// microbatch in flight there is no other microbatch whose forward or stall could hide work. Sizes and times beyond a
// problem's limits are cut to the limits: nothing of that size fits or hides anywhere.
//
// Offloading (lower_offload.h). A tensor leaves while the next layer's forward runs, and comes back while the backward of
// the layer above runs. So the tensors of a microbatch that leave have the time of its layers' forwards, and those that
// come back the time of its layers' backwards, each direction separately. About four layers' tensors are on the device at
// any time: one microbatch of the stage, or two in a stage with fewer layers. Nothing is offloaded without host_memory,
// on a device that cannot offload, or if no more microbatches are in flight than are on the device anyway.
RecomputeProblem MakeStageProblem(const CostModel& costs, const LayerShape& shape, const StageTraits& traits);

// The same problem without offloading, as if the traits had no host_memory.
RecomputeProblem WithoutOffloading(RecomputeProblem problem);

// The same problem without any hiding: everything that is recomputed is exposed.
RecomputeProblem WithoutWindows(RecomputeProblem problem);

}  // namespace lynx

#endif  // LYNX_PLANNER_RECOMPUTE_STAGE_PROBLEM_H_
