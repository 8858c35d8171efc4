// CostModel: how long each action takes, from a HardwareProfile: measured op times where the shape, or the one that differs
// in sequence parallelism alone, was measured; elsewhere the roofline of planner/cost/op_cost.h; ring collectives over the
// slowest link that the group needs. Integer nanoseconds. Pure; immutable after construction; thread-safe.
//
// Model states. With 32-bit weights the optimizer reads and writes what Lynx's engine does: the gradient twice (norm,
// update), weight and both moments: 32 bytes a parameter. With 16-bit weights it is Megatron-LM's: on every rank
// gradients are zeroed (4 bytes written) and divided by the replicas (8), 12 bytes; and for the parameters whose states
// a rank holds they are unscaled and searched for infinities (8), summed for the norm (4), clipped (8), AdamW reads
// gradient, weight and moments and writes the last three (28), and the weight is rounded to 16 bits (6): 54 bytes.
// Gradients are summed in 32 bits. ZeRO (Rajbhandari et al. 2020): replicas reduce-scatter gradients, share the second
// part, and all-gather weights.
//
// Context parallelism: a rank gathers the keys and values of the others before attention, and in backward gathers them
// again and reduce-scatters their gradients (ContextGatherBytes each); counted, unhidden, with the op that reads them
// first, whether its own time was measured or not.
#ifndef LYNX_PLANNER_COST_COST_MODEL_H_
#define LYNX_PLANNER_COST_COST_MODEL_H_

#include <array>
#include <vector>

#include "common/units.h"
#include "planner/cost/hardware_profile.h"
#include "planner/problem/layout.h"
#include "planner/problem/stage_context.h"
#include "planner/program/action.h"

namespace lynx {

// Numbering of ranks, innermost first. kStagesInside is Lynx's (planner/problem/layout.h): tensor, context, stage, data.
// Megatron-LM has the replicas of a stage side by side: tensor, context, data, stage.
enum class RankOrder : uint8_t { kStagesInside, kReplicasInside };

class CostModel {
 public:
  // `ranks_per_node`: consecutive ranks that share a node (>= 1); a group inside one node uses the intra-node link, or the
  // inner link that joins all of it.
  CostModel(const HardwareProfile& profile, const ModelSpec& model, const ParallelLayout& layout, int32_t micro_batch,
            int32_t ranks_per_node, RankOrder order = RankOrder::kStagesInside);

  Nanos OpTime(Op op, Pass pass) const;
  Nanos OpSetTime(OpSet ops) const;  // their forward passes, one after another
  Nanos SegmentTime(LayerType type, Segment segment, Pass pass) const;
  // Ring all-reduce over n ranks: 2(n-1) steps of bytes/n each (Patarasuk and Yuan 2009). 0 for n = 1.
  Nanos AllReduce(Bytes bytes, int32_t n, const LinkCost& link) const;
  Nanos AllGather(Bytes bytes, int32_t n, const LinkCost& link) const;  // bytes: of the gathered result

