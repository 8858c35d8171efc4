#include "planner/frameworks/step_estimate.h"

#include <algorithm>
#include <bit>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "planner/cost/op_cost.h"
#include "planner/frameworks/layer_repeat.h"
#include "planner/frameworks/memory_estimate.h"
#include "planner/frameworks/pieces.h"
#include "planner/problem/layout_schedule.h"
#include "planner/problem/shorter_steps.h"
#include "planner/schedule/schedule_order.h"
#include "planner/schedule/schedule_timeline.h"

namespace lynx {
namespace {

// Returns the time of the collectives that are repeated if these ops run again: those after proj, permute and fc2, and those
// that gather what the ops read.
Nanos RepeatedCollectives(const CostModel& costs, const LayerGraph& graph, const LayerRepeat& repeat) {
  Nanos sum;
  const OpSet ops = repeat.ops;
  for (const Tensor gathered : {Tensor::kLn1Full, Tensor::kLn2Full}) {
    const bool read = std::any_of(graph.ops().begin(), graph.ops().end(), [&](const OpInfo& info) {
      return Contains(ops, info.op) && std::find(info.reads.begin(), info.reads.end(), gathered) != info.reads.end();
    });
    if (read) sum += costs.GatherTime(LayerType::kTransformer, gathered);
  }
  const auto after = [&](Segment segment) { return costs.WindowTime(LayerType::kTransformer, segment, Pass::kForward); };
  if (Contains(ops, Op::kPermute)) sum += after(Segment::kNorm2);
  if (Contains(ops, Op::kProj) && !repeat.keeps_reduced) sum += after(Segment::kAttn);
  if (Contains(ops, Op::kFc2)) sum += after(Segment::kMlp);
  return sum;
}

// The ops of the layer that run again, with their times.
std::vector<std::pair<Op, Nanos>> RepeatedOps(const CostModel& costs, const LayerGraph& graph, const LayerRepeat& repeat) {
  std::vector<std::pair<Op, Nanos>> list;
  for (const OpInfo& info : graph.ops()) {
    if (info.layer_type != LayerType::kTransformer || !Contains(repeat.ops, info.op)) continue;
    const int32_t permille = info.op == Op::kQkv ? repeat.qkv_permille : info.op == Op::kFc1 ? repeat.fc1_permille : 1000;
    list.emplace_back(info.op, costs.OpTime(info.op, Pass::kForward) * permille / 1000);
  }
  return list;
}

// The copies of one chunk to the host and back run at the same time as one of its forward passes and one of its backward
// passes. Returns the time by which the copies lengthen these passes.
Nanos UnhiddenCopies(const HostLink& host, Bytes bytes, Nanos passes) {
  if (bytes.value == 0) return Nanos(0);
  const Nanos copies = std::max({TimeAtRate(bytes.value, host.to_host_bytes_per_second),
                                 TimeAtRate(bytes.value, host.from_host_bytes_per_second),
                                 TimeAtRate(bytes.value * 2, host.both_bytes_per_second)}) +
                       host.latency;
  // Copies slow down the passes that run at the same time.
  const Nanos slowed = std::min(copies, passes) * (host.op_slowdown_permille - 1000) / host.op_slowdown_permille;
  return slowed + std::max(Nanos(0), copies - passes - slowed);
}

ParallelLayout Numbered(ParallelLayout layout, RankOrder order) {
  layout.rank_order = order;
  return layout;
}

// The profile with the framework's attention kernel.
HardwareProfile WithKernels(HardwareProfile profile, const FrameworkTraits& traits) {
  for (const OpClass kind : {OpClass::kAttention, OpClass::kAttentionBackward}) {
    EfficiencyCurve& curve = profile.efficiency[static_cast<size_t>(kind)];
    if (curve.empty()) curve.push_back({.size = 1, .permille = 1000});
    for (EfficiencyPoint& point : curve) {
      point.permille = std::clamp(point.permille * traits.attention_permille / 1000, 1, 1000);
    }
  }
  return profile;
}

class Estimator {
 public:
  Estimator(const StepRequest& request, const HardwareProfile& profile)
      : request_(request), profile_(profile), shape_(ShapeOf(request.model, request.layout, request.micro_batch)),
        schedule_(ScheduleOf(request.layout, request.microbatches)), pipeline_(schedule_.shape),
        pieces_(request, shape_, pipeline_),
        costs_(WithKernels(profile, request.traits), request.model, Numbered(request.layout, request.traits.rank_order),
               request.micro_batch, request.ranks_per_node, request.traits.rows_once_per_node) {}

