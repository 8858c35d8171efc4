// Computes how many bytes of each kind a stage's memory holds during the step. See timeline.h.
#include <algorithm>
#include <numeric>
#include <utility>

#include "common/check.h"
#include "common/status.h"
#include "planner/program/memory_model.h"
#include "planner/report/timeline.h"

namespace lynx {
namespace {

// Id and name. The index is the MemoryKind.
constexpr std::array<std::pair<const char*, const char*>, kMemoryKindCount> kMemoryKinds = {{
    {"weights", "weights"},
    {"gradients", "weight gradients"},
    {"states", "optimizer states"},
    {"stored", "stored activations"},
    {"recomputed", "recomputed activations"},
    {"agradients", "activation gradients"},
    {"workspace", "workspace"},
    {"packing", "packing"},
}};

// Tensors that an input-gradient pass uses as gradients.
TensorSet GradientTensors(const LayerGraph& graph) {
  TensorSet gradients = 0;
  for (const OpInfo& op : graph.ops()) {
    for (const TensorUse& use : op.gradients) gradients |= Bit(use.tensor);
  }
  return gradients;
}

// `last` is the last action that uses a buffer. True if this action is a copy to the host or a computation other than a
// forward.
bool KeptForBackward(const Action& last) {
  const ActionInfo& info = InfoOf(last.kind);
  return info.group == Group::kHost || (info.phase == Phase::kWhole && last.kind != ActionKind::kForward);
}

MemoryKind KindOf(const BufferInstance& buffer, const Program& program, TensorSet gradients) {
  if (buffer.key.tensor == Tensor::kWorkspace) return MemoryKind::kWorkspace;
  if (buffer.key.tensor == Tensor::kWeights) return MemoryKind::kWeights;
  if (buffer.key.tensor == Tensor::kWeightGradients) return MemoryKind::kGradients;
  if (Contains(gradients, buffer.key.tensor)) return MemoryKind::kActivationGradients;
  if (InfoOf(program[static_cast<size_t>(buffer.first)].kind).operands == Operands::kOps) return MemoryKind::kRecomputed;
  return KeptForBackward(program[static_cast<size_t>(buffer.last)]) ? MemoryKind::kStored : MemoryKind::kWorkspace;
}

// The bytes that are live while each action runs.
std::vector<LiveBytes> LiveAtActions(const Program& program, const LayerGraph& graph, const MemoryPlan& memory) {
  const TensorSet gradients = GradientTensors(graph);
  std::vector<LiveBytes> live(program.size() + 1);  // at first an entry is the change at this action, later the sum of all
                                                    // changes up to it
  for (const BufferInstance& buffer : memory.buffers) {
    const auto kind = static_cast<size_t>(KindOf(buffer, program, gradients));
    live[static_cast<size_t>(buffer.first)][kind] += buffer.bytes;
    live[static_cast<size_t>(buffer.last) + 1][kind] -= buffer.bytes;
  }
  for (size_t i = 1; i < live.size(); ++i) {
    for (size_t kind = 0; kind < kMemoryKindCount; ++kind) live[i][kind] += live[i - 1][kind];
  }
  return live;
}

// Adds a point. Of several points in the same interval, only the largest is kept.
void AddPoint(const MemoryPoint& point, int64_t interval, std::vector<MemoryPoint>& points) {
  if (points.empty() || point.begin.value / interval > points.back().begin.value / interval) {
    points.push_back(point);
  } else if (TotalOf(point.live) > TotalOf(points.back().live)) {
    points.back().live = point.live;
  }
}

}  // namespace

const char* MemoryKindName(MemoryKind kind) { return kMemoryKinds[static_cast<size_t>(kind)].second; }
const char* MemoryKindId(MemoryKind kind) { return kMemoryKinds[static_cast<size_t>(kind)].first; }

Bytes TotalOf(const LiveBytes& live) { return std::accumulate(live.begin(), live.end(), Bytes(0)); }

absl::StatusOr<StageMemory> MemoryOf(const StagePlan& stage, const StageContext& context,
                                     const std::vector<ActionSpan>& times) {
  LYNX_ASSIGN_OR_RETURN(const MemoryPlan memory, FoldLiveness(stage.program, context));
  LYNX_CHECK(times.size() == stage.program.size());
  const std::vector<LiveBytes> live = LiveAtActions(stage.program, context.graph(), memory);
  StageMemory result;
  if (!stage.program.empty()) result.peak = live[static_cast<size_t>(memory.peak_action)];
  const auto set = [&](MemoryKind kind, Bytes bytes) { result.peak[static_cast<size_t>(kind)] += bytes; };
  set(MemoryKind::kPacking, stage.arena - memory.live_peak);
  set(MemoryKind::kWeights, stage.states.weights);
  set(MemoryKind::kGradients, stage.states.gradients);
  set(MemoryKind::kOptimizerStates, stage.states.optimizer);
  for (size_t i = 0; i < stage.program.size(); ++i) AddPoint({times[i].begin, live[i]}, 1, result.points);
  return result;
}

std::vector<MemoryPoint> Thinned(const std::vector<MemoryPoint>& points, Nanos step, size_t limit) {
  LYNX_CHECK(limit > 0);
  if (points.size() <= limit) return points;
  const int64_t interval = step.value / static_cast<int64_t>(limit) + 1;
  std::vector<MemoryPoint> thinned;
  for (const MemoryPoint& point : points) AddPoint(point, interval, thinned);
  return thinned;
}

Bytes MemoryLimitOf(const PlanRequest& request, const Plan& plan, int32_t stage) {
  const Bytes device = DeviceMemoryOfStage(request.cluster, plan.layout, stage);
  const Bytes activations = request.spec.resources.activation_memory_per_rank;
  const Bytes pinned = activations.value == 0 ? Bytes(0) : plan.stages[stage].states.total() + activations;
  if (device.value == 0) return pinned;
  return pinned.value == 0 ? device : std::min(device, pinned);
}

}  // namespace lynx
