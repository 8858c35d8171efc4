// Phases: how a step's time is divided, computed from the trace of its actions. The planner's simulation uses the same rules,
// so that predicted and measured times are comparable.
// planner/program/hidden_time.h says which part of recomputation is hidden.
//
// Pure values and functions; thread-safe.
#ifndef LYNX_WORKER_ENGINE_PHASES_H_
#define LYNX_WORKER_ENGINE_PHASES_H_

#include <cstdint>
#include <vector>

#include "common/units.h"
#include "planner/program/action.h"

namespace lynx::worker {

// Times are of CLOCK_MONOTONIC.
struct ActionTrace {
  Nanos begin;
  Nanos end;
  Nanos transfer_begin, transfer_end;  // for start actions: while the transfer was in flight
};

// Time on the compute stream, by phase. The start of a transfer counts in the same phase as its wait. Exception: the start of
// the gradient norm's sum counts as optimizer, because it sums the squares.
struct StepPhases {
  Nanos forward, backward, weight, optimizer;
  Nanos recompute_hidden, recompute_exposed;
  Nanos tensor_wait, stall, data_parallel_wait, norm_wait;
  bool operator==(const StepPhases&) const = default;
};

// Returns for each wait action the index of its start, and -1 for all other actions. The program must be valid.
std::vector<int32_t> StartsOfWaits(const Program& program);

// The hidden part of the action at `index`. `hiding`: HidingStarts of the program.
Nanos HiddenTime(const std::vector<int32_t>& hiding, const std::vector<ActionTrace>& trace, size_t index);

StepPhases PhasesOf(const Program& program, const std::vector<int32_t>& hiding, const std::vector<ActionTrace>& trace);

}  // namespace lynx::worker

#endif  // LYNX_WORKER_ENGINE_PHASES_H_
