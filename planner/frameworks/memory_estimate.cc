#include "planner/frameworks/memory_estimate.h"

#include <algorithm>
#include <optional>

#include "common/status.h"
#include "planner/frameworks/layer_repeat.h"
#include "planner/frameworks/pieces.h"
#include "planner/problem/layout_schedule.h"
#include "planner/problem/narrow_products.h"
#include "planner/problem/shorter_steps.h"
#include "planner/problem/stage_context.h"
#include "planner/schedule/schedule_memory.h"

namespace lynx {
namespace {

constexpr int64_t kMomentBytes = 8;  // two 32-bit numbers
constexpr int64_t kMasterBytes = 4;  // the 32-bit copy of a 16-bit weight
constexpr int64_t kHalfBytes = 2;
constexpr int64_t kGatheredLayers = 2;  // the one that computes, and the one that is being gathered

// Returns a number of microbatches that is large enough: with it, as many microbatches are in flight as in the whole step.
int32_t MicrobatchesInFlight(const StepRequest& request) {
  const std::optional<ShorterSteps> shorter = ShorterStepsOf(request.layout, request.microbatches);
  return shorter ? shorter->more : request.microbatches;
}

class MemoryEstimator {
 public:
  explicit MemoryEstimator(const StepRequest& request)
      : request_(request), shape_(ShapeOf(request.model, request.layout, request.micro_batch)), dense_(DenseShape(shape_)),
        schedule_(ScheduleOf(request.layout, MicrobatchesInFlight(request))), pieces_(request, shape_, schedule_.shape) {}

  std::vector<MemoryEstimate> Run() const;

 private:
  void AddStates(int32_t pipeline_rank, MemoryEstimate& rank) const;
  Bytes KeptBytes(int32_t piece) const;
  Bytes TransientBytes(int32_t pipeline_rank) const;
  Bytes LayerTransient(const LayerShape& shape) const;
  Bytes LossTransient() const;

