// The recomputation pass of the lowering: a layer's policy becomes the ops to run at each point of time before its
// backward pass. Pure values; thread-safe.
#ifndef LYNX_PLANNER_LOWER_LOWER_RECOMPUTE_H_
#define LYNX_PLANNER_LOWER_LOWER_RECOMPUTE_H_

#include <array>
#include <cstdint>

#include "planner/problem/layer_graph.h"
#include "planner/recompute/recompute_policy.h"

namespace lynx {

// Where a program can recompute for layer l and microbatch k, in the order of time: forward windows, the stall, windows
// of the layer above, then for each backward segment of the layer itself the point before it and the window after it.
// The critical placement is the points before segments: the last one that serves the segments that read the tensor, what
// else is critical, and what own windows make from it.
using RecomputePoint = int;
inline constexpr int kMaxBackwardSegments = 5;
constexpr RecomputePoint ForwardWindowPoint(int window) { return window; }
inline constexpr RecomputePoint kStallPoint = kMaxWindows;
constexpr RecomputePoint AboveWindowPoint(int window) { return kMaxWindows + 1 + window; }
constexpr RecomputePoint BeforeSegmentPoint(int segment) { return 2 * kMaxWindows + 1 + 2 * segment; }
constexpr RecomputePoint OwnWindowPoint(int segment) { return BeforeSegmentPoint(segment) + 1; }
inline constexpr int kRecomputePointCount = 2 * kMaxWindows + 1 + 2 * kMaxBackwardSegments;

// Which points exist for a layer and microbatch.
struct RecomputeSituation {
  bool collectives = false;     // t > 1: segments end in collectives
  bool paired_forward = false;  // another microbatch's forward runs just before this backward
  // With shared weights (ZeRO-3) neither is: a layer's weights are there for its own passes only.
  bool stall = false;        // the gradient comes from a next stage
  bool layer_above = false;  // the stage has layer l + 1
};

// Indexed by RecomputePoint: the ops to run again there.
using RecomputeOps = std::array<OpSet, kRecomputePointCount>;

// Position of a segment among the transformer layer's backward segments.
int BackwardSegmentIndex(const LayerGraph& graph, Segment segment);

// Where a placement's point does not exist, its tensors move to a later one: from forward windows and windows of the
// layer above into the stall, from the stall to just before their use. A tensor moves later still when an input does,
// and is never later than its first reader. What needs a repeated collective stays out of windows.
RecomputeOps ResolveRecomputation(const LayerGraph& graph, const LayerPolicy& policy, const RecomputeSituation& situation);

}  // namespace lynx

#endif  // LYNX_PLANNER_LOWER_LOWER_RECOMPUTE_H_
