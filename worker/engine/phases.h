// Phases: where a step's time went, from the trace of its actions. The same rules as in the planner's simulation, so
// that predicted and measured figures mean the same.
//
// Hidden recomputation: the part of an R action's time that passes before the transfer completes which the next wait
// action (skipping R and W actions) waits for. An R followed by compute is exposed whole.
//
// Pure values and functions; thread-safe.
#ifndef LYNX_WORKER_ENGINE_PHASES_H_
#define LYNX_WORKER_ENGINE_PHASES_H_

#include <cstdint>
#include <vector>

#include "common/units.h"
#include "planner/program/action.h"

namespace lynx {

// CLOCK_MONOTONIC.
struct ActionTrace {
  Nanos begin;
  Nanos end;
  Nanos transfer_begin, transfer_end;  // start actions: while the transfer was in flight
};

// Time on the compute stream. A start's own time counts where its wait's does, but the gradient norm's start, which
// sums the squares, counts as optimizer.
struct StepPhases {
  Nanos forward, backward, weight, optimizer;
  Nanos recompute_hidden, recompute_exposed;
  Nanos tensor_wait, stall, data_parallel_wait, norm_wait;
  bool operator==(const StepPhases&) const = default;
};

// For each wait action the index of its start; -1 for every other action. The program must be valid.
std::vector<int32_t> StartsOfWaits(const Program& program);

// The hidden part of the R action at `index`.
Nanos HiddenTime(const Program& program, const std::vector<int32_t>& starts, const std::vector<ActionTrace>& trace,
                 int32_t index);

StepPhases PhasesOf(const Program& program, const std::vector<int32_t>& starts, const std::vector<ActionTrace>& trace);

}  // namespace lynx

#endif  // LYNX_WORKER_ENGINE_PHASES_H_
