// Column generation for the prices that give a StageChain its best bound (Kelley's cutting planes, 1960). Each chain
// found limits what prices can reach; a small linear program over all chains found so far gives the next prices to try.
// Deterministic.
#ifndef LYNX_PLANNER_OPT_COLUMN_GENERATION_H_
#define LYNX_PLANNER_OPT_COLUMN_GENERATION_H_

#include "planner/opt/stage_chain.h"

namespace lynx {

struct PricedBound {
  bool feasible = false;  // as in ChainBound
  double bound = 0;       // the best found
  StagePrices prices;     // prices that attain it
};

// Starts at `first`; stops as soon as the bound is above `enough`.
PricedBound BestPrices(const StageChain& chain, const ChainScope& scope, const StagePrices& first, double enough);

}  // namespace lynx

#endif  // LYNX_PLANNER_OPT_COLUMN_GENERATION_H_
