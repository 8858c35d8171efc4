// Simulation of one step: runs the programs of all pipeline ranks against their cost models. In this file, "stage" means a
// pipeline rank. Tensor- and data-parallel ranks of a stage are symmetric, so the simulation has one stage for all of them. The
// result has the step time, the time of each kind of work and wait, and the hidden and exposed recomputation. The simulation
// also finds deadlocks. Pure.
//
// Stages that share cores (planner/cost/core_sharing.h) slow each other down exactly while they compute at the same time.
//
// Rule for hidden recomputation (the engine's trace uses the same rule). Take the first wait after an R action; R, W and start
// actions before this wait are skipped. If the transfer of this wait was started before the R action, then the part of the R's
// time until the end of the transfer is hidden. Otherwise the R action is completely exposed. For example, an R that is
// followed by compute is exposed, and so is an R that is followed by the collective that it repeats.
//
// Time. Compute actions of a stage run one after another. The transfer of a collective begins when its stage starts it (its
// other members are symmetric). A transfer between stages begins when both stages have started it. A transfer of the world
// begins when all stages have started it. In a bidirectional pipeline, the reduction of a layer begins when both ranks that
// hold the layer have started it. Transfers of one group and direction run one after another; between two pipeline ranks, this
// includes the transfers of all their virtual stages. If a compute action begins while transfers of its stage are in flight,
// the action is slower (CostModel::OverlappedTime) as long as these transfers run. Transfers that begin in the middle of an
// action do not slow the action. Copies to the host and from the host are two channels that share a link: of two copies that
// overlap, the earlier one keeps its rate and the later one gets the rest (CostModel::CopyTime). Compute during a copy is
// slower by HostLink::op_slowdown_permille.
#ifndef LYNX_PLANNER_COST_SIMULATE_H_
#define LYNX_PLANNER_COST_SIMULATE_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "common/units.h"
#include "planner/cost/cost_model.h"
#include "planner/cost/stage_costs.h"
#include "planner/problem/stage_context.h"
#include "planner/program/action.h"

namespace lynx {

struct ActionSpan {
  Nanos begin, end;                    // on the compute stream; a start has begin = end
  Nanos transfer_begin, transfer_end;  // only for start actions: begin and end of the transfer
  Nanos hidden;                        // only for recompute actions: length of the hidden part, which starts at `begin`
};

struct StageTimes {
  Nanos forward, backward, weight, optimizer;
  Nanos recompute_hidden, recompute_exposed;
  Nanos communication_exposed;    // time of waiting for collectives and for copies to or from the host
  Nanos stall;                    // time of waiting for a neighbour stage
  Nanos core_wait;                // part of the compute times during which other ranks of the plan used the cores
  Nanos end;                      // when the stage's program ends
  std::vector<ActionSpan> spans;  // for each action
};

struct Simulation {
  Nanos step;
  std::vector<StageTimes> stages;
};

// Returns FailedPrecondition if there is a deadlock; the error names, for each blocked stage, the action where it waits and
// the stages for which it waits. Also returns FailedPrecondition if a wait has no start before it, if a send and its receive
// have different microbatches, or if the virtual stage of a transfer is not on the rank or has no neighbour on another rank.
// `programs` and `contexts` must have one entry per stage.
absl::StatusOr<Simulation> Simulate(const std::vector<Program>& programs, const std::vector<StageContext>& contexts,
                                    const StageCosts& costs);
// Simulates a step in which all stages have the same costs.
absl::StatusOr<Simulation> Simulate(const std::vector<Program>& programs, const std::vector<StageContext>& contexts,
                                    const CostModel& costs);

}  // namespace lynx

#endif  // LYNX_PLANNER_COST_SIMULATE_H_
