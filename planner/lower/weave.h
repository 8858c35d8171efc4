// The phase of lowering that weaves a rank's program: 2 or 4 slots (passes of microbatches) run side by side as *strands*, so
// that one computes while another's collective is under way. Only the order of actions changes. Pure.
//
// A list scheduler builds the new order on a simulated clock, with the costs that the simulation uses. Whenever the compute
// stream is free, it takes, from the strands that can continue, the action that the tuning prefers. If no strand can continue,
// it runs recomputation or weight gradients, or waits for the collective under way. Collectives of the tensor-parallel group
// use their link one after another. A strand starts one only while fewer than four are under way or wait for the link; only the
// strand that began first may exceed this limit. What must keep its order: planner/lower/weave_graph.h.
//
// Weave tries several tunings: first in a rehearsal, which schedules the first passes of the program, then the most promising
// for the whole program. It takes the order with the least memory among those that are hardly slower than the fastest.
#ifndef LYNX_PLANNER_LOWER_WEAVE_H_
#define LYNX_PLANNER_LOWER_WEAVE_H_

#include <cstdint>
#include <optional>

#include "common/units.h"
#include "planner/cost/cost_model.h"
#include "planner/problem/stage_context.h"
#include "planner/program/action.h"

namespace lynx {

// The number of tunings that Weave tries. They are numbered from 0.
inline constexpr int32_t kWeaveTunings = 24;

struct WovenProgram {
  Program program;
  int32_t tuning = 0;  // number of the tuning that gave this order
};

// Returns the rank's woven program, with the number of strands of the context's layout (StrandsOf). With one strand, or if tp
// is 1, returns the program as it is. `limit` is the limit for the peak of live memory (a lower bound of the arena). If no
// order keeps the limit, returns the order with the smallest peak. The program must be valid, and the layout must be one that
// can be woven (CheckWeave).
WovenProgram Weave(const Program& program, const StageContext& context, const CostModel& costs,
                   std::optional<Bytes> limit = {});

// Returns the order that one tuning gives. This takes about a tenth of the time of Weave. It is for callers that weave many
// similar programs, and so know a good tuning.
Program WeaveAs(const Program& program, const StageContext& context, const CostModel& costs, int32_t tuning);

}  // namespace lynx

#endif  // LYNX_PLANNER_LOWER_WEAVE_H_
