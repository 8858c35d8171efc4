// PlanTable: a plan as one readable screen, for `lynxctl plan` and summaries. Pure.
#ifndef LYNX_PLANNER_PLAN_TABLE_H_
#define LYNX_PLANNER_PLAN_TABLE_H_

#include <string>

#include "planner/plan.h"

namespace lynx {

// Plain ASCII, aligned columns, a final newline:
//
//   tp2 pp2 dp1 (4 ranks), micro-batch 1 x 16 microbatches, recompute auto
//
//   stage  layers     stored   recomputed ops    hidden  exposed  peak      limit     states
//       0  embed 0-2  all      -                 0 ns    0 ns     28.9 MiB  40.0 MiB  20.1 MiB
//   ...
//   stage 0, layers 0-2: store all
//   ...
//   predicted: step 2.18 s, 1878 tokens/s, bubble 6.6%, ...
//
// Stored counts tensors over the stage's layers, of those that could be recomputed; recomputed ops are those of one
// microbatch, by window (recompute_policy.h). Times are per step.
std::string PlanTable(const Plan& plan);

}  // namespace lynx

#endif  // LYNX_PLANNER_PLAN_TABLE_H_
