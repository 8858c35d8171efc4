// CostModel computes how long each action takes, from a HardwareProfile. If this shape, or the shape that differs only in
// sequence parallelism, was measured, op times come from the measurement. Otherwise they come from the roofline of
// planner/cost/op_cost.h. Collectives take the slowest link that the group needs, by rings, or on GPUs by trees if these are
// faster (planner/cost/group_path.h). Times are integer nanoseconds. Pure; immutable after construction; thread-safe.
//
// Model states. With 32-bit weights, the optimizer is that of Lynx's engine: it reads the gradient twice (norm, update), and
// reads and writes the weight and both moments: 32 bytes per parameter. With 16-bit weights it is Megatron-LM's optimizer. For
// all parameters of a rank, it sets gradients to zero (4 bytes written) and divides them by the number of replicas (8): 12
// bytes. For the parameters whose states the rank holds, it unscales gradients and searches them for infinities (8), sums them
// for the norm (4) and clips them (8). AdamW reads gradient, weight and moments and writes the last three (28), and the weight
// is rounded to 16 bits (6). Together this is 54 bytes. If gradients are summed in 16 bits (ModelSpec::gradient_dtype),
// the first part is half of that, and the second part begins with a copy of the gradients in 32 bits (6 more). With narrow
// products, weights are quantised once a step (QuantizeWeightBytes), which is counted for all parameters of a rank. With ZeRO
// (Rajbhandari et al. 2020), replicas reduce-scatter gradients, share the second part of the work, and all-gather weights.
//
// Context parallelism. A rank gathers the keys and values of the other ranks before attention. The backward pass gathers them
// again and reduce-scatters their gradients (ContextGatherBytes each). This time is never hidden. It is added to the time of
// the first op that reads the keys and values, whether that op's own time was measured or computed.
#ifndef LYNX_PLANNER_COST_COST_MODEL_H_
#define LYNX_PLANNER_COST_COST_MODEL_H_

#include <array>
#include <memory>
#include <vector>

#include "common/units.h"
#include "planner/cost/group_path.h"
#include "planner/cost/hardware_profile.h"
#include "planner/problem/layout.h"
#include "planner/problem/stage_context.h"
#include "planner/program/action.h"

namespace lynx {

class CostModel {
 public:
  // `ranks_per_node` is the number of consecutive ranks that share a node (at least 1). A group inside one node uses the link
  // inside the node, or the inner link that joins the whole group. `rows_once_per_node`: a token's row crosses the network once
  // for each node on which it has experts, and not once for each of its experts (DeepEP). Only on GPUs.
  CostModel(const HardwareProfile& profile, const ModelSpec& model, const ParallelLayout& layout, int32_t micro_batch,
            int32_t ranks_per_node, bool rows_once_per_node = false);

  // The model of one layer. It is another one than this only for the layers without experts of a model that has experts in
  // other layers (MoeSpec::dense_layers). Functions below that do not take an action are about the layers with experts, the
  // embedding and the head.
  const CostModel& OfLayer(int32_t layer) const {
    return dense_ != nullptr && layer >= 0 && layer < dense_layers_ ? *dense_ : *this;
  }
  // The model of the layers without experts; *this if all layers are alike.
  const CostModel& dense() const { return dense_ != nullptr ? *dense_ : *this; }

  Nanos OpTime(Op op, Pass pass) const;
  Nanos OpSetTime(OpSet ops) const;  // sum of the times of the ops' forward passes
  Nanos SegmentTime(LayerType type, Segment segment, Pass pass) const;

