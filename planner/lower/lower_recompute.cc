// See lower_recompute.h.
#include "planner/lower/lower_recompute.h"

#include <algorithm>

#include "common/check.h"

namespace lynx {
namespace {

// The latest point that is early enough for the backward and weight passes of the tensor's own layer.
RecomputePoint FirstUse(const LayerGraph& graph, Tensor tensor) {
  const std::vector<Segment>& segments = graph.SegmentsOf(LayerType::kTransformer, Pass::kBackward);
  for (size_t i = 0; i < segments.size(); ++i) {
    if (Contains(graph.ReadBy(segments[i]), tensor)) return BeforeSegmentPoint(static_cast<int>(i));
  }
  return BeforeSegmentPoint(static_cast<int>(segments.size()) - 1);
}

// The point at which a tensor with this placement is recomputed. `deadline`: the latest point that is early enough for its
// readers.
RecomputePoint PointOf(const LayerGraph& graph, Placement placement, RecomputePoint deadline,
                       const RecomputeSituation& situation) {
  const RecomputePoint stall = situation.stall ? kStallPoint : deadline;
  if (placement == Placement::kCritical) return deadline;
  if (placement == Placement::kStall) return stall;
  if ((situation.forward_windows | situation.above_windows | situation.own_windows) == 0) return deadline;
  const auto exists = [&](int window, WindowSet windows) { return (windows >> window & 1) != 0; };
  if (IsForwardWindow(placement)) {
    const int window = static_cast<int>(placement) - static_cast<int>(Placement::kForward1);
    return situation.paired_forward && exists(window, situation.forward_windows) ? ForwardWindowPoint(window) : stall;
  }
  if (IsAboveWindow(placement)) {
    const int window = static_cast<int>(placement) - static_cast<int>(Placement::kAbove1);
    return situation.layer_above && exists(window, situation.above_windows) ? AboveWindowPoint(window) : stall;
  }
  LYNX_CHECK(IsOwnWindow(placement));
  const int window = static_cast<int>(placement) - static_cast<int>(Placement::kOwn1);
  if (!exists(window, situation.own_windows)) return deadline;
  const Segment segment = graph.WindowsOf(Pass::kBackward)[static_cast<size_t>(window)];
  return std::min(OwnWindowPoint(BackwardSegmentIndex(graph, segment)), deadline);
}

// Returns, for each tensor, the point at which the critical placement recomputes it: the last point before a segment that is
// early enough for everything that reads the tensor. Recomputation in the layer's own windows counts as a reader, too.
std::array<RecomputePoint, kMaxRecomputable> CriticalPoints(const LayerGraph& graph, const LayerPolicy& policy,
                                                            const std::array<TensorSet, kMaxRecomputable>& inputs,
                                                            const std::array<RecomputePoint, kMaxRecomputable>& deadlines,
                                                            const RecomputeSituation& situation) {
  const std::vector<Tensor>& tensors = graph.recomputable();
  std::array<RecomputePoint, kMaxRecomputable> points = deadlines;
  for (size_t i = tensors.size(); i-- > 0;) {
    for (size_t reader = i + 1; reader < tensors.size(); ++reader) {
      if (!Contains(inputs[reader], tensors[i])) continue;
      if (policy[reader] == Placement::kCritical) points[i] = std::min(points[i], points[reader]);
      if (!IsOwnWindow(policy[reader])) continue;
      const RecomputePoint point = PointOf(graph, policy[reader], deadlines[reader], situation);
      points[i] = std::min(points[i], point < deadlines[reader] ? point - 1 : point);  // just before the window
    }
  }
  return points;
}

}  // namespace

WindowSet WindowsWithTransfer(const LayerShape& shape, Pass pass) {
  WindowSet windows = 0;
  const std::vector<Segment>& segments = LayerGraph::Of(shape).WindowsOf(pass);
  for (size_t i = 0; i < segments.size(); ++i) {
    if (Transfers(shape, LayerType::kTransformer, segments[i], pass)) windows |= static_cast<WindowSet>(1 << i);
  }
  return windows;
}

int BackwardSegmentIndex(const LayerGraph& graph, Segment segment) {
  const std::vector<Segment>& segments = graph.SegmentsOf(LayerType::kTransformer, Pass::kBackward);
  return static_cast<int>(std::find(segments.begin(), segments.end(), segment) - segments.begin());
}

RecomputeOps ResolveRecomputation(const LayerGraph& graph, const LayerPolicy& policy, const RecomputeSituation& situation) {
  const std::vector<Tensor>& tensors = graph.recomputable();
  std::array<RecomputePoint, kMaxRecomputable> deadlines{}, points{};
  std::array<TensorSet, kMaxRecomputable> inputs{};
  for (size_t i = 0; i < tensors.size(); ++i) inputs[i] = graph.InputsOf(tensors[i]);
  // Later tensors read earlier ones. So deadlines are computed from the last tensor to the first, and points from the first to
  // the last.
  for (size_t i = tensors.size(); i-- > 0;) {
    deadlines[i] = FirstUse(graph, tensors[i]);
    for (size_t reader = i + 1; reader < tensors.size(); ++reader) {
      if (!IsRecomputed(policy[reader]) || !Contains(inputs[reader], tensors[i])) continue;
      deadlines[i] = std::min(deadlines[i], deadlines[reader]);
    }
  }
  const auto critical = CriticalPoints(graph, policy, inputs, deadlines, situation);
  RecomputeOps result{};
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!IsRecomputed(policy[i])) continue;
    RecomputePoint inputs_there = 0;
    for (size_t input = 0; input < i; ++input) {
      if (IsRecomputed(policy[input]) && Contains(inputs[i], tensors[input])) {
        inputs_there = std::max(inputs_there, points[input]);
      }
    }
    if (policy[i] == Placement::kCritical && inputs_there <= critical[i]) deadlines[i] = critical[i];
    points[i] = std::max(PointOf(graph, policy[i], deadlines[i], situation), inputs_there);
    if (graph.RepeatsCollective(tensors[i]) && points[i] != kStallPoint) points[i] = deadlines[i];
    for (const Op op : graph.ProducersOf(tensors[i])) result[static_cast<size_t>(points[i])] |= Bit(op);
  }
  return result;
}

}  // namespace lynx
