// The phase of lowering that sends stored tensors to the host's memory and fetches them back (Placement::kOffload). Pure.
//
// A *run* is a stretch of a program in which one layer computes its forward or its backward of one microbatch. The offloaded
// tensors of a layer and microbatch get four actions:
//
//   OF+  stands after the last forward action that uses any of these tensors.
//   OF-  stands at the end of the run after that one. From there on, the device memory of the tensors is free.
//   LD+  stands at the beginning of the run before the one that first reads any of these tensors again (the layer's backward,
//        or an earlier recomputation that reads them).
//   LD-  stands just before the action that first reads them.
//
// So each copy, out and back, has the time of one layer's pass. The copies of two layers may wait for each other on the link.
// The lowering considers the place in the pipeline (Yuan et al. 2024): if a microbatch's backward follows so soon that the copy
// back would start right after the copy to the host, the tensor stays on the device. This is so for the top layer of the last
// stage.
#ifndef LYNX_PLANNER_LOWER_LOWER_OFFLOAD_H_
#define LYNX_PLANNER_LOWER_LOWER_OFFLOAD_H_

#include <vector>

#include "planner/problem/stage_context.h"
#include "planner/program/action.h"
#include "planner/recompute/recompute_policy.h"

namespace lynx {

// Adds the copies to `program`. `policies`: one for each slice of the context.
Program OffloadTensors(Program program, const StageContext& context, const std::vector<StagePolicy>& policies);

}  // namespace lynx

#endif  // LYNX_PLANNER_LOWER_LOWER_OFFLOAD_H_