  // Time of a compute action (F, B, W, R, OPT) on the compute stream while no transfer is in flight. 0 for starts and waits.
  Nanos ComputeTime(const Action& action, const StageContext& context) const;
  // Time of the transfer that a start action starts, from the moment when all members have started it. 0 for other actions.
  Nanos TransferTime(const Action& start) const;
  // Length of the window that the collective at the end of a forward or backward segment opens; 0 if there is no
  // collective.
  Nanos WindowTime(LayerType type, Segment segment, Pass pass) const;
  // Time of the forward collective that gathers the tensor from the ranks' shares (sequence parallelism).
  Nanos GatherTime(LayerType type, Tensor gathered) const;
  // Time on the compute stream of one layer's forward pass, or of its backward pass with the weight gradients. Only weight
  // gradients run in the windows of the backward pass. If ranks hold only shares of tensors that weight gradients read, these
  // tensors are gathered while the input gradients run. kWeight: time of the weight gradients alone, without transfers.
  // `recomputed` are the ops that are recomputed before the backward pass: their own time is not included, and the gathered
  // tensors that they read are gathered already.
  Nanos LayerTime(LayerType type, Pass pass, OpSet recomputed = 0) const;
  // Time of one layer's backward pass without the weight gradients. No work runs in its windows.
  Nanos InputGradientTime(LayerType type) const;
  // True if passes run side by side (ParallelLayout::weave). Then other passes fill a layer's windows. So the two functions
  // above, except for kWeight, return the longer of two times: the layer's transfers, and its computation, which the transfers
  // slow down.
  bool woven() const { return layout_.weave != WeaveMode::kOff; }
  // ComputeOfLayer: time of one layer's computation without its collectives; for the backward pass, the weight gradients are
  // included. TransfersOfLayer: time of the layer's collectives in the tensor-parallel group, without the computation. For the
  // backward pass, it includes the gathers of the tensors that the weight gradients read, but not of those that the
  // `recomputed` ops read, because these have been gathered already. Collectives of experts are transfers of the layer, too.
  Nanos ComputeOfLayer(LayerType type, Pass pass) const;
  Nanos TransfersOfLayer(LayerType type, Pass pass, OpSet recomputed = 0) const;
  // Forward: time from the end of a pass on a pipeline rank until its result is on the next rank; if ranks hold several parts
  // of the model, the next rank of the last rank is the first rank. Backward: time until the gradient is on the previous rank.
  // `bytes` are per rank.
  Nanos BoundaryTime(int32_t pipeline_rank, Bytes bytes) const;
  // Time to sum the gradients of `parameters` parameters of a rank over its replicas. This is an all-reduce, or with ZeRO a
  // reduce-scatter. If only groups of replicas shard the states, it is a reduce-scatter in the group, and then an all-reduce of
  // the rank's share over the groups. `experts` of the parameters belong to experts; they are summed apart, over the ranks that
  // hold the same experts.
  Nanos DataReduceTime(int64_t parameters, int64_t experts = 0) const;
  // Time to gather the weights of `parameters` parameters of a rank from the replicas that updated them, with ZeRO. Without
  // ZeRO: 0. `experts`: as above.
  Nanos WeightGatherTime(int64_t parameters, int64_t experts = 0) const;
  Nanos OffloadTime(Bytes bytes) const;  // time to copy to the host while nothing is copied back; kMaxTime if the device cannot
                                         // offload
  Nanos ReloadTime(Bytes bytes) const;
  // Time of a copy if another copy runs in the other direction during the first `other_busy` nanoseconds. The copy takes the
  // time `alone` if no other copy runs. The copy that began earlier keeps its own rate. The later copy gets its own rate or,
  // if that is less, what the first copy leaves of the host link's common rate.
  Nanos CopyTime(Nanos alone, bool to_host, Nanos other_busy) const;
  // Time that `work` takes if copies to or from the host run during the first `window` nanoseconds.
  Nanos BesideCopies(Nanos work, Nanos window) const;
  // Time of the optimizer on a rank with `parameters` parameters, of which `experts` belong to experts.
  Nanos OptimizerTime(int64_t parameters, int64_t experts = 0) const;
  // Time to sum two numbers over all ranks: the squared gradient norm and the loss.
  Nanos NormTime() const;
  // Time of the all-reduce between the first and the last stage, which both hold the tied embedding.
  Nanos TiedEmbeddingTime() const;