  const StepRequest& request_;
  const LayerShape shape_;
  const LayerShape dense_;  // the shape of layers without experts, if other layers have experts
  const Schedule schedule_;
  const Pieces pieces_;
};

void MemoryEstimator::AddStates(int32_t pipeline_rank, MemoryEstimate& rank) const {
  const int64_t parameters = pieces_.ParametersOfRank(pipeline_rank);
  const ZeroStage zero = request_.layout.zero;
  const int64_t shards = ShardRanks(request_.layout);
  const auto divided = [&](int64_t bytes, bool shard) { return Bytes(shard ? (bytes + shards - 1) / shards : bytes); };
  const bool half = request_.model.dtype == DataType::kBfloat16;
  const bool shards_weights = zero >= ZeroStage::kWeights;
  rank.weights = divided(parameters * shape_.element_bytes(), shards_weights);
  const bool shards_gradients = zero >= ZeroStage::kGradients;
  const bool wide = shards_gradients && request_.traits.gathers_from_master;
  rank.gradients = divided(parameters * (wide ? kMasterBytes : shape_.gradient_bytes()), shards_gradients);
  const int64_t state_bytes = kMomentBytes + (half ? kMasterBytes : 0);
  const int64_t experts = pieces_.ExpertParametersOfRank(pipeline_rank);
  const int64_t holders = ExpertReplicas(request_.layout);
  rank.optimizer =
      divided((parameters - experts) * state_bytes, zero >= ZeroStage::kOptimizer) +
      Bytes(zero >= ZeroStage::kOptimizer ? (experts * state_bytes + holders - 1) / holders : experts * state_bytes);
  // Quantised copies of the weights, if products are narrow. Where weights are sharded, only gathered layers have these copies.
  rank.weights += NarrowWeights(shape_) * (shards_weights ? kGatheredLayers : pieces_.LayersOfRank(pipeline_rank));
  if (!shards_weights) {
    if (request_.only_narrow_weights) {
      rank.weights -= Bytes(WeightsOfNarrowProducts(shape_) * shape_.element_bytes() * pieces_.LayersOfRank(pipeline_rank));
    }
    return;
  }
  rank.weights += Bytes(kGatheredLayers * LayerParameters(LayerType::kTransformer, shape_) * shape_.element_bytes());
  // FSDP's outermost unit contains the embedding and the head. Its weights stay gathered during the whole step.
  for (int32_t stage = 0; request_.traits.gathers_from_master && stage < schedule_.shape.stages(); ++stage) {
    const int32_t piece = schedule_.shape.PieceOf(stage);
    if (schedule_.shape.RankOf(stage) != pipeline_rank) continue;
    int64_t ends = pieces_.First(piece) ? LayerParameters(LayerType::kEmbedding, shape_) : 0;
    if (pieces_.Last(piece)) ends += LayerParameters(LayerType::kHead, shape_);
    if (request_.model.tied_embeddings && pieces_.First(piece) && pieces_.Last(piece))
      ends -= OpParameters(Op::kLogits, shape_);
    rank.weights += Bytes(ends * shape_.element_bytes());
  }
  // If the shards have 32-bit weights, the weights are cast when they are gathered. Then there are no 16-bit shards.
  if (request_.traits.gathers_from_master && half) rank.weights -= divided(parameters * shape_.element_bytes(), true);
}

Bytes MemoryEstimator::KeptBytes(int32_t piece) const {
  const int32_t dense = pieces_.DenseLayersOf(piece);
  Bytes kept = StoredLayerBytes(request_, shape_) * (pieces_.LayersOf(piece) - dense);
  if (dense > 0) kept += StoredLayerBytes(request_, dense_) * dense;
  if (pieces_.First(piece) && shape_.dropout && shape_.stored_masks) kept += TensorBytes(Tensor::kEmbedMask, shape_);
  if (pieces_.Last(piece)) kept += TensorBytes(Tensor::kX, shape_) + TensorBytes(Tensor::kLnf, shape_);
  return kept;
}

// While a layer runs backward, the gradients of its widest tensor and of its input are both in memory. With recomputation, the
// tensors that the layer did not store are also in memory again.
Bytes MemoryEstimator::LayerTransient(const LayerShape& shape) const {
  const Bytes all = LayerRepeatOf(shape, RecomputeMode::kNone, {}, request_.traits).kept_bytes();
  const Bytes again = std::max(Bytes(0), all - StoredLayerBytes(request_, shape));
  Bytes widest = std::max(TensorBytes(Tensor::kFc1, shape), TensorBytes(Tensor::kQkv, shape));
  if (request_.model.attention == AttentionKernel::kUnfused) {
    widest = std::max(widest, TensorBytes(Tensor::kProbs, shape) * 2);
  }
  return again + widest + TensorBytes(Tensor::kGrad, shape);
}

// The memory of the logits: 32-bit numbers, which their gradient overwrites, and the 16-bit copy that some frameworks also
// keep.
Bytes MemoryEstimator::LossTransient() const {
  const Bytes logits = TensorBytes(Tensor::kLogits, shape_);
  const Bytes copies = logits / 4 * (request_.traits.half_logits_copies * kHalfBytes);
  return logits * request_.traits.float_logits_copies + copies;
}

Bytes MemoryEstimator::TransientBytes(int32_t pipeline_rank) const {
  Bytes most = LayerTransient(shape_);
  for (int32_t stage = 0; stage < schedule_.shape.stages(); ++stage) {
    const int32_t piece = schedule_.shape.PieceOf(stage);
    if (schedule_.shape.RankOf(stage) != pipeline_rank) continue;
    if (pieces_.DenseLayersOf(piece) > 0) most = std::max(most, LayerTransient(dense_));
    if (pieces_.Last(piece)) most = std::max(most, LossTransient());
  }
  return most;
}

std::vector<MemoryEstimate> MemoryEstimator::Run() const {
  std::vector<StageHeldBytes> stages;
  for (int32_t stage = 0; stage < schedule_.shape.stages(); ++stage) {
    const Bytes kept = KeptBytes(schedule_.shape.PieceOf(stage));
    stages.push_back({.activations = kept, .weights = kept});
  }
  const std::vector<Bytes> held = PeakHeldBytes(schedule_, stages);
  std::vector<MemoryEstimate> ranks(static_cast<size_t>(schedule_.shape.ranks));
  for (int32_t rank = 0; rank < schedule_.shape.ranks; ++rank) {
    MemoryEstimate& one = ranks[static_cast<size_t>(rank)];
    AddStates(rank, one);
    one.activations = held[static_cast<size_t>(rank)];
    one.transient = TransientBytes(rank);
    one.workspace = Bytes(request_.traits.workspace_bytes);
  }
  return ranks;
}

}  // namespace

Bytes StoredLayerBytes(const StepRequest& request, const LayerShape& shape) {
  return LayerRepeatOf(shape, request.recompute, request.modules, request.traits).kept_bytes();
}

absl::StatusOr<std::vector<MemoryEstimate>> EstimateMemory(const StepRequest& request) {
  LYNX_RETURN_IF_ERROR(CheckEstimated(request));
  return MemoryEstimator(request).Run();
}

}  // namespace lynx
