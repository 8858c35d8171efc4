// The lowering pass that sends stored tensors to the host's memory and fetches them back (Placement::kOffload). Pure.
//
// A *run* is a stretch of a program in which one layer's forward or backward of one microbatch computes. For the
// offloaded tensors of a layer and microbatch:
//
//   OF+  stands after the last forward action that uses any of them, OF-  stands at the end of the run after that one: then the
//   tensors' device memory is free, LD+  stands at the beginning of the run before the one that first reads any of them again
//   (its backward, or earlier recomputation from them), LD-  stands just before that reader.
//
// So each copy, out and back, has the time of one layer's pass; the copies of two layers may wait for each other on the link.
// The lowering is pipeline-aware (Yuan et al. 2024): if a microbatch's backward follows so soon that the copy back would start
// right after the copy to the host, the tensor stays on the device. This is the case for the last stage's top layer.
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
