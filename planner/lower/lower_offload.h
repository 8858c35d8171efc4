// The lowering pass that sends stored tensors to the host's memory and fetches them back (Placement::kOffload). Pure.
//
// A *run* is a stretch of a program in which one layer's forward or backward of one microbatch computes. For the
// offloaded tensors of a layer and microbatch:
//
//   OF+  stands after the last forward action that uses any of them,
//   OF-  stands at the end of the run after that one: then their device memory is free,
//   LD+  stands at the beginning of the run before the one that first reads any of them again (its backward, or earlier
//        recomputation from them),
//   LD-  stands just before that reader.
//
// So each copy, out and back, has the time of one layer's pass; the first copy may run while the second waits for the
// link. The pass is pipeline-aware (Yuan et al. 2024): if a microbatch's backward follows so soon that a tensor would
// have to return as soon as it has left, the tensor stays. An example are the tensors of the last stage's top layer.
#ifndef LYNX_PLANNER_LOWER_LOWER_OFFLOAD_H_
#define LYNX_PLANNER_LOWER_LOWER_OFFLOAD_H_

#include <vector>

#include "planner/problem/stage_context.h"
#include "planner/program/action.h"
#include "planner/recompute/recompute_policy.h"

namespace lynx {

// `policies`: for the context's slices.
Program OffloadTensors(Program program, const StageContext& context, const std::vector<StagePolicy>& policies);

}  // namespace lynx

#endif  // LYNX_PLANNER_LOWER_LOWER_OFFLOAD_H_
