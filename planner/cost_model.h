// CostModel: how long each action takes, from a HardwareProfile: measured op times where the shape was measured, a
// roofline max(flops / rate, traffic / bandwidth) + overhead elsewhere; ring collectives. Integer nanoseconds. Pure;
// immutable after construction; thread-safe.
#ifndef LYNX_PLANNER_COST_MODEL_H_
#define LYNX_PLANNER_COST_MODEL_H_

#include <array>
#include <vector>

#include "common/units.h"
#include "planner/action.h"
#include "planner/hardware_profile.h"
#include "planner/layout.h"
#include "planner/stage_context.h"

namespace lynx {

class CostModel {
 public:
  // `ranks_per_node`: consecutive ranks that share a node (>= 1); a group inside one node uses the intra-node link.
  CostModel(const HardwareProfile& profile, const ModelSpec& model, const ParallelLayout& layout, int32_t micro_batch,
            int32_t ranks_per_node);

  Nanos OpTime(Op op, Pass pass) const;
  // Ring all-reduce over n ranks: 2(n-1) steps of bytes/n each (Patarasuk and Yuan 2009). 0 for n = 1.
  Nanos AllReduce(Bytes bytes, int32_t n, const LinkCost& link) const;
  Nanos AllGather(Bytes bytes, int32_t n, const LinkCost& link) const;  // bytes: of the gathered result

  // Compute actions (F, B, W, R, OPT): time on the compute stream, alone. Starts and waits: 0.
  Nanos ComputeTime(const Action& action, const StageContext& context) const;
  // Start actions: time of the transfer once all members have started. Others: 0.
  Nanos TransferTime(const Action& start, const StageContext& context) const;
  // Length of the window that the collective at the end of a forward or backward segment opens; 0 if there is none.
  Nanos WindowTime(LayerType type, Segment segment, Pass pass) const;
  // Time on the compute stream of one layer's forward, or of its backward with the weight gradients, when nothing but
  // weight gradients runs in its windows.
  Nanos LayerTime(LayerType type, Pass pass) const;

  // How much computation (time as it takes alone) goes on while a transfer of length `window` is in flight: the core
  // gives communication_compute_permille of that time to the transfer, and the rest is slowed by
  // overlap_slowdown_permille.
  Nanos OverlapCapacity(Nanos window) const;
  // Time that `work` takes when a transfer is in flight for the first `window` of it.
  Nanos OverlappedTime(Nanos work, Nanos window) const;

  int32_t overlap_slowdown_permille() const { return profile_.overlap_slowdown_permille; }
  int32_t communication_compute_permille() const { return profile_.communication_compute_permille; }
  bool measured() const { return measured_; }  // the shape's op times were measured, not computed

 private:
  Nanos OpSetTime(OpSet ops) const;
  Nanos SegmentTime(LayerType type, Segment segment, Pass pass) const;
  bool SameNode(int32_t first_rank, int32_t stride, int32_t count) const;
  const LinkCost& Link(bool same_node) const { return same_node ? profile_.intra_node : profile_.inter_node; }
  void ComputeSegmentTimes();
  void ChooseLinks();

  HardwareProfile profile_;  // without `measured`
  ParallelLayout layout_;
  LayerShape shape_;
  const LayerGraph& graph_;
  int32_t ranks_per_node_;
  bool measured_ = false;
  std::array<OpTimes, kOpCount> times_{};
  Nanos optimizer_per_mega_parameter_;
  // Sums over the ops of a segment, by layer type, segment and pass.
  std::array<std::array<std::array<Nanos, 3>, kSegmentCount>, kLayerTypeCount> segment_times_{};
  // The slowest link that a member of the group uses.
  LinkCost tensor_link_, data_link_, world_link_;
  std::vector<LinkCost> boundary_links_;  // between stage i and i + 1
};

}  // namespace lynx

#endif  // LYNX_PLANNER_COST_MODEL_H_
