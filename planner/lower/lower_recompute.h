// The phase of lowering for recomputation: says which ops a layer's policy runs at each point before and during the layer's
// backward pass. Pure values; thread-safe.
#ifndef LYNX_PLANNER_LOWER_LOWER_RECOMPUTE_H_
#define LYNX_PLANNER_LOWER_LOWER_RECOMPUTE_H_

#include <array>
#include <cstdint>

#include "planner/problem/layer_graph.h"
#include "planner/recompute/recompute_policy.h"

namespace lynx {

// The points at which a program can recompute for layer l and microbatch k, in the order of time: forward windows, the stall,
// windows of the layer above, then for each backward segment of the layer itself the point before the segment and the window
// after it. The critical placement uses the points before segments. It uses the last point that is early enough for everything
// that reads the tensor: segments, critical recomputation, and recomputation in own windows.
using RecomputePoint = int;
inline constexpr int kMaxBackwardSegments = 5;
constexpr RecomputePoint ForwardWindowPoint(int window) { return window; }
inline constexpr RecomputePoint kStallPoint = kMaxWindows;
constexpr RecomputePoint AboveWindowPoint(int window) { return kMaxWindows + 1 + window; }
constexpr RecomputePoint BeforeSegmentPoint(int segment) { return 2 * kMaxWindows + 1 + 2 * segment; }
constexpr RecomputePoint OwnWindowPoint(int segment) { return BeforeSegmentPoint(segment) + 1; }
inline constexpr int kRecomputePointCount = 2 * kMaxWindows + 1 + 2 * kMaxBackwardSegments;

// A set of windows: bit i is the segment with number i of LayerGraph::WindowsOf.
using WindowSet = uint8_t;
inline constexpr WindowSet kAllWindows = (1 << kMaxWindows) - 1;
// The windows of a pass in which data moves.
WindowSet WindowsWithTransfer(const LayerShape& shape, Pass pass);

// Says which points exist for a layer and microbatch.
struct RecomputeSituation {
  // WindowsWithTransfer of the layers in whose windows the layer recomputes: of the layer whose forward runs before, of the
  // layer above, and of the layer itself in its own backward
  WindowSet forward_windows = 0, above_windows = 0, own_windows = 0;
  bool paired_forward = false;  // another microbatch's forward runs just before this backward
  // With sharded weights (ZeRO-3), `stall` and `layer_above` are false: a layer's weights are present only for the layer's own
  // passes.
  bool stall = false;        // the gradient comes from a next stage
  bool layer_above = false;  // the stage has layer l + 1

  bool operator==(const RecomputeSituation&) const = default;
};

// The index is the RecomputePoint. An entry is the set of ops that run again at this point.
using RecomputeOps = std::array<OpSet, kRecomputePointCount>;

// The index of a segment among the transformer layer's backward segments.
int BackwardSegmentIndex(const LayerGraph& graph, Segment segment);

// Finds the point at which each tensor of the policy is recomputed. If the point of a placement does not exist in this
// situation, the tensor moves to another point: from a forward window or a window of the layer above to the stall, and from the
// stall or an own window to the point just before its use. Without collectives there are no windows, and a tensor in a window
// moves to the point just before its use. If an input of a tensor moves later, the tensor may move later, too, but never beyond
// its first reader. A tensor whose recomputation repeats a collective gets the stall or the point just before its use.
RecomputeOps ResolveRecomputation(const LayerGraph& graph, const LayerPolicy& policy, const RecomputeSituation& situation);

}  // namespace lynx

#endif  // LYNX_PLANNER_LOWER_LOWER_RECOMPUTE_H_
