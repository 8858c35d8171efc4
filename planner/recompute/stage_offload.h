// Offloading beside HEU: what of a stage waits in the host's memory, what is stored and what is recomputed, decided
// together and fast. HEU's fronts can hold offloading themselves (layer_pareto.h): then each layer offloads within its equal
// share of the host's memory and of the time for copies. Here the whole stage is looked at, and HEU's own solution is one
// of those that are tried.
//
// It rests on one thing: a copy takes next to no more time than its bytes over the link's rate, so for time and memory it
// matters how much leaves, hardly what. A byte of a microbatch that leaves gives back in_flight - resident bytes of
// memory. So offloading buys memory: HEU solves the stage with a budget that is larger by what is bought, and of what its
// policy stores leaves what makes it fit in least copy time, spread evenly over the layers, for a layer's copies have only
// a layer's pass to hide behind (lower_offload.h). Several amounts are tried, and none. Where everything stored may leave,
// it is on the device only for the microbatches on their way: so HEU also solves the stage as if no more were in flight.
// The best of all is then improved layer by layer and item by item (local_search.h).
//
// Pure; thread-safe but for the StageHeus (see there).
#ifndef LYNX_PLANNER_RECOMPUTE_STAGE_OFFLOAD_H_
#define LYNX_PLANNER_RECOMPUTE_STAGE_OFFLOAD_H_

#include <optional>

#include "planner/recompute/recompute_problem.h"
#include "planner/recompute/stage_heu.h"

namespace lynx {

struct OffloadSolution {
  StagePolicy policy;
  StageValue value;  // EvaluateStage's
  Nanos slowed;      // by which copies slow the ops beside them, per microbatch; no part of the value
};

// By which the policy's copies slow the ops beside them, per microbatch.
Nanos SlowedByCopies(const RecomputeProblem& problem, const StagePolicy& policy, int32_t copy_slowdown_permille);

// A policy of little exposed and slowed time that fits the problem's budgets. Never worse than HEU's, with or without
// offloading; nullopt if neither finds one that fits. `heu` is of WithoutOffloading(problem), `offloading` of the problem. An
// op takes `copy_slowdown_permille` thousandths of its time beside a copy (HostLink).
std::optional<OffloadSolution> BestWithOffloading(const StageHeu& heu, const StageHeu& offloading,
                                                  const RecomputeProblem& problem, int32_t copy_slowdown_permille);
// Device memory of the policy of least memory that is known: from here on BestWithOffloading finds one. The problem's
// budget is not read.
Bytes LeastBytesWithOffloading(const StageHeu& heu, const RecomputeProblem& problem);
// A quick estimate of the solution's value; `exposed` has what is slowed in it. As StageHeu::Estimate where nothing leaves.
StageValue EstimateWithOffloading(const StageHeu& heu, const RecomputeProblem& problem, Bytes budget,
                                  int32_t copy_slowdown_permille);

}  // namespace lynx

#endif  // LYNX_PLANNER_RECOMPUTE_STAGE_OFFLOAD_H_
