// Offloading on top of HEU: decides together, and fast, what a stage keeps in the host's memory, what it stores and what it
// recomputes. HEU's fronts can also contain offloading (layer_pareto.h), but then each layer offloads within its equal share of
// the host's memory and of the time for copies. This code considers the whole stage. HEU's own solution is one of the solutions
// that it tries.
//
// The method rests on one fact: a copy takes hardly more time than its bytes divided by the link's rate. So time and memory
// depend on how many bytes are offloaded, and hardly on which. Each offloaded byte of a microbatch frees in_flight - resident
// bytes of device memory. So offloading can be seen as buying memory. HEU solves the stage with a budget that is larger by the
// bought amount. Of the tensors that HEU's policy stores, the code then offloads enough to fit, with the least copy time. It
// spreads the copies evenly over the layers, because a layer's copies can only be hidden behind a layer's pass
// (lower_offload.h). It tries several amounts, and also no offloading. If everything stored can be offloaded, stored tensors
// are on the device only for the `resident` microbatches that are being copied; so HEU also solves the stage as if only these
// microbatches were in flight. Local search then improves the best solution layer by layer and item by item (local_search.h).
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
  Nanos slowed;      // see SlowedByCopies; not part of `value`
};

// Time by which the policy's copies slow down the ops that run at the same time, per microbatch.
Nanos SlowedByCopies(const RecomputeProblem& problem, const StagePolicy& policy, int32_t copy_slowdown_permille);

// Returns a policy that fits the problem's budgets and whose exposed time plus SlowedByCopies is small. It is never worse than
// the policies of `heu` and `offloading`. nullopt if no policy that fits is found. `heu` must solve WithoutOffloading(problem),
// `offloading` the problem itself. While a copy runs, an op takes `copy_slowdown_permille` thousandths of its normal time
// (HostLink).
std::optional<OffloadSolution> BestWithOffloading(const StageHeu& heu, const StageHeu& offloading,
                                                  const RecomputeProblem& problem, int32_t copy_slowdown_permille);
// Device memory of the policy with the least device memory that is found. BestWithOffloading finds a policy for any budget that
// is at least this value. The problem's budget is not used.
Bytes LeastBytesWithOffloading(const StageHeu& heu, const RecomputeProblem& problem);
// A quick estimate of the solution's value; its `exposed` includes the slowdown. The same value as StageHeu::Estimate if
// nothing is offloaded.
StageValue EstimateWithOffloading(const StageHeu& heu, const RecomputeProblem& problem, Bytes budget,
                                  int32_t copy_slowdown_permille);

}  // namespace lynx

#endif  // LYNX_PLANNER_RECOMPUTE_STAGE_OFFLOAD_H_
