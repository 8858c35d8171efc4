// Simulation of one step: the programs of all stages against a cost model. Tensor- and data-parallel ranks of a stage
// are symmetric, so a stage stands for all of them. Gives step time, where time went, hidden and exposed
// recomputation, and finds deadlocks. Pure.
//
// Rule for hidden recomputation (the engine's trace uses the same): the part of an R action's time that passes before
// the transfer completes which the next wait action (skipping R and W actions) waits for. An R followed by compute is
// exposed whole.
#ifndef LYNX_PLANNER_SIMULATE_H_
#define LYNX_PLANNER_SIMULATE_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "common/units.h"
#include "planner/action.h"
#include "planner/cost_model.h"
#include "planner/stage_context.h"

namespace lynx {

struct ActionSpan {
  Nanos begin, end;           // on the compute stream
  Nanos transfer_end;         // start actions: when the transfer completes
};

struct StageTimes {
  Nanos forward, backward, weight, optimizer;
  Nanos recompute_hidden, recompute_exposed;
  Nanos communication_exposed;  // waiting for collectives
  Nanos stall;                  // waiting for a neighbour stage
  Nanos end;                    // when the stage's program ends
  std::vector<ActionSpan> spans;  // per action
};

struct Simulation {
  Nanos step;
  std::vector<StageTimes> stages;
};

// FailedPrecondition on deadlock: lists, for each stage that cannot go on, the action it waits at and for whom.
absl::StatusOr<Simulation> Simulate(const std::vector<Program>& programs, const std::vector<StageContext>& contexts,
                                    const CostModel& costs);

}  // namespace lynx

#endif  // LYNX_PLANNER_SIMULATE_H_
