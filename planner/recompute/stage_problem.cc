#include "planner/recompute/stage_problem.h"

#include <algorithm>

#include "common/check.h"

namespace lynx {
namespace {

constexpr LayerType kLayer = LayerType::kTransformer;

ItemSet SetOf(const LayerGraph& graph, TensorSet tensors) {
  ItemSet set = 0;
  for (size_t i = 0; i < graph.recomputable().size(); ++i) {
    if (Contains(tensors, graph.recomputable()[i])) set |= static_cast<ItemSet>(1 << i);
  }
  return set;
}

Nanos BackwardWindow(const CostModel& costs, const LayerGraph& graph, LayerType type, Segment segment) {
  Nanos weight;
  for (Op op : graph.OpsOf(type, segment, Pass::kWeight)) weight += costs.OpTime(op, Pass::kWeight);
  const Nanos capacity = costs.OverlapCapacity(costs.WindowTime(type, segment, Pass::kBackward));
  return std::clamp(capacity - weight, Nanos(0), kMaxWork);
}

// Returns the time to recompute `tensor`: the time of the ops that produce it, of the collectives that gather the inputs of
// these ops, and of the collective between or after these ops.
Nanos CostOf(const CostModel& costs, const LayerGraph& graph, Tensor tensor) {
  const std::vector<Op>& producers = graph.ProducersOf(tensor);
  const Segment first = graph.InfoOf(producers.front()).forward_segment;
  Nanos cost;
  for (Op op : producers) {
    cost += costs.OpTime(op, Pass::kForward);
    for (Tensor read : graph.InfoOf(op).reads) {
      cost += costs.WindowTime(kLayer, graph.GatherSegmentOf(read), Pass::kForward);
    }
  }
  const bool sent = graph.CollectiveOf(kLayer, first, Pass::kForward).to == tensor;
  if (sent || graph.InfoOf(producers.back()).forward_segment != first) {
    cost += costs.WindowTime(kLayer, first, Pass::kForward);
  }
  return std::min(cost, kMaxWork);
}

// Sets the windows of passes that run side by side and fill each other's windows. If the transfers of a layer take longer than
// its computation, the difference is left for recomputation. It is divided among the backward windows in proportion to their
// lengths. The forward windows and `early` become 0.
void LeaveWovenWindows(const CostModel& costs, const LayerGraph& graph, RecomputeProblem& problem) {
  Nanos compute, transfers, windows;
  for (const Pass pass : {Pass::kForward, Pass::kBackward}) {
    compute += costs.ComputeOfLayer(kLayer, pass);
    transfers += costs.TransfersOfLayer(kLayer, pass);
  }
  const Nanos left = std::max(Nanos(0), costs.OverlapCapacity(transfers) - compute);
  const std::vector<Segment>& segments = graph.WindowsOf(Pass::kBackward);
  for (const Segment segment : segments) windows += costs.WindowTime(kLayer, segment, Pass::kBackward);
  std::fill(problem.forward.begin(), problem.forward.end(), Nanos(0));
  for (size_t i = 0; i < segments.size(); ++i) {
    const double share = windows.value == 0
                             ? 0
                             : static_cast<double>(costs.WindowTime(kLayer, segments[i], Pass::kBackward).value) /
                                   static_cast<double>(windows.value);
    problem.backward[i] = std::min(Nanos(static_cast<int64_t>(static_cast<double>(left.value) * share)), kMaxWork);
  }
  problem.early = Nanos(0);
}

// Number of layers whose offloaded tensors are on the device at the same time.
constexpr int32_t kLayersOnTheirWay = 4;

void AddOffloading(const CostModel& costs, const LayerGraph& graph, const LayerShape& shape, const StageTraits& traits,
                   RecomputeProblem& problem) {
  const int32_t resident = traits.layers >= kLayersOnTheirWay ? 1 : 2;
  if (traits.host_memory.value <= 0 || traits.in_flight <= resident) return;
  if (costs.OffloadTime(Bytes(1)) == kMaxTime) return;
  problem.host_budget = std::min(traits.host_memory, kMaxBudget);
  problem.resident = resident;
  for (size_t i = 0; i < problem.items.size(); ++i) {
    const Bytes bytes = StoredBytes(graph.recomputable()[i], shape);
    problem.items[i].copy_out = std::min(costs.OffloadTime(bytes), kMaxWork);
    problem.items[i].copy_in = std::min(costs.ReloadTime(bytes), kMaxWork);
  }
  problem.copy_out = std::min(costs.LayerTime(kLayer, Pass::kForward) * traits.layers, kMaxWork);
  problem.copy_in = std::min(costs.LayerTime(kLayer, Pass::kBackward) * traits.layers, kMaxWork);
}

}  // namespace

RecomputeProblem MakeStageProblem(const CostModel& costs, const LayerShape& shape, const StageTraits& traits) {
  const LayerGraph& graph = LayerGraph::Of(shape);
  RecomputeProblem problem{.layers = traits.layers, .in_flight = std::min(traits.in_flight, kMaxInFlight)};
  const std::vector<Segment>& segments = graph.SegmentsOf(kLayer, Pass::kBackward);
  LYNX_CHECK(segments.size() == graph.WindowsOf(Pass::kBackward).size() + 1);
  for (Tensor tensor : graph.recomputable()) {
    RecomputeItem item{.bytes = std::min(StoredBytes(tensor, shape), kMaxItem),
                       .cost = CostOf(costs, graph, tensor),
                       .inputs = SetOf(graph, graph.InputsOf(tensor)),
                       .collective = graph.RepeatsCollective(tensor)};
    for (size_t k = 0; k < segments.size(); ++k) {
      if (Contains(graph.ReadBy(segments[k]), tensor)) item.read_by |= static_cast<SegmentSet>(1 << k);
    }
    problem.items.push_back(item);
  }
  for (Segment segment : graph.WindowsOf(Pass::kForward)) {
    const Nanos capacity = costs.OverlapCapacity(costs.WindowTime(kLayer, segment, Pass::kForward));
    problem.forward.push_back(traits.in_flight > 1 ? std::min(capacity, kMaxWork) : Nanos(0));
  }
  for (Segment segment : graph.WindowsOf(Pass::kBackward)) {
    problem.backward.push_back(BackwardWindow(costs, graph, kLayer, segment));
  }
  if (traits.in_flight > 1) problem.stall = std::min(traits.stall, kMaxWork);
  if (traits.below_head) problem.early = BackwardWindow(costs, graph, LayerType::kHead, Segment::kHead);
  if (costs.woven()) LeaveWovenWindows(costs, graph, problem);
  AddOffloading(costs, graph, shape, traits, problem);
  return problem;
}

RecomputeProblem WithoutOffloading(RecomputeProblem problem) {
  const RecomputeProblem none;
  problem.host_budget = none.host_budget;
  problem.resident = none.resident;
  problem.copy_out = problem.copy_in = Nanos(0);
  for (RecomputeItem& item : problem.items) item.copy_out = item.copy_in = Nanos(0);
  return problem;
}

RecomputeProblem WithoutWindows(RecomputeProblem problem) {
  std::fill(problem.forward.begin(), problem.forward.end(), Nanos(0));
  std::fill(problem.backward.begin(), problem.backward.end(), Nanos(0));
  problem.stall = problem.early = Nanos(0);
  return problem;
}

}  // namespace lynx
