// Simulation of one step: runs the programs of all pipeline ranks, here called stages, against their cost models. Tensor- and
// data-parallel ranks of a stage are symmetric, so the simulation has one stage for all of them. The result has the step time,
// the time of each kind of work and wait, and the hidden and exposed recomputation. The simulation also finds deadlocks. Pure.
//
// Stages that share cores (planner/cost/core_sharing.h) slow each other down exactly while they compute at the same time.
//
// Rule for hidden recomputation (the engine's trace uses the same rule). Take the next wait action after an R action, skipping
// R, W and start actions. If the start of the transfer of this wait comes before the R, the part of the R's time until the end
// of the transfer is hidden. Any other R is exposed completely, for example an R that is followed by compute, or by the
// collective that it repeats.
//
// Time. Compute actions of a stage run one after another. A collective's transfer begins when its stage starts it (its other
// members are symmetric). A transfer between stages begins when both stages have started it. A transfer of the world begins
// when all stages have started it. In a bidirectional pipeline, the reduction of a layer begins when both ranks that hold the
// layer have started it. Transfers of one group and direction run one after another. Between two pipeline ranks, this includes
// the transfers of all their virtual stages. A compute action that begins while transfers of its stage are in flight is slowed
// (CostModel::OverlappedTime) as long as they run; transfers that begin in the middle of an action do not slow it. Copies to
// the host and from the host are two channels that share a link: of two copies that overlap, the earlier one keeps its rate and
// the later one gets the rest (CostModel::CopyTime). Compute during a copy is slowed by HostLink::op_slowdown_permille.
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
  Nanos begin, end;                    // on the compute stream; equal for starts
  Nanos transfer_begin, transfer_end;  // start actions: while the transfer is in flight
  Nanos hidden;                        // recompute actions: length of the hidden part, which starts at `begin`
};

struct StageTimes {
  Nanos forward, backward, weight, optimizer;
  Nanos recompute_hidden, recompute_exposed;
  Nanos communication_exposed;    // waiting for collectives and for copies to or from the host
  Nanos stall;                    // waiting for a neighbour stage
  Nanos core_wait;                // part of the compute times: time during which other ranks of the plan used the cores
  Nanos end;                      // when the stage's program ends
  std::vector<ActionSpan> spans;  // per action
};

struct Simulation {
  Nanos step;
  std::vector<StageTimes> stages;
};

// Returns FailedPrecondition on deadlock, and lists for each blocked stage the action where it waits and the stages for which
// it waits. Also FailedPrecondition if a wait has no start before it, or if a send meets a receive of another microbatch. Needs
// one program and one context per stage.
absl::StatusOr<Simulation> Simulate(const std::vector<Program>& programs, const std::vector<StageContext>& contexts,
                                    const StageCosts& costs);
// All stages have the same costs.
absl::StatusOr<Simulation> Simulate(const std::vector<Program>& programs, const std::vector<StageContext>& contexts,
                                    const CostModel& costs);

}  // namespace lynx

#endif  // LYNX_PLANNER_COST_SIMULATE_H_
