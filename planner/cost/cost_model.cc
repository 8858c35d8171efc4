#include "planner/cost/cost_model.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>
#include <tuple>

#include "common/check.h"
#include "planner/cost/known_times.h"
#include "planner/cost/op_cost.h"
#include "planner/problem/narrow_products.h"

namespace lynx {
namespace {

constexpr int64_t kFloatBytes = 4;
constexpr int64_t kHalfBytes = 2;

Nanos TransferTimeOf(int64_t bytes, const LinkCost& link) { return link.latency + TimeAtRate(bytes, link.bytes_per_second); }

// Bytes that the optimizer moves per parameter. `whole` counts for every parameter of the rank, `share` for the parameters
// whose states the rank holds.
struct OptimizerTraffic {
  int64_t whole;
  int64_t share;
};
constexpr OptimizerTraffic OptimizerTrafficOf(DataType dtype, DataType gradients) {
  if (dtype == DataType::kFloat32) return {0, 8 * kFloatBytes};
  if (gradients == DataType::kFloat32) return {3 * kFloatBytes, 54};
  return {3 * kHalfBytes, kHalfBytes + kFloatBytes + 54};
}

// The parameters of a rank, and how many of them belong to experts.
struct RankParameters {
  int64_t all = 0, experts = 0;
};

RankParameters ParametersOf(const StageContext& context, const LayerShape& shape) {
  RankParameters sum;
  int64_t& parameters = sum.all;
  for (const StageSlice& slice : context.slices) {
    const int32_t dense = slice.DenseLayers(context.model.moe);
    sum.experts += (slice.layers() - dense) * ExpertParameters(shape);
    parameters += (slice.layers() - dense) * LayerParameters(LayerType::kTransformer, shape);
    if (dense > 0) parameters += dense * LayerParameters(LayerType::kTransformer, DenseShape(shape));
    if (slice.has_embedding) parameters += LayerParameters(LayerType::kEmbedding, shape);
    if (slice.has_head) parameters += LayerParameters(LayerType::kHead, shape);
  }
  return sum;
}

// Index of the boundary after a stage, as BoundaryTime numbers boundaries. Boundary i joins ranks i and i + 1. The boundary
// between the last and the first rank has the index of the last rank.
int32_t BoundaryAfter(const PipelineShape& pipeline, int32_t stage) {
  LYNX_CHECK(stage != kNoStage && pipeline.Next(stage) != kNoStage);
  const auto [low, high] = std::minmax({pipeline.RankOf(stage), pipeline.RankOf(pipeline.Next(stage))});
  return high - low <= 1 ? low : high;
}

Bytes BytesOf(TensorSet tensors, const LayerShape& shape) {
  Bytes sum;
  for (int i = 0; i < kTensorCount; ++i) {
    if (Contains(tensors, static_cast<Tensor>(i))) sum += TensorBytes(static_cast<Tensor>(i), shape);
  }
  return sum;
}

// Returns a ratio for a token whose experts are spread evenly and independently over `nodes` nodes: the number of other nodes
// that have at least one of its experts, divided by the number of its experts on other nodes.
double RowsForOtherNodes(int32_t nodes, int32_t top_k) {
  const double here = 1.0 / nodes;
  return (nodes - 1) * (1 - std::pow(1 - here, top_k)) / (top_k * (1 - here));
}

}  // namespace

CostModel::CostModel(const HardwareProfile& profile, const ModelSpec& model, const ParallelLayout& layout, int32_t micro_batch,
                     int32_t ranks_per_node, bool rows_once_per_node)
    : profile_(profile), layout_(layout), shape_(ShapeOf(model, layout, micro_batch)),
      graph_(LayerGraph::Of(shape_)), places_{.ranks = layout.ranks(),
                                              .ranks_per_node = ranks_per_node,
                                              .pod_nodes = profile.pod_nodes} {
  LYNX_CHECK(ranks_per_node >= 1);
  LYNX_CHECK(profile.overlap_slowdown_permille >= 1000 && profile.communication_compute_permille >= 0);
  const KnownTimes known = KnownTimesOf(profile, shape_);
  times_ = known.ops;
  measured_ = known.measured;
  optimizer_per_mega_parameter_ = known.optimizer_per_mega_parameter;
  profile_.measured.clear();
  ChooseLinks();
  if (rows_once_per_node && expert_path_.nodes > 1) {
    sent_between_nodes_ = RowsForOtherNodes(expert_path_.nodes, shape_.top_k);
  }
  AddContextTransfers();
  ComputeSegmentTimes();
  if (model.moe.dense_layers == 0) return;
  ModelSpec dense = model;
  dense.moe = MoeSpec();
  dense_layers_ = model.moe.dense_layers;
  dense_ = std::make_shared<const CostModel>(profile, dense, layout, micro_batch, ranks_per_node);
}

void CostModel::AddContextTransfers() {
  if (layout_.cp == 1) return;
  const Nanos gather = AllGatherTime(ContextGatherBytes(shape_), layout_.cp, context_path_);
  OpTimes& first = times_[static_cast<size_t>(graph_.Has(Op::kFlash) ? Op::kFlash : Op::kProbs)];
  first.forward += gather;
  first.backward += gather * 2;
}

void CostModel::ComputeSegmentTimes() {
  experts_of_layer_ = ExpertParameters(shape_);
  for (LayerType type : {LayerType::kEmbedding, LayerType::kTransformer, LayerType::kHead}) {
    of_all_ranks_[static_cast<size_t>(type)] =
        LayerParameters(type, shape_) - (type == LayerType::kTransformer ? experts_of_layer_ : 0);
    for (Pass pass : {Pass::kForward, Pass::kBackward, Pass::kWeight}) {
      for (Segment segment : graph_.SegmentsOf(type, pass == Pass::kForward ? Pass::kForward : Pass::kBackward)) {
        const auto at = [&](auto& times) -> Nanos& {
          return times[static_cast<int>(type)][static_cast<int>(segment)][static_cast<int>(pass)];
        };
        for (Op op : graph_.OpsOf(type, segment, pass)) at(segment_times_) += OpTime(op, pass);
        if (pass != Pass::kWeight) at(window_times_) = FindWindowTime(type, segment, pass);
      }
    }
  }
}

std::vector<int32_t> CostModel::MembersOf(const RankCoordinates& first, GroupKind kind) const {
  using enum GroupKind;
  std::vector<int32_t> members;
  const bool has_twin = kind == kGradient || kind == kShard;
  const int32_t twin = PipelineOf(layout_).bidirectional() ? layout_.pp - 1 - first.stage : first.stage;
  const int32_t end_tp = kind == kTensor ? layout_.tp : first.tp + 1;
  const int32_t end_dp = kind == kGradient || kind == kAcross ? layout_.dp
                         : kind == kShard                     ? first.dp + layout_.zero_group
                                                              : first.dp + 1;
  const int32_t end_cp = kind == kTensor || kind == kAcross ? first.cp + 1 : layout_.cp;
  for (int32_t t = first.tp; t < end_tp; ++t) {
    for (int32_t d = first.dp; d < end_dp; d += kind == kAcross ? layout_.zero_group : 1) {
      for (int32_t c = first.cp; c < end_cp; ++c) {
        members.push_back(RankOf(layout_, {t, first.stage, d, c}));
        if (has_twin && twin != first.stage) members.push_back(RankOf(layout_, {t, twin, d, c}));
      }
    }
  }
  std::sort(members.begin(), members.end());
  return members;
}

GroupPath CostModel::PathOf(size_t level, GroupKind kind) const {
  using enum GroupKind;
  const GroupPath plain{.link = LinkAt(level, profile_)};
  const bool gpus = profile_.gemm_tiles.units > 0;
  if (level <= profile_.inner_links.size() || (profile_.adapters == 1 && profile_.pod_nodes == 0 && !gpus)) return plain;
  std::optional<GroupPath> slowest;
  // If a node holds whole tensor-parallel groups, the groups of all tensor ranks use the same nodes in the same way. So the
  // group of the first tensor rank is enough.
  const int32_t alike = kind == kTensor || places_.ranks_per_node % layout_.tp == 0 ? 1 : layout_.tp;
  const int32_t first_dps = kind == kGradient ? 1 : kind == kAcross ? layout_.zero_group : layout_.dp;
  for (int32_t stage = 0; stage < layout_.pp; ++stage) {
    for (int32_t t = 0; t < alike; ++t) {
      for (int32_t d = 0; d < first_dps; d += kind == kShard ? layout_.zero_group : 1) {
        for (int32_t c = 0; c < (kind == kTensor || kind == kAcross ? layout_.cp : 1); ++c) {
          const GroupPath path = PathThrough(MembersOf({t, stage, d, c}, kind), profile_, places_);
          slowest = slowest ? SlowerPath(*slowest, path) : path;
        }
      }
    }
  }
  return *slowest;
}

// A group's collectives pass through all its ranks, so they need the link that joins the group's first and last rank.
void CostModel::ChooseLinks() {
  const auto level_of = [this](int32_t first, int32_t last) {
    return LinkLevelOf(first, last, profile_, places_.ranks_per_node);
  };
  const auto [tp, pp, dp, cp] = std::tuple(layout_.tp, layout_.pp, layout_.dp, layout_.cp);
  size_t tensor = 0, context = 0, data = 0;
  std::vector<size_t> boundary(static_cast<size_t>(pp), 0);
  std::vector<bool> crosses(static_cast<size_t>(pp), false);  // the boundary lies between pods for some rank
  for (int32_t stage = 0; stage < pp; ++stage) {
    for (int32_t d = 0; d < dp; ++d) {
      const int32_t first = RankOf(layout_, {0, stage, d, 0}), last = RankOf(layout_, {tp - 1, stage, d, cp - 1});
      context = std::max(context, level_of(first, last));
      for (int32_t c = 0; c < cp; ++c) {
        tensor = std::max(tensor, level_of(RankOf(layout_, {0, stage, d, c}), RankOf(layout_, {tp - 1, stage, d, c})));
      }
      // A block is a set of consecutive ranks that a faster link joins. If a block ends anywhere between the first rank of a
      // stage and the last rank of its neighbour, the transfer of some rank leaves this block.
      const int32_t next = (stage + 1) % pp;
      const auto [low, high] = std::minmax({RankOf(layout_, {0, stage, d, 0}), RankOf(layout_, {0, next, d, 0})});
      size_t& level = boundary[static_cast<size_t>(stage)];
      level = std::max(level, level_of(low, high + tp * cp - 1));
      if (places_.PodOf(low) != places_.PodOf(high + tp * cp - 1)) crosses[static_cast<size_t>(stage)] = true;
    }
    // In a bidirectional pipeline, the rank at the mirrored position holds the same layers.
    const int32_t twin = PipelineOf(layout_).bidirectional() ? pp - 1 - stage : stage;
    for (int32_t t = 0; t < tp; ++t) {
      const auto [low, high] = std::minmax({stage, twin});
      data = std::max(data, level_of(RankOf(layout_, {t, low, 0, 0}), RankOf(layout_, {t, high, dp - 1, cp - 1})));
    }
  }
  tensor_path_ = PathOf(tensor, GroupKind::kTensor);
  context_path_ = PathOf(context, GroupKind::kContext);
  data_path_ = PathOf(data, GroupKind::kGradient);
  world_link_ = LinkAt(level_of(0, layout_.ranks() - 1), profile_);
  for (size_t i = 0; i < boundary.size(); ++i) {
    boundary_links_.push_back(crosses[i] ? LinkBetweenPods(profile_, places_.UsedNodes(0)) : LinkAt(boundary[i], profile_));
  }
  ChooseLinksOfShards();
  ChooseLinksOfExperts();
}

GroupPath CostModel::PathOf(const std::vector<std::vector<int32_t>>& groups) const {
  size_t level = 0;
  for (const std::vector<int32_t>& members : groups) {
    level = std::max(level, LinkLevelOf(members.front(), members.back(), profile_, places_.ranks_per_node));
  }
  const GroupPath plain{.link = LinkAt(level, profile_)};
  const bool gpus = profile_.gemm_tiles.units > 0;
  if (level <= profile_.inner_links.size() || (profile_.adapters == 1 && profile_.pod_nodes == 0 && !gpus)) return plain;
  GroupPath slowest = PathThrough(groups.front(), profile_, places_);
  for (const std::vector<int32_t>& members : groups) slowest = SlowerPath(slowest, PathThrough(members, profile_, places_));
  return slowest;
}

void CostModel::ChooseLinksOfExperts() {
  if (!shape_.moe()) return;
  const int32_t ep = layout_.ep, replicas = ExpertReplicas(layout_), node = places_.ranks_per_node;
  std::vector<std::vector<int32_t>> experts, holders;
  // If the ranks of a stage are neighbours and fill whole nodes, and expert groups fill nodes or nodes fill expert groups, then
  // all groups of a kind lie on nodes in the same way, and one of them is enough.
  const bool neighbours = layout_.pp == 1 || layout_.rank_order == RankOrder::kTpDpPp;
  const bool alike = neighbours && RanksOfStage(layout_) % node == 0 && (ep % node == 0 || node % ep == 0) &&
                     profile_.inner_links.empty() && places_.pod_nodes == 0;
  for (int32_t stage = 0; stage < (alike ? 1 : layout_.pp); ++stage) {
    const auto rank = [&](int32_t replica, int32_t place) { return RankInStage(layout_, stage, replica * ep + place); };
    for (int32_t replica = 0; replica < (alike ? 1 : replicas); ++replica) {
      std::vector<int32_t>& members = experts.emplace_back();
      for (int32_t place = 0; place < ep; ++place) members.push_back(rank(replica, place));
    }
    for (int32_t place = 0; place < (alike ? 1 : ep); ++place) {
      std::vector<int32_t>& members = holders.emplace_back();
      for (int32_t replica = 0; replica < replicas; ++replica) members.push_back(rank(replica, place));
    }
  }
  expert_path_ = PathOf(experts);
  expert_data_path_ = PathOf(holders);
}

void CostModel::ChooseLinksOfShards() {
  shard_path_ = across_path_ = data_path_;
  if (layout_.zero_group == 0) return;
  size_t shard = 0, across = 0;
  const auto level_of = [&](const RankCoordinates& first, GroupKind kind) {
    const std::vector<int32_t> members = MembersOf(first, kind);
    return LinkLevelOf(members.front(), members.back(), profile_, places_.ranks_per_node);
  };
  for (int32_t stage = 0; stage < layout_.pp; ++stage) {
    for (int32_t t = 0; t < layout_.tp; ++t) {
      for (int32_t d = 0; d < layout_.dp; d += layout_.zero_group) {
        shard = std::max(shard, level_of({t, stage, d, 0}, GroupKind::kShard));
      }
      for (int32_t d = 0; d < layout_.zero_group; ++d) {
        for (int32_t c = 0; c < layout_.cp; ++c) across = std::max(across, level_of({t, stage, d, c}, GroupKind::kAcross));
      }
    }
  }
  shard_path_ = PathOf(shard, GroupKind::kShard);
  across_path_ = PathOf(across, GroupKind::kAcross);
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
  for (OpSet rest = ops; rest != 0; rest &= rest - 1) sum += times_[static_cast<size_t>(std::countr_zero(rest))].forward;
  return sum;
}

Nanos CostModel::SegmentTime(LayerType type, Segment segment, Pass pass) const {
  return segment_times_[static_cast<int>(type)][static_cast<int>(segment)][static_cast<int>(pass)];
}

Nanos CostModel::ComputeTime(const Action& action, const StageContext& context) const {
  if (const CostModel& own = OfLayer(action.layer); &own != this) return own.ComputeTime(action, context);
  const auto segment_time = [&](Pass pass) { return SegmentTime(LayerTypeOf(action.layer), action.segment, pass); };
  switch (action.kind) {
    case ActionKind::kForward: return segment_time(Pass::kForward);
    case ActionKind::kBackward: return segment_time(Pass::kBackward);
    case ActionKind::kWeight: return segment_time(Pass::kWeight);
    case ActionKind::kRecompute: return OpSetTime(action.ops);
    case ActionKind::kOptimizer: {
      const RankParameters parameters = ParametersOf(context, shape_);
      return OptimizerTime(parameters.all, parameters.experts);
    }
    default: return Nanos(0);
  }
}

Nanos CostModel::TransferTime(const Action& start) const {
  const ActionInfo& info = InfoOf(start.kind);
  if (info.phase != Phase::kStart) return Nanos(0);
  if (const CostModel& own = OfLayer(start.layer); &own != this) return own.TransferTime(start);
  switch (info.group) {
    case Group::kExpert:
    case Group::kTensor: return WindowTime(LayerTypeOf(start.layer), start.segment, info.segment_pass());
    case Group::kNextStage:
    case Group::kPreviousStage: {
      const PipelineShape pipeline = PipelineOf(layout_);
      const int32_t before = info.group == Group::kNextStage ? start.stage : pipeline.Previous(start.stage);
      return BoundaryTime(BoundaryAfter(pipeline, before), TensorBytes(Tensor::kX, shape_));
    }
    case Group::kData: {
      const int64_t parameters = of_all_ranks_[static_cast<size_t>(LayerTypeOf(start.layer))];
      return start.kind == ActionKind::kDataReduceStart ? DataReduceTime(parameters, 0) : WeightGatherTime(parameters, 0);
    }
    case Group::kExpertData: {
      const int64_t parameters = experts_of_layer_;
      return start.kind == ActionKind::kExpertReduceStart ? DataReduceTime(parameters, parameters)
                                                          : WeightGatherTime(parameters, parameters);
    }
    case Group::kHost: {
      const Bytes bytes = BytesOf(start.tensors, shape_);
      return info.flow == Flow::kOut ? OffloadTime(bytes) : ReloadTime(bytes);
    }
    case Group::kWorld: return NormTime();
    case Group::kNone: break;
  }
  return Nanos(0);
}

Nanos CostModel::WindowTime(LayerType type, Segment segment, Pass pass) const {
  return window_times_[static_cast<int>(type)][static_cast<int>(segment)][static_cast<int>(pass)];
}

Nanos CostModel::FindWindowTime(LayerType type, Segment segment, Pass pass) const {
  const Collective kind = graph_.CollectiveOf(type, segment, pass).kind;
  if (kind == Collective::kNone || shape_.MembersOf(kind) == 1) return Nanos(0);
  const Bytes bytes = CollectiveBytes(type, segment, pass, shape_);
  if (kind == Collective::kAllToAll) {
    const Bytes sent(static_cast<int64_t>(static_cast<double>(bytes.value) * sent_between_nodes_));
    return AllToAllTime(sent, layout_.ep, expert_path_, profile_.gemm_tiles.units == 0);
  }
  // In a ring, a reduce-scatter takes as long as an all-gather. An all-reduce is a reduce-scatter and then an all-gather.
  return kind == Collective::kAllReduce ? AllReduceTime(bytes, layout_.tp, tensor_path_)
                                        : AllGatherTime(bytes, layout_.tp, tensor_path_);
}

Nanos CostModel::GatherTime(LayerType type, Tensor gathered) const {
  return WindowTime(type, graph_.GatherSegmentOf(gathered), Pass::kForward);
}

bool CostModel::AnyReads(OpSet ops, Tensor tensor) const {
  return std::any_of(graph_.ops().begin(), graph_.ops().end(), [&](const OpInfo& info) {
    return Contains(ops, info.op) && std::find(info.reads.begin(), info.reads.end(), tensor) != info.reads.end();
  });
}

std::vector<Tensor> CostModel::GatheredForWeights(LayerType type, Segment segment) const {
  OpSet weight_ops = 0;
  for (const Op op : graph_.OpsOf(type, segment, Pass::kWeight)) weight_ops |= Bit(op);
  std::vector<Tensor> gathered;
  for (const Tensor tensor : {Tensor::kLn1Full, Tensor::kLn2Full, Tensor::kLnfFull}) {
    if (AnyReads(weight_ops, tensor)) gathered.push_back(tensor);
  }
  return gathered;
}

Nanos CostModel::ComputeOfLayer(LayerType type, Pass pass) const {
  Nanos sum;
  for (const Segment segment : graph_.SegmentsOf(type, pass)) {
    sum += SegmentTime(type, segment, pass);
    if (pass == Pass::kBackward) sum += SegmentTime(type, segment, Pass::kWeight);
  }
  return sum;
}

Nanos CostModel::TransfersOfLayer(LayerType type, Pass pass, OpSet recomputed) const {
  Nanos sum;
  for (const Segment segment : graph_.SegmentsOf(type, pass)) {
    sum += WindowTime(type, segment, pass);
    if (pass == Pass::kForward) continue;
    for (const Tensor tensor : GatheredForWeights(type, segment)) {
      if (!AnyReads(recomputed, tensor)) sum += GatherTime(type, tensor);
    }
  }
  return sum;
}

Nanos CostModel::LayerTime(LayerType type, Pass pass, OpSet recomputed) const {
  if (woven() && pass != Pass::kWeight) {
    const Nanos transfers = TransfersOfLayer(type, pass, recomputed);
    return std::max(transfers, OverlappedTime(ComputeOfLayer(type, pass), transfers));
  }
  Nanos sum;
  if (pass == Pass::kWeight) {
    for (Segment segment : graph_.SegmentsOf(type, Pass::kBackward)) sum += SegmentTime(type, segment, Pass::kWeight);
    return sum;
  }
  for (Segment segment : graph_.SegmentsOf(type, pass)) {
    const Nanos window = WindowTime(type, segment, pass);
    Nanos own = SegmentTime(type, segment, pass), weight;
    if (pass == Pass::kBackward) {
      weight = SegmentTime(type, segment, Pass::kWeight);
      Nanos gather;
      for (const Tensor tensor : GatheredForWeights(type, segment)) {
        if (!AnyReads(recomputed, tensor)) gather += GatherTime(type, tensor);
      }
      own = std::max(gather, OverlappedTime(own, gather));
    }
    sum += own + std::max(window, OverlappedTime(weight, window));
  }
  return sum;
}

Nanos CostModel::InputGradientTime(LayerType type) const {
  Nanos compute, transfers;
  for (Segment segment : graph_.SegmentsOf(type, Pass::kBackward)) {
    compute += SegmentTime(type, segment, Pass::kBackward);
    transfers += WindowTime(type, segment, Pass::kBackward);
  }
  return woven() ? std::max(transfers, OverlappedTime(compute, transfers)) : compute + transfers;
}

Nanos CostModel::BoundaryTime(int32_t pipeline_rank, Bytes bytes) const {
  return TransferTimeOf(bytes.value, boundary_links_[static_cast<size_t>(pipeline_rank)]);
}

Nanos CostModel::DataReduceTime(int64_t parameters, int64_t experts) const {
  if (experts > 0) {
    const Bytes gradients(experts * shape_.gradient_bytes());
    const int32_t holders = ExpertReplicas(layout_);
    const Nanos own = layout_.zero == ZeroStage::kNone ? AllReduceTime(gradients, holders, expert_data_path_)
                                                       : AllGatherTime(gradients, holders, expert_data_path_);
    return own + (parameters > experts ? DataReduceTime(parameters - experts, 0) : Nanos(0));
  }
  const int32_t replicas = GradientRanks(layout_), shards = ShardRanks(layout_);
  const Bytes gradients(parameters * shape_.gradient_bytes());
  if (layout_.zero == ZeroStage::kNone) return AllReduceTime(gradients, replicas, data_path_);
  // In a ring, a reduce-scatter takes as long as an all-gather.
  return AllGatherTime(gradients, shards, shard_path_) +
         AllReduceTime(Bytes((gradients.value + shards - 1) / shards), replicas / shards, across_path_);
}

Nanos CostModel::WeightGatherTime(int64_t parameters, int64_t experts) const {
  if (layout_.zero == ZeroStage::kNone) return Nanos(0);
  if (experts > 0) {
    const Nanos own = AllGatherTime(Bytes(experts * shape_.element_bytes()), ExpertReplicas(layout_), expert_data_path_);
    return own + (parameters > experts ? WeightGatherTime(parameters - experts, 0) : Nanos(0));
  }
  return AllGatherTime(Bytes(parameters * shape_.element_bytes()), ShardRanks(layout_), shard_path_);
}

Nanos CostModel::OffloadTime(Bytes bytes) const {
  if (profile_.host.to_host_bytes_per_second == 0) return kMaxTime;
  return profile_.host.latency + TimeAtRate(bytes.value, profile_.host.to_host_bytes_per_second);
}

Nanos CostModel::ReloadTime(Bytes bytes) const {
  if (profile_.host.from_host_bytes_per_second == 0) return kMaxTime;
  return profile_.host.latency + TimeAtRate(bytes.value, profile_.host.from_host_bytes_per_second);
}

Nanos CostModel::CopyTime(Nanos alone, bool to_host, Nanos other_busy) const {
  const HostLink& host = profile_.host;
  const int64_t own = to_host ? host.to_host_bytes_per_second : host.from_host_bytes_per_second;
  const int64_t other = to_host ? host.from_host_bytes_per_second : host.to_host_bytes_per_second;
  if (own == 0 || alone.value <= 0 || other_busy.value <= 0) return alone;
  const int64_t left = std::min(own, host.both_bytes_per_second - other);  // never below 0, see CheckProfile
  // The part of `alone` that is done when the copy in the other direction ends.
  const Nanos done(static_cast<int64_t>(static_cast<__int128>(other_busy.value) * left / own));
  if (done >= alone) return Nanos(static_cast<int64_t>(static_cast<__int128>(alone.value) * own / left));
  return other_busy + alone - done;
}

Nanos CostModel::BesideCopies(Nanos work, Nanos window) const {
  const int32_t slowdown = profile_.host.op_slowdown_permille;
  const Nanos capacity = window * 1000 / slowdown;
  return work >= capacity ? window + work - capacity : work * slowdown / 1000;
}

Nanos CostModel::OptimizerTime(int64_t parameters, int64_t experts) const {
  if (measured_) {
    const __int128 nanos = static_cast<__int128>(parameters) * optimizer_per_mega_parameter_.value;
    return Nanos(static_cast<int64_t>(nanos >> 20));
  }
  const OptimizerTraffic traffic = OptimizerTrafficOf(shape_.dtype, shape_.gradient_dtype);
  const auto held = [&](int64_t of, int64_t holders) {
    const int64_t shares = layout_.zero == ZeroStage::kNone ? 1 : holders;
    return (of + shares - 1) / shares;
  };
  const int64_t states = held(parameters - experts, ShardRanks(layout_)) + held(experts, ExpertReplicas(layout_));
  return MemoryTime(profile_, Bytes(parameters * traffic.whole + states * traffic.share) +
                                  QuantizeWeightBytes(parameters, shape_.matmul_type));
}

Nanos CostModel::NormTime() const { return AllReduceTime(Bytes(2 * sizeof(double)), layout_.ranks(), {.link = world_link_}); }

Nanos CostModel::TiedEmbeddingTime() const {
  return AllReduceTime(Bytes(OpParameters(Op::kLogits, shape_) * shape_.gradient_bytes()), 2, {.link = boundary_links_.back()});
}

Nanos CostModel::OverlapCapacity(Nanos window) const {
  const int32_t left = std::max(0, 1000 - profile_.communication_compute_permille);
  return window * left / profile_.overlap_slowdown_permille;
}

Nanos CostModel::OverlappedTime(Nanos work, Nanos window) const {
  if (work.value == 0) return Nanos(0);
  const Nanos capacity = OverlapCapacity(window);
  if (work > capacity || capacity.value == 0) return window + work - capacity;
  const int32_t left = 1000 - profile_.communication_compute_permille;  // above 0, because capacity > 0
  return std::min(window, (work * profile_.overlap_slowdown_permille + Nanos(left - 1)) / left);
}

}  // namespace lynx
