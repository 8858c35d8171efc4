#include "planner/cost_model.h"

#include <algorithm>

#include "common/check.h"

namespace lynx {
namespace {

constexpr int64_t kNanosPerSecond = 1'000'000'000;
constexpr int64_t kFloatBytes = 4;

// ceil(amount / per_second) in nanoseconds. 128 bits: 10^10 FLOPs times 10^9 does not fit into 64. At most
// kLongestTime, so that the sum over a step does.
Nanos TimeOf(int64_t amount, int64_t per_second) {
  LYNX_CHECK(amount >= 0 && per_second > 0);
  const __int128 nanos = (static_cast<__int128>(amount) * kNanosPerSecond + per_second - 1) / per_second;
  return Nanos(static_cast<int64_t>(std::min<__int128>(nanos, kLongestTime.value)));
}

Nanos TransferTimeOf(int64_t bytes, const LinkCost& link) {
  return link.latency + TimeOf(bytes, link.bytes_per_second);
}

// Roofline (Williams et al. 2009): the slower of arithmetic and memory. An op that does nothing in a pass costs
// nothing.
Nanos Roofline(const HardwareProfile& profile, Op op, Pass pass, const LayerShape& shape) {
  const int64_t flops = OpFlops(op, pass, shape);
  const Bytes traffic = OpTraffic(op, pass, shape);
  if (flops == 0 && traffic.value == 0) return Nanos(0);
  return std::max(TimeOf(flops, profile.flops_per_second), TimeOf(traffic.value, profile.memory_bytes_per_second)) +
         profile.op_overhead;
}

// AdamW with clipping reads the gradient twice (norm, update), reads and writes the weight and both moments.
Nanos OptimizerRoofline(const HardwareProfile& profile) {
  return TimeOf((int64_t{1} << 20) * 8 * kFloatBytes, profile.memory_bytes_per_second);
}

int64_t ParametersOf(const StageContext& context, const LayerShape& shape) {
  int64_t parameters = (context.end_layer - context.first_layer) * LayerParameters(LayerType::kTransformer, shape);
  if (context.has_embedding()) parameters += LayerParameters(LayerType::kEmbedding, shape);
  if (context.has_head()) parameters += LayerParameters(LayerType::kHead, shape);
  return parameters;
}

}  // namespace

CostModel::CostModel(const HardwareProfile& profile, const ModelSpec& model, const ParallelLayout& layout,
                     int32_t micro_batch, int32_t ranks_per_node)
    : profile_(profile), layout_(layout), shape_(ShapeOf(model, layout, micro_batch)),
      graph_(LayerGraph::Of(shape_)), ranks_per_node_(ranks_per_node) {
  LYNX_CHECK(ranks_per_node >= 1);
  LYNX_CHECK(profile.overlap_slowdown_permille >= 1000 && profile.communication_compute_permille >= 0);
  const auto measured = std::find_if(profile.measured.begin(), profile.measured.end(),
                                     [&](const ShapeTimes& times) { return times.shape == shape_; });
  profile_.measured.clear();
  measured_ = measured != profile.measured.end();
  if (measured_) {
    times_ = measured->ops;
    optimizer_per_mega_parameter_ = measured->optimizer_per_mega_parameter;
  } else {
    for (const OpInfo& info : graph_.ops()) {
      OpTimes& times = times_[static_cast<int>(info.op)];
      times.forward = Roofline(profile_, info.op, Pass::kForward, shape_);
      times.backward = Roofline(profile_, info.op, Pass::kBackward, shape_);
      if (info.has_weight_pass) times.weight = Roofline(profile_, info.op, Pass::kWeight, shape_);
    }
    optimizer_per_mega_parameter_ = OptimizerRoofline(profile_);
  }
  ComputeSegmentTimes();
  ChooseLinks();
}

void CostModel::ComputeSegmentTimes() {
  for (LayerType type : {LayerType::kEmbedding, LayerType::kTransformer, LayerType::kHead}) {
    for (Pass pass : {Pass::kForward, Pass::kBackward, Pass::kWeight}) {
      for (Segment segment : graph_.SegmentsOf(type, pass == Pass::kForward ? Pass::kForward : Pass::kBackward)) {
        Nanos& sum = segment_times_[static_cast<int>(type)][static_cast<int>(segment)][static_cast<int>(pass)];
        for (Op op : graph_.OpsOf(type, segment, pass)) sum += OpTime(op, pass);
      }
    }
  }
}

bool CostModel::SameNode(int32_t first_rank, int32_t stride, int32_t count) const {
  return first_rank / ranks_per_node_ == (first_rank + stride * (count - 1)) / ranks_per_node_;
}

void CostModel::ChooseLinks() {
  const int32_t stage_ranks = layout_.tp;
  const int32_t replica_ranks = layout_.tp * layout_.pp;
  bool tensor_same = true, data_same = true;
  std::vector<bool> boundary_same(layout_.pp - 1, true);
  for (int32_t dp = 0; dp < layout_.dp; ++dp) {
    for (int32_t stage = 0; stage < layout_.pp; ++stage) {
      const int32_t first = RankOf(layout_, {0, stage, dp});
      tensor_same = tensor_same && SameNode(first, 1, layout_.tp);
      if (stage + 1 == layout_.pp) continue;
      for (int32_t tp = 0; tp < layout_.tp; ++tp) {
        if (!SameNode(first + tp, stage_ranks, 2)) boundary_same[stage] = false;
      }
    }
  }
  for (int32_t rank = 0; rank < replica_ranks; ++rank) {
    data_same = data_same && SameNode(rank, replica_ranks, layout_.dp);
  }
  tensor_link_ = Link(tensor_same);
  data_link_ = Link(data_same);
  world_link_ = Link(SameNode(0, 1, layout_.ranks()));
  for (bool same : boundary_same) boundary_links_.push_back(Link(same));
}

Nanos CostModel::OpTime(Op op, Pass pass) const {
  const OpTimes& times = times_[static_cast<int>(op)];
  switch (pass) {
    case Pass::kForward: return times.forward;
    case Pass::kBackward: return times.backward;
    case Pass::kWeight: return times.weight;
  }
  LYNX_CHECK(false);
}

Nanos CostModel::OpSetTime(OpSet ops) const {
  Nanos sum;
  for (int i = 0; i < kOpCount; ++i) {
    if (Contains(ops, static_cast<Op>(i))) sum += times_[i].forward;
  }
  return sum;
}

Nanos CostModel::SegmentTime(LayerType type, Segment segment, Pass pass) const {
  return segment_times_[static_cast<int>(type)][static_cast<int>(segment)][static_cast<int>(pass)];
}

Nanos CostModel::AllReduce(Bytes bytes, int32_t n, const LinkCost& link) const {
  if (n <= 1) return Nanos(0);
  return TransferTimeOf((bytes.value + n - 1) / n, link) * (2 * (n - 1));
}

Nanos CostModel::AllGather(Bytes bytes, int32_t n, const LinkCost& link) const {
  if (n <= 1) return Nanos(0);
  return TransferTimeOf((bytes.value + n - 1) / n, link) * (n - 1);
}

Nanos CostModel::ComputeTime(const Action& action, const StageContext& context) const {
  const auto segment_time = [&](Pass pass) { return SegmentTime(LayerTypeOf(action.layer), action.segment, pass); };
  switch (action.kind) {
    case ActionKind::kForward: return segment_time(Pass::kForward);
    case ActionKind::kBackward: return segment_time(Pass::kBackward);
    case ActionKind::kWeight: return segment_time(Pass::kWeight);
    case ActionKind::kRecompute: return OpSetTime(action.ops);
    case ActionKind::kOptimizer: {
      const __int128 nanos =
          static_cast<__int128>(ParametersOf(context, shape_)) * optimizer_per_mega_parameter_.value;
      return Nanos(static_cast<int64_t>(nanos >> 20));
    }
    default: return Nanos(0);
  }
}

Nanos CostModel::TransferTime(const Action& start, const StageContext& context) const {
  const auto window = [&](Pass pass) { return WindowTime(LayerTypeOf(start.layer), start.segment, pass); };
  switch (start.kind) {
    case ActionKind::kSendForwardStart:
    case ActionKind::kRecvBackwardStart:
      return TransferTimeOf(TensorBytes(Tensor::kX, shape_).value, boundary_links_[context.stage]);
    case ActionKind::kSendBackwardStart:
    case ActionKind::kRecvForwardStart:
      return TransferTimeOf(TensorBytes(Tensor::kX, shape_).value, boundary_links_[context.stage - 1]);
    case ActionKind::kDataReduceStart:
      return AllReduce(Bytes(LayerParameters(LayerTypeOf(start.layer), shape_) * kFloatBytes), layout_.dp,
                       data_link_);
    case ActionKind::kNormStart:  // two doubles: squared gradient norm and loss
      return AllReduce(Bytes(16), layout_.ranks(), world_link_);
    default: break;
  }
  if (InfoOf(start.kind).group != Group::kTensor || InfoOf(start.kind).phase != Phase::kStart) return Nanos(0);
  return window(InfoOf(start.kind).segment_pass);
}

Nanos CostModel::WindowTime(LayerType type, Segment segment, Pass pass) const {
  if (layout_.tp == 1 || !graph_.EndsInCollective(type, segment, pass)) return Nanos(0);
  const Bytes bytes = CollectiveBytes(type, segment, pass, shape_);
  // A ring's reduce-scatter moves as many bytes as its all-gather, and an all-reduce is one after the other.
  const bool both = graph_.CollectiveOf(type, segment, pass).kind == Collective::kAllReduce;
  return both ? AllReduce(bytes, layout_.tp, tensor_link_) : AllGather(bytes, layout_.tp, tensor_link_);
}

Nanos CostModel::LayerTime(LayerType type, Pass pass) const {
  Nanos sum;
  for (Segment segment : graph_.SegmentsOf(type, pass)) {
    const Nanos window = WindowTime(type, segment, pass);
    const Nanos weight = pass == Pass::kBackward ? SegmentTime(type, segment, Pass::kWeight) : Nanos(0);
    sum += SegmentTime(type, segment, pass) + std::max(window, OverlappedTime(weight, window));
  }
  return sum;
}

Nanos CostModel::OverlapCapacity(Nanos window) const {
  const int32_t left = std::max(0, 1000 - profile_.communication_compute_permille);
  return window * left / profile_.overlap_slowdown_permille;
}

Nanos CostModel::OverlappedTime(Nanos work, Nanos window) const {
  if (work.value == 0) return Nanos(0);
  const Nanos capacity = OverlapCapacity(window);
  if (work > capacity || capacity.value == 0) return window + work - capacity;
  const int32_t left = 1000 - profile_.communication_compute_permille;  // > 0, for capacity > 0
  return std::min(window, (work * profile_.overlap_slowdown_permille + Nanos(left - 1)) / left);
}

}  // namespace lynx
