// Simulation of one step: the programs of all pipeline ranks, here called stages, against their cost models. Tensor-
// and data-parallel ranks of a stage are symmetric, so a stage stands for all of them. Gives step time, where time
// went, hidden and exposed recomputation, and finds deadlocks. Pure.
//
// Where stages share cores (planner/cost/core_sharing.h), those that compute at the same time slow each other, and no
// longer than they do.
//
// Rule for hidden recomputation (the engine's trace uses the same): the part of an R action's time that passes before
// the transfer completes which the next wait action (skipping R, W and start actions) waits for, if that transfer's
// start stands before the R. Any other R is exposed whole: one followed by compute, or by a collective of its own.
//
// Time. Compute actions of a stage run one after another. A collective's transfer begins when its stage starts it
// (its other members are symmetric); a transfer between stages when both have started it; the world's when all stages
// have; a bidirectional pipeline's reduction of a layer when both ranks that hold it have. Transfers of one group and
// direction run one after another; between two pipeline ranks, those of all their virtual stages. A compute action
// that begins while transfers of its stage are in flight is slowed (CostModel::OverlappedTime) for as long as those
// run; transfers that begin in the middle of an action do not slow it. Copies to the host and from it are two
// channels that share a link: of two that overlap, the earlier keeps its rate and the later has what that leaves
// (CostModel::CopyTime). What computes beside copies is slowed by the host link's factor.
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
  Nanos hidden;                        // recompute actions: from `begin` on, how much of it is hidden
};

struct StageTimes {
  Nanos forward, backward, weight, optimizer;
  Nanos recompute_hidden, recompute_exposed;
  Nanos communication_exposed;    // waiting for collectives and for copies to or from the host
  Nanos stall;                    // waiting for a neighbour stage
  Nanos core_wait;                // within the times of compute: what other ranks of the plan took of the cores
  Nanos end;                      // when the stage's program ends
  std::vector<ActionSpan> spans;  // per action
};

struct Simulation {
  Nanos step;
  std::vector<StageTimes> stages;
};

// FailedPrecondition on deadlock: lists, for each stage that cannot go on, the action it waits at and for whom. Also
// when a wait has no start before it, or a send meets a receive of another microbatch. One program and context per
// stage.
absl::StatusOr<Simulation> Simulate(const std::vector<Program>& programs, const std::vector<StageContext>& contexts,
                                    const StageCosts& costs);
// Every stage with the same costs.
absl::StatusOr<Simulation> Simulate(const std::vector<Program>& programs, const std::vector<StageContext>& contexts,
                                    const CostModel& costs);

}  // namespace lynx

#endif  // LYNX_PLANNER_COST_SIMULATE_H_
