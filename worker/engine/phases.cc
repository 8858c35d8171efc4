#include "worker/engine/phases.h"

#include <algorithm>

#include "common/check.h"
#include "planner/program/hidden_time.h"

namespace lynx::worker {
namespace {

// Returns the phase to which the time of a communication action is added. `group`: the group of the action.
Nanos& WaitOf(StepPhases& phases, Group group) {
  switch (group) {
    case Group::kExpert:
    case Group::kTensor: return phases.tensor_wait;
    case Group::kNextStage:
    case Group::kPreviousStage:
    case Group::kHost: return phases.stall;
    case Group::kExpertData:
    case Group::kData: return phases.data_parallel_wait;
    case Group::kWorld: return phases.norm_wait;
    case Group::kNone: break;
  }
  LYNX_CHECK(!"not a communication action");
  return phases.stall;
}

bool Matches(const Action& start, const Action& wait) {
  return start.kind == InfoOf(wait.kind).counterpart && start.stage == wait.stage && start.segment == wait.segment &&
         start.microbatch == wait.microbatch && start.layer == wait.layer;
}

}  // namespace

std::vector<int32_t> StartsOfWaits(const Program& program) {
  std::vector<int32_t> starts(program.size(), -1);
  std::vector<int32_t> open;  // starts whose wait has not come yet
  for (int32_t i = 0; i < static_cast<int32_t>(program.size()); ++i) {
    const Phase phase = InfoOf(program[i].kind).phase;
    if (phase == Phase::kStart) open.push_back(i);
    if (phase != Phase::kWait) continue;
    const auto start = std::find_if(open.begin(), open.end(), [&](int32_t s) { return Matches(program[s], program[i]); });
    LYNX_CHECK(start != open.end());
    starts[i] = *start;
    open.erase(start);
  }
  return starts;
}

Nanos HiddenTime(const std::vector<int32_t>& hiding, const std::vector<ActionTrace>& trace, size_t index) {
  if (hiding[index] < 0) return Nanos(0);
  return HiddenPart(trace[index].begin, trace[index].end, trace[static_cast<size_t>(hiding[index])].transfer_end);
}

StepPhases PhasesOf(const Program& program, const std::vector<int32_t>& hiding, const std::vector<ActionTrace>& trace) {
  LYNX_CHECK(hiding.size() == program.size() && trace.size() == program.size());
  StepPhases phases;
  for (size_t i = 0; i < program.size(); ++i) {
    const Nanos time = trace[i].end - trace[i].begin;
    switch (program[i].kind) {
      case ActionKind::kForward: phases.forward += time; break;
      case ActionKind::kBackward: phases.backward += time; break;
      case ActionKind::kWeight: phases.weight += time; break;
      case ActionKind::kRecompute: {
        const Nanos hidden = HiddenTime(hiding, trace, i);
        phases.recompute_hidden += hidden;
        phases.recompute_exposed += time - hidden;
        break;
      }
      case ActionKind::kNormStart:
      case ActionKind::kOptimizer: phases.optimizer += time; break;
      default: WaitOf(phases, InfoOf(program[i].kind).group) += time;
    }
  }
  return phases;
}

}  // namespace lynx::worker
