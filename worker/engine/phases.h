// Divides a step's time into phases, from the trace of its actions. The planner's simulation uses the same rules, so predicted
// and measured times can be compared. planner/program/hidden_time.h says which part of recomputation is hidden.
//
// Pure values and functions; thread-safe.
#ifndef LYNX_WORKER_ENGINE_PHASES_H_
#define LYNX_WORKER_ENGINE_PHASES_H_

#include <cstdint>
#include <vector>

#include "common/units.h"
#include "planner/program/action.h"

namespace lynx::worker {

// When an action ran. The times are on CLOCK_MONOTONIC.
struct ActionTrace {
  Nanos begin;
  Nanos end;
  Nanos transfer_begin, transfer_end;  // for start actions: the begin and the end of the transfer
};

// The time on the compute stream, divided by phase. tensor_wait: the wait for collectives that end segments, also in the expert
// group. data_parallel_wait: the wait for transfers between ranks that hold the same weights, also the weights of experts. The
// start of a transfer counts in the same phase as its wait, with one exception: the start of the gradient norm's sum counts as
// optimizer, because it computes the sum of squares.
struct StepPhases {
  Nanos forward, backward, weight, optimizer;
  Nanos recompute_hidden, recompute_exposed;
  Nanos tensor_wait, stall, data_parallel_wait, norm_wait;
  bool operator==(const StepPhases&) const = default;
};

// Returns for each wait action the index of its start, and -1 for all other actions. The program must be valid.
std::vector<int32_t> StartsOfWaits(const Program& program);

// Returns the hidden part of the time of the action at `index`. `hiding`: the result of HidingStarts for the program.
Nanos HiddenTime(const std::vector<int32_t>& hiding, const std::vector<ActionTrace>& trace, size_t index);

StepPhases PhasesOf(const Program& program, const std::vector<int32_t>& hiding, const std::vector<ActionTrace>& trace);

}  // namespace lynx::worker

#endif  // LYNX_WORKER_ENGINE_PHASES_H_
