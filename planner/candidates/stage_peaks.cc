#include "planner/candidates/stage_peaks.h"

#include <algorithm>

#include "common/check.h"
#include "planner/lower/lower.h"
#include "planner/problem/layer_graph.h"
#include "planner/program/memory_model.h"

namespace lynx {
namespace {

constexpr int32_t kFewInFlight = 2;
// With offloading, the memory of a rank repeats only from four microbatches in flight on. With fewer microbatches, the tensors
// that are being copied belong to different microbatches.
constexpr int32_t kFewWithCopies = 4;
// If a step has at least this many microbatches in addition to those in flight, more microbatches do not change the peak.
constexpr int32_t kFurther = 2;

}  // namespace

bool StoresAlike(const StagePolicy& policy) { return policy.input_recomputed.empty(); }

bool Offloads(const StagePolicy& policy) {
  return std::any_of(policy.layers.begin(), policy.layers.end(), [](const LayerPolicy& layer) {
    return std::find(layer.begin(), layer.end(), Placement::kOffload) != layer.end();
  });
}

int32_t RepeatsFrom(const StagePolicy& policy) { return Offloads(policy) ? kFewWithCopies : kFewInFlight; }

ParallelLayout LayerLayout(const ParallelLayout& layout) {
  ParallelLayout alone{.tp = layout.tp, .cp = layout.cp, .ep = layout.ep, .sequence_parallel = layout.sequence_parallel};
  const int32_t replica = layout.tp * layout.cp;
  alone.dp = (layout.ep + replica - 1) / replica;  // enough replicas to form one expert group
  if (layout.zero < ZeroStage::kGradients) return alone;
  alone.dp = ShardRanks(layout) / layout.cp;
  alone.zero = layout.zero;
  return alone;
}

StagePeaks::StagePeaks(const ModelSpec& model, const ParallelLayout& layout, int32_t micro_batch)
    : model_(model), layout_(LayerLayout(layout)), micro_batch_(micro_batch), shape_(ShapeOf(model, layout_, micro_batch)) {
  model_.moe.dense_layers = 0;
}

Bytes StagePeaks::StoredLayers(const StagePolicy& policy) const {
  const LayerGraph& graph = LayerGraph::Of(shape_);
  const Bytes input = Padded(TensorBytes(Tensor::kX, shape_));
  Bytes sum;
  for (const LayerPolicy& layer : policy.layers) {
    sum += input;
    for (size_t i = 0; i < graph.recomputable().size(); ++i) {
      if (layer[i] == Placement::kStore) sum += StoredBytes(graph.recomputable()[i], shape_);
    }
  }
  return sum;
}

// Returns the context of a rank with the given ends of the model, in the shortest pipeline in which the rank has `in_flight`
// microbatches in flight. `more`: number of microbatches in addition to those in flight.
StageContext StagePeaks::ProbeContext(SliceEnds ends, int32_t layers, int32_t in_flight, int32_t more) const {
  const int32_t rank = ends.embedding ? 0 : 1;
  ParallelLayout layout = layout_;
  layout.pp = ends.head ? rank + 1 : std::max(rank + 2, rank + in_flight);
  return {.model = model_,
          .layout = layout,
          .micro_batch = micro_batch_,
          .microbatches = in_flight + more,
          .pipeline_rank = rank,
          .slices = {SliceOf(layout, rank, 0, layers)}};
}

Bytes StagePeaks::Probe(SliceEnds ends, const StagePolicy& policy, int32_t in_flight, int32_t more) const {
  const StageContext context = ProbeContext(ends, static_cast<int32_t>(policy.layers.size()), in_flight, more);
  const absl::StatusOr<MemoryPlan> memory = FoldLiveness(LowerStage(context, policy), context);
  LYNX_CHECK(memory.ok());
  return memory->live_peak;
}

// The program has one microbatch, so it has one B and one W. The result is the bytes that live between the last action of B and
// the first action of W.
Bytes StagePeaks::StoredForWeights(SliceEnds ends, const StagePolicy& policy) {
  auto [it, inserted] = for_weights_.try_emplace({ends, policy.layers});
  if (!inserted) return it->second;
  StageContext context = ProbeContext(ends, static_cast<int32_t>(policy.layers.size()), 1, 0);
  context.layout.schedule = ScheduleKind::kZeroBubble;
  const Program program = LowerStage(context, policy);
  const absl::StatusOr<MemoryPlan> memory = FoldLiveness(program, context);
  LYNX_CHECK(memory.ok());
  const auto first =
      std::find_if(program.begin(), program.end(), [](const Action& action) { return action.kind == ActionKind::kWeight; });
  const auto at = static_cast<int32_t>(first - program.begin());
  for (const BufferInstance& buffer : memory->buffers) {
    if (buffer.first < at && buffer.last >= at) it->second += buffer.bytes;
  }
  return it->second;
}

Bytes StagePeaks::StoredOf(SliceEnds ends, const StagePolicy& policy) {
  auto [it, inserted] = beside_layers_.try_emplace(ends);
  if (inserted && !ends.head) {
    const StagePolicy one = NamedPolicy(LayerGraph::Of(shape_), RecomputeMode::kNone, 1);
    it->second = Probe(ends, one, kFewInFlight + 1, kFurther) - Probe(ends, one, kFewInFlight, kFurther) - StoredLayers(one);
  }
  return StoredLayers(policy) + it->second;
}

Bytes StagePeaks::Peak(SliceEnds ends, const StagePolicy& policy, int32_t in_flight, int32_t microbatches) {
  LYNX_CHECK(in_flight >= 1 && in_flight <= microbatches && (!ends.head || in_flight == 1));
  LYNX_CHECK(StoresAlike(policy));
  const int32_t few = std::min(in_flight, RepeatsFrom(policy));
  const int32_t more = std::min(microbatches - in_flight, kFurther);
  auto [it, inserted] = peaks_.try_emplace({ends, few, more, policy.layers});
  if (inserted) it->second = Probe(ends, policy, few, more);
  return in_flight == few ? it->second : it->second + StoredOf(ends, policy) * (in_flight - few);
}

}  // namespace lynx
