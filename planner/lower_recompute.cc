// See lower_recompute.h.
#include "planner/lower_recompute.h"

#include <algorithm>

#include "common/check.h"

namespace lynx {
namespace {

bool Has(const std::vector<Tensor>& tensors, Tensor tensor) {
  return std::find(tensors.begin(), tensors.end(), tensor) != tensors.end();
}

// The latest point at which the layer's own backward and weight passes still find the tensor in time.
RecomputePoint FirstUse(Tensor tensor) {
  for (const Op op : OpsOf(LayerType::kTransformer, Segment::kMlp, Pass::kBackward)) {
    const OpInfo& info = InfoOf(op);
    if (Has(info.backward_reads, tensor) || Has(info.weight_reads, tensor)) return RecomputePoint::kBeforeMlp;
  }
  return RecomputePoint::kBeforeAttn;
}

// Whether making `tensor` again reads `input`.
bool Needs(Tensor tensor, Tensor input) {
  if (tensor == input) return false;
  const std::vector<Op> producers = ProducersOf(tensor);
  return std::any_of(producers.begin(), producers.end(), [&](Op op) { return Has(InfoOf(op).reads, input); });
}

// The point of a placement, given that the tensor must be there by `deadline`.
RecomputePoint PointOf(Placement placement, RecomputePoint deadline, const RecomputeSituation& situation) {
  const RecomputePoint stall = situation.stall ? RecomputePoint::kStall : deadline;
  if (!situation.collectives && placement != Placement::kStall) return deadline;
  switch (placement) {
    case Placement::kForwardAttn:
      return situation.paired_forward ? RecomputePoint::kForwardAttn : stall;
    case Placement::kForwardMlp:
      return situation.paired_forward ? RecomputePoint::kForwardMlp : stall;
    case Placement::kStall:
      return stall;
    case Placement::kAboveMlp:
      return situation.layer_above ? RecomputePoint::kAboveMlp : stall;
    case Placement::kAboveAttn:
      return situation.layer_above ? RecomputePoint::kAboveAttn : stall;
    case Placement::kOwnMlp:
      return std::min(RecomputePoint::kOwnMlp, deadline);
    case Placement::kCritical:
      return deadline;
    case Placement::kStore:
      break;
  }
  LYNX_CHECK(!"a stored tensor has no point");
  return deadline;
}

// Two ops with a collective between them, which a window cannot hold.
bool RepeatsCollective(Tensor tensor) { return ProducersOf(tensor).size() > 1; }

}  // namespace

RecomputeOps ResolveRecomputation(const LayerPolicy& policy, const RecomputeSituation& situation) {
  const std::vector<Tensor>& tensors = RecomputableTensors();
  std::array<RecomputePoint, std::tuple_size_v<LayerPolicy>> deadlines, points;
  LYNX_CHECK(tensors.size() == policy.size());
  // Later tensors read earlier ones, so deadlines flow from the back and points from the front.
  for (size_t i = tensors.size(); i-- > 0;) {
    deadlines[i] = FirstUse(tensors[i]);
    for (size_t reader = i + 1; reader < tensors.size(); ++reader) {
      if (policy[reader] == Placement::kStore || !Needs(tensors[reader], tensors[i])) continue;
      deadlines[i] = std::min(deadlines[i], deadlines[reader]);
    }
  }
  RecomputeOps result{};
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (policy[i] == Placement::kStore) continue;
    points[i] = PointOf(policy[i], deadlines[i], situation);
    for (size_t input = 0; input < i; ++input) {
      if (policy[input] != Placement::kStore && Needs(tensors[i], tensors[input])) {
        points[i] = std::max(points[i], points[input]);
      }
    }
    if (RepeatsCollective(tensors[i]) && points[i] != RecomputePoint::kStall) points[i] = deadlines[i];
    for (const Op op : ProducersOf(tensors[i])) result[static_cast<size_t>(points[i])] |= Bit(op);
  }
  return result;
}

}  // namespace lynx
