// Computes how many bytes of each kind a stage's memory holds during the step. See timeline.h.
#include <algorithm>

#include "common/check.h"
#include "common/status.h"
#include "planner/program/memory_model.h"
#include "planner/report/timeline.h"

namespace lynx {
namespace {

struct KindNames {
  const char *id, *name;
};

// The index is the MemoryKind.
constexpr std::array<KindNames, kMemoryKindCount> kMemoryKinds = {{
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

}  // namespace

const char* MemoryKindName(MemoryKind kind) { return kMemoryKinds[static_cast<size_t>(kind)].name; }
const char* MemoryKindId(MemoryKind kind) { return kMemoryKinds[static_cast<size_t>(kind)].id; }

Bytes TotalOf(const LiveBytes& live) {
  Bytes total;
  for (const Bytes bytes : live) total += bytes;
  return total;
}

absl::StatusOr<StageMemory> MemoryOf(const StagePlan& stage, const StageContext& context, const StageTimes& times) {
  LYNX_ASSIGN_OR_RETURN(const MemoryPlan memory, FoldLiveness(stage.program, context));
  LYNX_CHECK(times.spans.size() == stage.program.size());
  const std::vector<LiveBytes> live = LiveAtActions(stage.program, context.graph(), memory);
  StageMemory result;
  if (!stage.program.empty()) result.peak = live[static_cast<size_t>(memory.peak_action)];
  const auto set = [&](MemoryKind kind, Bytes bytes) { result.peak[static_cast<size_t>(kind)] += bytes; };
  set(MemoryKind::kPacking, stage.arena - memory.live_peak);
  set(MemoryKind::kWeights, stage.states.weights);
  set(MemoryKind::kGradients, stage.states.gradients);
  set(MemoryKind::kOptimizerStates, stage.states.optimizer);
  for (size_t i = 0; i < stage.program.size(); ++i) {
    const Nanos begin = times.spans[i].begin;
    if (result.points.empty() || result.points.back().begin < begin) {
      result.points.push_back({begin, live[i]});
    } else if (TotalOf(live[i]) > TotalOf(result.points.back().live)) {
      result.points.back().live = live[i];
    }
  }
  return result;
}

std::vector<MemoryPoint> Thinned(const std::vector<MemoryPoint>& points, Nanos step, size_t limit) {
  LYNX_CHECK(limit > 0);
  if (points.size() <= limit) return points;
  const int64_t interval = step.value / static_cast<int64_t>(limit) + 1;
  std::vector<MemoryPoint> thinned;
  for (const MemoryPoint& point : points) {
    if (thinned.empty() || point.begin.value / interval > thinned.back().begin.value / interval) {
      thinned.push_back(point);
    } else if (TotalOf(point.live) > TotalOf(thinned.back().live)) {
      thinned.back().live = point.live;
    }
  }
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
