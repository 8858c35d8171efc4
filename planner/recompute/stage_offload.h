// Adds offloading to HEU. It decides, for a whole stage and fast, what the stage keeps in the host's memory, what it stores and
// what it recomputes. HEU's fronts can also contain offloading (layer_pareto.h), but then each layer offloads within its equal
// share of the host's memory and of the time for copies. HEU's own solution is one of the solutions that this code tries.
//
// The method uses one fact: a copy takes hardly more time than its bytes divided by the link's rate. So time and memory depend
// on how many bytes are offloaded, and hardly on which bytes. Each offloaded byte of a microbatch frees in_flight - resident
// bytes of device memory. So offloading is like buying memory. HEU solves the stage with a budget that is larger by the bought
// amount. Then the code offloads as many of the tensors that HEU's policy stores as are needed to fit, with the least copy
// time. It spreads the copies evenly over the layers, because the copies of one layer can only be hidden behind the pass of one
// layer (lower_offload.h). It tries several amounts, and also no offloading. If all stored tensors can be offloaded, they are
// on the device only for the `resident` microbatches that are being copied. So HEU also solves the stage as if only these
// microbatches were in flight. At the end, local search improves the best solution layer by layer and item by item
// (local_search.h).
//
// Pure. Thread-safe, but not for the same StageHeu (see stage_heu.h).
#ifndef LYNX_PLANNER_RECOMPUTE_STAGE_OFFLOAD_H_
#define LYNX_PLANNER_RECOMPUTE_STAGE_OFFLOAD_H_

#include <optional>

#include "planner/recompute/recompute_problem.h"
#include "planner/recompute/stage_heu.h"

namespace lynx {

struct OffloadSolution {
  StagePolicy policy;
  StageValue value;  // computed by EvaluateStage
  Nanos slowed;      // see SlowedByCopies; `value` does not include it
};

// Time, per microbatch, by which the policy's copies slow down the ops that run at the same time.
Nanos SlowedByCopies(const RecomputeProblem& problem, const StagePolicy& policy, int32_t copy_slowdown_permille);

// Returns a policy that fits the problem's budgets and whose exposed time plus SlowedByCopies is small. It is never worse than
// the policies of `heu` and `offloading`. nullopt: no policy that fits is found. `heu` must be for WithoutOffloading(problem),
// and `offloading` for the problem itself. While a copy runs, an op takes `copy_slowdown_permille` thousandths of its normal
// time (HostLink).
std::optional<OffloadSolution> BestWithOffloading(const StageHeu& heu, const StageHeu& offloading,
                                                  const RecomputeProblem& problem, int32_t copy_slowdown_permille);
// Returns the smallest budget of device memory for which BestWithOffloading finds a policy. It also finds one for every larger
// budget. This function ignores the budget in `problem`.
Bytes LeastBytesWithOffloading(const StageHeu& heu, const RecomputeProblem& problem);
// A quick estimate of the solution's value. `exposed` of the estimate includes the slowdown by copies. If nothing is offloaded,
// the value is that of StageHeu::Estimate.
StageValue EstimateWithOffloading(const StageHeu& heu, const RecomputeProblem& problem, Bytes budget,
                                  int32_t copy_slowdown_permille);

}  // namespace lynx

#endif  // LYNX_PLANNER_RECOMPUTE_STAGE_OFFLOAD_H_
