// Offloading on top of HEU: decides together, and fast, what a stage keeps in the host's memory, what it stores and what
// it recomputes. HEU's fronts can also contain offloading (layer_pareto.h), but then each layer offloads within its equal
// share of the host's memory and of the time for copies. This code considers the whole stage, and HEU's own solution is
// one of those that it tries.
//
// The method rests on one fact: a copy takes hardly more time than its bytes divided by the link's rate. So for time and
// memory it matters how many bytes leave, and hardly which. Each offloaded byte of a microbatch frees in_flight -
// resident bytes of memory. So offloading buys memory. HEU solves the stage with a budget that is larger by the bought
// amount. Of what its policy stores, the code then offloads enough to fit, with the least copy time, and spreads it
// evenly over the layers, because a layer's copies can hide only behind a layer's pass (lower_offload.h). It tries
// several amounts, and none. If everything stored may be offloaded, it is on the device only for the microbatches on
// their way; so HEU also solves the stage as if no more microbatches were in flight. Local search then improves the best
// solution layer by layer and item by item (local_search.h).
//
// Pure; thread-safe except for the StageHeus (see there).
#ifndef LYNX_PLANNER_RECOMPUTE_STAGE_OFFLOAD_H_
#define LYNX_PLANNER_RECOMPUTE_STAGE_OFFLOAD_H_

#include <optional>

#include "planner/recompute/recompute_problem.h"
#include "planner/recompute/stage_heu.h"

namespace lynx {

struct OffloadSolution {
  StagePolicy policy;
  StageValue value;  // EvaluateStage's
  Nanos slowed;      // time by which copies slow the ops beside them, per microbatch; not part of the value
};

// Time by which the policy's copies slow the ops beside them, per microbatch.
Nanos SlowedByCopies(const RecomputeProblem& problem, const StagePolicy& policy, int32_t copy_slowdown_permille);

// A policy with little exposed and slowed time that fits the problem's budgets. Never worse than HEU's, with or without
// offloading; nullopt if neither finds one that fits. `heu` must solve WithoutOffloading(problem), `offloading` the
// problem itself. An op takes `copy_slowdown_permille` thousandths of its time beside a copy (HostLink).
std::optional<OffloadSolution> BestWithOffloading(const StageHeu& heu, const StageHeu& offloading,
                                                  const RecomputeProblem& problem, int32_t copy_slowdown_permille);
// Device memory of the known policy with the least memory; BestWithOffloading finds a policy for any budget that is at
// least this. The problem's budget is not used.
Bytes LeastBytesWithOffloading(const StageHeu& heu, const RecomputeProblem& problem);
// A quick estimate of the solution's value; its `exposed` includes the slowdown. As StageHeu::Estimate if nothing is
// offloaded.
StageValue EstimateWithOffloading(const StageHeu& heu, const RecomputeProblem& problem, Bytes budget,
                                  int32_t copy_slowdown_permille);

}  // namespace lynx

#endif  // LYNX_PLANNER_RECOMPUTE_STAGE_OFFLOAD_H_
