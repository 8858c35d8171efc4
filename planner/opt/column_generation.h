// Column generation finds the prices with which StageChain gives its best lower bound (Kelley's cutting planes, 1960). Each
// chain found so far is an upper bound for the lower bound at any prices. A small linear program over all these chains gives
// the next prices to try. Deterministic.
#ifndef LYNX_PLANNER_OPT_COLUMN_GENERATION_H_
#define LYNX_PLANNER_OPT_COLUMN_GENERATION_H_

#include "planner/opt/stage_chain.h"

namespace lynx {

struct PricedBound {
  bool feasible = false;  // as in ChainBound
  double bound = 0;       // the best bound found
  StagePrices prices;     // prices with which StageChain gives this bound
};

// Starts with the prices `first`, and stops as soon as the bound is above `enough`.
PricedBound BestPrices(const StageChain& chain, const ChainScope& scope, const StagePrices& first, double enough);

}  // namespace lynx

#endif  // LYNX_PLANNER_OPT_COLUMN_GENERATION_H_
