// The pass of the lowering that sends stored tensors to the host's memory and fetches them back (Placement::kOffload).
// Pure.
//
// A *run* is a stretch of a program in which one layer's forward or backward of one microbatch computes. The tensors of a
// layer and microbatch that go out
//
//   OF+  leave behind the last forward action that touches any of them,
//   OF-  have left when the run after that one ends: then their device memory is free,
//   LD+  come back from the beginning of the run before the one that first reads any of them again (its backward, or
//        what is recomputed from them before),
//   LD-  are there just before that reader.
//
// So a copy has the time of one layer's pass, out and back; the first copy may be at work while the second waits for the
// link. Pipeline-aware (Yuan et al. 2024): where a microbatch's backward follows so soon that a tensor would have to come
// back as soon as it has left, it stays, such as what the last stage's top layer makes.
#ifndef LYNX_PLANNER_LOWER_LOWER_OFFLOAD_H_
#define LYNX_PLANNER_LOWER_LOWER_OFFLOAD_H_

#include <vector>

#include "planner/problem/stage_context.h"
#include "planner/program/action.h"
#include "planner/recompute/recompute_policy.h"

namespace lynx {

// `policies`: of the context's slices.
Program OffloadTensors(Program program, const StageContext& context, const std::vector<StagePolicy>& policies);

}  // namespace lynx

#endif  // LYNX_PLANNER_LOWER_LOWER_OFFLOAD_H_