  // How much computation is done while a transfer of length `window` is in flight. The result is the time that this computation
  // takes without a transfer. The core spends communication_compute_permille of `window` on the transfer. In the rest of the
  // window, compute takes overlap_slowdown_permille thousandths of its normal time.
  Nanos OverlapCapacity(Nanos window) const;
  // Time that `work` takes if a transfer is in flight during the first `window` nanoseconds.
  Nanos OverlappedTime(Nanos work, Nanos window) const;

  const HostLink& host_link() const { return profile_.host; }
  int32_t overlap_slowdown_permille() const { return profile_.overlap_slowdown_permille; }
  int32_t communication_compute_permille() const { return profile_.communication_compute_permille; }
  // true if op times were measured for this shape, or for one that differs only in sequence parallelism or the skew of experts
  bool measured() const { return measured_; }

 private:
  // A group whose members sum or gather. kGradient: the ranks that sum the gradients of the same weights. kShard: a part of
  // such a group, whose ranks shard states among themselves (ParallelLayout::zero_group). kAcross: one rank of each kShard
  // group; these ranks hold the same share.
  enum class GroupKind : uint8_t { kTensor, kContext, kGradient, kShard, kAcross };
  // The ranks of the group whose first member is given, in ascending order.
  std::vector<int32_t> MembersOf(const RankCoordinates& first, GroupKind kind) const;
  // The path of the slowest group of this kind, if the groups use links up to `level`.
  GroupPath PathOf(size_t level, GroupKind kind) const;
  void ComputeSegmentTimes();
  Nanos FindWindowTime(LayerType type, Segment segment, Pass pass) const;
  void AddContextTransfers();
  void ChooseLinks();
  void ChooseLinksOfShards();
  void ChooseLinksOfExperts();
  // The path of the slowest of the groups.
  GroupPath PathOf(const std::vector<std::vector<int32_t>>& groups) const;
  std::vector<Tensor> GatheredForWeights(LayerType type, Segment segment) const;
  bool AnyReads(OpSet ops, Tensor tensor) const;

  HardwareProfile profile_;  // the profile without its measured times
  ParallelLayout layout_;
  LayerShape shape_;
  const LayerGraph& graph_;
  bool measured_ = false;
  std::array<OpTimes, kOpCount> times_{};
  Nanos optimizer_per_mega_parameter_;      // measured; used only if measured_ is true; otherwise the time follows from memory
                                            // traffic
  std::shared_ptr<const CostModel> dense_;  // the costs of the first dense_layers_ layers; nullptr: all layers are alike
  int32_t dense_layers_ = 0;
  // The sum of the op times of a segment, and WindowTime. The indices are layer type, segment and pass.
  std::array<std::array<std::array<Nanos, 3>, kSegmentCount>, kLayerTypeCount> segment_times_{}, window_times_{};
  // The number of parameters of a layer on one rank. of_all_ranks_: without those of experts, for each layer type.
  // experts_of_layer_: only those of experts.
  std::array<int64_t, kLayerTypeCount> of_all_ranks_{};
  int64_t experts_of_layer_ = 0;
  RankPlaces places_;
  GroupPath tensor_path_, context_path_, data_path_;  // each is the path of the slowest group of its kind
  GroupPath shard_path_, across_path_;                // the first is data_path_ if states are sharded over all replicas
  GroupPath expert_path_, expert_data_path_;          // the paths of the slowest expert group and expert data group
  double sent_between_nodes_ = 1;         // share of the rows for other nodes that crosses the network; see rows_once_per_node
  LinkCost world_link_;                   // the link over which all ranks sum numbers on their hosts, in a ring, also for GPUs
  std::vector<LinkCost> boundary_links_;  // [i] joins stages i and i + 1; the last one joins the last and the first stage
};

}  // namespace lynx

#endif  // LYNX_PLANNER_COST_COST_MODEL_H_
