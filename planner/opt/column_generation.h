// The prices that make a StageChain's bound best, by Kelley's cutting planes (1960): each chain found bounds what prices
// can reach, and a small linear program over the chains so far says which prices to try next. Deterministic.
#ifndef LYNX_PLANNER_OPT_COLUMN_GENERATION_H_
#define LYNX_PLANNER_OPT_COLUMN_GENERATION_H_

#include "planner/opt/stage_chain.h"

namespace lynx {

struct PricedBound {
  bool feasible = false;  // as in ChainBound
  double bound = 0;       // the best found
  StagePrices prices;     // which attain it
};

// Starts at `first` and stops as soon as the bound is above `enough`.
PricedBound BestPrices(const StageChain& chain, const ChainScope& scope, const StagePrices& first, double enough);

}  // namespace lynx

#endif  // LYNX_PLANNER_OPT_COLUMN_GENERATION_H_
