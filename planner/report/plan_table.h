// PlanTable writes a plan as one readable screen, for `lynxctl plan` and summaries. This file also has functions for the tables
// and figures on this screen. Pure.
#ifndef LYNX_PLANNER_REPORT_PLAN_TABLE_H_
#define LYNX_PLANNER_REPORT_PLAN_TABLE_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "planner/plan/plan.h"
#include "planner/report/table.h"

namespace lynx {

// The plan in plain ASCII, with aligned columns and a newline at the end:
//
//   tp2 pp2 dp1 (4 ranks), micro-batch 1 x 16 microbatches, recompute auto
//
//   stage  layers     stored   recomputed ops    hidden  exposed      peak     limit    states
//       0  embed 0-2  all      -                   0 ns     0 ns  28.9 MiB  40.0 MiB  20.1 MiB
//   ...
//   stage 0, layers 0-2: store all
//   ...
//   predicted: step 2.18 s, 1878 tokens/s, bubble 6.6%, ...
//
// Stored: how many of the recomputable tensors of the stage's layers are stored. Recomputed ops: the ops
// that are recomputed for one microbatch, by window (recompute_policy.h). Times are for one step. If recompute is opt, a table
// of proofs follows the policies.
std::string PlanTable(const Plan& plan);

// One row per stage. The function does not read the programs.
Table StageTable(const Plan& plan);
// One row for each sequence of consecutive layers of a stage with the same policy.
Table PolicyTable(const Plan& plan);

// Sums over the stages, and figures derived from them.
struct PlanFigures {
  Nanos hidden, exposed, stall;  // hidden and exposed recomputation; time of waiting for neighbour stages
  Bytes peak;                    // the largest arena of a stage
  int64_t tokens = 0;            // tokens per step, over all replicas
  int64_t tokens_per_second = 0;
};
PlanFigures FiguresOf(const Plan& plan);
// The stage whose devices allocate the most memory, for model states and arena.
size_t FullestStage(const Plan& plan);

// The model in a few words, such as "gpt with 8 layers, hidden 256, 8 heads, sequence 128".
std::string ModelText(const ModelSpec& model);
// What a page says of a plan beside its title: names and values of layout, ranks, micro-batch and recompute.
std::vector<std::pair<std::string, std::string>> LayoutFacts(const Plan& plan);
// The layers of a stage, such as "embed 0-3" or "4-7 head".
std::string LayersText(const Plan& plan, size_t stage);
// Text such as "12.3%". It is computed with integers, so every platform prints the same.
std::string PercentText(int64_t part, int64_t whole);

}  // namespace lynx

#endif  // LYNX_PLANNER_REPORT_PLAN_TABLE_H_