  // Compute actions (F, B, W, R, OPT): time on the compute stream, alone. Starts and waits: 0.
  Nanos ComputeTime(const Action& action, const StageContext& context) const;
  // Start actions: time of the transfer once all members have started. Others: 0.
  Nanos TransferTime(const Action& start) const;
  // Length of the window that the collective at the end of a forward or backward segment opens; 0 if there is none.
  Nanos WindowTime(LayerType type, Segment segment, Pass pass) const;
  // Of the forward collective that makes the gathered tensor of its share (sequence parallelism).
  Nanos GatherTime(LayerType type, Tensor gathered) const;
  // Time on the compute stream of one layer's forward, or of its backward with the weight gradients, when nothing but
  // weight gradients runs in its windows, and what they read of shares is gathered behind the input gradients.
  // kWeight: of the weight gradients alone, with nothing beside them. `recomputed`: ops whose recomputation, counted
  // elsewhere, has gathered what it reads.
  Nanos LayerTime(LayerType type, Pass pass, OpSet recomputed = 0) const;
  // kBackward without the weight gradients, and nothing in its windows.
  Nanos InputGradientTime(LayerType type) const;
  // Time from the end of a pass on a pipeline rank until its result is on the next one (forward; after the last comes the
  // first, where a rank holds several parts of the model) or, backward, until the gradient is on the one before. `bytes`
  // a rank.
  Nanos BoundaryTime(int32_t pipeline_rank, Bytes bytes) const;
  // Sum of the gradients of so many of a rank's parameters over its replicas: an all-reduce, with ZeRO a reduce-scatter.
  Nanos DataReduceTime(int64_t parameters) const;
  // With ZeRO: gathers so many of a rank's weights from the replicas that have updated them; else 0.
  Nanos WeightGatherTime(int64_t parameters) const;
  Nanos OffloadTime(Bytes bytes) const;  // to the host, with nothing coming back; kMaxTime if the device cannot
  Nanos ReloadTime(Bytes bytes) const;
  // Of a copy that takes `alone` by itself, while the other direction is busy for the first `other_busy` of it: both
  // together have the host link's common rate, of which the earlier copy keeps its own.
  Nanos CopyTime(Nanos alone, bool to_host, Nanos other_busy) const;
  // Time that `work` takes when copies to or from the host run beside the first `window` of it.
  Nanos BesideCopies(Nanos work, Nanos window) const;
  Nanos OptimizerTime(int64_t parameters) const;  // of so many of a rank's parameters
  // Two numbers, the squared gradient norm and the loss, summed over all ranks.
  Nanos NormTime() const;
  // All-reduce between the first and the last stage, which both hold the tied embedding.
  Nanos TiedEmbeddingTime() const;

  // How much computation (time as it takes alone) goes on while a transfer of length `window` is in flight: the core
  // gives communication_compute_permille of that time to the transfer, and the rest is slowed by
  // overlap_slowdown_permille.
  Nanos OverlapCapacity(Nanos window) const;
  // Time that `work` takes when a transfer is in flight for the first `window` of it.
  Nanos OverlappedTime(Nanos work, Nanos window) const;

  const HostLink& host_link() const { return profile_.host; }
  int32_t overlap_slowdown_permille() const { return profile_.overlap_slowdown_permille; }
  int32_t communication_compute_permille() const { return profile_.communication_compute_permille; }
  bool measured() const { return measured_; }  // the shape's op times, or its twin's, were measured

 private:
  // Which link a group uses whose ranks are first, .., last: an inner level from 0, then the node, then between nodes.
  size_t LinkLevelOf(int32_t first, int32_t last) const;
  const LinkCost& LinkAt(size_t level) const;
  int32_t RankAt(const RankCoordinates& at) const;
  void ComputeSegmentTimes();
  void AddContextTransfers();
  void ChooseLinks();
  std::vector<Tensor> GatheredForWeights(LayerType type, Segment segment) const;
  bool AnyReads(OpSet ops, Tensor tensor) const;

  HardwareProfile profile_;  // without `measured`
  ParallelLayout layout_;
  LayerShape shape_;
  const LayerGraph& graph_;
  int32_t ranks_per_node_;
  RankOrder order_;
  bool measured_ = false;
  std::array<OpTimes, kOpCount> times_{};
  Nanos optimizer_per_mega_parameter_;  // measured; else computed from traffic
  // Sums over the ops of a segment, by layer type, segment and pass.
  std::array<std::array<std::array<Nanos, 3>, kSegmentCount>, kLayerTypeCount> segment_times_{};
  // The slowest link that a member of the group uses.
  LinkCost tensor_link_, context_link_, data_link_, world_link_;
  std::vector<LinkCost> boundary_links_;  // between stage i and i + 1; the last one's with the first
};

}  // namespace lynx

#endif  // LYNX_PLANNER_COST_COST_MODEL_H_
