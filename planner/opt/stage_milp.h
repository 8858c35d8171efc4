// The MILP of a stage chooses, for each layer, a BackwardPart (a node) and a KeptPart among those in a ChainScope.
//
//   y[l,a] in {0,1}    layer l has node a                             sum over a = 1
//   z[l,e] in {0,1}    and kept part e                                sum over e of a set = sum of its y
//   w[l,u,v] >= 0      layer l has face u below, layer l - 1 face v above       sum of w of a face = sum of y with this face
//   T                  transient memory                               T >= sum of w x (transient memory of u and v)
//   budget             held memory of the z's + T <= budget
//   stall, copies      work of the z's - excess <= capacity           host memory of the z's <= its budget
//
// Nodes of a layer that have the same effect on a neighbouring layer have the same face towards it (ChainNode). The goal is
// the least exposed time of y, z, w and the excesses, or the least memory with a limit on this exposed time. If y and z are
// integers, this is the original problem: each layer's choice is one policy for all of its items, and w chooses the pair of
// these choices. The MILP leaves out only parts and pairs that are in no solution within the limit (stage_chain.h), and
// policies for which layer_choices.h has a part that is at least as good. Not thread-safe.
#ifndef LYNX_PLANNER_OPT_STAGE_MILP_H_
#define LYNX_PLANNER_OPT_STAGE_MILP_H_

#include <limits>
#include <optional>

#include "planner/opt/milp.h"
#include "planner/opt/stage_chain.h"

namespace lynx {

enum class StageGoal : uint8_t { kExposed, kMemory };

struct StageMilpResult {
  LinearProgram::Status status = LinearProgram::Status::kStopped;
  std::optional<StagePolicy> policy;
  double bound = 0;  // lower bound for the goal's value
  int64_t nodes = 0;
  int32_t columns = 0;
  bool too_large = false;  // true if the MILP needs more columns than allowed; then it was not solved, and `status` is kStopped
};

struct StageMilpLimits {
  double seconds = 0;  // approximate time limit
  int32_t columns = std::numeric_limits<int32_t>::max();
};

// Finds the policy of the scope that is best for `goal`, among those with at most `limit` exposed time.
StageMilpResult SolveStageMilp(const StageChain& chain, const ChainScope& scope, const StagePrices& prices, Nanos limit,
                               StageGoal goal, const StageMilpLimits& limits);

}  // namespace lynx

#endif  // LYNX_PLANNER_OPT_STAGE_MILP_H_
