// The RecomputeProblem of a pipeline stage, from the layer graph and the cost model. Pure; thread-safe.
#ifndef LYNX_PLANNER_RECOMPUTE_STAGE_PROBLEM_H_
#define LYNX_PLANNER_RECOMPUTE_STAGE_PROBLEM_H_

#include "planner/cost/cost_model.h"
#include "planner/recompute/recompute_problem.h"

namespace lynx {

struct StageTraits {
  int32_t layers = 1;
  int32_t in_flight = 1;    // microbatches
  bool below_head = false;  // the head stands on the stage's top layer
  Nanos stall;              // the stage's steady wait for the gradient of a microbatch; 0: none
  Bytes host_memory;        // what offloading may take of the rank's share of its node's memory; 0: nothing is offloaded
};

// Items are LayerGraph::recomputable(), segments the transformer layer's backward segments in their order. A window
// holds CostModel::OverlapCapacity of its length, less the weight gradients that run there first. The top layer's
// `early` is the window of the head's backward, where the lowering puts what the top layer needs first. With one
// microbatch in flight there is no other one whose forward or stall could hide anything. Sizes and times beyond a problem's
// limits are cut to them: nothing of that size fits or hides anywhere.
//
// Offloading (lower_offload.h). A tensor leaves while the next layer's forward runs and comes back while the backward of
// the one above runs: what leaves of a microbatch has the time of its layers' forwards, what comes back that of their
// backwards, each direction alone. So at any time some four layers' are on the device: a microbatch of the stage, or in
// a stage of fewer layers two. Without host_memory, on a device that cannot offload, or where no more microbatches are in
// flight than are on the device anyway, nothing is.
RecomputeProblem MakeStageProblem(const CostModel& costs, const LayerShape& shape, const StageTraits& traits);

// The same where nothing can be offloaded; as if the traits had no host_memory.
RecomputeProblem WithoutOffloading(RecomputeProblem problem);

// The same with nothing hidden anywhere: everything that is recomputed is exposed.
RecomputeProblem WithoutWindows(RecomputeProblem problem);

}  // namespace lynx

#endif  // LYNX_PLANNER_RECOMPUTE_STAGE_PROBLEM_H_