  absl::StatusOr<StepEstimate> Run();

 private:
  // Returns the time to transfer x from the previous stage to this stage.
  Nanos TransferTo(int32_t stage) const;
  StagePassTimes PassTimes(int32_t stage) const;
  // If the layer has experts, adds the kernels that the framework runs before and after the experts, and Lynx does not.
  LayerEstimate WithExpertKernels(LayerEstimate layer) const;
  // If the products of the layer's experts are narrow, makes each pass take at least the time that the host needs to start its
  // kernels.
  LayerEstimate BoundByHost(LayerEstimate layer) const;
  int32_t LargestRank() const;  // the rank with the most parameters
  void AddShardTransfers(int32_t piece, StagePassTimes& times) const;
  Nanos ExposedDataReduction(int64_t parameters, int64_t experts, Nanos last_backward) const;

  const StepRequest& request_;
  const HardwareProfile& profile_;
  const LayerShape shape_;
  const Schedule schedule_;
  const PipelineShape& pipeline_;
  const Pieces pieces_;
  const CostModel costs_;
  LayerEstimate layer_, dense_layer_;  // dense_layer_: a layer without experts, if other layers have experts
};

Nanos Estimator::TransferTo(int32_t stage) const {
  const int32_t previous = pipeline_.Previous(stage);
  if (previous == kNoStage) return Nanos(0);
  const int32_t from = pipeline_.RankOf(previous), to = pipeline_.RankOf(stage);
  if (from == to) return Nanos(0);
  // The ranks are neighbours on the ring: boundary i lies between ranks i and i + 1.
  const int32_t boundary = (from + 1) % pipeline_.ranks == to ? from : to;
  const Bytes bytes = TensorBytes(Tensor::kX, shape_);
  if (!request_.traits.scattered_transfers || shape_.sequence_parallel || shape_.tp == 1) {
    return costs_.BoundaryTime(boundary, bytes);
  }
  // The gather takes half the time of the layer's all-reduce of the same tensor.
  return costs_.BoundaryTime(boundary, bytes / shape_.tp) +
         costs_.WindowTime(LayerType::kTransformer, Segment::kAttn, Pass::kForward) / 2;
}

LayerEstimate Estimator::WithExpertKernels(LayerEstimate layer) const {
  if (!shape_.moe()) return layer;
  const FrameworkTraits& traits = request_.traits;
  const int64_t elements = shape_.expert_rows() * shape_.hidden;
  if (traits.sorts_rows && shape_.ep > 1 && shape_.own_experts() > 1) {
    const Bytes moved(elements * shape_.element_bytes() * 2);  // each of the two sorts of a pass reads and writes
    const Nanos sorts = (MemoryTime(profile_, moved) + profile_.op_overhead) * 2;
    layer.forward += sorts;
    layer.backward += sorts;
  }
  if (request_.expert_biases) {
    layer.forward += MemoryTime(profile_, Bytes(elements * traits.forward_bias_bytes));
    layer.backward += MemoryTime(profile_, Bytes(elements * traits.backward_bias_bytes));
  }
  return layer;
}

LayerEstimate Estimator::BoundByHost(LayerEstimate layer) const {
  if (!shape_.moe() || shape_.matmul_type == MatmulType::kModel) return layer;
  constexpr int32_t kProducts = 2;  // fc1 and fc2
  const Nanos pass(int64_t{request_.traits.expert_product_host_nanos} * kProducts * shape_.own_experts());
  layer.forward = std::max(layer.forward, pass);
  layer.backward = std::max(layer.backward, pass * 2);  // gradients of inputs and of weights
  return layer;
}

StagePassTimes Estimator::PassTimes(int32_t stage) const {
  const int32_t piece = pipeline_.PieceOf(stage);
  const int32_t layers = pieces_.LayersOf(piece);
  StagePassTimes times;
  const auto add = [&](const CostModel& costs, LayerType type, int32_t count, const LayerEstimate& layer) {
    times.forward += layer.forward * count;
    if (schedule_.splits_weight) {
      times.backward += (layer.recompute + costs.InputGradientTime(type)) * count;
      times.weight += costs.LayerTime(type, Pass::kWeight) * count;
    } else {
      times.backward += layer.backward * count;
    }
  };
  const auto add_end = [&](LayerType type) {
    const LayerEstimate end{.forward = costs_.LayerTime(type, Pass::kForward),
                            .backward = costs_.LayerTime(type, Pass::kBackward)};
    add(costs_, type, 1, end);
  };
  const int32_t dense = pieces_.DenseLayersOf(piece);
  add(costs_, LayerType::kTransformer, layers - dense, layer_);
  add(costs_.dense(), LayerType::kTransformer, dense, dense_layer_);
  if (pieces_.First(piece)) add_end(LayerType::kEmbedding);
  if (pieces_.Last(piece)) add_end(LayerType::kHead);
  Bytes stored = StoredLayerBytes(request_, shape_) * (layers - dense);
  if (dense > 0) {
    const LayerShape shape = DenseShape(shape_);
    stored += StoredLayerBytes(request_, shape) * dense;
  }
  const Bytes offloaded(stored.value / 1000 * request_.offload_permille);
  times.backward += UnhiddenCopies(profile_.host, offloaded, times.forward + times.backward + times.weight);
  AddShardTransfers(piece, times);
  const int32_t next = pipeline_.Next(stage);
  const Nanos ahead = next == kNoStage ? Nanos(0) : TransferTo(next);
  const bool one_part = request_.traits.blocks_without_virtual_stages && pipeline_.chunks == 1;
  if (request_.traits.blocking_transfers || one_part) {
    times.forward += TransferTo(stage);  // the stage receives x
    times.backward += ahead;             // the stage receives the gradient of its output
  } else {
    times.transfer = ahead;
  }
  return times;
}

// Sharded gradients are reduced with every microbatch, because no rank has room to accumulate them. Sharded weights are
// gathered before each pass.
void Estimator::AddShardTransfers(int32_t piece, StagePassTimes& times) const {
  const ZeroStage zero = request_.layout.zero;
  const int64_t parameters = pieces_.ParametersOf(piece);
  const Nanos weights = zero >= ZeroStage::kWeights ? costs_.WeightGatherTime(parameters, 0) : Nanos(0);
  const Nanos gradients = zero >= ZeroStage::kGradients ? costs_.DataReduceTime(parameters, 0) : Nanos(0);
  const auto add = [&](Nanos transfers, Nanos& pass, Nanos beside) {
    pass += request_.traits.overlaps_data_reduction ? std::max(Nanos(0), transfers - pass - beside) : transfers;
  };
  add(weights, times.forward, Nanos(0));
  add(weights + gradients, times.backward, times.weight);
}

int32_t Estimator::LargestRank() const {
  int32_t largest = 0;
  for (int32_t rank = 1; rank < pipeline_.ranks; ++rank) {
    if (pieces_.ParametersOfRank(rank) > pieces_.ParametersOfRank(largest)) largest = rank;
  }
  return largest;
}

// Returns the exposed time of the gradient reduction and of the weight gather at the end of the step. If the framework overlaps
// reductions, the gradients of a layer are reduced while the layers below it run backward for the last time. So at least the
// reduction of the bottom layer is exposed. If the framework hides the gather of the weights after the optimizer, the gather of
// one layer is exposed. ZeRO-2 and ZeRO-3 reduce gradients with every microbatch, and ZeRO-3 also gathers weights before each
// pass: these transfers count in the microbatch's time.
Nanos Estimator::ExposedDataReduction(int64_t parameters, int64_t experts, Nanos last_backward) const {
  const ZeroStage zero = request_.layout.zero;
  const int64_t of_layer = LayerParameters(LayerType::kTransformer, shape_), experts_of_layer = ExpertParameters(shape_);
  const bool one_layer = request_.traits.hides_weight_gather && of_layer < parameters;
  Nanos gather = zero >= ZeroStage::kWeights ? Nanos(0)
                 : one_layer                 ? costs_.WeightGatherTime(of_layer, experts_of_layer)
                                             : costs_.WeightGatherTime(parameters, experts);
  if (gather > Nanos(0)) gather += Nanos(int64_t{request_.traits.broadcast_nanos_per_replica} * ShardRanks(request_.layout));
  if (zero >= ZeroStage::kGradients) return gather;
  const Nanos whole = costs_.DataReduceTime(parameters, experts);
  if (!request_.traits.overlaps_data_reduction) return whole + gather;
  const Nanos one = costs_.DataReduceTime(of_layer, experts_of_layer);
  return std::max(std::min(one, whole), whole - last_backward) + gather;
}

absl::StatusOr<StepEstimate> Estimator::Run() {
  const ParallelLayout& layout = request_.layout;
  LYNX_ASSIGN_OR_RETURN(const SlotOrder order, OrderSlots(schedule_));
  layer_ = BoundByHost(WithExpertKernels(EstimateLayer(costs_, shape_, request_.recompute, request_.traits, request_.modules)));
  if (request_.model.moe.dense_layers > 0)
    dense_layer_ = EstimateLayer(costs_.dense(), DenseShape(shape_), request_.recompute, request_.traits, request_.modules);
  std::vector<StagePassTimes> passes;
  for (int32_t stage = 0; stage < pipeline_.stages(); ++stage) passes.push_back(PassTimes(stage));
  TimelineScratch scratch;
  StepEstimate estimate{.pipeline = StepTime(order, passes, scratch), .layer = layer_, .dense_layer = dense_layer_};
  const int32_t largest = LargestRank();
  const int64_t experts = pieces_.ExpertParametersOfRank(largest);
  estimate.parameters_per_rank = pieces_.ParametersOfRank(largest);
  estimate.data_reduction = ExposedDataReduction(estimate.parameters_per_rank, experts, passes.front().backward);
  if (request_.model.tied_embeddings && layout.pp > 1) estimate.tied_embedding = costs_.TiedEmbeddingTime();
  estimate.optimizer = costs_.OptimizerTime(estimate.parameters_per_rank, experts);
  estimate.step = estimate.pipeline + estimate.data_reduction + estimate.tied_embedding + estimate.optimizer;
  return estimate;
}

}  // namespace

LayerEstimate EstimateLayer(const CostModel& costs, const LayerShape& shape, RecomputeMode recompute,
                            const FrameworkTraits& traits, const std::vector<RecomputeModule>& modules) {
  const auto at_least = [&](Nanos device, OpSet ops, int32_t passes) {
    return std::max(device, Nanos(int64_t{traits.host_nanos_per_op} * passes * std::popcount(ops)));
  };
  const LayerGraph& graph = LayerGraph::Of(shape);
  const OpSet all = LayerOps(graph);
  const LayerRepeat repeat = LayerRepeatOf(shape, recompute, modules, traits);
  LayerEstimate layer{.forward = at_least(costs.LayerTime(LayerType::kTransformer, Pass::kForward), all, 1)};
  layer.repeated = RepeatedOps(costs, graph, repeat);
  Nanos ops;
  for (const auto& [op, time] : layer.repeated) ops += time;
  layer.repeated_collectives = repeat.whole ? layer.forward - ops : RepeatedCollectives(costs, graph, repeat);
  layer.recompute = repeat.whole ? layer.forward : at_least(ops + layer.repeated_collectives, repeat.ops, 1);
  // With sequence parallelism, recomputed ops gather their inputs from the shares of the ranks. Lynx keeps the gathered tensors
  // for the weight gradients. A framework with checkpointed functions drops them, so its weight gradients gather them again:
  // the empty set makes LayerTime count that.
  const OpSet gathered = traits.checkpoints_functions ? 0 : repeat.ops;
  // The backward pass of an op consists of two parts: the gradients of its input and of its weights.
  layer.backward = layer.recompute + at_least(costs.LayerTime(LayerType::kTransformer, Pass::kBackward, gathered), all, 2);
  return layer;
}

absl::StatusOr<StepEstimate> EstimateStep(const StepRequest& request, const HardwareProfile& profile) {
  LYNX_RETURN_IF_ERROR(CheckEstimated(request));
  const MatmulType type = request.model.matmul_type;
  if (type != MatmulType::kModel && (profile.NarrowFlopsPerSecond(type) == 0 || profile.gemm_tiles.units == 0)) {
    return absl::InvalidArgumentError(absl::StrCat("model.matmulType ", EnumName(type), ": the devices of kind \"",
                                                   profile.device_kind, "\" have no known rate of ",
                                                   type == MatmulType::kNvfp4 ? "4" : "8", "-bit products"));
  }
  const std::optional<ShorterSteps> shorter = ShorterStepsOf(request.layout, request.microbatches);
  if (!shorter) return Estimator(request, profile).Run();
  // In a long step the same slots repeat. So the time of a microbatch is the difference between two shorter steps.
  StepRequest part = request;
  part.microbatches = shorter->fewer;
  LYNX_ASSIGN_OR_RETURN(const StepEstimate fewer, Estimator(part, profile).Run());
  part.microbatches = shorter->more;
  LYNX_ASSIGN_OR_RETURN(StepEstimate estimate, Estimator(part, profile).Run());
  const Nanos pipeline = shorter->Extrapolated(request.microbatches, fewer.pipeline, estimate.pipeline);
  estimate.step += pipeline - estimate.pipeline;
  estimate.pipeline = pipeline;
  return estimate;
}

}  // namespace lynx
